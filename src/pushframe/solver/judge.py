"""Residuals judged: which pixels and frames do not belong, and how much no image explains.

A residual is measured against its expected square: the noise and the mismatch found so far, less
where the image was shown the pixel and took up a part of it, more where it was not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .mismatch import model_mismatch
from .outliers import disagreeing_pixels, surprising_frames

LEAST_WINDOW = 0.3  # below it pixels are not judged
MAX_OUTLIERS = 0.3  # share of a frame's pixels beyond which the frame itself is the outlier


@dataclass(frozen=True)
class Judgement:
    """Residuals of a batch and what follows from them.

    residual, var: (B, N, H, W), and its expected square. seen: (B, N, H, W) bool, pixels that were
    judged; outlier: those of them that disagree with the other frames. mismatch: (B,) variance
    that the model leaves.
    """

    residual: Tensor
    var: Tensor
    seen: Tensor
    outlier: Tensor
    mismatch: Tensor

    def surprise(self) -> Tensor:
        """Squared residuals of each frame over their expectation, (B, N)."""
        return frame_mean(self.residual**2 / self.var, self.seen & ~self.outlier)

    def belonging(self, kept: Tensor) -> Tensor:
        """The frames of those kept that stay, (B, N) bool.

        Not those that are mostly outliers, or whose residuals surprise.
        """
        mostly = frame_mean(self.outlier.to(self.var), self.seen) > MAX_OUTLIERS
        mostly[:, 0] = False
        return kept & ~mostly & ~surprising_frames(self.surprise(), kept)


def judge_residuals(
    residual: Tensor,
    window: Tensor,
    used: Tensor,
    outlier: Tensor,
    noise_var: Tensor,
    mismatch: Tensor,
    free: Tensor,
    days: bool = False,
) -> Judgement:
    """What the model leaves unexplained becomes variance, what stands out an outlier.

    residual: (B, N, H, W) windowed frames less what the image says of them; window: the same shape.
    used: (B, N, H, W) bool, valid pixels of frames that are kept; outlier: bool, those that the
    image was not shown. noise_var: (B, N, H, W); mismatch: (B,) as assumed so far; free: (B, N)
    from `freedom`. days: frames are of different days, and what changed between them does not come
    back.
    """
    residual = residual / window.clamp(min=LEAST_WINDOW)
    seen = used & (window > LEAST_WINDOW)
    budget = noise_var + mismatch[:, None, None, None]
    shown = free[..., None, None]
    var = budget * (shown if days else expected_squares(shown, outlier))
    found = disagreeing_pixels(in_sigmas(residual, var, window), seen)
    good = seen & ~outlier & ~found
    counted = budget.masked_fill(~good, torch.inf)
    left = model_mismatch(residual, counted, noise_var, free)
    return Judgement(residual, var, seen, found, left)


def expected_squares(free: Tensor, outlier: Tensor) -> Tensor:
    """Expected squares of residuals over the noise's variance, (B, N, H, W).

    An image misses what it was shown by less than the noise, by the share `free`, and what it
    was not shown by more. Else pixels once left out would never come back.
    """
    return torch.where(outlier, 1 / free, free)


def in_sigmas(residual: Tensor, var: Tensor, window: Tensor) -> Tensor:
    """Residuals in standard deviations, (B, N, H, W), counted less where the window falls.

    A window that falls is an error of the model by itself, which dividing by it magnifies.
    """
    return residual / var.sqrt() * window.clamp(max=1)


def frame_mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean over the chosen pixels of each frame, (B, N)."""
    weight = where.to(values)
    return (values * weight).sum((-1, -2)) / weight.sum((-1, -2)).clamp(min=1)
