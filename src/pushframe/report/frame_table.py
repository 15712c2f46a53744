"""The table of frames: how each moved, how much of it was used, and how well it was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..align import Registration
from ..burst import Burst
from ..motion_table import FrameMotion
from .table import DASH, format_number

MEANINGS = {
    "Frame": "The first is the reference, on whose grid the product lies.",
    "Exposure": "By it the frame was divided.",
    "Gain": "True over stated exposure, as estimated, the reference's as the unit: its values were "
    "divided by it.",
    "Motion (px)": "What brings the frame onto the reference, mean over the tiles of the scene: "
    "down, right. Pixels are those of the frames.",
    "Spread (px)": "How much the motion differs between tiles, one standard deviation.",
    "Bend (px)": "How far the motion fitted to the whole scene differs over it, rms.",
    "Error (px)": "How well that fit knows the motion within a tile, one standard deviation.",
    "Correlation": "Of the frame's image with the reference's when it was first placed: 1 is full "
    "agreement.",
    "Used (%)": "Share of its valid pixels that entered.",
    "Held out: z²": "Squared error over predicted variance when the frame was held out, mean: "
    "1 is ideal, more means bars too short.",
    "Remark": "Why a frame was left out, or pixels of it, or how else it was placed.",
}


@dataclass(frozen=True)
class FrameTable:
    """Headings, what each means, and a row of texts for each frame."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """The headings, each with its meaning."""
        return [(heading, MEANINGS[heading]) for heading in self.headings]


def frame_table(
    facts: Burst,
    frames: Sequence[FrameMotion],
    alignment: Sequence[Registration],
    z2: Mapping[str, float],
) -> FrameTable:
    """The table, frames left out at the end; without columns of which nothing is known.

    z2: of the frames that were held out.
    """
    placed = {line.frame: line for line in alignment}
    moved = {frame.name: frame for frame in frames}
    exposures = dict(zip(facts.names, facts.exposure.flatten().tolist(), strict=True))
    rows = [
        _row(name, exposures.get(name), moved.get(name), placed.get(name), z2.get(name))
        for name in dict.fromkeys([*moved, *placed])
    ]
    columns = dict(zip(MEANINGS, zip(*rows, strict=True), strict=True))
    known = {heading: texts for heading, texts in columns.items() if set(texts) != {DASH}}
    return FrameTable(tuple(known), tuple(zip(*known.values(), strict=True)))


def _row(
    name: str,
    exposure: float | None,
    frame: FrameMotion | None,
    line: Registration | None,
    z2: float | None,
) -> tuple[str, ...]:
    """The texts of one frame, in the order of `MEANINGS`."""
    shift = None if frame is None else frame.shift_px
    used = 0.0 if frame is None or frame.used is None else 100 * frame.used
    return (
        name,
        DASH if exposure is None else f"{exposure:.4g}",
        format_number(None if frame is None else frame.gain, 4),
        DASH if shift is None else ", ".join(format_number(value, 3) for value in shift),
        DASH if frame is None or shift is None else format_number(frame.spread_px, 3),
        format_number(None if frame is None else frame.bend_px, 3),
        format_number(None if frame is None else frame.error_px, 4),
        format_number(None if line is None else line.correlation, 2),
        format_number(used, 1),
        format_number(z2, 2),
        "; ".join(_remarks(frame, line)) or DASH,
    )


def _remarks(frame: FrameMotion | None, line: Registration | None) -> list[str]:
    """What was said of a frame when it was placed, and when the image was made."""
    said = ["" if line is None else line.why, "" if frame is None else frame.remark]
    return [text for text in said if text]
