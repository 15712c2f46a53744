"""What remains unknown of each pixel: noise and prior, and the motion's own error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..gaussian import GaussianProblem
from ..spectral import half_weight, image_frequencies, to_folded, to_image
from .motion import Fit


def posterior_variance(problem: GaussianProblem, image: Tensor, level: Tensor, fit: Fit) -> Tensor:
    """The variance of the reconstruction, (B, s*H, s*W).

    image: the solved canvas (B, h, w) less its level (B,).
    """
    return stationary_variance(problem) + alignment_variance(problem, image, level, fit)


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


def alignment_variance(problem: GaussianProblem, image: Tensor, level: Tensor, fit: Fit) -> Tensor:
    """Variance from errors of shifts and gains: the image's answer to each, (B, s*H, s*W)."""
    scale, blocks = problem.scale, problem.blocks
    lattice = (problem.canvas[0] // scale, problem.canvas[1] // scale)
    folded = to_folded(image, scale)
    fy, fx = image_frequencies(lattice, scale, image)
    whole = folded.clone()
    whole[:, 0, 0, 0] += level * math.sqrt(problem.canvas[0] * problem.canvas[1])
    parts = (2j * math.pi * scale * fy * folded, 2j * math.pi * scale * fx * folded, whole)
    changes = torch.stack([blocks.predict(part) for part in parts], 2).flatten(1, 2)
    weighted = blocks.weighted.repeat_interleave(3, 1)  # (B, 3N, a, c, K)
    values, vectors = torch.linalg.eigh(fit.covariance.double())
    root = (vectors * values.clamp(min=0).sqrt()[:, None]).float()  # (B, 3N, modes)
    total = torch.zeros_like(image)
    for mode in root.unbind(-1):
        right = torch.einsum("bpack,bpac,bp->back", weighted, changes, mode.to(changes.dtype))
        total = total + to_image(blocks.solve(right), scale, lattice[1]) ** 2
    return problem.crop(total)
