"""The general loss: against torch's own Gaussians, its gradients, and the training loss."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from pushframe import NoiseLaw, Posterior, geometry, loss, theory
from pushframe.errors import UsageError
from pushframe.noise import normalised_noise_var


def positive(generator: torch.Generator, *shape: int) -> Tensor:
    """Random positive definite matrices of that shape."""
    root = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return root @ root.mT + 0.5 * torch.eye(shape[-1], dtype=torch.float64)


def problem(theory: ModuleType, diagonal: bool) -> tuple:
    """Five targets of three pixels from seven, each with its own operator, belief and noise."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    cov = draw(5, 7).exp() if diagonal else positive(generator, 5, 7, 7)
    belief = theory.Gaussian(draw(5, 7), cov)
    return belief, draw(5, 3), draw(5, 3, 7), positive(generator, 5, 3, 3)


def check_density(theory: ModuleType) -> None:
    """The loss is minus torch's own log density, but for the constant."""
    for diagonal in (True, False):
        belief, target, operator, noise_cov = problem(theory, diagonal)
        mean = torch.einsum("bqd,bd->bq", operator, belief.mean)
        full = torch.diag_embed(belief.cov) if diagonal else belief.cov
        cov = torch.einsum("bqd,bde,bre->bqr", operator, full, operator) + noise_cov
        constant = 3 * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64)) / 2
        expected = -MultivariateNormal(mean, cov).log_prob(target) - constant
        torch.testing.assert_close(theory.nll(belief, target, operator, noise_cov), expected)


def check_gradients(theory: ModuleType) -> None:
    """The closed forms of the appendix, 1/2 and R_hat restored, are those of autograd."""
    for diagonal in (True, False):
        belief, *rest = problem(theory, diagonal)
        mean, cov = (x.requires_grad_() for x in belief)
        value = theory.nll(theory.Gaussian(mean, cov), *rest).sum()
        expected = torch.autograd.grad(value, (mean, cov))
        found = theory.nll_gradients(belief, *rest)
        torch.testing.assert_close(found.mean, expected[0])
        torch.testing.assert_close(found.cov, expected[1])


def check_fixed_noise(theory: ModuleType) -> None:
    """A noise that follows the mean gets no gradient: the lemmas hold it fixed."""
    belief, target, operator, noise_cov = problem(theory, diagonal=True)
    mean = belief.mean.requires_grad_()
    signal = operator @ mean[..., None]
    value = theory.nll(belief, target, operator, noise_cov + signal @ signal.mT).sum()
    (attached,) = torch.autograd.grad(value, mean, retain_graph=True)
    fixed = noise_cov + (signal @ signal.mT).detach()
    value = theory.nll(belief, target, operator, fixed).sum()
    torch.testing.assert_close(attached, torch.autograd.grad(value, mean)[0])


LIKELIHOOD = "likelihood.py"
SABOTAGES = [
    (check_density, "+ noise_cov.detach().double()", ""),
    (check_density, "+ noise_cov.detach().double()", "- noise_cov.detach().double()"),
    (check_density, "sum((-1, -2)) / 2 + log_det / 2", "sum((-1, -2)) / 2 - log_det / 2"),
    (check_density, "sum((-1, -2)) / 2 + log_det / 2", "sum((-1, -2)) / 2 + log_det"),
    (check_density, "sum((-1, -2)) / 2 + log_det / 2", "sum((-1, -2)) + log_det / 2"),
    (check_density, "log_det = 2 * lower", "log_det = lower"),
    (check_density, "@ belief.full @", "@"),
    (check_gradients, "pulled @ pulled.mT) / 2", "pulled @ pulled.mT)"),  # as the appendix has it
    (check_gradients, "(seen - pulled @", "(seen + pulled @"),
    (check_gradients, "Gaussian(-pulled", "Gaussian(pulled"),
    (check_gradients, "torch.cholesky_solve(residual, lower)", "residual"),
    (check_fixed_noise, ".detach()", ""),
]


