"""The report of a product: what went in, what came out, and whether its error bars are honest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..align import Registration
from ..baselines import bicubic
from ..burst import Burst
from ..heldout import HeldOut
from ..metrics import LEVELS
from ..motion_table import FrameMotion
from ..tally import Tally
from .encode import colour_table, colour_uri, grey_uri, stretch_of
from .layers import Layers
from .packages import load_package
from .parts import colour_bar, frame_cards, viewer_data, write_page
from .svg import Coverage, coverage_svg, log_histogram_svg
from .table import DASH, format_number

UPSAMPLED = "upsampled reference"
VALUED = 3  # high-res images of the page whose values can be read: upsampled, mean, std


@dataclass(frozen=True, eq=False)
class Report:
    """All that the report of one product shows.

    facts: exposures, levels, noise law and names of the burst. window: the frames of the part
    shown, a batch of one; mean, std, samples: of the same part, DN, and origin_hpx its first
    pixel. shape: of the whole product. tallies: of its whole bands. alignment: how the frames
    were placed, those left out among them. check: None where it could not be made.
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
    shape: tuple[int, int]
    tallies: Mapping[str, Tally]
    frames: Sequence[FrameMotion]
    alignment: Sequence[Registration]
    check: HeldOut | None
    provenance: Mapping[str, str]


def write_report(path: str | Path, report: Report) -> None:
    """Write the report as one self-contained HTML file, whole or not at all."""
    write_page(path, "report.html.j2", report_context(report))


def report_context(report: Report) -> dict[str, Any]:
    """Everything the template asks for; images and errors in raw DN of the reference frame."""
    layers = _layers(report)
    stretch = stretch_of(report.mean)
    std_top = stretch_of(report.std, 0.0, 99.0)[1]
    warm, cool = colour_table(), colour_table("viridis")
    barred = bool(np.isfinite(report.std).any())
    data = viewer_data(layers, report.method, stretch, std_top, warm) | {"left": "method-0"}
    samples_top = max(float(np.nanmax(report.samples)), 1.0)
    return {
        "name": report.name,
        "method": report.method,
        "count": report.facts.count,
        "frame_size": tuple(size // report.scale for size in report.shape),
        "size": report.shape,
        "shown_size": report.mean.shape,
        "scale": report.scale,
        "has_truth": False,
        "verdict": None if report.check is None else report.check.verdict,
        "tiles": _tiles(report),
        "data": data,
        "frames": frame_cards(report.facts, layers, stretch),
        "registered": layers.shifts_px is not None,
        "panels": _panels(report, stretch, (std_top, warm), (samples_top, cool)),
        "std_bar": colour_bar(std_top, warm) if barred else None,
        "samples_bar": colour_bar(samples_top, cool, "observations"),
        **_honesty(report),
        "rows": _rows(report),
        "provenance": {str(key): str(value) for key, value in report.provenance.items()},
    }


def _layers(report: Report) -> Layers:
    """Frames, upsampled reference and result of the part shown."""
    burst = report.window
    gain, black = float(report.facts.gain[0, 0]), float(report.facts.black_level)
    frames = burst.frames.masked_fill(~burst.valid, torch.nan)[0]
    shifts = [frame.shift_px for frame in report.frames]
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
        shifts_px=None if None in shifts else np.array(shifts),
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
    if report.tallies["std"].known:
        median = report.tallies["std"].quantile(0.5)
        tiles.append(("median error bar", f"{median:.3g}", "DN"))
    if report.tallies["samples"].known:
        tiles.append(("observations a pixel", f"{report.tallies['samples'].mean:.1f}", ""))
    if report.check is not None:
        tiles.append(
            ("of held-out pixels in the 90% interval", f"{100 * report.check.at_90:.1f}", "%")
        )
    return tiles


def _panels(
    report: Report,
    stretch: tuple[float, float],
    std: tuple[float, np.ndarray],
    samples: tuple[float, np.ndarray],
) -> list[dict[str, str]]:
    """Result, error bar (where there is one) and observations as pictures."""
    panels = [("Result", f"Image by {report.method}", grey_uri(report.mean, *stretch))]
    if np.isfinite(report.std).any():
        panels.append(
            ("Error bar", "Standard deviation of the result", colour_uri(report.std, *std))
        )
    seen = colour_uri(report.samples, *samples)
    panels.append(("Observations", "Effective number of observations", seen))
    return [{"title": title, "alt": alt, "uri": uri} for title, alt, uri in panels]


def _honesty(report: Report) -> dict[str, Any]:
    """The coverage curve of the held-out frames and the histogram of the error bars."""
    markup = load_package("markupsafe").Markup
    coverage = histogram = None
    if report.check is not None:
        curve = Coverage(report.check.coverage, [f.coverage for f in report.check.frames])
        inside = "pixels inside the interval"
        text = coverage_svg(LEVELS, {"held-out frames": curve}, {"held-out frames": 0}, inside)
        coverage = markup(text)
    std = report.tallies["std"]
    if std.counts.any():
        histogram = markup(log_histogram_svg(std.edges, std.counts, "error bar, DN"))
    return {"coverage": coverage, "histogram": histogram, "check": report.check}


def _rows(report: Report) -> list[list[tuple[str, str]]]:
    """The table of frames, those left out at the end: for each its cells, (heading, text)."""
    check = {} if report.check is None else {f.name: f.mean_z2 for f in report.check.frames}
    placed = {line.frame: line for line in report.alignment}
    moved = {frame.name: frame for frame in report.frames}
    exposures = dict(zip(report.facts.names, report.facts.exposure.flatten().tolist(), strict=True))
    rows = []
    for name in dict.fromkeys([*moved, *placed]):
        line, frame, exposure = placed.get(name), moved.get(name), exposures.get(name)
        shift = None if frame is None else frame.shift_px
        used = 0.0 if frame is None or frame.used is None else 100 * frame.used
        rows.append(
            [
                ("Frame", name),
                ("Exposure", DASH if exposure is None else f"{exposure:.4g}"),
                ("Offset (px)", _pair(None if line is None else line.offset_px, 1)),
                ("Shift (px)", _pair(shift, 3)),
                ("Spread (px)", DASH if frame is None or not shift else f"{frame.spread_px:.3f}"),
                ("Bend (px)", format_number(None if frame is None else frame.bend_px, 3)),
                ("Error (px)", format_number(None if frame is None else frame.error_px, 4)),
                ("Correlation", format_number(None if line is None else line.correlation, 2)),
                ("Used (%)", format_number(used, 1)),
                ("Held out: z²", format_number(check.get(name), 2)),
                ("Remark", DASH if line is None or not line.why else line.why),
            ]
        )
    return rows


def _pair(pair: Sequence[float] | None, digits: int) -> str:
    return DASH if pair is None else ", ".join(format_number(value, digits) for value in pair)
