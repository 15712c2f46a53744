"""The median over a burst, one pass over memory on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from .fused import kernels

FEW = 32  # frames up to which sorting them beats a search at every pixel, on a CPU


def median_over_frames(values: Tensor) -> Tensor:
    """The lower median over frames, NaN left out, (B, 1, H, W) of (B, N, H, W)."""
    if values.is_cuda and (fused := kernels("median")):
        return fused.lower_median(values)
    if values.is_cuda or values.shape[1] > FEW:
        return values.nanmedian(1, keepdim=True).values
    return _sorted_median(values)


def _sorted_median(values: Tensor) -> Tensor:
    """The same by exchanging neighbours, whole frames at a time."""
    missing = values.isnan()
    frames = list(values.masked_fill(missing, torch.inf).unbind(1))
    for start in range(len(frames)):
        for k in range(start % 2, len(frames) - 1, 2):
            a, b = frames[k], frames[k + 1]
            frames[k], frames[k + 1] = torch.minimum(a, b), torch.maximum(a, b)
    last = len(frames) - 1 - missing.sum(1, keepdim=True)
    middle = torch.stack(frames, 1).gather(1, last.clamp(min=0) // 2)
    return middle.masked_fill(last < 0, torch.nan)
