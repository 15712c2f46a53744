"""Raw pixels: how finely they tell one brightness from another."""

from __future__ import annotations

import numpy as np

# of the white level, where raw pixels are no whole numbers: that of the paper's data; images of
# much less noise than its rounding cannot be solved in float32
FINEST_STEP = 1 / 3400


def raw_step(whole: bool, white_level: float) -> float:
    """The least difference of raw pixels, DN; whole: whether they are whole numbers."""
    return 1.0 if whole else FINEST_STEP * white_level


def whole_numbers(pixels: np.ndarray) -> bool:
    """Whether all pixels but NaN are whole numbers, as far as float32 arithmetic keeps them so."""
    finite = pixels[np.isfinite(pixels)]
    rounding = 1e-6 * float(np.abs(finite).max(initial=0))
    return not bool(np.any(np.abs(finite - np.rint(finite)) > rounding))
