"""Linear algebra for batches: conjugate gradients, small inverses, leading factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    right: Tensor,
    precondition: Callable[[Tensor], Tensor],
    tolerance: float,
    start: Tensor | None = None,
    max_steps: int = 300,
) -> Tensor:
    """Solve `apply(x) = right` for each entry of a batch, to a relative preconditioned residual.

    right: (B, h, w). Each entry stops by itself; the loop ends with the last of them.
    """
    x = torch.zeros_like(right) if start is None else start
    goal = tolerance**2 * _dot(right, precondition(right))
    residual = right if start is None else right - apply(start)
    direction = preconditioned = precondition(residual)
    energy = _dot(residual, preconditioned)
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


def conjugate_gradients_pair(
    apply: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    right: tuple[Tensor, Tensor],
    precondition: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    tolerance: float,
    max_steps: int = 100,
) -> tuple[Tensor, Tensor]:
    """The same for unknowns in two parts, (B, h, w) and (B, N, P), that depend on each other."""
    x = [torch.zeros_like(part) for part in right]
    residual = list(right)
    direction = preconditioned = precondition(*residual)
    energy = _dots(residual, preconditioned)
    goal = tolerance**2 * energy
    for _ in range(max_steps):
        active = energy > goal
        if not bool(active.any()):
            break
        image = apply(*direction)
        curvature = _dots(direction, image)
        step = torch.where(active & (curvature > 0), energy / curvature.clamp(min=1e-38), 0)
        x = [a + step * b for a, b in zip(x, direction, strict=True)]
        residual = [a - step * b for a, b in zip(residual, image, strict=True)]
        preconditioned = precondition(*residual)
        previous, energy = energy, torch.where(active, _dots(residual, preconditioned), energy)
        ratio = energy / previous.clamp(min=1e-38)
        direction = tuple(a + ratio * b for a, b in zip(preconditioned, direction, strict=True))
    return x[0], x[1]


def _dots(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return sum(_dot(u, v) for u, v in zip(a, b, strict=True))  # type: ignore[return-value]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-1, -2), keepdim=True)


def small_inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse and log determinant of many small positive Hermitian matrices (..., K, K).

    Gauss-Jordan elimination, which needs no pivoting for these, one whole batch at a time:
    library routines take the matrices one by one.
    """
    work = matrix.clone()
    log_det = torch.zeros_like(matrix[..., 0, 0].real)
    for k in range(matrix.shape[-1]):
        pivot = work[..., k, k].real.clamp(min=1e-30)
        log_det = log_det + pivot.log()
        row = work[..., k, :] / pivot[..., None]
        column = work[..., :, k].clone()
        column[..., k] = 0
        work = work - column[..., :, None] * row[..., None, :]
        work[..., k, :] = row
        work[..., :, k] = -column / pivot[..., None]
        work[..., k, k] = 1 / pivot
    return work, log_det


def leading_factor(matrix: Tensor, rank: int) -> Tensor:
    """A factor L (B, n, rank) with `L L'` near a positive matrix (B, n, n): pivoted Cholesky."""
    left = matrix.diagonal(dim1=-2, dim2=-1).clone()
    columns: list[Tensor] = []
    for _ in range(min(rank, matrix.shape[-1])):
        place = left.argmax(-1)[:, None]
        column = matrix.gather(2, place[..., None].expand(-1, matrix.shape[1], 1))[..., 0]
        for known in columns:
            column = column - known * known.gather(1, place)
        column = column / left.gather(1, place).clamp(min=1e-30).sqrt()
        left = (left - column**2).clamp(min=0).scatter(1, place, 0)
        columns.append(column)
    return torch.stack(columns, -1)
