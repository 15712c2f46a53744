"""Proposition 1, end to end, on worlds whose posterior is known in closed form."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from pushframe import theory

SIGMAS = 5  # tolerance in standard errors: one false alarm in two million comparisons
COUNT = 60_000  # targets, a quarter of them on each sub-grid
VIEW_STD = 1.5  # of the noise on the input: large, so that several scenes remain possible
NOISES = {"white": (0.0, 0.1), "affine": (0.05, 0.02)}
WORLDS = ["gaussian_world", "mixture_world"]


def posterior_of(theory: ModuleType, world: str) -> theory.Mixture:
    """What is known of a 4 x 4 image after two noisy 2 x 2 frames of it, halfway between scenes."""
    prior, view = getattr(theory, world)(), theory.burst_view()
    seen = view @ (prior.moments.mean + 0.1)
    return prior.given(seen, view, VIEW_STD**2 * torch.eye(len(seen), dtype=torch.float64))


def start(theory: ModuleType, seed: int = 0, size: int = 16) -> theory.Gaussian:
    draw = torch.randn(2, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return theory.Gaussian(draw[0], draw[1].exp())


def standard_errors(target: Tensor, tau: Tensor, operator: theory.RandomOperator) -> tuple:
    """Of mean and variance of each pixel, from the second and fourth moments of its targets."""
    mean_error, var_error = torch.zeros(2, operator.matrices.shape[-1], dtype=torch.float64)
    for place, matrix in enumerate(operator.matrices):
        away = target[tau == place] - target[tau == place].mean(0)
        var, count = away.square().mean(0), len(away)
        mean_error += matrix.mT @ (var / count).sqrt()
        var_error += matrix.mT @ ((away**4).mean(0) / count - var**2 / count).sqrt()
    return mean_error, var_error


def check_recovery(theory: ModuleType, world: str = "mixture_world", noise: str = "white") -> None:
    """The empirical risk's minimisers are posterior mean and variance within Monte-Carlo error."""
    generator = torch.Generator().manual_seed(11)
    posterior, law = posterior_of(theory, world), theory.AffineNoise(*NOISES[noise])
    operator, truth = theory.subsampling((2, 2)), posterior.moments
    target, tau = theory.draw_targets(posterior.sample(COUNT, generator), operator, law, generator)
    mean_error, var_error = standard_errors(target, tau, operator)
    moments, frequencies = theory.sample_moments(target, tau, operator)
    found = theory.minimise(frequencies, moments, law.var, start(theory))
    assert ((found.mean - truth.mean).abs() < SIGMAS * mean_error).all()
    tolerance = SIGMAS * (var_error + law.a * mean_error)  # R_hat follows the mean
    assert ((found.cov - truth.var).abs() < tolerance).all()