def test_the_loss_is_minus_the_gaussian_log_density() -> None:
    check_density(theory)


def test_gradients_are_those_of_autograd() -> None:
    check_gradients(theory)


def test_no_gradient_flows_into_the_noise() -> None:
    check_fixed_noise(theory)


@pytest.mark.parametrize(("check", "right", "wrong"), SABOTAGES)
def test_a_wrong_sign_factor_or_term_is_caught(
    check: Callable, right: str, wrong: str, sabotage: Callable
) -> None:
    broken = sabotage(LIKELIHOOD, right, wrong)
    with pytest.raises((AssertionError, UsageError)):
        check(broken)


def test_the_appendix_without_its_noise_term_is_not_the_gradient() -> None:
    belief, target, operator, noise_cov = problem(theory, diagonal=True)
    right = theory.nll_gradients(belief, target, operator, noise_cov)
    bare = theory.nll_gradients(belief, target, operator, torch.zeros_like(noise_cov))
    assert not torch.allclose(bare.cov, right.cov, rtol=0.1)


def test_loss_passes_gradcheck() -> None:
    belief, target, operator, noise_cov = problem(theory, diagonal=False)
    mean, root = belief.mean.requires_grad_(), torch.linalg.cholesky(belief.cov).requires_grad_()

    def value(mean: Tensor, root: Tensor) -> Tensor:
        return theory.nll(theory.Gaussian(mean, root @ root.mT), target, operator, noise_cov)

    assert torch.autograd.gradcheck(value, (mean, root))


def test_supervised_loss_is_the_case_without_operator_and_noise() -> None:
    generator = torch.Generator().manual_seed(2)
    mean, truth = torch.randn(2, 6, 9, dtype=torch.float64, generator=generator)
    var = torch.rand(6, 9, dtype=torch.float64, generator=generator) + 0.1
    found = theory.supervised_nll(theory.Gaussian(mean, var), truth)
    expected = torch.nn.functional.gaussian_nll_loss(mean, truth, var, reduction="none", eps=0)
    torch.testing.assert_close(found, expected.sum(-1))
    image = Posterior(mean.reshape(6, 3, 3), var.reshape(6, 3, 3))
    trained = loss.supervised_nll(image, truth.reshape(6, 3, 3))
    torch.testing.assert_close(found.sum() / truth.numel(), trained)


