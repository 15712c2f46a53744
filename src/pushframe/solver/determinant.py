"""The log determinant of the image's precision, and how it grows with motion and gains.

By alias blocks: of a flow, those of the local translations at its nodes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..folding import half_weight
from ..gaussian import GaussianProblem, node_blocks, node_flows, spread_nodes
from ..spectral import AliasBlocks, transfer_slopes


def log_determinant(problem: GaussianProblem) -> Tensor:
    """That of as many low-res frequencies as a frame has pixels, (B,)."""
    blocks = _blocks(problem)
    count = half_weight(blocks.width, problem.knots)
    mean = (blocks.log_det * count).sum((-1, -2)) / (count.sum() * blocks.log_det.shape[-2])
    mean = mean.unflatten(0, (len(problem.knots), -1)).mean(1)
    return math.prod(problem.precision.shape[-2:]) * mean


def determinant_slope(problem: GaussianProblem, basis: Tensor) -> Tensor:
    """Slope of half the log determinant in coefficients and gain, (B, N, P).

    basis: (K, H, W), what flows are made of. A pixel adds by its weight.
    """
    scale, blocks = problem.scale, _blocks(problem)
    shape = (problem.precision.shape[-2], problem.precision.shape[-1])
    lattice = (blocks.covariance.shape[-2], blocks.width)
    slopes = transfer_slopes(node_flows(problem), lattice, scale)
    slope = blocks.determinant_slope(half_weight(lattice[1], problem.knots), slopes)
    slope = slope.unflatten(0, (len(problem.knots), -1)).permute(0, 2, 3, 1)  # (B, N, 3, M)
    field = spread_nodes(slope, shape) if problem.nodes > 1 else slope[..., None]
    usual = problem.typical_precision().clamp(min=1e-30)[..., None, None]
    field = field / math.prod(lattice) * (problem.precision / usual)[:, :, None]
    bends = torch.einsum("bnchw,khw->bnck", field[:, :, :2], basis).flatten(2)
    return torch.cat([bends, field[:, :, 2:].sum((-1, -2))], 2)


def _blocks(problem: GaussianProblem) -> AliasBlocks:
    """Those of translations, a batch of B; of a flow at its M nodes, a batch of B * M."""
    return node_blocks(problem) if problem.nodes > 1 else problem.blocks
