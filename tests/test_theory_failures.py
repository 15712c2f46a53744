"""Where the proposition breaks: what each missing assumption does to mean and variance."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from test_theory_loss import positive
from test_theory_proposition import SIGMAS, posterior_of, standard_errors, start
from torch import Tensor

from pushframe import theory

LAW = (0.05, 0.02)  # a, b of the noise
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # of a descent that stops at a gradient of 1e-9


def setting(theory: ModuleType) -> tuple:
    """Operator, posterior moments, noise law, true noise and target moments of the mixture."""
    operator, law = theory.subsampling((2, 2)), theory.AffineNoise(*LAW)
    moments = posterior_of(theory, "mixture_world").moments
    noise_var = law.var(operator.matrices @ moments.mean)
    target = theory.target_moments(moments, operator, noise_var)
    return operator, moments, law, noise_var, target


def on_the_image(values: Tensor, operator: theory.RandomOperator) -> Tensor:
    """Low-res values of every tau (T, q) on their high-res pixels, `sum_tau A_tau' values`."""
    return (operator.matrices.mT @ values[..., None]).sum(0)[:, 0]


def assert_holds(
    belief: theory.Gaussian,
    posterior: theory.Gaussian,
    operator: theory.RandomOperator,
    noise_cov: Tensor,
) -> None:
    """Both stationarity conditions, the covariance's in full."""
    in_mean = theory.stationarity_mean(belief, posterior, operator, noise_cov)
    in_cov = theory.stationarity_cov(belief, posterior, operator, noise_cov, noise_cov)
    torch.testing.assert_close(in_mean.left, in_mean.right)
    torch.testing.assert_close(in_cov.left, in_cov.right)


def test_without_the_random_shift_unseen_pixels_are_free() -> None:
    operator, moments, law, _, target = setting(theory)
    fixed = theory.RandomOperator(operator.matrices[:1])
    seen = operator.matrices[0].sum(0) > 0
    assert len(theory.unseen_means(fixed)) == len(theory.unseen_vars(fixed)) == 12
    assert len(theory.unseen_means(operator)) == len(theory.unseen_vars(operator)) == 0
    for seed in (0, 1):
        begin = start(theory, seed)
        one = theory.Gaussian(target.mean[:1], target.cov[:1])
        found = theory.minimise(fixed, one, law.var, begin)
        torch.testing.assert_close(found.mean[seen], moments.mean[seen], **CLOSE)
        torch.testing.assert_close(found.cov[seen], moments.var[seen], **CLOSE)
        torch.testing.assert_close(found.mean[~seen], begin.mean[~seen])  # where they started
        torch.testing.assert_close(found.cov[~seen], begin.cov[~seen])
        shifted = theory.minimise(operator, target, law.var, begin)  # twin
        torch.testing.assert_close(shifted.cov, moments.var, **CLOSE)


def test_sums_and_differences_determine_the_mean_but_not_the_variances() -> None:
    """Two pixels seen as u1 + u2 or u1 - u2: only the sum of their variances shows."""
    both = torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]])
    operator, noise_var = theory.RandomOperator(both), torch.full((2, 1), 0.3).double()
    mean = torch.tensor([1.0, 2.0], dtype=torch.float64)
    posterior = theory.Gaussian(mean, torch.tensor([1.0, 3.0], dtype=torch.float64).diag())
    second = theory.Gaussian(mean, torch.tensor([3.5, 0.5], dtype=torch.float64).diag())
    assert len(theory.unseen_means(operator)) == 0
    (free,) = theory.unseen_vars(operator)
    torch.testing.assert_close(free * free[0].sign() * 2**0.5, torch.tensor([1.0, -1.0]).double())

    target = theory.target_moments(posterior, operator, noise_var)
    torch.testing.assert_close(
        theory.risk(second, operator, target, noise_var),
        theory.risk(posterior, operator, target, noise_var),
    )
    assert_holds(posterior, posterior, operator, noise_var)
    assert_holds(second, posterior, operator, noise_var)
    third = theory.Gaussian(mean, torch.tensor([3.0, 3.0], dtype=torch.float64).diag())
    with pytest.raises(AssertionError):  # twin: another sum of variances
        assert_holds(third, posterior, operator, noise_var)
    found = [
        theory.minimise(operator, target, lambda _: noise_var, start(theory, seed, 2))
        for seed in (0, 1)
    ]
    for belief in found:
        torch.testing.assert_close(belief.mean, mean, **CLOSE)
        torch.testing.assert_close(float(belief.cov.sum()), 4.0, **CLOSE)
    assert abs(float(found[0].cov[0] - found[1].cov[0])) > 0.1


