"""Overlapping tiles laid side by side without seams, a strip of finished lines at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

LARGEST_TILE_PX = 128  # larger frames are worked on in overlapping tiles
TILE_PX = 96
OVERLAP_PX = 16


def tile_corners(shape: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Overlapping tiles that cover a frame, row by row; the whole frame where it is small."""
    axes = []
    for size in shape:
        side = size if size <= LARGEST_TILE_PX else TILE_PX
        count = 1 + -(-(size - side) // (TILE_PX - OVERLAP_PX))
        starts = [round(k * (size - side) / max(count - 1, 1)) for k in range(count)]
        axes.append([slice(start, start + side) for start in starts])
    return ((rows, columns) for rows in axes[0] for columns in axes[1])


class Seams:
    """Tiles blended with weights that fall to zero at inner edges; finished lines are taken off.

    shape: of the low-res scene. Only the lines between the last one taken and the lowest tile are
    held: `row` is the first of them, high-res px.
    """

    def __init__(self, shape: tuple[int, int], scale: int, device: torch.device) -> None:
        self.shape, self.scale = shape, scale
        self.row = 0
        self.sums = torch.zeros(4, 0, scale * shape[1], device=device)
        self.has_var = True

    def lay(
        self, tile: tuple[slice, slice], mean: Tensor, var: Tensor | None, samples: Tensor
    ) -> None:
        """Add one tile's images, each (s*h, s*w); NaN counts as nothing."""
        rows, columns = (slice(self.scale * part.start, self.scale * part.stop) for part in tile)
        self._reach(rows.stop)
        place = (slice(rows.start - self.row, rows.stop - self.row), columns)
        ramps = [self._ramp(part, size, mean) for part, size in zip(tile, self.shape, strict=True)]
        weight = ramps[0][:, None] * ramps[1] * torch.isfinite(mean)
        self.has_var = self.has_var and var is not None
        layers = (mean, torch.zeros_like(mean) if var is None else var, samples)
        for total, layer in zip(self.sums[:3], layers, strict=True):
            total[place] += weight * torch.nan_to_num(layer)
        self.sums[3][place] += weight

    def take(self, until: int) -> tuple[int, Tensor, Tensor | None, Tensor]:
        """The lines up to `until`, high-res px, which no later tile touches.

        First line, mean, variance (None where a method has none) and samples, NaN where nothing
        is known.
        """
        first, height = self.row, until - self.row
        done, self.sums = self.sums[:, :height], self.sums[:, height:].clone()
        self.row = until
        weight = torch.where(done[3] > 0, done[3], torch.nan)
        mean, var, samples = done[:3] / weight
        return first, mean, var if self.has_var else None, torch.nan_to_num(samples)

    def _reach(self, until: int) -> None:
        """Hold lines up to `until`."""
        missing = until - self.row - self.sums.shape[1]
        if missing > 0:
            room = self.sums.new_zeros(4, missing, self.sums.shape[2])
            self.sums = torch.cat([self.sums, room], 1)

    def _ramp(self, part: slice, size: int, like: Tensor) -> Tensor:
        """Weights along one axis: a ramp over the overlap at each edge that has a neighbour."""
        length = self.scale * (part.stop - part.start)
        place = torch.arange(length, device=like.device) + 0.5
        reach = self.scale * OVERLAP_PX
        weight = torch.ones_like(place)
        if part.start > 0:
            weight = torch.minimum(weight, place / reach)
        if part.stop < size:
            weight = torch.minimum(weight, (length - place) / reach)
        return weight
