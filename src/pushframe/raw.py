"""Raw pixels: how finely they tell one brightness from another."""

from __future__ import annotations

import numpy as np

FINEST_STEP = 2.0**-16  # of the white level, where raw pixels are no whole numbers


def raw_step(whole: bool, white_level: float) -> float:
    """The least difference of raw pixels, DN; whole: whether they are whole numbers."""
    return 1.0 if whole else FINEST_STEP * white_level


def whole_numbers(pixels: np.ndarray) -> bool:
    """Whether all pixels but NaN are whole numbers."""
    with np.errstate(invalid="ignore"):
        return not bool(np.any(np.abs(pixels - np.rint(pixels)) > 0))