def test_a_full_covariance_is_not_determined_by_subsampling() -> None:
    """Pixels of different sub-grids are never seen together: their covariance is free."""
    operator, moments, _, noise_var, target = setting(theory)
    together = (operator.matrices.mT @ torch.ones(4, 4).double() @ operator.matrices).sum(0)
    second = theory.Gaussian(moments.mean, moments.cov * together)
    assert float((second.cov - moments.cov).abs().max()) > 0.4
    assert float(torch.linalg.eigvalsh(second.cov).min()) > 0
    torch.testing.assert_close(
        theory.risk(second, operator, target, noise_var),
        theory.risk(moments, operator, target, noise_var),
    )
    assert_holds(second, moments, operator, noise_var)
    assert len(theory.unseen_covs(operator)) == 16 * 15 / 2 - 4 * 4 * 3 / 2


def test_operators_that_see_every_pair_determine_the_full_covariance() -> None:
    generator = torch.Generator().manual_seed(23)
    pairs = torch.combinations(torch.arange(4))
    operator = theory.RandomOperator(torch.eye(4)[pairs])  # (6, 2, 4)
    posterior = theory.Gaussian(torch.arange(4.0).double(), positive(generator, 4, 4))
    noise_cov = positive(generator, 6, 2, 2)
    assert len(theory.unseen_covs(operator)) == len(theory.unseen_means(operator)) == 0
    target = theory.target_moments(posterior, operator, noise_cov)
    for seed in (0, 1):
        begin = theory.Gaussian(start(theory, seed, 4).mean, start(theory, seed, 4).cov.diag())
        found = theory.minimise(operator, target, lambda _: noise_cov, begin)
        torch.testing.assert_close(found.mean, posterior.mean, **CLOSE)
        torch.testing.assert_close(found.cov, posterior.cov, **CLOSE)


def test_every_stationary_covariance_looks_like_the_posterior_to_every_tau() -> None:
    """Descents end in different covariances, all with `A cov_hat A' = A cov A'`."""
    generator = torch.Generator().manual_seed(29)
    draw = torch.randn(2, 2, 4, dtype=torch.float64, generator=generator)
    operator, noise_cov = theory.RandomOperator(draw), positive(generator, 2, 2, 2)
    posterior = theory.Gaussian(torch.zeros(4).double(), positive(generator, 4, 4))
    target = theory.target_moments(posterior, operator, noise_cov)
    ends = []
    for seed in (0, 1):
        begin = theory.Gaussian(posterior.mean, positive(torch.Generator().manual_seed(seed), 4, 4))
        found = theory.minimise(operator, target, lambda _: noise_cov, begin)
        torch.testing.assert_close(
            draw @ found.cov @ draw.mT, draw @ posterior.cov @ draw.mT, **CLOSE
        )
        free = theory.unseen_covs(operator)
        gap = found.cov - posterior.cov
        inside = torch.einsum("nij,ij->n", free, gap) @ free.flatten(1)
        torch.testing.assert_close(inside, gap.flatten(), rtol=1e-3, atol=1e-4)
        ends.append(found.cov)
    assert float((ends[0] - ends[1]).abs().max()) > 0.1


