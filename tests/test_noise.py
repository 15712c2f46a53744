"""The noise law, its normalised form, and gains applied to both."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from pushframe import Burst, NoiseLaw, filters
from pushframe.errors import BurstError
from pushframe.filters import gaussian_blur, highest_near
from pushframe.noise import frame_noise_var, normalised_noise_var

LAW = NoiseLaw(torch.tensor([0.1187]), torch.tensor([12.05]))


def test_normalised_variance_is_that_of_noisy_dn() -> None:
    generator = torch.Generator().manual_seed(0)
    gain, radiance = torch.tensor([[0.4, 3.0]]) * 3400, 0.3
    dn = gain[..., None] * radiance
    draws = torch.randn(1, 2, 400_000, generator=generator, dtype=torch.float64)
    frames = (dn + (0.1187 * dn + 12.05).sqrt() * draws) / gain[..., None]
    measured = frames.var(-1)
    signal = torch.full((1, 2, 1, 1), radiance)
    predicted = normalised_noise_var(LAW, signal, gain)[..., 0, 0].double()
    spread = (2 / 400_000) ** 0.5  # relative standard error of a variance
    assert ((measured / predicted - 1).abs() < 5 * spread).all()
    twin = (0.1187 * dn + 12.05)[..., 0] / gain  # divided by the gain once, not twice
    assert ((measured / twin - 1).abs() > 5 * spread).all()


def test_a_gain_on_pixels_is_a_gain_on_the_law() -> None:
    signal = torch.full((1, 1, 1, 1), 0.25)
    gain = torch.tensor([[3400.0]])
    changed = 1.7  # the same raw pixels under another white level
    moved = normalised_noise_var(LAW, signal / changed, gain * changed)
    torch.testing.assert_close(moved, normalised_noise_var(LAW, signal, gain) / changed**2)


def test_negative_signal_never_lowers_the_floor() -> None:
    signal = torch.tensor([-0.5, 0.0]).reshape(1, 1, 1, 2)
    var = normalised_noise_var(LAW, signal, torch.tensor([[3400.0]]))
    assert var[..., 0] == var[..., 1]
    assert float(var[0, 0, 0, 0]) == pytest.approx(12.05 / 3400**2, rel=1e-6)


def test_frame_noise_ignores_what_invalid_pixels_hold(paper_batch) -> None:
    burst = dataclasses.replace(
        paper_batch.burst, noise=NoiseLaw(torch.full((2,), 0.5), torch.ones(2))
    )
    valid = burst.valid.clone()
    valid[:, :, 10:14, 10:14] = False
    results = [
        frame_noise_var(
            dataclasses.replace(burst, valid=valid, frames=burst.frames.where(valid, fill))
        )
        for fill in (torch.tensor(0.0), torch.tensor(77.0))
    ]
    torch.testing.assert_close(results[0][valid], results[1][valid])


def test_an_unknown_law_is_asked_for(paper_batch) -> None:
    with pytest.raises(BurstError, match="give noise_a and noise_b"):
        frame_noise_var(dataclasses.replace(paper_batch.burst, noise=None))


def test_blur_keeps_flat_images_and_has_the_stated_width() -> None:
    flat = torch.full((1, 1, 20, 24), 3.0, dtype=torch.float64)
    torch.testing.assert_close(gaussian_blur(flat, 1.4), flat)
    point = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
    point[..., 20, 20] = 1
    profile = gaussian_blur(point, 1.4)[0, 0].sum(0)
    offset = torch.arange(41, dtype=torch.float64) - 20
    assert float((profile * offset**2).sum()) == pytest.approx(1.4**2, rel=1e-3)


@pytest.mark.parametrize("sigma_px", [1.0, 4.0])
def test_blur_by_products_and_by_convolution_are_one(
    sigma_px: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = torch.randn(2, 3, 19, 26, dtype=torch.float64)
    by_products = gaussian_blur(image, sigma_px)
    monkeypatch.setattr(filters, "LARGEST_MATRIX", 0)
    torch.testing.assert_close(by_products, gaussian_blur(image, sigma_px))
    assert float((gaussian_blur(image.mT, sigma_px) - by_products.mT).abs().max()) < 1e-12
    assert float((gaussian_blur(image, 1.1 * sigma_px) - by_products).abs().max()) > 1e-3  # twin


def test_blurs_made_under_inference_can_be_trained_through() -> None:
    with torch.inference_mode():
        gaussian_blur(torch.zeros(1, 1, 21, 23), 1.25)
    image = torch.zeros(1, 1, 21, 23, requires_grad=True)
    gaussian_blur(image, 1.25).sum().backward()
    assert bool(torch.isfinite(image.grad).all())


@pytest.mark.parametrize("radius", [1, 4])
def test_highest_near_is_the_maximum_over_a_square(radius: int) -> None:
    image = torch.randn(2, 3, 12, 17)
    over_square = F.max_pool2d(image, 2 * radius + 1, stride=1, padding=radius)
    assert torch.equal(highest_near(image, radius), over_square)
    assert not torch.equal(highest_near(image, radius + 1), over_square)  # twin


def test_burst_needs_no_law_to_exist() -> None:
    dn = torch.rand(2, 4, 4) * 100
    assert Burst.from_dn(dn, [1, 1], 3400).noise is None