def check_exact(theory: ModuleType) -> None:
    """The Bayes risk's minimisers are posterior mean and variance, from any start, at any scale."""
    law = theory.AffineNoise(*NOISES["affine"])
    for shape, scale in (((2, 2), 2), ((1, 1), 3)):
        operator, view = theory.subsampling(shape, scale), theory.burst_view(shape, scale)
        prior = theory.mixture_world((scale * shape[0], scale * shape[1]))
        noise = torch.eye(len(view), dtype=torch.float64)
        truth = prior.given(view @ prior.moments.mean, view, noise).moments
        noise_var = law.var(operator.matrices @ truth.mean)
        target = theory.target_moments(truth, operator, noise_var)
        for seed in range(3):
            mean, var = start(theory, seed, len(truth.mean))
            begin = theory.Gaussian(mean + 5 * seed, var)  # its R_hat from too small to too large
            found = theory.minimise(operator, target, law.var, begin)
            torch.testing.assert_close(found.mean, truth.mean, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(found.cov, truth.var, rtol=1e-4, atol=1e-5)


def check_bayes(theory: ModuleType) -> None:
    """Bayes' rule by brute force: draws of the prior, weighted by the likelihood of the input."""
    for world in WORLDS:
        prior, view = getattr(theory, world)(), theory.burst_view()
        seen = view @ (prior.moments.mean + 0.1)
        draws = prior.sample(200_000, torch.Generator().manual_seed(13))
        weight = (-(seen - draws @ view.mT).square().sum(-1) / (2 * VIEW_STD**2)).softmax(0)
        mean = weight @ draws
        away = draws - mean
        var = weight @ away.square()
        mean_error = (weight.square() @ away.square()).sqrt()
        var_error = (weight.square() @ (away.square() - var).square()).sqrt()
        truth = posterior_of(theory, world).moments
        assert ((mean - truth.mean).abs() < SIGMAS * mean_error).all()
        assert ((var - truth.var).abs() < SIGMAS * var_error).all()


SABOTAGES = [
    (check_recovery, "likelihood.py", "+ noise_cov.detach().double()", ""),
    (check_recovery, "likelihood.py", "+ noise_cov.detach()", "+ 2 * noise_cov.detach()"),
    (check_recovery, "stationarity.py", "(fit + log_det) / 2", "(fit + log_det / 2) / 2"),
    (check_recovery, "stationarity.py", "(fit + log_det) / 2", "(fit / 2 + log_det) / 2"),
    (check_recovery, "stationarity.py", "target.full + residual @", "target.full + 0 * residual @"),
    (check_recovery, "worlds.py", "(operator.matrices[tau] @", "(operator.matrices[tau - 1] @"),
    (check_recovery, "worlds.py", "self.covs + _outer(away)", "self.covs"),
    (check_bayes, "worlds.py", "(self.weight.log() + evidence).softmax(0)", "self.weight"),
    (check_bayes, "worlds.py", "self.covs - gain @ across.mT", "self.covs"),
    (check_bayes, "worlds.py", "self.means + (gain @", "self.means - (gain @"),
    (check_bayes, "worlds.py", "operator @ across + noise_cov", "operator @ across"),
    (check_exact, "descent.py", "ROUNDS = 3", "ROUNDS = 1"),
    (check_exact, "descent.py", "noise_cov(operator.matrices @ mean.detach())",
     "noise_cov(operator.matrices @ start.mean)"),
    (check_exact, "likelihood.py", "+ noise_cov.detach().double()", ""),
]  # fmt: skip


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("world", WORLDS)
def test_self_supervision_recovers_posterior_mean_and_variance(world: str, noise: str) -> None:
    check_recovery(theory, world, noise)


def test_closed_form_posterior_against_weighted_draws_of_the_prior() -> None:
    check_bayes(theory)


def test_the_minimum_is_the_posterior_from_any_start() -> None:
    check_exact(theory)


@pytest.mark.parametrize(("check", "file", "right", "wrong"), SABOTAGES)
def test_a_wrong_sign_factor_or_term_is_caught(
    check: Callable, file: str, right: str, wrong: str, sabotage: Callable
) -> None:
    broken = sabotage(file, right, wrong)
    with pytest.raises(AssertionError):
        check(broken)


def test_the_worlds_are_what_the_proposition_is_about() -> None:
    """Correlated pixels; and the mixture's posterior is far from Gaussian."""
    for world in WORLDS:
        moments = posterior_of(theory, world).moments
        correlation = moments.cov / (moments.var[:, None] * moments.var).sqrt()
        assert float((correlation - torch.eye(16)).abs().max()) > 0.5
    mixture = posterior_of(theory, "mixture_world")
    assert (mixture.weight > 0.1).sum() >= 2
    draws = mixture.sample(20_000, torch.Generator().manual_seed(0))
    kurtosis = ((draws - draws.mean(0)) / draws.std(0)).pow(4).mean(0)
    assert float((kurtosis - 3).abs().min()) > 10 * (24 / 20_000) ** 0.5  # se if it were Gaussian


@pytest.mark.parametrize("world", WORLDS)
def test_supervision_has_the_same_minimisers(world: str) -> None:
    """The truth as target: the same mean and variance, the diagonal and the full covariance."""
    generator = torch.Generator().manual_seed(17)
    posterior, count = posterior_of(theory, world), COUNT // 4
    moments, whole = posterior.moments, theory.RandomOperator(torch.eye(16)[None])
    draws = posterior.sample(count, generator)
    tau = torch.zeros(count, dtype=torch.long)
    mean_error, var_error = standard_errors(draws, tau, whole)
    sample, _ = theory.sample_moments(draws, tau, whole)
    found = theory.minimise(whole, sample, torch.zeros_like, start(theory))
    assert ((found.mean - moments.mean).abs() < SIGMAS * mean_error).all()
    assert ((found.cov - moments.var).abs() < SIGMAS * var_error).all()
    losses = theory.supervised_nll(theory.Gaussian(found.mean[None], found.cov[None]), draws)
    risk = theory.risk(found, whole, sample, torch.zeros(1, 16))
    torch.testing.assert_close(losses.mean(), risk)

    exact = theory.target_moments(moments, whole, torch.zeros(1, 16))
    begin = theory.Gaussian(start(theory).mean, torch.eye(16))
    full = theory.minimise(whole, exact, torch.zeros_like, begin)
    torch.testing.assert_close(full.cov, moments.cov, rtol=1e-3, atol=1e-4)


def test_only_the_diagonal_of_the_noise_must_be_right() -> None:
    """Correlated noise: R_hat = diag(R) still gives the posterior."""
    moments, operator = posterior_of(theory, "gaussian_world").moments, theory.subsampling((2, 2))
    noise_cov = 0.1 * torch.eye(4, dtype=torch.float64) + 0.08
    target = theory.target_moments(moments, operator, noise_cov.expand(4, -1, -1))
    found = theory.minimise(
        operator, target, lambda z: noise_cov.diagonal().expand_as(z), start(theory)
    )
    torch.testing.assert_close(found.mean, moments.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.cov, moments.var, rtol=1e-4, atol=1e-5)


def test_an_estimator_trained_on_pairs_alone_becomes_the_posterior() -> None:
    """Risk over random inputs, no truth, no posterior: an affine map of v and one variance a pixel.

    In the Gaussian world the posterior mean is affine in v and its variance is the same for all v.
    """
    generator, count, noise_var = torch.Generator().manual_seed(19), 20_000, 0.1
    prior, operator = theory.gaussian_world((2, 4)), theory.subsampling((1, 2))
    view, view_var = theory.burst_view((1, 2)), 0.25
    law = theory.AffineNoise(0, noise_var)
    truth = prior.sample(count, generator)
    seen = theory.AffineNoise(0, view_var).add(truth @ view.mT, generator)
    target, tau = theory.draw_targets(truth, operator, law, generator)
    inputs = torch.cat([seen, torch.ones(count, 1)], -1)

    weight = torch.zeros(8, 5, dtype=torch.float64, requires_grad=True)
    log_var = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, log_var], max_iter=200, tolerance_grad=1e-8, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        belief = theory.Gaussian(inputs @ weight.mT, log_var.exp()[None])
        fixed = torch.full((count, 2), noise_var, dtype=torch.float64)
        value = theory.nll(belief, target, operator.matrices[tau], fixed).mean()
        value.backward()
        return float(value.detach())

    optimiser.step(closure)

    def posterior(v: Tensor) -> theory.Gaussian:
        return prior.given(v, view, view_var * torch.eye(4, dtype=torch.float64)).moments

    zero = torch.zeros(4, dtype=torch.float64)
    columns = [posterior(v).mean - posterior(zero).mean for v in torch.eye(4).double()]
    expected = torch.stack([*columns, posterior(zero).mean], -1)
    var = posterior(zero).var
    gram = torch.linalg.inv(inputs.mT @ inputs / 4)  # a quarter of the targets shows each pixel
    error = ((var + noise_var)[:, None] * gram.diagonal()).sqrt()
    assert ((weight.detach() - expected).abs() < SIGMAS * error).all()
    var_error = (var + noise_var) * (2 / (count / 4)) ** 0.5
    assert ((log_var.detach().exp() - var).abs() < SIGMAS * var_error).all()
    assert (noise_var > SIGMAS * var_error).all()  # a missing noise term would be seen
