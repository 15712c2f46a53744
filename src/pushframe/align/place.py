"""Frames onto the reference to within a pixel: georeference or RPC first, then the image.

A frame is never resampled. It gets a `Placement`, by which windows of it are read whole pixels
away; what is left, within a pixel or so, is for the reconstruction to find. Windows spread over
the reference are registered to each frame, and a placement is what most of them agree on; a frame
on which they do not agree is left out, and said.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..checks import LEFT_OUT, REPLACED, require
from ..io import BurstSource, Placement
from .agree import Line, Registration, agreed, pair
from .predict import predict
from .search import search
from .windows import measure

POOR, GOOD = 0.8, 0.9  # median agreements: of a reference at fault, and of one that is none
MIN_VOTES = 3  # frames, from which on two can agree against one
TRIES = 2  # frames that are tried as references in its place
NEAR_PX = 16.0  # a frame found further away than this is looked at again where it lies


class Aligned(NamedTuple):
    """A burst whose frames lie on the reference to within a pixel or so, and the table of all."""

    source: BurstSource
    table: tuple[Registration, ...]


def align(source: BurstSource) -> Aligned:
    """The burst with its frames placed on the reference, those left out that cannot be.

    The table has a line for each frame, the reference first. Notes say what was left out. A
    reference with which the others disagree, while they agree with another frame, gives way to
    that one, and a note says so; BurstError if the files name it.
    """
    aligned = _aligned(source)
    aligned = _on_a_better_reference(source, aligned.table) or aligned
    require(
        source.count == 1 or aligned.source.count > 1,
        "frames that show the ground of the reference",
        "; ".join(f"{line.frame}: {line.why}" for line in aligned.table[1:4]),
        "choose frames that overlap, or another `reference`",
    )
    return aligned


def _on_a_better_reference(source: BurstSource, table: tuple[Registration, ...]) -> Aligned | None:
    """The burst on another reference, where the present one is at fault; None where it is not.

    Days differ from each other, and a window is one of the present reference.
    """
    usual = _typical(table[1:])
    fine = usual is not None and usual >= POOR
    if fine or source.count < MIN_VOTES or source.days or source.window is not None:
        return None
    old = source.reference
    brightness = np.abs(np.log(source.exposure / source.exposure[old]))
    for k in sorted(source.order[1:], key=lambda k: brightness[k])[:TRIES]:
        moved = dataclasses.replace(source, reference=k)
        found = _aligned(moved)
        place = moved.order.index(old)
        of_old = found.table[place].agreement
        others = _typical(found.table[1:place] + found.table[place + 1 :])
        if of_old is not None and of_old < POOR and others is not None and others > GOOD:
            return _replaced(source, found, of_old, others)
    return None


def _replaced(source: BurstSource, found: Aligned, of_old: float, others: float) -> Aligned:
    """The burst on its new reference, with a note; BurstError where the old one was asked for."""
    old, new = source.names[0], found.table[0].frame
    why = f"its windows agree with theirs by {of_old:.2f}, theirs with each other by {others:.2f}"
    require(
        not source.chosen,
        "a reference that shows what the other frames show",
        f"{old}, which is clouded or of another place ({why})",
        f"choose another with `reference`, such as {new}, or mask its clouds with `valid`",
    )
    said = (
        f"The reference {old} disagrees with the other frames (clouded, or of another place: "
        f"{why}): {new} {REPLACED}. "
        f"The product has the grid, the georeference and the DN of {new}. Choose one with "
        "`reference`."
    )
    moved = dataclasses.replace(found.source, said=(*found.source.said, said))
    return found._replace(source=moved)


def _typical(lines: Sequence[Registration]) -> float | None:
    """The median agreement with the reference, of the frames that can tell; None if none can."""
    known = [line.agreement for line in lines if line.agreement is not None]
    return float(np.median(known)) if known else None


def _aligned(source: BurstSource) -> Aligned:
    """The burst with its frames placed on the reference, be that good or bad."""
    whole = dataclasses.replace(source, window=None)
    placements, said = predict(whole)
    order = whole.order
    lines = _place(dataclasses.replace(whole, placements=placements), order[1:])
    lost = [k for k, line in lines.items() if line.searching]
    if lost:
        again = list(placements)
        for k, place in zip(lost, search(whole, lost), strict=True):
            again[k] = place
        found = _place(dataclasses.replace(whole, placements=tuple(again)), lost)
        lines |= {k: line for k, line in found.items() if line.table.used}
    height, width = whole.shape
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    table, final = [Registration(whole.names[0], True, why="the reference")], list(placements)
    for k in order[1:]:
        predicted = placements[k].at(centre) - centre if placements[k] != Placement() else None
        line = dataclasses.replace(lines[k].table, predicted_px=pair(predicted))
        table.append(line)
        final[k] = lines[k].placement
    kept = [k for k in range(source.count) if k == source.reference or lines[k].table.used]
    left = [f"{line.frame} {LEFT_OUT} {line.why}." for line in table if not line.used]
    placed = dataclasses.replace(source, placements=tuple(final), said=(*source.said, *said, *left))
    return Aligned(placed.keep(kept), tuple(table))


def common(source: BurstSource) -> BurstSource:
    """The part of an aligned burst that every frame covers."""
    height, width = source.frames[source.reference].shape
    edges = [(0, height), (0, width)]
    corners = np.array([[0, 0], [0, width - 1], [height - 1, 0], [height - 1, width - 1]], float)
    for place in source.placements:
        moved = place.at(corners) - corners
        for axis, size in enumerate((height, width)):
            low = math.ceil(max(0.0, -moved[:, axis].min()))
            high = math.floor(min(size, size - moved[:, axis].max()))
            edges[axis] = (max(edges[axis][0], low), min(edges[axis][1], high))
    (top, bottom), (left, right) = edges
    require(
        bottom > top and right > left,
        "an area that all frames cover",
        "none",
        "leave the frames out that lie apart, or keep the extent of the reference",
    )
    return dataclasses.replace(source, window=None).crop(slice(top, bottom), slice(left, right))


def _place(source: BurstSource, index: Sequence[int]) -> dict[int, Line]:
    """Frames `index` of the files placed by their images, from the placements that they have."""
    found = _round(source, index)
    far = [k for k, line in found.items() if line.table.used and _went_far(source, k, line)]
    if far:
        placements = list(source.placements)
        for k in far:
            placements[k] = found[k].placement
        found |= _round(dataclasses.replace(source, placements=tuple(placements)), far)
    return found


def _went_far(source: BurstSource, index: int, line: Line) -> bool:
    """Whether a frame was found so far from where it was looked for that windows saw little."""
    height, width = source.shape
    centre = np.array([height / 2, width / 2])
    before = source.placements[index].at(centre)
    return bool(np.abs(line.placement.at(centre) - before).max() > NEAR_PX)


def _round(source: BurstSource, index: Sequence[int]) -> dict[int, Line]:
    """One look at windows of frames `index`, and the placements on which they agree."""
    chosen = sorted({source.reference, *index})
    kept = source.keep(chosen)
    matches = {chosen[i]: found for i, found in zip(kept.order, measure(kept), strict=True)}
    return {
        k: agreed(matches[k], source.placements[k], source.frames[k].name, source.shape)
        for k in index
    }
