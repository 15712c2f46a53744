"""The minimisers of the per-input risk, found by descent: what a network is trained towards."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .likelihood import Gaussian
from .operators import RandomOperator
from .stationarity import risk

LEAST = 1e-12  # share of the start's variances that is always there: a step may come upon none
ROUNDS = 3  # a noise that follows the mean settles in two: the mean does not follow the noise


def minimise(
    operator: RandomOperator,
    target: Gaussian,
    noise_cov: Callable[[Tensor], Tensor],
    start: Gaussian,
    *,
    hold_mean: bool = False,
) -> Gaussian:
    """A belief at which the risk cannot be lowered, by L-BFGS from `start`.

    target: moments for every tau, of the posterior or of a sample (`target_moments`,
    `sample_moments`). noise_cov: from the sampled mean `A_tau mean` (T, q) to R_hat, (T, q) or
    (T, q, q); held fixed during a descent and taken anew after it, as a detached R_hat is.
    start: mean (d,), cov (d,) for a diagonal answer, (d, d) for a full one.
    hold_mean: descend in the covariance alone.
    """
    start = start.double()
    mean = start.mean.clone().requires_grad_(not hold_mean)
    full = start.cov.ndim == 2
    least = LEAST * torch.diag(start.cov.diagonal()) if full else torch.zeros_like(start.cov)
    for _ in range(ROUNDS):
        fixed = noise_cov(operator.matrices @ mean.detach())
        # from the start again: under a noise too large the variance goes to zero and stays there
        root = _root(start.cov).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [x for x in (mean, root) if x.requires_grad],
            max_iter=1000,
            history_size=50,
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )

        def closure(
            optimiser: torch.optim.Optimizer = optimiser, root: Tensor = root, fixed: Tensor = fixed
        ) -> float:
            optimiser.zero_grad()
            value = risk(Gaussian(mean, _square(root) + least), operator, target, fixed)
            value.backward()
            return float(value.detach())

        optimiser.step(closure)
    return Gaussian(mean.detach(), _square(root.detach()) + least)


def _root(cov: Tensor) -> Tensor:
    """The std, or a Cholesky factor: free parameters whose square is never negative.

    A best variance of zero is then an ordinary minimum. In the log it would be infinitely far.
    """
    return cov.sqrt() if cov.ndim == 1 else torch.linalg.cholesky(cov).contiguous()


def _square(root: Tensor) -> Tensor:
    return root.square() if root.ndim == 1 else root.tril() @ root.tril().mT


def negative_share(var: Tensor, noise_var: Tensor, count: int) -> Tensor:
    """How often subtracting R afterwards, from a variance learnt without R_hat, goes below zero.

    Without R_hat the minimiser is the sample variance of the `count` targets of a pixel. For
    Gaussian targets it is `(var + noise_var) chi2(count - 1) / count`, so the share is the
    probability that chi2(count - 1) is below `count * noise_var / (var + noise_var)`.
    """
    freedom = torch.as_tensor((count - 1) / 2, dtype=torch.float64)
    return torch.special.gammainc(freedom, count * noise_var / (var + noise_var) / 2)