def test_a_blurring_operator_makes_variance_of_covariance() -> None:
    """Diagonal belief, operator that mixes pixels: right only if the posterior is diagonal too."""
    rows = 0.75 * torch.eye(4) + 0.25 * torch.eye(4).roll(1, 0)
    operator = theory.RandomOperator(torch.stack([rows[::2], rows[1::2]]))
    assert len(theory.unseen_vars(operator)) == 0
    noise_var = torch.full((2, 2), 0.1).double()
    var = torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64)
    for correlation, honest in ((0.0, True), (0.8, False)):
        mixed = (1 - correlation) * torch.eye(4).double() + correlation
        posterior = theory.Gaussian(
            torch.zeros(4).double(), var.sqrt()[:, None] * var.sqrt() * mixed
        )
        target = theory.target_moments(posterior, operator, noise_var)
        found = theory.minimise(operator, target, lambda _: noise_var, start(theory, 0, 4))
        sides = theory.stationarity_var(found, posterior, operator, noise_var, noise_var)
        torch.testing.assert_close(sides.left, sides.right, rtol=1e-5, atol=1e-5)
        error = (found.cov / var - 1).abs()
        assert (error < 1e-4).all() if honest else (error > 0.15).all()


def check_uncorrected(theory: ModuleType) -> None:
    """Without R_hat the minimiser is `diag(Sigma) + R`, exactly and on a sample."""
    operator, moments, law, noise_var, target = setting(theory)
    expected = moments.var + on_the_image(noise_var, operator)
    found = theory.minimise(operator, target, torch.zeros_like, start(theory))
    torch.testing.assert_close(found.mean, moments.mean, **CLOSE)
    torch.testing.assert_close(found.cov, expected, **CLOSE)
    generator = torch.Generator().manual_seed(31)
    truth = posterior_of(theory, "mixture_world").sample(40_000, generator)
    drawn, tau = theory.draw_targets(truth, operator, law, generator)
    _, var_error = standard_errors(drawn, tau, operator)
    sample, frequencies = theory.sample_moments(drawn, tau, operator)
    found = theory.minimise(frequencies, sample, torch.zeros_like, start(theory))
    assert ((found.cov - expected).abs() < SIGMAS * var_error).all()
    assert ((found.cov - moments.var).abs() > SIGMAS * var_error).all()


def check_wrong_level(theory: ModuleType) -> None:
    """`diag(Sigma) + R - R_hat`: an error of the noise level passes one to one, down to zero."""
    operator, moments, law, noise_var, target = setting(theory)
    noise_var = on_the_image(noise_var, operator)
    for level in (0.5, 0.9, 1.1, 2.0, 5.0):
        wrong = theory.AffineNoise(level * law.a, level * law.b)
        found = theory.minimise(operator, target, wrong.var, start(theory))
        expected = (moments.var + (1 - level) * noise_var).clamp(min=0)
        torch.testing.assert_close(found.mean, moments.mean, **CLOSE)
        torch.testing.assert_close(found.cov, expected, rtol=1e-4, atol=1e-4)
    assert (expected == 0).any()  # at the last level the floor is reached


