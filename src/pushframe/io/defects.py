"""Pixels that say nothing of the scene, found by their values: saturated ones, and stuck ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

LEAST_CLIPPED = 30  # pixels at the largest value, from which they may be saturated
JUST_BELOW = 0.01  # of that value: fewer pixels lie so near below it than at it
LEAST_FRAMES = 4  # that hold the same value at a pixel that is stuck
LEAST_SPREAD_DN = 8.0  # of the usual pixel over the frames: less, and many agree by chance
MAX_STUCK = 0.05  # of a window; more is the scene itself, black water or a margin


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

    NaN where invalid. Where noise is below the steps of the DN, none can be told.
    """
    seen = (~np.isnan(stack)).sum(0)
    spread = np.fmax.reduce(stack) - np.fmin.reduce(stack)
    judged = seen >= LEAST_FRAMES
    stuck: np.ndarray = judged & (spread == 0)
    usual = np.median(spread[judged]) if judged.any() else 0.0
    return stuck & (usual >= LEAST_SPREAD_DN) & (stuck.mean() <= MAX_STUCK)
