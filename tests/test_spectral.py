"""The forward model in Fourier space against the one in pixels, and its algebra against dense."""

from __future__ import annotations

import math

import pytest
import torch

from pushframe.forward import forward_model
from pushframe.linear import leading_factor, small_inverse
from pushframe.prior import KNOTS, fit_spectrum, power_law, radial_basis, spectrum_at
from pushframe.spectral import (
    AliasBlocks,
    half_weight,
    image_frequencies,
    to_folded,
    to_image,
    transfer,
)

CASES = [(2, (9, 10)), (3, (8, 7)), (4, (6, 6)), (2, (8, 8))]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("scale", "lattice"), CASES)
def test_folding_there_and_back_keeps_image_and_energy(scale: int, lattice: tuple) -> None:
    image = torch.randn(2, scale * lattice[0], scale * lattice[1], generator=generator())
    folded = to_folded(image, scale)
    assert folded.shape == (2, lattice[0], lattice[1] // 2 + 1, scale**2)
    torch.testing.assert_close(to_image(folded, scale, lattice[1]), image, atol=2e-6, rtol=0)
    energy = (folded.abs() ** 2 * half_weight(lattice[1], image)[:, None]).sum()
    torch.testing.assert_close(energy, image.square().sum(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [2, 3])
def test_transfer_is_the_forward_model(scale: int) -> None:
    """An image that vanishes near the border has no boundary to tell the two apart."""
    size = 40
    image = torch.zeros(1, scale * size, scale * size)
    middle = slice(scale * size // 3, 2 * scale * size // 3)
    image[:, middle, middle] = torch.randn(
        1, middle.stop - middle.start, middle.stop - middle.start, generator=generator()
    )
    flow = torch.tensor([[[0.0, 0.0], [0.3, -0.7], [-1.2, 0.45]]])
    frames = forward_model(flow, (size, size), scale, 0).forward(image)
    seen = (transfer(flow, (size, size), scale) @ to_folded(image, scale)[..., None])[..., 0]
    expected = torch.fft.rfft2(frames, norm="ortho").permute(0, 2, 3, 1)
    assert (seen - expected).abs().max() < 5e-6
    wrong = (transfer(-flow, (size, size), scale) @ to_folded(image, scale)[..., None])[..., 0]
    assert (wrong - expected).abs().max() > 0.1  # twin: flow the other way


def blocks(frames: int = 5) -> tuple[AliasBlocks, torch.Tensor, torch.Tensor, torch.Tensor]:
    flow = 2 * torch.rand(1, frames, 2, generator=generator(1)) - 1
    see = transfer(flow, (6, 6), 2)
    precision = 1 + 3 * torch.rand(1, 1, 1, frames, generator=generator(2)).expand(1, 6, 4, frames)
    prior = 0.5 + torch.rand(1, 6, 4, 4, generator=generator(3))
    return AliasBlocks(see, precision, prior), see, precision, prior


def test_blocks_are_the_gaussian_posterior() -> None:
    solved, see, precision, prior = blocks()
    data = torch.randn(1, 6, 4, 5, dtype=torch.complex64, generator=generator(4))
    for place in ((0, 0), (2, 1), (5, 3)):
        h, w, s = see[0][place], precision[0][place], prior[0][place]
        normal = h.mH @ (w[:, None] * h) + torch.diag(1 / s)
        mean = torch.linalg.solve(normal, h.mH @ (w * data[0][place]))
        torch.testing.assert_close(solved.mean(data)[0][place], mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            solved.log_det[0][place], torch.linalg.slogdet(normal)[1], atol=1e-4, rtol=0
        )


def test_information_is_that_of_the_marginal_covariance() -> None:
    solved, see, precision, prior = blocks()
    change = torch.randn(1, 6, 4, 5, 3, dtype=torch.complex64, generator=generator(5))
    count = half_weight(6, precision)
    found = solved.information(change, precision, count)[0]
    total = torch.zeros(15, 15)
    for y in range(6):
        for x in range(4):
            h = see[0, y, x]
            covariance = (h * prior[0, y, x]) @ h.mH + torch.diag(1 / precision[0, y, x])
            inverse = torch.linalg.inv(covariance)
            columns = torch.zeros(5, 15, dtype=torch.complex64)
            for frame in range(5):
                columns[frame, 3 * frame : 3 * frame + 3] = change[0, y, x, frame]
            total += count[x] * (columns.mH @ inverse @ columns).real
    torch.testing.assert_close(found, total, atol=2e-3, rtol=1e-4)


def test_small_inverse_against_the_library() -> None:
    root = torch.randn(7, 3, 4, 6, dtype=torch.complex64, generator=generator())
    matrix = root @ root.mH + 0.1 * torch.eye(4)
    inverse, log_det = small_inverse(matrix)
    torch.testing.assert_close(inverse, torch.linalg.inv(matrix), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(matrix)[1], atol=1e-4, rtol=1e-4)


def test_leading_factor_takes_the_largest_first() -> None:
    root = torch.randn(2, 9, 4, generator=generator())
    matrix = root @ root.mT
    whole = leading_factor(matrix, 4)
    torch.testing.assert_close(whole @ whole.mT, matrix, atol=1e-4, rtol=0)
    part = leading_factor(matrix, 2)
    assert (part.square().sum((1, 2)) <= matrix.diagonal(dim1=1, dim2=2).sum(1) + 1e-4).all()


def test_the_spectrum_of_known_images_is_found() -> None:
    """From noise-free draws of a power law, and from draws known in part only."""
    size, lattice = 128, (64, 64)
    fy, fx = image_frequencies(lattice, 2, torch.zeros(1))
    basis = radial_basis(fy, fx)
    truth = power_law(torch.tensor([0.02]))
    full = torch.fft.fftfreq(size)
    power = spectrum_at(truth, radial_basis(full[:, None], full))
    white = torch.randn(6, size, size, generator=generator())
    images = torch.fft.ifft2(torch.fft.fft2(white) * power.sqrt()).real
    assert float(images.var()) == pytest.approx(0.02, rel=0.4)
    folded = to_folded(images, 2).abs() ** 2
    count = half_weight(64, images)[:, None].expand(basis.shape[:-1]).flatten()
    known = torch.linspace(1, 0.3, basis.shape[-2])[None].expand(6, 64, 33, 4)
    for share in (torch.ones_like(known), known):
        power = (folded * share).flatten(1)
        knots = fit_spectrum(power, share.flatten(1), basis.flatten(0, -2), count)
        error = (knots.mean(0) - truth[0])[6:-2]  # few frequencies lie around the outer knots
        assert error.abs().max() < 0.25
    blind = fit_spectrum(
        (folded * known).flatten(1), torch.ones_like(known).flatten(1), basis.flatten(0, -2), count
    )
    assert (blind.mean(0) - truth[0])[6:-2].mean() < -0.3  # twin: what is not known counts as zero


def test_power_law_has_the_stated_variance() -> None:
    side = torch.fft.fftfreq(200)
    power = spectrum_at(power_law(torch.tensor([0.01, 0.3])), radial_basis(side[:, None], side))
    torch.testing.assert_close(power.mean((1, 2)), torch.tensor([0.01, 0.3]), rtol=0.05, atol=0)
    assert math.isclose(float(radial_basis(side[:, None], side).sum(-1).max()), 1, rel_tol=1e-5)


def test_the_spectrum_never_rises() -> None:
    axis = torch.fft.fftfreq(64)
    basis = radial_basis(axis[:, None], axis).flatten(0, 1)
    frequency = (axis[:, None] ** 2 + axis**2).sqrt().flatten()
    power = 1 / (frequency**2 + 1e-3) + 900 * torch.exp(-(((frequency - 0.4) / 0.04) ** 2))
    ones = torch.ones_like(power)
    knots = fit_spectrum(power[None], ones[None], basis, ones)
    assert knots.shape == (1, KNOTS)
    assert bool((knots.diff() <= 0).all())
    falling = fit_spectrum((1 / (frequency**2 + 1e-3))[None], ones[None], basis, ones)
    assert bool((falling.diff() < 0).all())  # a spectrum that falls by itself is left alone
