"""Conjugate gradients for batches of symmetric positive systems."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    right: Tensor,
    precondition: Callable[[Tensor], Tensor],
    tolerance: float,
    max_steps: int = 200,
) -> Tensor:
    """Solve `apply(x) = right` for each entry of a batch, to a relative preconditioned residual.

    right: (B, h, w). Each entry stops by itself; the loop ends with the last of them.
    """
    x = torch.zeros_like(right)
    residual = right
    direction = preconditioned = precondition(residual)
    energy = _dot(residual, preconditioned)
    goal = tolerance**2 * energy
    for _ in range(max_steps):
        active = energy > goal
        if not bool(active.any()):
            break
        image = apply(direction)
        curvature = _dot(direction, image)
        step = torch.where(active & (curvature > 0), energy / curvature.clamp(min=1e-38), 0)
        x = x + step * direction
        residual = residual - step * image
        preconditioned = precondition(residual)
        previous, energy = energy, torch.where(active, _dot(residual, preconditioned), energy)
        direction = preconditioned + energy / previous.clamp(min=1e-38) * direction
    return x


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-1, -2), keepdim=True)
