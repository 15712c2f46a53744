"""What the forward model cannot explain, as a variance for the noise budget."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..gaussian import GaussianProblem, weighted_mean
from ..spectral import AliasBlocks

LEAST_MISMATCH = 0.05  # of the noise variance of the better frames
LEAST_FREEDOM = 0.02
BORDER_PX = 4  # of frames: conjugate gradients arrive there last
LEAST_INNER = 0.1  # share of the pixels, that tell enough without the borders


def freedom(blocks: AliasBlocks, count: Tensor) -> Tensor:
    """Share of each frame's residual that the image could not absorb, `1 - leverage`, (B, N).

    count: (c,) how many frequencies each column stands for.
    """
    leverage = blocks.leverage(count) / (count.sum() * blocks.see.rows.shape[-1])
    return (1 - leverage).clamp(min=LEAST_FREEDOM)


def freedom_of(problem: GaussianProblem) -> Tensor:
    """The same of a problem in space, (B, N)."""
    return (1 - problem.leverage()).clamp(min=LEAST_FREEDOM)


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


def unexplained(problem: GaussianProblem, residual: Tensor, noise_var: Tensor) -> Tensor:
    """The mismatch of solved bursts, (B,); an excess too small to be told from none is none.

    residual, noise_var: (B, N, H, W), of the problem's data under its solution. Borders of frames,
    if there is enough besides, do not count: an image solved well enough is not solved there.
    """
    budget = noise_var.masked_fill(problem.precision <= 0, torch.inf)
    inner = _inner(budget)
    left, all_of_it = (part.isfinite().flatten(1).sum(1) for part in (inner, budget))
    budget = torch.where((left > LEAST_INNER * all_of_it)[:, None, None, None], inner, budget)
    free = freedom_of(problem)
    found = model_mismatch(residual, budget, noise_var, free)
    usual = 1 / weighted_mean(1 / noise_var, 1 / budget)[:, 0, 0, 0]
    return torch.where(found > LEAST_MISMATCH * usual, found, 0)


def _inner(budget: Tensor) -> Tensor:
    """The same budget (B, N, H, W) for all but the borders of frames, whose pixels do not count."""
    tall, wide = (min(BORDER_PX, size // 4) for size in budget.shape[-2:])
    inside = F.pad(budget, [-wide, -wide, -tall, -tall])
    return F.pad(inside, [wide, wide, tall, tall], value=torch.inf)
