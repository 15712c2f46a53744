"""Linear algebra for batches: conjugate gradients, small inverses, leading factors."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

FEW_UNKNOWNS = 4  # of matrices that a GPU inverts faster by elimination
WORTH_PUTTING_ASIDE = 0.625  # share still to be solved at which a batch is made smaller


class System(Protocol):
    """Positive linear systems of a batch, (B, h, w), and an approximate inverse.

    The unknowns may be complex: of the spectra of real images, say.
    """

    def normal(self, image: Tensor) -> Tensor:
        """The systems applied."""
        ...

    def precondition(self, image: Tensor) -> Tensor:
        """Their approximate inverse applied."""
        ...

    def dot(self, one: Tensor, other: Tensor) -> Tensor:
        """The product under which the systems are symmetric, real, (B, 1, 1)."""
        ...

    def part(self, index: Tensor) -> System:
        """Those of some entries of the batch."""
        ...


def conjugate_gradients(
    system: System,
    right: Tensor,
    tolerance: Tensor | float,
    start: Tensor | None = None,
    enough: Tensor | float = 0.0,
    max_steps: int = 300,
) -> Tensor:
    """Solve `normal(x) = right` for each entry of a batch, to a relative preconditioned residual.

    right: (B, h, w). Each entry stops by itself, and is put aside when others have too.
    enough: a squared preconditioned residual that is small by itself, whatever `right` is. Both
    one number, or (B, 1, 1).
    """
    x = torch.zeros_like(right) if start is None else start
    goal = tolerance**2 * system.dot(right, system.precondition(right))
    goal = goal.maximum(torch.as_tensor(enough).to(goal))
    residual = right if start is None else right - system.normal(start)
    direction = preconditioned = system.precondition(residual)
    energy = system.dot(residual, preconditioned)
    done, place = x, torch.arange(len(x), device=x.device)  # results, and whose turn it still is
    for _ in range(max_steps):
        active = energy > goal
        left = int(active.sum())
        if left == 0:
            break
        if left <= WORTH_PUTTING_ASIDE * len(active):
            done, chosen = done.index_copy(0, place, x), active[:, 0, 0].nonzero()[:, 0]
            system, place = system.part(chosen), place[chosen]
            state = (x, residual, direction, energy, goal, active)
            x, residual, direction, energy, goal, active = (part[chosen] for part in state)
        image = system.normal(direction)
        curvature = system.dot(direction, image)
        step = torch.where(active & (curvature > 0), energy / curvature, 0)
        x = torch.addcmul(x, step, direction)
        residual = torch.addcmul(residual, step, image, value=-1)
        preconditioned = system.precondition(residual)
        previous, energy = energy, system.dot(residual, preconditioned)
        direction = torch.addcmul(preconditioned, energy / previous.clamp(min=1e-38), direction)
    return done.index_copy(0, place, x)


def sum_of_products(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """`sum_k a_k b_k` along a short axis of tensors that broadcast.

    The products are not stored, except on a GPU along an axis of more than FEW_UNKNOWNS: there one
    launch is cheaper than the memory saved.
    """
    if a.is_cuda and a.shape[dim] > FEW_UNKNOWNS:
        return (a * b).sum(dim)
    total = a.select(dim, 0) * b.select(dim, 0)
    for k in range(1, a.shape[dim]):
        total.addcmul_(a.select(dim, k), b.select(dim, k))
    return total


def small_inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse and log determinant of many small positive Hermitian matrices (B, K, K, ...).

    Gauss-Jordan elimination, which needs no pivoting for these, one whole batch at a time; library
    routines take the matrices one by one. On a GPU these need fewer launches, and are used for
    matrices of more than FEW_UNKNOWNS.
    """
    if matrix.is_cuda and matrix.shape[1] > FEW_UNKNOWNS:
        return library_inverse(matrix)
    work = matrix.clone()
    log_det = torch.zeros_like(matrix[:, 0, 0].real)
    for k in range(matrix.shape[1]):
        pivot = work[:, k, k].real.clamp(min=1e-30)
        log_det += pivot.log()
        inverse = pivot.reciprocal()
        row = work[:, k] * inverse[:, None]
        column = work[:, :, k].clone()
        column[:, k] = 0
        work.addcmul_(column[:, :, None], row[:, None], value=-1)
        work[:, k] = row
        work[:, :, k] = column * -inverse[:, None]
        work[:, k, k] = inverse
    return work, log_det


def library_inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The same by library routines."""
    last = matrix.movedim((1, 2), (-2, -1))
    root = torch.linalg.cholesky_ex(last).L.diagonal(dim1=-2, dim2=-1).real
    log_det = 2 * root.clamp(min=1e-15).log().sum(-1)
    return torch.linalg.inv_ex(last).inverse.movedim((-2, -1), (1, 2)).contiguous(), log_det


def leading_factor(matrix: Tensor, rank: int) -> Tensor:
    """A factor L (B, n, rank) with `L L'` near a positive matrix (B, n, n): pivoted Cholesky."""
    left = matrix.diagonal(dim1=-2, dim2=-1).clone()
    entry = torch.arange(len(matrix), device=matrix.device)
    rank = min(rank, matrix.shape[-1])
    factor = matrix.new_zeros(*matrix.shape[:2], rank)
    for k in range(rank):
        place = left.argmax(-1)
        known = factor @ factor[entry, place][..., None]
        pivot = left[entry, place].clamp(min=1e-30).sqrt()
        column = (matrix[entry, place] - known[..., 0]) / pivot[:, None]
        left = (left - column**2).clamp(min=0).scatter(1, place[:, None], 0)
        factor[..., k] = column
    return factor
