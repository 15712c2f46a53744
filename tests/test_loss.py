"""The losses are the paper's: against an independent density, at their minimum, and blind."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pushframe import loss
from pushframe.burst import NoiseLaw
from pushframe.errors import UsageError
from pushframe.geometry import subsample
from pushframe.noise import normalised_noise_var
from pushframe.posterior import Posterior

HALF_LOG_2PI = math.log(2 * math.pi) / 2


def random_case(batch: int = 3, size: int = 10, scale: int = 2, seed: int = 0) -> dict:
    draw = torch.Generator().manual_seed(seed)
    shape = (batch, scale * size, scale * size)
    return {
        "posterior": Posterior(
            0.2 + 0.1 * torch.rand(shape, generator=draw),
            1e-6 * (1 + torch.rand(shape, generator=draw)),
        ),
        "target": 0.2 + 0.1 * torch.rand(batch, size, size, generator=draw),
        "valid": torch.rand(batch, size, size, generator=draw) > 0.2,
        "tau": torch.randint(scale, (batch, 2), generator=draw),
        "noise": NoiseLaw(torch.tensor([0.1, 0.0, 0.2]), torch.tensor([12.0, 50.0, 3.0])),
        "gain": torch.tensor([[3400.0], [2000.0], [5000.0]]),
    }


def by_hand(case: dict, tau: Tensor) -> float:
    """The same by the definition, pixel by pixel, with torch's own normal density."""
    logs = []
    for b in range(3):
        for y, x in zip(*torch.where(case["valid"][b]), strict=True):
            place = (b, 2 * y + tau[b, 0], 2 * x + tau[b, 1])
            mean, var = case["posterior"].mean[place], case["posterior"].var[place]
            gain = case["gain"][b, 0]
            noise_var = case["noise"].a[b] * mean / gain + case["noise"].b[b] / gain**2
            density = torch.distributions.Normal(mean, (var + noise_var).sqrt())
            logs.append(-density.log_prob(case["target"][b, y, x]) - HALF_LOG_2PI)
    return float(torch.stack(logs).mean())


def test_self_supervised_nll_is_the_density_of_the_reference() -> None:
    case = random_case()
    value = float(loss.self_supervised_nll(**case))
    assert value == pytest.approx(by_hand(case, case["tau"]), rel=1e-5)
    assert value != pytest.approx(by_hand(case, 1 - case["tau"]), rel=1e-3)  # another sub-grid
    assert value != pytest.approx(by_hand(case, case["tau"].flip(1)), rel=1e-3)  # (dx, dy)


def test_supervised_nll_is_the_density_of_the_truth() -> None:
    posterior, truth = random_case()["posterior"], random_case(seed=1)["posterior"].mean
    density = torch.distributions.Normal(posterior.mean, posterior.var.sqrt())
    wanted = -density.log_prob(truth).mean() - HALF_LOG_2PI
    assert float(loss.supervised_nll(posterior, truth)) == pytest.approx(float(wanted), rel=1e-5)


def test_no_gradient_flows_through_the_noise() -> None:
    """The gradient in the mean is `(mean - z) / var`; through R there would be more."""
    case = random_case()
    mean = case["posterior"].mean.double().requires_grad_()
    case["posterior"] = Posterior(mean, case["posterior"].var.double())
    loss.self_supervised_nll(**case).backward()
    sub = subsample(mean.detach(), 2, case["tau"])
    noise_var = normalised_noise_var(case["noise"], sub[:, None], case["gain"])[:, 0]
    var = subsample(case["posterior"].var, 2, case["tau"]) + noise_var
    wanted = torch.where(case["valid"], (sub - case["target"]) / var, 0) / case["valid"].sum()
    torch.testing.assert_close(subsample(mean.grad, 2, case["tau"]), wanted)
    a = case["noise"].a[:, None, None] / case["gain"][..., None]
    through = a * (1 / var - (sub - case["target"]) ** 2 / var**2) / 2
    assert through.abs().max() > 0.1 * (wanted * case["valid"].sum()).abs().max()  # it would show


def test_its_minimum_is_the_posterior_not_posterior_plus_noise() -> None:
    """Targets z = u + n: the loss is stationary at E[u] and var(u); uncorrected, at the sum."""
    draw = torch.Generator().manual_seed(2)
    size, nu, noise_std = 600, 4e-6, 3e-3
    target = 0.3 + torch.randn(1, size, size, generator=draw) * math.sqrt(nu + noise_std**2)
    gain = torch.tensor([[1000.0]])
    laws = {
        "corrected": NoiseLaw(torch.zeros(1), torch.tensor([(noise_std * 1000) ** 2])),
        "plain": NoiseLaw(torch.zeros(1), torch.zeros(1)),
    }
    found = {}
    for name, law in laws.items():
        log_var = torch.tensor(math.log(nu), requires_grad=True)
        search = torch.optim.LBFGS([log_var], lr=0.5, max_iter=60)

        def closure(law: NoiseLaw = law, log_var: Tensor = log_var) -> Tensor:
            search.zero_grad()  # noqa: B023
            var = log_var.exp().expand(1, 2 * size, 2 * size)
            value = loss.self_supervised_nll(
                Posterior(torch.full_like(var, 0.3), var),
                target,
                torch.ones_like(target),
                torch.zeros(1, 2, dtype=torch.long),
                law,
                gain,
            )
            value.backward()
            return value

        search.step(closure)
        found[name] = float(log_var.detach().exp())
    # sampling error of a variance from 360000 pixels: (nu + R) sqrt(2 / n), some 1% of nu
    assert found["corrected"] == pytest.approx(nu, rel=0.04)
    assert found["plain"] == pytest.approx(nu + noise_std**2, rel=0.01)


