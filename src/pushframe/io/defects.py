"""Pixels that say nothing of the scene, found by their values: saturated ones, and stuck ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from ..checks import counted

LEAST_CLIPPED = 30  # pixels at the largest value, from which they may be saturated
JUST_BELOW = 0.01  # of that value: fewer pixels lie so near below it than at it
LEAST_FRAMES = 4  # that hold the same value at a pixel that is stuck
LIVELY_DN = 8.0  # by which most pixels about it change over the frames
NEAR_PX = 9  # the side of what is about it
BLOCK_PX = 5  # the side of a square of zeros: shadows at 0 have noise in between
MAX_ZEROS = 0.005  # share of all pixels


class Defects(NamedTuple):
    """What is wrong with the pixels looked at.

    saturation: the DN at which they pile up, None if nowhere; stuck: how many are; zeros: the
    share of them within blocks of zeros.
    """

    saturation: float | None = None
    stuck: int = 0
    zeros: float = 0.0

    def notes(self) -> Iterator[str]:
        """What to say of stuck pixels and of blocks of zeros."""
        if self.stuck:
            yield (
                f"{counted(self.stuck, 'pixel')} of the detector, of those looked at, hold one "
                "value in all frames: they count as stuck, and such pixels are left out."
            )
        if self.zeros > MAX_ZEROS:
            yield (
                f"{self.zeros:.1%} of the pixels are exactly 0, in blocks: they count as dark "
                "ground. If they mean nothing, say so: `gdal_edit.py -a_nodata 0` for each TIFF, "
                "or the key `valid`."
            )


def saturation_of(stacks: Iterable[np.ndarray]) -> float | None:
    """The DN at which pixels pile up, the largest of all frames; None if they do not.

    stacks: windows of the frames, (N, h, w) each, NaN where invalid.
    """
    top, at_top, below = -np.inf, 0, 0
    for stack in stacks:
        seen = stack[~np.isnan(stack)]
        highest = float(seen.max(initial=-np.inf))
        if highest > top:
            top, at_top, below = highest, 0, 0
        if highest == top:
            at_top += int((seen == top).sum())
            below += int(((seen < top) & (seen >= top - max(1.0, JUST_BELOW * top))).sum())
    piled = np.isfinite(top) and at_top >= LEAST_CLIPPED and at_top > below
    return top if piled else None


def stuck_pixels(stack: np.ndarray) -> np.ndarray:
    """Pixels (h, w) of a detector that hold one value in all frames (N, h, w), whatever they see.

    NaN where invalid. Most pixels about them change: calm water, shadows and roofs, of values that
    are clipped or agree by chance, have neighbours like themselves.
    """
    seen = (~np.isnan(stack)).sum(0)
    with np.errstate(invalid="ignore"):  # infinite pixels are told of elsewhere
        spread = np.fmax.reduce(stack) - np.fmin.reduce(stack)
    lively = torch.from_numpy((spread >= LIVELY_DN).astype(np.float32))[None]
    share = F.avg_pool2d(lively, NEAR_PX, 1, NEAR_PX // 2, count_include_pad=False)[0].numpy()
    stuck: np.ndarray = (seen >= LEAST_FRAMES) & (spread == 0) & (share >= 0.5)
    return stuck


def zeros_in_blocks(stack: np.ndarray) -> float:
    """The share of pixels of frames (N, h, w) about which all is exactly 0, NaN where invalid."""
    other = torch.from_numpy((stack != 0).astype(np.float32))
    return float((F.max_pool2d(other, BLOCK_PX, 1, BLOCK_PX // 2) == 0).float().mean())
