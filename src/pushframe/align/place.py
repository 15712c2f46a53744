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

from ..checks import LEFT_OUT, require
from ..io import BurstSource, Placement
from .agree import Line, Registration, agreed, pair
from .predict import predict
from .search import search
from .windows import measure

NEAR_PX = 16.0  # a frame found further away than this is looked at again where it lies


class Aligned(NamedTuple):
    """A burst whose frames lie on the reference to within a pixel or so, and the table of all."""

    source: BurstSource
    table: tuple[Registration, ...]


def align(source: BurstSource) -> Aligned:
    """The burst with its frames placed on the reference, those left out that cannot be.

    The table has a line for each frame, the reference first. Notes say what was left out.
    """
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
    require(
        source.count == 1 or len(kept) > 1,
        "frames that show the ground of the reference",
        "; ".join(f"{line.frame}: {line.why}" for line in table[1:4]),
        "choose frames that overlap, or another `reference`",
    )
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
