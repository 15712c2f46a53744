"""The white level of a burst that states none."""

from __future__ import annotations

import numpy as np

from ..checks import require

# A burst without a white level is given the headroom of the paper's data, where scenes whose
# bright end lies near 2400 DN are normalised by 3400 DN.
WHITE_PERCENTILE = 99.5
WHITE_OVER_BRIGHT = 3400 / 2400


def estimated_white(seen_dn: np.ndarray, exposure: float, black: float) -> float:
    """3400/2400 of the 99.5th percentile of `(dn - black) / exposure` over the valid pixels."""
    require(
        seen_dn.size > 0,
        "valid pixels in the reference frame",
        "none: every pixel is NaN, infinite or masked",
        "choose another `reference`",
    )
    bright = np.percentile((seen_dn.astype(np.float64) - black) / exposure, WHITE_PERCENTILE)
    require(
        bool(bright > 0),
        "a reference frame brighter than black_level",
        f"a 99.5th percentile of {bright:.6g} DN above it",
        "correct `black_level` or give `white_level`",
    )
    return float(bright) * WHITE_OVER_BRIGHT
