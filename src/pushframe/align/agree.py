"""What the windows of a frame agree on: its placement, or why it has none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..checks import counted
from ..io import Placement

MIN_CORRELATION = 0.5
MIN_AGREEING = 0.5  # share of the windows
AGREE_PX = 2.0  # windows agree within this, and 1 % of their distance
MAX_STRETCH = 0.02  # beyond it a frame has other pixels than the reference


@dataclass(frozen=True)
class Registration:
    """One line of the registration table, for people.

    offset_px: (dy, dx) from the reference's centre to the same ground in the frame, low-res px;
    predicted_px: the same by georeference, None without one. residual_px: what a window disagrees
    with it about, and correlation: both the windows' median; gain: that of the brightness over
    what exposures say. windows: those that agree, of those that could tell. why: the reason why a
    frame was left out, or how else it was placed.
    """

    frame: str
    used: bool
    offset_px: tuple[float, float] = (0.0, 0.0)
    predicted_px: tuple[float, float] | None = None
    residual_px: float | None = None
    correlation: float | None = None
    gain: float | None = None
    windows: tuple[int, int] = (0, 0)
    why: str = ""

    @property
    def agreement(self) -> float | None:
        """Correlation times the share of windows that agree; None where none could tell."""
        agreeing, telling = self.windows
        if telling == 0 or self.correlation is None:
            return None
        return self.correlation * agreeing / telling


class Line(NamedTuple):
    """A frame's placement, its line of the table, and whether a wider search may still help."""

    placement: Placement
    table: Registration
    searching: bool = False


class Matches(NamedTuple):
    """Windows of one frame: centres in the reference (P, 2), displacement there (P, 2), px.

    correlation: (P,). gain: brightness over what exposures say, (P,). overlapping: both show
    enough of the window. telling: and its contrast is above noise.
    """

    centre: np.ndarray
    moved: np.ndarray
    correlation: np.ndarray
    gain: np.ndarray
    overlapping: np.ndarray
    telling: np.ndarray


def agreed(found: Matches, start: Placement, name: str, shape: tuple[int, int]) -> Line:
    """The placement on which most windows agree, or why there is none."""
    centre = np.array([(size - 1) / 2 for size in shape])

    def line(place: Placement, used: bool, why: str, **rest: object) -> Registration:
        offset = pair(place.at(centre) - centre) or (0.0, 0.0)
        return Registration(name, used, offset, why=why, **rest)  # type: ignore[arg-type]

    total = int(found.telling.sum())
    if not found.overlapping.any():
        return Line(start, line(start, False, "no overlap with the reference"))
    if total == 0:
        why = "too little contrast to register by image: placed by its georeference, if any"
        return Line(start, line(start, True, why))
    good = found.telling & (found.correlation > MIN_CORRELATION)
    inside = _consensus(found.centre, found.moved, good)
    place, residual = _fit(found.centre[inside], found.moved[inside], (shape[0] / 2, shape[1] / 2))
    correlation = float(np.median(found.correlation[inside if inside.any() else found.telling]))
    count = int(inside.sum())
    facts: dict[str, object] = {"correlation": correlation, "windows": (count, total)}
    if count < MIN_AGREEING * total:
        why = f"clouded, or of another place: {count} of {counted(total, 'window')} agree"
        return Line(start, line(start, False, why, **facts), searching=True)
    if stretch(place) > MAX_STRETCH:
        return Line(start, line(start, False, "its pixels have another size", **facts))
    lit = found.gain[inside & np.isfinite(found.gain)]  # a window below black tells none
    facts |= {"residual_px": residual, "gain": float(np.median(lit)) if lit.size else None}
    return Line(place, line(place, True, "", **facts))


def _consensus(centre: np.ndarray, moved: np.ndarray, good: np.ndarray) -> np.ndarray:
    """The largest set of windows whose displacements agree with one of them, (P,) bool."""
    best = np.zeros_like(good)
    for k in np.flatnonzero(good):
        reach = AGREE_PX + 0.01 * np.abs(centre - centre[k]).max(1)
        near = good & (np.abs(moved - moved[k]).max(1) <= reach)
        if near.sum() > best.sum():
            best = near
    return best


def _fit(
    centre: np.ndarray, moved: np.ndarray, pivot: tuple[float, float]
) -> tuple[Placement, float]:
    """The affine placement of windows that agree, a translation if they are few; its residual."""
    if len(moved) == 0:
        return Placement(), math.inf
    spread = all(len(np.unique(centre[:, axis])) >= 3 for axis in (0, 1))
    if len(moved) >= 6 and spread:
        keep = np.ones(len(moved), bool)
        for _ in range(3):
            place = fit_affine(centre[keep], moved[keep], pivot)
            off = np.abs(place.at(centre) - centre - moved).max(1)
            keep = off <= max(0.25, 3 * float(np.median(off)))
    else:
        place = Placement(pair(np.median(moved, 0)) or (0.0, 0.0))
    off = place.at(centre) - centre - moved
    return place, float(np.sqrt(np.median((off**2).sum(1))))


def fit_affine(points: np.ndarray, moved: np.ndarray, pivot: tuple[float, float]) -> Placement:
    """The affine map nearest to displacements (P, 2) of points (P, 2), least squares."""
    system = np.column_stack([points - pivot, np.ones(len(points))])
    solution = np.linalg.lstsq(system, moved, rcond=None)[0]
    matrix = np.eye(2) + solution[:2].T
    rows = [(float(row[0]), float(row[1])) for row in matrix]
    return Placement((float(solution[2, 0]), float(solution[2, 1])), (rows[0], rows[1]), pivot)


def pair(values: np.ndarray | None) -> tuple[float, float] | None:
    """A vector (2,) as plain numbers."""
    return None if values is None else (float(values[0]), float(values[1]))


def stretch(place: Placement) -> float:
    """The largest difference between the pixels of a frame and those of the reference."""
    return float(np.abs(np.asarray(place.matrix) - np.eye(2)).max())
