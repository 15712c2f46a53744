"""The pixels of the detector that show no scene, found block by block in the frames' own grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from .defects import stuck_pixels
from .defiant import defiant_pixels
from .frames import Frame, read_window

BLOCK_PX = 256  # side of the blocks that are looked at
AROUND_PX = 16  # what is read about a block, so that its edges have neighbours


@dataclass(frozen=True, eq=False)
class Detector:
    """Stuck pixels of frames whose pixels (i, j) are all of one pixel (i, j) of a detector.

    A defect stays there while the scene moves, so that it is looked for before frames are placed.
    frames, masks: those of the burst as it was opened, be some left out later. days: whether they
    are of different days, hence products, whose pixels come from anywhere on a detector. The
    answer for a pixel does not depend on the window that is asked for.
    """

    frames: Sequence[Frame]
    masks: Sequence[Frame] = ()
    days: bool = False
    _found: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def stuck(self, rows: slice, columns: slice) -> np.ndarray:
        """Whether the pixels of a window of the frames' own grid are stuck, (h, w) bool.

        The window may reach beyond the frames.
        """
        stuck = np.zeros((rows.stop - rows.start, columns.stop - columns.start), bool)
        down, right = (
            range(max(part.start, 0) // BLOCK_PX, -(-min(part.stop, size) // BLOCK_PX))
            for part, size in zip((rows, columns), self._shape, strict=True)
        )
        for block in product(down, right):
            place = self._in_block(block) - np.array([rows.start, columns.start])
            inside = ((place >= 0) & (place < stuck.shape)).all(1)
            stuck[tuple(place[inside].T)] = True
        return stuck

    @property
    def _shape(self) -> tuple[int, int]:
        """The size of the largest frames."""
        height, width = np.max([frame.shape for frame in self.frames], axis=0).tolist()
        return height, width

    def _in_block(self, block: tuple[int, int]) -> np.ndarray:
        """The stuck pixels of a block, (P, 2), looked for once."""
        if block not in self._found:
            corner = np.array(block) * BLOCK_PX
            first = np.maximum(corner - AROUND_PX, 0)
            last = np.minimum(corner + BLOCK_PX + AROUND_PX, self._shape)
            rows, columns = (
                slice(*ends) for ends in zip(first.tolist(), last.tolist(), strict=True)
            )
            place = np.argwhere(self._looked_for(rows, columns)) + first
            inside = ((place >= corner) & (place < corner + BLOCK_PX)).all(1)
            self._found[block] = place[inside]
        return self._found[block]

    def _looked_for(self, rows: slice, columns: slice) -> np.ndarray:
        """Stuck pixels (h, w) by all that the frames show of a window."""
        stack = np.stack([read_window(frame, rows, columns) for frame in self.frames])
        if self.masks:
            seen = np.stack([read_window(mask, rows, columns) for mask in self.masks])
            stack[(seen == 0) | np.isnan(seen)] = np.nan
        stuck = stuck_pixels(stack)
        if not self.days:
            stack[:, stuck] = np.nan
            stuck |= defiant_pixels(stack)
        return stuck