def check_negative_share(theory: ModuleType) -> None:
    """Variances that subtracting makes negative: their share, and none where R is in the loss."""
    pixels, count, noise_var = 20_000, 8, torch.tensor(1.0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(37)
    for ratio in (0.1, 0.5, 2.0):
        white = torch.randn(count, pixels, dtype=torch.float64, generator=generator)
        learnt = ((noise_var + ratio).sqrt() * white).var(0, correction=0)
        share = float((learnt < noise_var).double().mean())
        expected = float(theory.negative_share(noise_var * ratio, noise_var, count))
        assert abs(share - expected) < SIGMAS * (expected * (1 - expected) / pixels) ** 0.5
    negative = (learnt < noise_var).nonzero()[:3, 0]
    for pixel in negative:  # the minimiser without R_hat is that variance; with it, zero
        drawn = ((noise_var + ratio).sqrt() * white)[:, [pixel]]
        one = theory.RandomOperator(torch.ones(1, 1, 1))
        sample, _ = theory.sample_moments(drawn, torch.zeros(count, dtype=torch.long), one)
        bare = theory.minimise(one, sample, torch.zeros_like, start(theory, 0, 1))
        torch.testing.assert_close(bare.cov[0], learnt[pixel], **CLOSE)
        inside = theory.minimise(one, sample, torch.ones_like, start(theory, 0, 1))
        assert 0 <= float(inside.cov) < 1e-4


def check_bias(theory: ModuleType) -> None:
    """The remark: a biased mean, held, gives `diag(Sigma) + bias^2`."""
    operator, moments, _, noise_var, target = setting(theory)
    bias = torch.linspace(-1, 1, 16, dtype=torch.float64)
    biased = theory.Gaussian(moments.mean + bias, torch.ones(16).double())
    found = theory.minimise(operator, target, lambda _: noise_var, biased, hold_mean=True)
    assert torch.equal(found.mean, biased.mean)
    torch.testing.assert_close(found.cov, moments.var + bias**2, **CLOSE)


SABOTAGES = [
    (check_uncorrected, "stationarity.py", "spread + as_matrix(noise_cov, mean)", "spread"),
    (check_uncorrected, "worlds.py", "self.var(signal).sqrt() * white", "0 * white"),
    (check_wrong_level, "likelihood.py", "+ noise_cov.detach()", "+ 0.5 * noise_cov.detach()"),
    (check_wrong_level, "stationarity.py", "(fit + log_det) / 2", "(fit + log_det / 2) / 2"),
    (check_negative_share, "descent.py", "(count - 1) / 2", "count / 2"),
    (check_negative_share, "descent.py", "/ (var + noise_var) / 2", "/ (var + noise_var)"),
    (check_negative_share, "descent.py", "/ (var + noise_var) / 2", "/ var / 2"),
    (check_bias, "stationarity.py", "target.full + residual @", "target.full - residual @"),
    (check_bias, "stationarity.py", "target.full + residual @", "target.full + 0 * residual @"),
    (check_bias, "descent.py", "requires_grad_(not hold_mean)", "requires_grad_()"),
]  # fmt: skip


def test_no_noise_correction_gives_variance_plus_noise() -> None:
    check_uncorrected(theory)


def test_a_wrong_noise_level_passes_one_to_one() -> None:
    check_wrong_level(theory)


def test_subtracting_afterwards_makes_negative_variances() -> None:
    check_negative_share(theory)


def test_a_biased_mean_becomes_variance_plus_squared_bias() -> None:
    check_bias(theory)


@pytest.mark.parametrize(("check", "file", "right", "wrong"), SABOTAGES)
def test_a_wrong_sign_factor_or_term_is_caught(
    check: Callable, file: str, right: str, wrong: str, sabotage: Callable
) -> None:
    broken = sabotage(file, right, wrong)
    with pytest.raises(AssertionError):
        check(broken)


def test_the_figure_of_the_failures_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = Path(__file__).parents[1] / "examples" / "theory_figures.py"
    spec = importlib.util.spec_from_file_location("theory_figures", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.draw_failures(tmp_path / "failures.png")
    assert (tmp_path / "failures.png").read_bytes().startswith(b"\x89PNG")


def test_a_gradient_through_the_noise_pulls_the_mean_while_the_variance_is_wrong(
    sabotage: Callable,
) -> None:
    """Detached, the true mean is stationary whatever the variance; attached, only at the end."""
    attached = sabotage("likelihood.py", ".detach()", "")

    def slope(theory: ModuleType, share: float) -> Tensor:
        operator, moments, law, _, target = setting(theory)
        mean = moments.mean.clone().requires_grad_()
        belief = theory.Gaussian(mean, share * moments.var)
        value = theory.risk(belief, operator, target, law.var(operator.matrices @ mean))
        return torch.autograd.grad(value, mean)[0]

    for share in (0.25, 1.0, 4.0):
        assert float(slope(theory, share).abs().max()) < 1e-12
    assert float(slope(attached, 1.0).abs().max()) < 1e-12
    assert (slope(attached, 0.25) < -1e-3).all()  # too small a variance: the mean is pushed up
    assert (slope(attached, 4.0) > 1e-4).all()
