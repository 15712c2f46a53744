"""The report of a product: what went in, what came out, and whether its error bars are honest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..align import Registration
from ..baselines import bicubic
from ..burst import Burst
from ..heldout import HeldOut, Unchecked
from ..left_out import percent
from ..metrics import LEVELS
from ..motion_table import FrameMotion
from ..residuals import Witness, residual_maps
from ..tally import Tally
from .encode import colour_table, colour_uri, grey_uri, pooled, residual_uri, stretch_of
from .frame_table import frame_table
from .layers import Layers
from .packages import load_package
from .parts import colour_bar, frame_cards, viewer_data, write_page
from .svg import Coverage, coverage_svg, log_histogram_svg
from .table import format_number

UPSAMPLED = "upsampled reference"
MOSTLY = 0.99  # of the pixels
VALUED = 3  # high-res images of the page whose values can be read: upsampled, mean, std


@dataclass(frozen=True, eq=False)
class Report:
    """All that the report of one product shows.

    facts: exposures, levels, noise law and names of the burst. window: the frames of the part
    shown, a batch of one; mean, std, samples: of the same part, DN, and origin_hpx its first
    pixel; moved_px: (N, 2), whole px by which the frames of that part were moved in reading.
    shape: of the whole product. tallies: of its whole bands. alignment: how the frames were
    placed, those left out among them. witness: the tile whose residuals are shown.
    """

    name: str
    scale: int
    method: str
    facts: Burst
    window: Burst
    mean: np.ndarray
    std: np.ndarray
    samples: np.ndarray
    origin_hpx: tuple[int, int]
    moved_px: np.ndarray
    shape: tuple[int, int]
    tallies: Mapping[str, Tally]
    frames: Sequence[FrameMotion]
    alignment: Sequence[Registration]
    check: HeldOut | Unchecked
    provenance: Mapping[str, str]
    witness: Witness | None = None

    @property
    def held_out(self) -> HeldOut | None:
        """The check, where it was made."""
        return self.check if isinstance(self.check, HeldOut) else None


def write_report(path: str | Path, report: Report) -> None:
    """Write the report as one self-contained HTML file, whole or not at all."""
    write_page(path, "report.html.j2", report_context(report))


def report_context(report: Report) -> dict[str, Any]:
    """Everything the template asks for; images and errors in raw DN of the reference frame."""
    layers = _layers(report)
    stretch = stretch_of(report.mean)
    std_top = stretch_of(report.std, 0.0, 99.0)[1]
    data = viewer_data(layers, report.method, stretch, std_top, colour_table())
    check = report.held_out
    z2 = {} if check is None else {frame.name: frame.mean_z2 for frame in check.frames}
    return {
        "name": report.name,
        "method": report.method,
        "count": report.facts.count,
        "frame_size": tuple(size // report.scale for size in report.shape),
        "size": report.shape,
        "shown_size": report.mean.shape,
        "scale": report.scale,
        "has_truth": False,
        "barred": bool(layers.std),
        "verdict": report.check.verdict,
        "tiles": _tiles(report),
        "data": data | {"left": "method-0"},
        "frames": frame_cards(report.facts, layers, stretch),
        "registered": layers.shifts_px is not None,
        "panels": _panels(report, stretch),
        "residuals": _residuals(report),
        **_honesty(report),
        "table": frame_table(report.facts, report.frames, report.alignment, z2),
        "provenance": {str(key): str(value) for key, value in report.provenance.items()},
    }


def _layers(report: Report) -> Layers:
    """Frames, upsampled reference and result of the part shown."""
    burst = report.window
    gain, black = float(report.facts.gain[0, 0]), float(report.facts.black_level)
    frames = burst.frames.masked_fill(~burst.valid, torch.nan)[0]
    shifts = [frame.shift_px for frame in report.frames]  # from the files, not from the window
    barred = bool(np.isfinite(report.std).any())
    return Layers(
        truth=None,
        frames=frames.double().cpu().numpy() * gain + black,
        mean={
            UPSAMPLED: bicubic(burst, report.scale).mean[0].double().cpu().numpy() * gain + black,
            report.method: report.mean,
        },
        std={report.method: report.std} if barred else {},
        scale=report.scale,
        shifts_px=None if None in shifts else np.array(shifts) + report.moved_px,
        origin_hpx=report.origin_hpx,
    )


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    """The figures at the top: what, number, unit."""
    used = sum(1 for frame in report.frames if frame.used)
    given = max(report.facts.count, len(report.alignment))
    tiles = [
        (f"of {given} frames used", str(used), ""),
        ("resolution", f"×{report.scale}", ""),
    ]
    mean = report.tallies["mean"]
    signal = mean.quantile(0.5) - float(report.facts.black_level)
    signal = signal if mean.positive > MOSTLY else math.nan  # the quantile is that of positive ones
    if signal > 0:
        tiles.append(("median signal", f"{signal:.4g}", "DN"))
    if report.tallies["std"].known:
        bar = report.tallies["std"].quantile(0.5)
        share = f", {100 * bar / signal:.2g}% of it" if signal > 0 else ""
        tiles.append((f"median error bar{share}", f"{bar:.3g}", "DN"))
    if report.tallies["samples"].known:
        seen = report.tallies["samples"].mean
        tiles.append(("observations a pixel", f"{seen:.1f}", ""))
    if report.held_out is not None:
        at_90 = f"{100 * report.held_out.at_90:.1f}"
        tiles.append(("of held-out pixels in the 90% interval", at_90, "%"))
    return tiles


def _panels(report: Report, stretch: tuple[float, float]) -> list[dict[str, Any]]:
    """Result, error bar (where there is one) and observations as pictures.

    The maps are means of s x s pixels: what alternates from pixel to pixel would make false
    stripes at any other size than its own.
    """
    alt = f"Image by {report.method}"
    panels = [{"title": "Result", "alt": alt, "uri": grey_uri(report.mean, *stretch), "bar": None}]
    if np.isfinite(report.std).any():
        std = pooled(report.std, report.scale)
        top = stretch_of(std, 0.0, 99.0)[1]
        alt = "Standard deviation of the result"
        panels.append(_map("Error bar", alt, std, top, colour_table(), "DN"))
    samples = pooled(report.samples, report.scale)
    top = max(stretch_of(samples, 0.0, 100.0)[1], 1.0)
    alt = "Effective number of observations"
    panels.append(_map("Observations", alt, samples, top, colour_table("viridis"), "observations"))
    return panels


def _map(
    title: str, alt: str, values: np.ndarray, top: float, colours: np.ndarray, unit: str
) -> dict[str, Any]:
    """A panel of values from 0 to `top`, with its colour bar."""
    uri, bar = colour_uri(values, top, colours), colour_bar(top, colours, unit)
    return {"title": title, "alt": alt, "uri": uri, "bar": bar}


def _residuals(report: Report) -> dict[str, Any] | None:
    """Maps of residuals of a few frames in one tile, and which tile; None where none are known."""
    maps = residual_maps(report.witness)
    if not maps or report.witness is None:
        return None
    rows, columns = report.witness.tile
    return {
        "rows": (rows.start, rows.stop - 1),
        "columns": (columns.start, columns.stop - 1),
        "maps": [
            {
                "name": one.name,
                "reference": one.index == 0,
                "left": "none" if not one.share else percent(one.share),
                "rms": format_number(one.rms if math.isfinite(one.rms) else None, 2),
                "uri": residual_uri(one.z, one.left),
            }
            for one in maps
        ],
    }


def _honesty(report: Report) -> dict[str, Any]:
    """The coverage curve of the held-out frames and the histogram of the error bars."""
    markup = load_package("markupsafe").Markup
    coverage = histogram = None
    check = report.held_out
    if check is not None:
        curve = Coverage(check.coverage, [frame.coverage for frame in check.frames])
        inside = "pixels inside the interval"
        text = coverage_svg(LEVELS, {"held-out frames": curve}, {"held-out frames": 0}, inside)
        coverage = markup(text)
    edges, counts = report.tallies["std"].histogram
    if counts.any():
        histogram = markup(log_histogram_svg(edges, counts, "error bar, DN"))
    return {"coverage": coverage, "histogram": histogram, "check": check}
