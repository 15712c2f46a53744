"""Where a frame lies against the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STILL_PX = 1.5  # a smaller offset is the reconstruction's own to find


@dataclass(frozen=True)
class Placement:
    """Where a frame lies: `frame px = matrix (reference px - pivot) + pivot + shift`, (y, x)."""

    shift_px: tuple[float, float] = (0.0, 0.0)
    matrix: tuple[tuple[float, float], tuple[float, float]] = ((1.0, 0.0), (0.0, 1.0))
    pivot_px: tuple[float, float] = (0.0, 0.0)

    def at(self, position: np.ndarray) -> np.ndarray:
        """Reference positions (..., 2) as positions in the frame."""
        pivot = np.asarray(self.pivot_px)
        return (position - pivot) @ np.asarray(self.matrix).T + pivot + np.asarray(self.shift_px)

    def offset_px(self, rows: slice, columns: slice) -> tuple[int, int]:
        """Whole pixels from a window of the reference to that of the frame, by its centre.

        Zero for what is nearly still: moving a window costs a line of pixels at the edge.
        """
        centre = np.array([(part.start + part.stop - 1) / 2 for part in (rows, columns)])
        moved = self.at(centre) - centre
        if np.abs(moved).max() <= STILL_PX:
            return 0, 0
        down, right = np.rint(moved).astype(int).tolist()
        return down, right
