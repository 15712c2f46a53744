"""Lemmas 1 and 2: both sides of the stationarity conditions, by enumeration, against autograd."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from test_theory_loss import positive
from torch import Tensor

from pushframe import theory
from pushframe.errors import UsageError


class Problem(NamedTuple):
    operator: theory.RandomOperator
    posterior: theory.Gaussian
    belief: theory.Gaussian  # anything but the posterior
    noise_cov: Tensor  # true R
    wrong_cov: Tensor  # R_hat, anything but R


def problem(theory: ModuleType, diagonal: bool = False) -> Problem:
    """Three operators from five pixels to three, of unequal probability; every matrix dense."""
    generator = torch.Generator().manual_seed(6)
    draw = torch.randn(3, 3, 5, dtype=torch.float64, generator=generator)
    mean, other = torch.randn(2, 5, dtype=torch.float64, generator=generator)
    cov = positive(generator, 5, 5)
    return Problem(
        theory.RandomOperator(draw, torch.tensor([0.5, 0.2, 0.3])),
        theory.Gaussian(mean, positive(generator, 5, 5)),
        theory.Gaussian(other, cov.diagonal().clone() if diagonal else cov),
        positive(generator, 3, 3, 3),
        positive(generator, 3, 3, 3),
    )


def check_risk_is_the_mean_loss(theory: ModuleType) -> None:
    """On a sample exactly, on the true moments within five standard errors of the mean."""
    count, generator = 50_000, torch.Generator().manual_seed(7)
    operator, posterior, belief, noise_cov, wrong_cov = problem(theory)
    tau = operator.draw(count, generator)
    white = torch.randn(count, 5, dtype=torch.float64, generator=generator)
    noise = torch.randn(count, 3, 1, dtype=torch.float64, generator=generator)
    truth = posterior.mean + white @ torch.linalg.cholesky(posterior.cov).mT
    target = operator.matrices[tau] @ truth[..., None]
    target = (target + torch.linalg.cholesky(noise_cov)[tau] @ noise)[..., 0]
    one = theory.Gaussian(belief.mean[None], belief.cov[None])
    losses = theory.nll(one, target, operator.matrices[tau], wrong_cov[tau])

    moments, frequencies = theory.sample_moments(target, tau, operator)
    empirical = theory.risk(belief, frequencies, moments, wrong_cov)
    torch.testing.assert_close(empirical, losses.mean())

    exact = theory.risk(
        belief, operator, theory.target_moments(posterior, operator, noise_cov), wrong_cov
    )
    assert abs(losses.mean() - exact) < 5 * losses.std() / count**0.5


def check_conditions_are_gradients(theory: ModuleType) -> None:
    """Left less right is the gradient of the risk: once in the mean, half in the covariance."""
    for diagonal in (False, True):
        operator, posterior, belief, noise_cov, wrong_cov = problem(theory, diagonal)
        target = theory.target_moments(posterior, operator, noise_cov)
        mean, cov = (x.requires_grad_() for x in belief)
        value = theory.risk(theory.Gaussian(mean, cov), operator, target, wrong_cov)
        in_mean, in_cov = torch.autograd.grad(value, (mean, cov))
        condition = theory.stationarity_var if diagonal else theory.stationarity_cov
        of_mean = theory.stationarity_mean(belief, posterior, operator, wrong_cov)
        of_cov = condition(belief, posterior, operator, wrong_cov, noise_cov)
        torch.testing.assert_close(of_mean.left - of_mean.right, in_mean)
        torch.testing.assert_close((of_cov.left - of_cov.right) / 2, in_cov)


def check_the_posterior_is_stationary(theory: ModuleType) -> None:
    """Lemma 1: with the right noise both conditions hold at the posterior, for any operator."""
    operator, posterior, _, noise_cov, _ = problem(theory)
    sides = theory.stationarity_mean(posterior, posterior, operator, noise_cov)
    torch.testing.assert_close(sides.left, sides.right)
    sides = theory.stationarity_cov(posterior, posterior, operator, noise_cov, noise_cov)
    torch.testing.assert_close(sides.left, sides.right)


def check_gaps_add_up(theory: ModuleType) -> None:
    """<left - right, cov_hat - cov> is E |M^1/2 A (cov_hat - cov) A' M^1/2|^2, never negative."""
    operator, posterior, belief, noise_cov, _ = problem(theory)
    belief = theory.Gaussian(posterior.mean, belief.cov)
    sides = theory.stationarity_cov(belief, posterior, operator, noise_cov, noise_cov)
    gap = belief.cov - posterior.cov
    a = operator.matrices
    m = torch.linalg.inv(a @ belief.cov @ a.mT + noise_cov)
    seen = m @ (a @ gap @ a.mT)
    squares = torch.einsum("tij,tji->t", seen, seen)
    expected = (squares * operator.probability).sum()
    torch.testing.assert_close(((sides.left - sides.right) * gap).sum(), expected)
    assert (squares > 0).all()


