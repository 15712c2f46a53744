"""The self-supervised loss for any linear operator: Gaussian NLL of `z = A u + n`, `eq:nll-self`.

Convention (the whole package): a covariance has one axis more than its vector where it is full,
(..., d, d) for (..., d), and as many where it is diagonal, (..., d). Batch axes broadcast.
Everything is computed in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import require
from ..errors import UsageError


class Gaussian(NamedTuple):
    """A mean (..., d) and a covariance, full (..., d, d) or diagonal (..., d).

    It holds two moments; what has them need not be Gaussian.
    """

    mean: Tensor
    cov: Tensor

    @property
    def full(self) -> Tensor:
        """The covariance as a matrix, (..., d, d)."""
        return as_matrix(self.cov, self.mean)

    def double(self) -> Gaussian:
        """The same in float64."""
        return Gaussian(self.mean.double(), self.cov.double())

    @property
    def var(self) -> Tensor:
        """The diagonal of the covariance, (..., d)."""
        return self.full.diagonal(dim1=-2, dim2=-1)


def as_matrix(cov: Tensor, vector: Tensor) -> Tensor:
    """A covariance of `vector` as a matrix, (..., d, d); a diagonal one is spread."""
    size = vector.shape[-1]
    diagonal = cov.ndim == vector.ndim
    shape = (size,) if diagonal else (size, size)
    require(
        cov.ndim - vector.ndim in (0, 1) and cov.shape[-len(shape) :] == shape,
        f"a covariance of shape (..., {size}, {size}), or (..., {size}) for a diagonal one, "
        f"with {vector.ndim - 1} batch axes",
        tuple(cov.shape),
        "give both as many batch axes (size 1 broadcasts)",
        UsageError,
    )
    return torch.diag_embed(cov) if diagonal else cov


def factor(belief: Gaussian, operator: Tensor, noise_cov: Tensor) -> Tensor:
    """Cholesky factor of `A Sigma_hat A' + R_hat`, the inverse of the paper's M_hat: (..., q, q).

    belief, operator (..., q, d): float64; noise_cov: (..., q, q). No gradient flows into the
    noise: the lemmas hold it fixed.
    """
    spread = operator @ belief.full @ operator.mT + noise_cov.detach().double()
    lower, failed = torch.linalg.cholesky_ex(spread)
    require(
        not bool(failed.any()),
        "a positive definite A cov A' + noise_cov",
        f"{int((failed > 0).sum())} of {failed.numel()} that are not",
        "give a covariance without negative eigenvalues, and noise above zero",
        UsageError,
    )
    return lower


def nll(belief: Gaussian, target: Tensor, operator: Tensor, noise_cov: Tensor) -> Tensor:
    """Half the squared residual under `C = A Sigma_hat A' + R_hat`, plus half `log det C`.

    The constant `q log(2 pi) / 2` is left out, as in the paper (`eq:nll-self`).
    belief: of u given the input, mean (..., d), cov full or diagonal.
    target: z, (..., q). operator: A_tau, (..., q, d). noise_cov: R_hat, full or diagonal.
    Returns (...), one number for each target.
    """
    belief, operator = belief.double(), operator.double()
    lower = factor(belief, operator, as_matrix(noise_cov, target))
    residual = target.double()[..., None] - operator @ belief.mean[..., None]
    whitened = torch.linalg.solve_triangular(lower, residual, upper=False)
    log_det = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return whitened.square().sum((-1, -2)) / 2 + log_det / 2


def supervised_nll(belief: Gaussian, truth: Tensor) -> Tensor:
    """The same with the truth as target: no operator, no noise. `eq:sup-gaussian-nll`.

    truth: u, (..., d). Returns (...).
    """
    size = truth.shape[-1]
    return nll(belief, truth, torch.eye(size).to(truth), torch.zeros_like(truth))


def nll_gradients(
    belief: Gaussian, target: Tensor, operator: Tensor, noise_cov: Tensor
) -> Gaussian:
    """The derivatives of `nll` in mean and covariance, in closed form (the paper's appendix).

        d/d mean = - A' M r        d/d cov = 1/2 A' (M - M r r' M) A        r = z - A mean

    with `M = (A cov A' + R_hat)^-1`. The appendix drops the 1/2 and, where the covariance is
    diagonal, the R_hat inside M. Same shapes as `belief`, broadcast over the targets.
    """
    belief, operator = belief.double(), operator.double()
    lower = factor(belief, operator, as_matrix(noise_cov, target))
    residual = target.double()[..., None] - operator @ belief.mean[..., None]
    pulled = operator.mT @ torch.cholesky_solve(residual, lower)
    seen = operator.mT @ torch.cholesky_solve(operator.expand(*lower.shape[:-1], -1), lower)
    in_cov = (seen - pulled @ pulled.mT) / 2
    diagonal = belief.cov.ndim == belief.mean.ndim
    return Gaussian(-pulled[..., 0], in_cov.diagonal(dim1=-2, dim2=-1) if diagonal else in_cov)
