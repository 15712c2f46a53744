"""Random linear operators A_tau as small matrices, and what no draw of tau lets the loss see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import geometry
from ..checks import check_scale, require
from ..errors import UsageError


@dataclass(frozen=True, eq=False)
class RandomOperator:
    """`A_tau` for every tau it can be drawn from, with the probability of each.

    matrices: (T, q, d). probability: (T,), uniform unless given.
    """

    matrices: Tensor
    probability: Tensor = None  # type: ignore[assignment]  # uniform

    def __post_init__(self) -> None:
        matrices = torch.as_tensor(self.matrices, dtype=torch.float64)
        require(
            matrices.ndim == 3,
            "matrices of shape (T, q, d), one for each tau",
            tuple(matrices.shape),
            "stack them; an operator that is not random has T = 1",
            UsageError,
        )
        count = len(matrices)
        uniform = torch.full((count,), 1 / count, dtype=torch.float64)
        given = uniform if self.probability is None else self.probability
        probability = torch.as_tensor(given, dtype=torch.float64)
        require(
            probability.shape == (count,)
            and bool((probability >= 0).all())
            and abs(float(probability.sum()) - 1) < 1e-6,
            f"{count} probabilities that sum to 1",
            probability.tolist(),
            "give one for each matrix",
            UsageError,
        )
        object.__setattr__(self, "matrices", matrices)
        object.__setattr__(self, "probability", probability / probability.sum())

    def expectation(self, values: Tensor) -> Tensor:
        """The mean over tau of values (T, ...), by enumeration."""
        return torch.tensordot(self.probability, values, dims=1)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` draws of tau, as places in `matrices`, (count,)."""
        return torch.multinomial(self.probability, count, replacement=True, generator=generator)


def dense(
    forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], high: int, low: int
) -> Tensor:
    """The matrix (low, high) of a linear operator given as a pair of functions.

    forward: (n, high) to (n, low); adjoint: its transpose, (n, low) to (n, high). The two are
    compared entry by entry.
    """
    matrix = adjoint(torch.eye(low, dtype=torch.float64))
    other = forward(torch.eye(high, dtype=torch.float64)).mT
    require(
        matrix.shape == other.shape == (low, high) and torch.allclose(matrix, other),
        f"forward and adjoint of one {low} x {high} matrix",
        "two that are not transposes of each other",
        "check that <forward(x), y> = <x, adjoint(y)>",
        UsageError,
    )
    return matrix


def subsampling(shape: tuple[int, int], scale: int = 2) -> RandomOperator:
    """`(A_tau u)_l = u_{s l + tau}` with tau uniform on {0..s-1}^2: the paper's operator.

    shape: (H, W) of the low-res frame. Rows of the matrices are its pixels, columns those of the
    high-res image (s*H, s*W), both row by row. Convention: place s*dy + dx is tau = (dy, dx).
    """
    height, width = shape
    high, low = (scale * height, scale * width), (height, width)
    places = torch.arange(check_scale(scale))

    def matrix(tau: Tensor) -> Tensor:
        def same(batch: Tensor) -> Tensor:
            return tau.expand(len(batch), 2)

        return dense(
            lambda u: geometry.subsample(u.unflatten(-1, high), scale, same(u)).flatten(-2),
            lambda z: geometry.subsample_adjoint(z.unflatten(-1, low), scale, same(z)).flatten(-2),
            scale**2 * height * width,
            height * width,
        )

    return RandomOperator(
        torch.stack([matrix(tau) for tau in torch.cartesian_prod(places, places)])
    )


def unseen_means(operator: RandomOperator) -> Tensor:
    """Directions x with `A_tau x = 0` for every tau: the mean is free along them. (n, d).

    None (n = 0) is what the lemma asks for when it wants `E[A' M_hat A]` invertible.
    """
    return _null_space(_possible(operator).flatten(0, 1))


def unseen_covs(operator: RandomOperator) -> Tensor:
    """Symmetric X with `A_tau X A_tau' = 0` for every tau: the covariance is free along them.

    With the right noise the stationary covariances are the posterior's plus any of these, and
    nothing else (docs/theory.md, "Which operators determine what"). (n, d, d), orthonormal.
    """
    size = operator.matrices.shape[-1]
    row, column = torch.tril_indices(size, size)
    basis = torch.zeros(len(row), size, size, dtype=torch.float64)
    places = torch.arange(len(row))
    weight = torch.where(row == column, 1.0, 0.5**0.5).double()
    basis[places, row, column] = basis[places, column, row] = weight
    return torch.tensordot(_null_space(_seen(operator, basis)), basis, dims=1)


def unseen_vars(operator: RandomOperator) -> Tensor:
    """The same among diagonal matrices X = diag(x): the variances are free along x. (n, d)."""
    basis = torch.diag_embed(torch.eye(operator.matrices.shape[-1], dtype=torch.float64))
    return _null_space(_seen(operator, basis))


def _possible(operator: RandomOperator) -> Tensor:
    return operator.matrices[operator.probability > 0]


def _seen(operator: RandomOperator, basis: Tensor) -> Tensor:
    """The entries of every `A_tau X A_tau'`, one column for each X of the basis."""
    matrices = _possible(operator)
    return torch.stack([(matrices @ x @ matrices.mT).flatten() for x in basis], -1)


def _null_space(matrix: Tensor) -> Tensor:
    """An orthonormal basis of the x with `matrix @ x = 0`, one a row."""
    _, values, right = torch.linalg.svd(matrix, full_matrices=True)
    rank = int((values > 1e-10 * values.max()).sum())
    return right[rank:]
