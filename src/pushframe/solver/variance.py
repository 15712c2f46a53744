"""What remains unknown of each pixel: noise and prior, and the motion's own error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..gaussian import GaussianProblem
from ..spectral import half_weight, image_frequencies, to_folded, to_image
from .motion import Fit


def posterior_variance(problem: GaussianProblem, image: Tensor, fit: Fit) -> Tensor:
    """The variance of the reconstruction, (B, s*H, s*W).

    image: the solved canvas, less its level.
    """
    return stationary_variance(problem) + motion_variance(problem, image, fit)


def stationary_variance(problem: GaussianProblem) -> Tensor:
    """Variance left by noise and prior, one value for each sub-grid, (B, s*H, s*W).

    The blocks' covariances summed over frequency with the phases of the sub-grid `tau`:
    `var(tau) = mean_l e_tau' M^-1 e_tau / s^2`.
    """
    scale = problem.scale
    covariance = problem.blocks.covariance
    lattice = (problem.canvas[0] // scale, problem.canvas[1] // scale)
    fy, fx = image_frequencies(lattice, scale, covariance.real)
    count = half_weight(lattice[1], fy)
    tau = torch.arange(scale, device=fy.device)
    phase = torch.polar(
        torch.ones((), device=fy.device),
        2 * math.pi * (fy[..., None, None] * tau[:, None] + fx[..., None, None] * tau),
    ).flatten(-2)  # (a, c, K, s*s)
    weight = count[:, None, None] / (count.sum() * lattice[0] * scale**2)
    total = torch.einsum("ackt,backl,aclt->bt", phase * weight, covariance, phase.conj())
    grid = total.real.unflatten(1, (scale, scale))
    height, width = (size - 2 * problem.pad for size in problem.canvas)
    return grid.repeat(1, height // scale, width // scale)


def motion_variance(problem: GaussianProblem, image: Tensor, fit: Fit) -> Tensor:
    """Variance from the shifts' own errors: the image's response to each, (B, s*H, s*W)."""
    scale, blocks = problem.scale, problem.blocks
    lattice = (problem.canvas[0] // scale, problem.canvas[1] // scale)
    folded = to_folded(image, scale)
    fy, fx = image_frequencies(lattice, scale, image)
    moved = torch.stack(
        [blocks.predict(2j * math.pi * scale * f * folded) for f in (fy, fx)], 2
    )  # (B, N, 2, a, c)
    values, vectors = torch.linalg.eigh(fit.flow_cov)
    root = vectors * values.clamp(min=0).sqrt()[:, None]  # (B, 2N, modes)
    total = torch.zeros_like(image)
    flat = moved.flatten(1, 2)
    weighted = blocks.weighted.repeat_interleave(2, 1)
    for mode in root.unbind(-1):
        right = torch.einsum("bpack,bpac,bp->back", weighted, flat, mode.to(flat.dtype))
        total = total + to_image(blocks.solve(right), scale, lattice[1]) ** 2
    return problem.crop(total)
