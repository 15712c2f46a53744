"""The per-input risk `R_v` and its stationarity conditions, exactly, by enumerating tau.

The risk needs two moments of the target for each tau and nothing else. Those of the true
posterior give the Bayes risk, those of a sample the empirical risk: one function serves both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import require
from ..errors import UsageError
from .likelihood import Gaussian, as_matrix, factor
from .operators import RandomOperator


class Sides(NamedTuple):
    """Both sides of a stationarity condition; equal at a stationary point."""

    left: Tensor
    right: Tensor


def target_moments(posterior: Gaussian, operator: RandomOperator, noise_cov: Tensor) -> Gaussian:
    """`A_tau E[u|v]` and `A_tau Sigma A_tau' + R`: the target given the input, for every tau.

    posterior: mean (d,). noise_cov: the true R, (T, q) or (T, q, q). Returns (T, q), (T, q, q).
    """
    matrices, posterior = operator.matrices, posterior.double()
    mean = matrices @ posterior.mean
    spread = matrices @ posterior.full @ matrices.mT
    return Gaussian(mean, spread + as_matrix(noise_cov, mean))


def sample_moments(
    target: Tensor, tau: Tensor, operator: RandomOperator
) -> tuple[Gaussian, RandomOperator]:
    """Mean and covariance of drawn targets for every tau, and the operator with tau's frequencies.

    target: (n, q); tau: (n,) places in `operator.matrices`, each of which must be drawn.
    """
    counts = torch.bincount(tau, minlength=len(operator.matrices)).double()
    require(
        bool((counts > 0).all()),
        "a target for every tau",
        f"{int((counts == 0).sum())} of {len(counts)} without",
        "draw more, or leave out the tau that is never drawn",
        UsageError,
    )
    mean, cov = [], []
    for place in range(len(counts)):
        group = target[tau == place].double()
        mean.append(group.mean(0))
        away = group - mean[-1]
        cov.append(away.mT @ away / len(group))
    frequencies = RandomOperator(operator.matrices, counts / counts.sum())
    return Gaussian(torch.stack(mean), torch.stack(cov)), frequencies


def risk(belief: Gaussian, operator: RandomOperator, target: Gaussian, noise_cov: Tensor) -> Tensor:
    """The mean of `nll` over tau and targets, `eq:risk_full_conditional`; a number.

    belief: mean (d,), cov (d, d) or (d,). target: moments for every tau, (T, q) and (T, q, q).
    noise_cov: R_hat, (T, q) or (T, q, q).
    """
    belief, target = belief.double(), target.double()
    lower = factor(belief, operator.matrices, as_matrix(noise_cov, target.mean))
    residual = (target.mean - operator.matrices @ belief.mean)[..., None]
    square = target.full + residual @ residual.mT  # E[(z - A mean)(z - A mean)']
    fit = torch.cholesky_solve(square, lower).diagonal(dim1=-2, dim2=-1).sum(-1)
    log_det = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return operator.expectation(fit + log_det) / 2


def stationarity_mean(
    belief: Gaussian, posterior: Gaussian, operator: RandomOperator, noise_cov: Tensor
) -> Sides:
    """`E[A' M_hat A] mean_hat` and `E[A' M_hat A] E[u|v]`, (d,) each: `eq:stationarity-u`.

    noise_cov: R_hat, (T, q) or (T, q, q). Left less right is the risk's gradient in the mean.
    """
    belief, posterior = belief.double(), posterior.double()
    weighted = _weighted(belief, operator, noise_cov)
    seen = operator.expectation(operator.matrices.mT @ weighted)
    return Sides(seen @ belief.mean, seen @ posterior.mean)


def stationarity_cov(
    belief: Gaussian,
    posterior: Gaussian,
    operator: RandomOperator,
    noise_cov: Tensor,
    true_noise_cov: Tensor,
) -> Sides:
    """`E[A' M_hat A]` and `E[A' M_hat M^-1 M_hat A]`, (d, d) each: `eq:stationarity-cov`.

    `M^-1 = A E[(u - mean_hat)(u - mean_hat)'] A' + R`, with the *true* noise. Half of left less
    right is the risk's gradient in the covariance.
    """
    belief, posterior = belief.double(), posterior.double()
    bias = (belief.mean - posterior.mean)[:, None]
    error = Gaussian(belief.mean, posterior.full + bias @ bias.mT)
    spread = target_moments(error, operator, true_noise_cov).cov
    weighted = _weighted(belief, operator, noise_cov)
    return Sides(
        operator.expectation(operator.matrices.mT @ weighted),
        operator.expectation(weighted.mT @ spread @ weighted),
    )


def stationarity_var(
    belief: Gaussian,
    posterior: Gaussian,
    operator: RandomOperator,
    noise_cov: Tensor,
    true_noise_cov: Tensor,
) -> Sides:
    """The diagonals of `stationarity_cov`, (d,) each: `eq:stationarity-cov-diagonal`."""
    both = stationarity_cov(belief, posterior, operator, noise_cov, true_noise_cov)
    return Sides(both.left.diagonal(), both.right.diagonal())


def _weighted(belief: Gaussian, operator: RandomOperator, noise_cov: Tensor) -> Tensor:
    """`M_hat A_tau` for every tau, (T, q, d)."""
    matrices = operator.matrices
    lower = factor(belief, matrices, as_matrix(noise_cov, matrices @ belief.mean))
    return torch.cholesky_solve(matrices, lower)
