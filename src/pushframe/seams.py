"""Overlapping tiles laid side by side without seams, a finished block at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_TILE_PX = 128  # larger frames are worked on in overlapping tiles
TILE_PX = 96
OVERLAP_PX = 16
SPREAD_TILES = 2  # that stand for a scene
TILES_AT_ONCE = 8  # on a CPU, which more do not make faster
MOST_AT_ONCE = 256
BYTES_A_PIXEL, FRAMES = 1024, 16  # of a high-res pixel of so many frames, while it is worked on
LEAST_VAR = 1e-14  # of normalised radiance
MEMORY_SHARE = 0.15  # of what a GPU has free; bends and networks take more

Tile = tuple[slice, slice]


def tiles_at_once(device: torch.device, frames: int, scale: int) -> int:
    """How many tiles of so many frames to work on together: a GPU is idle with few."""
    if device.type != "cuda":
        return TILES_AT_ONCE
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    tile = BYTES_A_PIXEL * (scale * TILE_PX) ** 2 * max(frames / FRAMES, 1)
    return min(max(int(MEMORY_SHARE * free / tile), TILES_AT_ONCE), MOST_AT_ONCE)


def tile_axes(shape: tuple[int, int]) -> tuple[list[slice], list[slice]]:
    """Overlapping parts that cover each axis of a frame; all of it where it is small."""
    axes = []
    for size in shape:
        side = size if size <= LARGEST_TILE_PX else TILE_PX
        count = 1 + -(-(size - side) // (TILE_PX - OVERLAP_PX))
        starts = [round(k * (size - side) / max(count - 1, 1)) for k in range(count)]
        axes.append([slice(start, start + side) for start in starts])
    return axes[0], axes[1]


def tile_corners(shape: tuple[int, int]) -> Iterator[Tile]:
    """Overlapping tiles that cover a frame, row by row; the whole frame where it is small."""
    down, across = tile_axes(shape)
    return ((rows, columns) for rows in down for columns in across)


def spread_tiles(shape: tuple[int, int]) -> list[Tile]:
    """Up to SPREAD_TILES at the thirds of the diagonal; the middle where they would overlap."""
    sides = [min(TILE_PX, size) for size in shape]
    apart = max(shape) >= (SPREAD_TILES + 2) * TILE_PX  # they are a third of what is left apart
    shares = [(k + 1) / (SPREAD_TILES + 1) for k in range(SPREAD_TILES)] if apart else [0.5]
    tiles = []
    for share in shares:
        starts = [round(share * (size - side)) for size, side in zip(shape, sides, strict=True)]
        rows, columns = (
            slice(start, start + side) for start, side in zip(starts, sides, strict=True)
        )
        tiles.append((rows, columns))
    return tiles


class Block(NamedTuple):
    """Finished pixels from (row, column) on, high-res px: images (h, w), NaN where unknown.

    var: None where a method has none.
    """

    row: int
    column: int
    mean: Tensor
    var: Tensor | None
    samples: Tensor


class Seams:
    """Tiles blended with weights that fall to zero at inner edges; each tile finishes a block.

    shape: of the low-res scene. The corners of the tiles cut the scene into blocks. A tile is cut
    into pieces where they meet, which wait until the last tile that reaches their block is laid:
    what is held is a few tiles, and for each column of tiles the overlap with the row below.
    """

    def __init__(self, shape: tuple[int, int], scale: int) -> None:
        self.shape, self.scale = shape, scale
        self.cells = [
            [
                slice(scale * start, scale * stop)
                for start, stop in pairwise([*(part.start for part in axis), size])
            ]
            for axis, size in zip(tile_axes(shape), shape, strict=True)
        ]
        self.waiting: dict[tuple[int, int], list[tuple[int, int, Tensor]]] = defaultdict(list)

    def lay(
        self, tiles: Sequence[Tile], mean: Tensor, var: Tensor | None, samples: Tensor
    ) -> Iterator[Block]:
        """Add the next tiles, row by row; each completes a block, that at its corner.

        Images are (B, s*h, s*w), on any device; NaN counts as nothing. Where tiles overlap they
        count by their ramps over their variances: at its edges a tile may know next to nothing, of
        which a small share would still be a seam in the error bars. Blocks are on the CPU.
        """
        down, right = (self._ramp([tile[axis] for tile in tiles], axis, mean) for axis in (0, 1))
        weight = down[:, :, None] * right[:, None] * torch.isfinite(mean)
        if var is not None:
            weight = torch.where(torch.isfinite(var), weight / var.clamp(min=LEAST_VAR), 0)
        layers = (mean, torch.zeros_like(mean) if var is None else var, samples)
        weighted = [weight * torch.nan_to_num(layer) for layer in layers]
        # all tiles at once: a GPU takes as long to hand over one
        for tile, sums in zip(tiles, torch.stack([*weighted, weight], 1).cpu(), strict=True):
            rows, columns = (slice(self.scale * p.start, self.scale * p.stop) for p in tile)
            own = self._cut(sums, rows, columns)
            row, column, blended, found, samples = self._take(own, sums)
            yield Block(row, column, blended, None if var is None else found, samples)

    def _cut(self, sums: Tensor, rows: slice, columns: slice) -> tuple[int, int]:
        """Hand the pieces of a tile to their blocks; which block its corner is."""
        met = [
            [k for k, cell in enumerate(cells) if part.start < cell.stop and cell.start < part.stop]
            for cells, part in zip(self.cells, (rows, columns), strict=True)
        ]
        for i in met[0]:
            for j in met[1]:
                place, origin = [], []
                for cell, part in ((self.cells[0][i], rows), (self.cells[1][j], columns)):
                    start, stop = max(cell.start, part.start), min(cell.stop, part.stop)
                    place.append(slice(start - part.start, stop - part.start))
                    origin.append(start - cell.start)
                # a copy, so that the rest of the tile is not held with it
                piece = sums[:, place[0], place[1]].clone()
                self.waiting[i, j].append((origin[0], origin[1], piece))
        return met[0][0], met[1][0]

    def _take(self, cell: tuple[int, int], like: Tensor) -> tuple[int, int, Tensor, Tensor, Tensor]:
        """The pieces of a block added up: where it begins, mean, variance and samples."""
        rows, columns = self.cells[0][cell[0]], self.cells[1][cell[1]]
        total = like.new_zeros(4, rows.stop - rows.start, columns.stop - columns.start)
        for down, right, piece in self.waiting.pop(cell):
            height, width = piece.shape[1:]
            total[:, down : down + height, right : right + width] += piece
        weight = torch.where(total[3] > 0, total[3], torch.nan)
        mean, var, samples = total[:3] / weight
        return rows.start, columns.start, mean, var, torch.nan_to_num(samples)

    def _ramp(self, parts: Sequence[slice], axis: int, like: Tensor) -> Tensor:
        """Weights along one axis, (B, length): a ramp over the overlap with each neighbour."""
        length, reach = like.shape[1 + axis], self.scale * OVERLAP_PX
        place = torch.arange(length, device=like.device) + 0.5
        first = torch.tensor([part.start == 0 for part in parts], device=like.device)
        last = torch.tensor([part.stop == self.shape[axis] for part in parts], device=like.device)
        rising = (place / reach).where(~first[:, None], 1)
        falling = ((length - place) / reach).where(~last[:, None], 1)
        return rising.minimum(falling).clamp(max=1)
