"""Pixels that the solver left out by itself, and what to say of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .burst import Burst
from .methods import Estimate
from .noise import frame_noise_var
from .solver.outliers import cut_pixels

LEAST_SHARE = 0.003  # of a frame's pixels in a tile: clean frames have none, a spot has 1 to 4 %
FEW = 3  # frames named one by one
WHY = "a cloud, something that moves?"


def left_out_pixels(burst: Burst, estimate: Estimate) -> tuple[Tensor, Tensor]:
    """Pixels of a batch that were judged, and those of them left out, both (B, N, H, W) bool.

    Frames left out as a whole are not judged. What is near the ceiling of a frame with masked
    pixels was left out for saturation: no disagreement.
    """
    if estimate.used is None or estimate.flow_px is None:
        return torch.zeros_like(burst.valid), torch.zeros_like(burst.valid)
    kept = estimate.used.any(-1).any(-1) if estimate.kept is None else estimate.kept
    judged = burst.valid & kept[..., None, None]
    left = judged & ~estimate.used
    if burst.noise is not None and bool(left.any()):
        std = frame_noise_var(burst).sqrt()
        left &= ~cut_pixels(burst.frames, burst.valid, burst.frames, 2 * std)
    return judged, left


def percent(share: float) -> str:
    """A share in words, with a decimal where it is small."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def left_out_remark(share: float, worst: float, tense: str = "were") -> str:
    """What to say of a frame; worst: the share in the tile where it is largest."""
    where = "" if worst < 2 * share else f", {percent(worst)} where it is most,"
    many = f"{percent(share)} of its pixels{where}"
    return f"{many} disagree with the other frames ({WHY}) and {tense} left out"


def left_out_notes(
    labels: Sequence[str], shares: Sequence[float], worst: Sequence[float], tense: str = "were"
) -> list[str]:
    """Without a full stop: one for each frame that lost more than a few pixels, or one for all.

    shares: of the pixels judged, that were left out; worst: in the tile where it is largest.
    """
    told = [k for k in range(len(labels)) if worst[k] >= LEAST_SHARE]
    if len(told) <= FEW:
        return [f"{labels[k]}: {left_out_remark(shares[k], worst[k], tense)}" for k in told]
    least, most = (percent(f(shares[k] for k in told)) for f in (min, max))
    return [
        f"In {len(told)} of {len(labels)} frames {least} to {most} of the pixels disagree with "
        f"the other frames ({WHY}) and {tense} left out"
    ]