@pytest.mark.parametrize("scale", [2, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_the_training_loss_is_the_diagonal_subsampling_case(scale: int, masked: bool) -> None:
    """Number and gradients, with signal-dependent noise and holes (rows left out of A)."""
    generator = torch.Generator().manual_seed(3)
    batch, high = 6, (scale * 2, scale * 3)
    target = torch.rand(batch, 2, 3, dtype=torch.float64, generator=generator)
    valid = torch.rand(target.shape, generator=generator) > (0.3 if masked else -1)
    mean = torch.rand(batch, *high, dtype=torch.float64, generator=generator).requires_grad_()
    var = (1e-4 * torch.rand_like(mean) + 1e-6).requires_grad_()
    tau = geometry.random_tau(batch, scale, generator)
    law = NoiseLaw(torch.full((batch,), 0.1187), torch.full((batch,), 12.05))
    gain = torch.linspace(1000, 5000, batch, dtype=torch.float64)[:, None]
    trained = loss.self_supervised_nll(Posterior(mean, var), target, valid, tau, law, gain)

    matrices = theory.subsampling((2, 3), scale).matrices[tau @ torch.tensor([scale, 1])]
    total = torch.zeros((), dtype=torch.float64)
    for k in range(batch):
        operator = matrices[k][valid[k].flatten()]
        belief = theory.Gaussian(mean[k].flatten(), var[k].flatten())
        signal = operator @ belief.mean
        one = NoiseLaw(law.a[k : k + 1], law.b[k : k + 1])
        noise_var = normalised_noise_var(one, signal.reshape(1, 1, 1, -1), gain[k : k + 1])
        total = total + theory.nll(belief, target[k][valid[k]], operator, noise_var.flatten())
    general = total / valid.sum()

    torch.testing.assert_close(trained, general)
    expected = torch.autograd.grad(general, (mean, var))
    found = torch.autograd.grad(trained, (mean, var))
    for left, right in zip(found, expected, strict=True):
        assert float(right.abs().max()) > 0
        torch.testing.assert_close(left, right)


def test_float32_is_computed_in_float64() -> None:
    belief, *rest = problem(theory, diagonal=False)
    single = theory.Gaussian(belief.mean.float(), belief.cov.float())
    rounded = theory.Gaussian(single.mean.double(), single.cov.double())
    value = theory.nll(single, *rest)
    assert value.dtype == torch.float64
    torch.testing.assert_close(value, theory.nll(rounded, *rest), rtol=1e-12, atol=1e-12)


def test_one_belief_serves_many_targets() -> None:
    belief, target, operator, noise_cov = problem(theory, diagonal=False)
    one = theory.Gaussian(belief.mean[:1], belief.cov[:1])
    found = theory.nll(one, target, operator[:1], noise_cov[:1])
    alone = [
        theory.nll(theory.Gaussian(belief.mean[0], belief.cov[0]), z, operator[0], noise_cov[0])
        for z in target
    ]
    torch.testing.assert_close(found, torch.stack(alone))
    assert theory.nll_gradients(one, target, operator[:1], noise_cov[:1]).cov.shape == (5, 7, 7)


def test_a_pair_of_functions_is_its_matrix() -> None:
    kernel = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)[None, None]

    def blur(u: Tensor) -> Tensor:
        return torch.nn.functional.conv1d(u[:, None], kernel)[:, 0]

    def adjoint(z: Tensor) -> Tensor:
        return torch.nn.functional.conv_transpose1d(z[:, None], kernel)[:, 0]

    matrix = theory.dense(blur, adjoint, 6, 4)
    u = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(u @ matrix.mT, blur(u))
    with pytest.raises(UsageError, match=r"forward and adjoint of one 4 x 6 matrix"):
        theory.dense(blur, lambda z: 2 * adjoint(z), 6, 4)


@pytest.mark.parametrize("scale", [2, 3])
def test_subsampling_rows_are_pixels_s_l_plus_tau(scale: int) -> None:
    operator = theory.subsampling((2, 3), scale)
    image = torch.arange(float(scale**2 * 6), dtype=torch.float64)
    for dy in range(scale):
        for dx in range(scale):
            expected = image.reshape(2 * scale, 3 * scale)[dy::scale, dx::scale].flatten()
            assert torch.equal(operator.matrices[scale * dy + dx] @ image, expected)
    assert torch.equal(operator.matrices.sum((0, 1)), torch.ones_like(image))  # each pixel once


def test_what_cannot_be_meant_is_refused() -> None:
    belief, target, operator, noise_cov = problem(theory, diagonal=True)
    with pytest.raises(UsageError, match="positive definite"):
        theory.nll(theory.Gaussian(belief.mean, -100 * belief.cov), target, operator, noise_cov)
    with pytest.raises(UsageError, match=r"covariance of shape \(..., 7, 7\)"):
        theory.nll(theory.Gaussian(belief.mean, belief.cov[:, :6]), target, operator, noise_cov)
    with pytest.raises(UsageError, match=r"covariance of shape \(..., 3, 3\)"):
        theory.nll(belief, target, operator, noise_cov[0, 0])
    with pytest.raises(UsageError, match=r"shape \(T, q, d\)"):
        theory.RandomOperator(operator[0])
    with pytest.raises(UsageError, match="5 probabilities that sum to 1"):
        theory.RandomOperator(operator, torch.ones(5))