def test_mse_and_l1() -> None:
    mean, target = torch.tensor([[[1.0, 2.0, 5.0]]]), torch.tensor([[[2.0, 4.0, torch.nan]]])
    valid = torch.tensor([[[True, True, False]]])
    assert float(loss.mse(mean, target, valid)) == pytest.approx(2.5)
    assert float(loss.l1(mean, target, valid)) == pytest.approx(1.5)


@pytest.mark.parametrize("detail", [False, True])
def test_invalid_pixels_have_no_say(detail: bool) -> None:
    case = random_case()
    values = []
    for filling in (0.0, 7.0, torch.nan):
        mean = case["posterior"].mean.clone().requires_grad_()
        target = case["target"].masked_fill(~case["valid"], filling)
        posterior = Posterior(mean, case["posterior"].var)
        value = loss.self_supervised_nll(
            **{**case, "posterior": posterior, "target": target}, detail=detail
        )
        value.backward()
        assert torch.isfinite(mean.grad).all()
        values.append(float(value.detach()))
    assert values[0] == values[1] == values[2]


def test_detail_noise_is_that_of_high_passed_noise() -> None:
    """`conv(R, (delta - g)^2)` against the spread of filtered draws, beside holes and borders."""
    draw = torch.Generator().manual_seed(3)
    noise_var = 1 + torch.rand(1, 12, 12, generator=draw)
    valid = torch.ones(1, 12, 12, dtype=torch.bool)
    valid[0, 4:6, 7] = False
    noise = torch.randn(20000, 12, 12, generator=draw) * noise_var.sqrt()
    spread = loss.high_pass(noise, valid.expand(noise.shape)).var(0)
    wanted = loss.detail_noise_var(noise_var, valid)[0]
    ratio = (spread / wanted)[valid[0]]
    assert float((ratio - 1).abs().max()) < 0.05  # five standard errors of a variance
    assert float((spread / noise_var[0])[valid[0]].median()) < 0.85  # the full R would not do
    flat = loss.detail_noise_var(torch.ones(1, 31, 31), torch.ones(1, 31, 31))
    assert float(flat[0, 15, 15]) == pytest.approx(0.76, abs=0.005)


def test_the_detail_loss_does_not_see_an_inexact_exposure() -> None:
    case = random_case()
    case["noise"] = NoiseLaw(torch.zeros(3), torch.full((3,), 30.0))
    smooth = torch.full_like(case["target"], 0.3)
    posterior = Posterior(torch.full_like(case["posterior"].mean, 0.3), case["posterior"].var)
    exact, brighter = (
        {**case, "posterior": posterior, "target": factor * smooth} for factor in (1.0, 1.01)
    )
    for detail, seen in ((True, False), (False, True)):
        gap = loss.self_supervised_nll(**brighter, detail=detail) - loss.self_supervised_nll(
            **exact, detail=detail
        )
        assert (float(gap.abs()) > 1e-2) == seen


def test_a_mean_alone_has_no_likelihood() -> None:
    with pytest.raises(UsageError, match="mse or l1"):
        loss.supervised_nll(Posterior(torch.zeros(1, 4, 4)), torch.zeros(1, 4, 4))


def test_a_burst_that_fits_nothing_is_left_out_but_no_number_is_seen() -> None:
    """The loss is that of the other bursts; NaN is a mistake, and must stop a run."""
    draw = torch.Generator().manual_seed(4)
    error, var = torch.randn(5, 4, 4, generator=draw), torch.ones(5, 4, 4)
    valid = torch.rand(5, 4, 4, generator=draw) > 0.2
    spoilt = error.clone()
    spoilt[2] += 100
    others = [0, 1, 3, 4]
    wanted = loss.gaussian_nll(error[others], var[others], valid[others])
    torch.testing.assert_close(loss.gaussian_nll(spoilt, var, valid, 6.0), wanted)
    assert float(loss.gaussian_nll(spoilt, var, valid)) > 100 * float(wanted)
    spoilt[3, valid[3]] = torch.nan
    assert math.isnan(float(loss.gaussian_nll(spoilt, var, valid, 6.0)))
