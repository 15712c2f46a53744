"""The median over a burst, one pass over memory on a GPU."""

from __future__ import annotations

from torch import Tensor


def median_over_frames(values: Tensor) -> Tensor:
    """The lower median over frames, NaN left out, (B, 1, H, W) of (B, N, H, W)."""
    if values.is_cuda:
        try:
            from .median_kernels import lower_median
        except ImportError:  # no Triton: slower, the same
            pass
        else:
            return lower_median(values)
    return values.nanmedian(1, keepdim=True).values