RISK = "stationarity.py"
SABOTAGES = [
    (check_risk_is_the_mean_loss, RISK, "spread + as_matrix(noise_cov, mean)", "spread"),
    (check_risk_is_the_mean_loss, RISK, "target.full + residual @", "target.full - residual @"),
    (check_risk_is_the_mean_loss, RISK, "(fit + log_det) / 2", "(fit - log_det) / 2"),
    (check_risk_is_the_mean_loss, RISK, "(fit + log_det) / 2", "(fit + log_det / 2) / 2"),
    (check_risk_is_the_mean_loss, RISK, "(fit + log_det) / 2", "(fit / 2 + log_det) / 2"),
    (check_risk_is_the_mean_loss, "operators.py", "tensordot(self.probability, values, dims=1)",
     "mean(values, 0)"),
    (check_conditions_are_gradients, RISK, "posterior.full + bias @ bias.mT", "posterior.full"),
    (check_conditions_are_gradients, RISK, "posterior.full + bias", "posterior.full - bias"),
    (check_conditions_are_gradients, RISK, "error, operator, true_noise_cov)",
     "error, operator, noise_cov)"),
    (check_conditions_are_gradients, RISK, "weighted.mT @ spread @", "weighted.mT @"),
    (check_conditions_are_gradients, RISK, "weighted.mT @ spread @", "2 * weighted.mT @ spread @"),
    (check_conditions_are_gradients, RISK, "seen @ posterior.mean)", "-seen @ posterior.mean)"),
    (check_the_posterior_is_stationary, RISK, "error, operator, true_noise_cov)",
     "error, operator, 0 * true_noise_cov)"),
    (check_the_posterior_is_stationary, RISK, "weighted.mT @ spread @", "-weighted.mT @ spread @"),
    (check_gaps_add_up, RISK, "weighted.mT @ spread @", "0.5 * weighted.mT @ spread @"),
]  # fmt: skip


def test_the_risk_is_the_mean_loss() -> None:
    check_risk_is_the_mean_loss(theory)


def test_the_conditions_are_the_gradients_of_the_risk() -> None:
    check_conditions_are_gradients(theory)


def test_the_posterior_is_stationary_for_any_operator() -> None:
    check_the_posterior_is_stationary(theory)


def test_the_covariance_condition_measures_the_gap_that_is_seen() -> None:
    check_gaps_add_up(theory)


@pytest.mark.parametrize(("check", "file", "right", "wrong"), SABOTAGES)
def test_a_wrong_sign_factor_or_term_is_caught(
    check: Callable, file: str, right: str, wrong: str, sabotage: Callable
) -> None:
    broken = sabotage(file, right, wrong)
    with pytest.raises(AssertionError):
        check(broken)


def test_elsewhere_the_conditions_do_not_hold() -> None:
    operator, posterior, belief, noise_cov, wrong_cov = problem(theory)
    sides = theory.stationarity_mean(belief, posterior, operator, noise_cov)
    assert not torch.allclose(sides.left, sides.right, rtol=0.1)
    for wrong, hat in ((belief, noise_cov), (posterior, wrong_cov)):
        sides = theory.stationarity_cov(wrong, posterior, operator, hat, noise_cov)
        assert not torch.allclose(sides.left, sides.right, rtol=0.1)


def test_float32_is_computed_in_float64() -> None:
    operator, posterior, belief, noise_cov, wrong_cov = problem(theory)
    single = [theory.Gaussian(x.mean.float(), x.cov.float()) for x in (belief, posterior)]
    rounded = [theory.Gaussian(x.mean.double(), x.cov.double()) for x in single]
    for condition, noises in (
        (theory.stationarity_mean, (wrong_cov,)),
        (theory.stationarity_cov, (wrong_cov, noise_cov)),
    ):
        found, expected = (
            condition(*single, operator, *noises),
            condition(*rounded, operator, *noises),
        )
        assert found.right.dtype == torch.float64
        assert torch.equal(found.left, expected.left)
        assert torch.equal(found.right, expected.right)
    targets = [theory.target_moments(x[1], operator, noise_cov) for x in (single, rounded)]
    values = [
        theory.risk(x[0], operator, target, wrong_cov)
        for x, target in zip((single, rounded), targets, strict=True)
    ]
    assert torch.equal(*values)


def test_a_tau_that_was_never_drawn_is_refused() -> None:
    operator = problem(theory).operator
    with pytest.raises(UsageError, match="1 of 3 without"):
        theory.sample_moments(torch.randn(4, 3).double(), torch.tensor([0, 1, 1, 0]), operator)
