"""What the forward model cannot explain, as a variance for the noise budget."""

from __future__ import annotations

from torch import Tensor

from ..gaussian import weighted_mean
from ..spectral import AliasBlocks


def freedom(blocks: AliasBlocks, count: Tensor) -> Tensor:
    """Share of each frame's residual that the image could not absorb, `1 - leverage`, (B, N).

    count: (c,) how many frequencies each column stands for.
    """
    share = (blocks.see * blocks.reach()).sum(-1).real * count[:, None]
    leverage = share.sum((1, 2)) / (count.sum() * share.shape[1])
    return (1 - leverage).clamp(min=0.02)


def model_mismatch(residual: Tensor, budget: Tensor, noise_var: Tensor, free: Tensor) -> Tensor:
    """Variance of the residuals beyond noise, (B,), a mean weighted by how well each frame tells.

    residual, noise_var: (B, N, H, W); budget: noise and the mismatch assumed so far, infinite
    for pixels that do not count; free: (B, N) from `freedom`.
    """
    free = free[..., None, None]
    # the error of a squared residual is in proportion to its expectation
    trust = free / budget**2
    excess = residual**2 / free - noise_var
    return weighted_mean(excess, trust)[:, 0, 0, 0].clamp(min=0)
