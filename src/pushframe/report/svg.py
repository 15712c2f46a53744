"""Curves as inline SVG: coverage against stated probability, z-scores against the normal law."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 460, 400
LEFT, RIGHT, TOP, BOTTOM = 66, 24, 14, 48
Z_LIMIT, Z_BINS = 4.0, 40


@dataclass(frozen=True)
class Coverage:
    """Measured share of pixels within each central interval, one value a level.

    `whole` over all pixels, `parts` one list for each sub-grid or each held-out frame.
    """

    whole: Sequence[float]
    parts: Sequence[Sequence[float]]


@dataclass(frozen=True)
class _Axes:
    """Data to SVG coordinates, x from x0 to x1 and y from 0 to y1."""

    x0: float
    x1: float
    y1: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x0) / (self.x1 - self.x0)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / self.y1 * (HEIGHT - TOP - BOTTOM),
        )

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        spots = (self.at(x, y) for x, y in points)
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)

    def grid(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        labels: tuple[str, str],
        names: Sequence[str] = (),
    ) -> str:
        """Grid lines, tick labels (percent on [0, 1], or `names`) and the titles of both axes."""
        out = []
        for index, x in enumerate(xs):
            across, _ = self.at(x, 0)
            out.append(f'<path class="grid" d="M{across:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
            text = f"{x:.0%}" if self.x1 == 1 else f"{x:g}".replace("-", "\N{MINUS SIGN}")
            text = names[index] if names else text
            out.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}">{text}</text>')
        for y in ys:
            _, down = self.at(self.x0, y)
            out.append(f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>')
            text = f"{y:.0%}" if self.x1 == 1 else f"{y:.1f}"
            out.append(f'<text class="y" x="{LEFT - 8}" y="{down + 4:.1f}">{text}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        out.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 6}">{labels[0]}</text>')
        centre = (TOP + HEIGHT - BOTTOM) / 2
        turn = f"translate(12 {centre}) rotate(-90)"
        out.append(f'<text class="axis" transform="{turn}">{labels[1]}</text>')
        return "".join(out)


def _svg(label: str, body: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'
    )


def _curve(axes: _Axes, xs: Sequence[float], ys: Sequence[float], series: int, kind: str) -> str:
    path = axes.path(zip(xs, ys, strict=True))
    return f'<path class="curve {kind} series-{series}" d="{path}"/>'


def coverage_svg(
    levels: Sequence[float],
    curves: Mapping[str, Coverage],
    series: Mapping[str, int],
    inside: str = "truth inside the interval",
) -> str:
    """Measured against stated coverage, the diagonal in grey; `series` numbers the colours."""
    axes = _Axes(0.0, 1.0, 1.0)
    ticks = (0, 0.25, 0.5, 0.75, 1)
    body = axes.grid(ticks, ticks, ("stated probability", inside))
    body += f'<path class="ideal" d="{axes.path([(0, 0), (1, 1)])}"/>'
    for name, curve in reversed(list(curves.items())):  # the first of the legend lies on top
        colour = series[name]
        lines = [_curve(axes, levels, part, colour, "thin") for part in curve.parts]
        lines.append(_curve(axes, levels, curve.whole, colour, "whole"))
        body += f"<g><title>{escape(name)}</title>{''.join(lines)}</g>"
    return _svg(f"Coverage curves of {', '.join(curves)}", body)


def _density(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability density of z in bins over [-4, 4]: (edges, heights); tails stay outside."""
    edges = np.linspace(-Z_LIMIT, Z_LIMIT, Z_BINS + 1)
    counts, _ = np.histogram(z, edges)
    return edges, counts / max(z.size, 1) / np.diff(edges)


def _steps(edges: np.ndarray, heights: np.ndarray) -> list[tuple[float, float]]:
    xs = np.repeat(edges, 2)
    ys = np.concatenate([[0], np.repeat(heights, 2), [0]])
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def z_histogram_svg(scores: Mapping[str, np.ndarray], series: Mapping[str, int]) -> str:
    """Densities of z = error / error bar, the first filled, over the standard normal."""
    densities = {name: _density(z) for name, z in scores.items()}
    peak = max([0.4, *(float(heights.max()) for _, heights in densities.values())])
    axes = _Axes(-Z_LIMIT, Z_LIMIT, 1.08 * peak)
    step = 0.1 if peak < 0.65 else 0.2 if peak < 1.3 else math.ceil(peak / 5)
    ticks = np.arange(0, 1.08 * peak, step).tolist()
    body = axes.grid(range(-4, 5), ticks, ("z = error / error bar", "density"))
    for place, (name, (edges, heights)) in reversed(list(enumerate(densities.items()))):
        kind = "filled" if place == 0 else "outline"
        path = axes.path(_steps(edges, heights))
        body += (
            f'<path class="curve {kind} series-{series[name]}" d="{path}">'
            f"<title>{escape(name)}</title></path>"
        )
    xs = np.linspace(-Z_LIMIT, Z_LIMIT, 121)
    bell = np.exp(-(xs**2) / 2) / math.sqrt(2 * math.pi)
    body += f'<path class="ideal" d="{axes.path(zip(xs, bell, strict=True))}"/>'
    return _svg(f"Histogram of z for {', '.join(scores)}, with the standard normal", body)


def log_histogram_svg(edges: np.ndarray, counts: np.ndarray, unit: str) -> str:
    """A histogram over bins of equal ratio: share of pixels in each, on a logarithmic axis.

    The bins shown hold all but one in a thousand pixels at either end.
    """
    share = counts / max(int(counts.sum()), 1)
    inner = np.flatnonzero((share.cumsum() > 0.001) & (share.cumsum() - share < 0.999))
    first, last = (int(inner[0]), int(inner[-1])) if inner.size else (0, 0)
    low, high = math.log10(edges[first]), math.log10(edges[last + 1])
    heights = share[first : last + 1]
    top = float(heights.max()) if heights.size else 1.0
    axes = _Axes(low, high, 1.08 * top or 1.0)
    ticks = [
        math.log10(digit * 10.0**power)
        for power in range(math.floor(low), math.ceil(high) + 1)
        for digit in (1, 2, 5)
        if low <= math.log10(digit * 10.0**power) <= high
    ]
    names = [f"{10**tick:.3g}" for tick in ticks]
    body = axes.grid(ticks, [], (unit, "share of pixels"), names)
    path = axes.path(_steps(np.log10(edges[first : last + 2]), heights))
    body += f'<path class="curve filled series-0" d="{path}"/>'
    return _svg(f"Histogram of {unit}", body)
