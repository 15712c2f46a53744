"""The forward model in Fourier space against the one in pixels, and its algebra against dense."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pushframe import spectral
from pushframe.folding import axis_frequencies, half_weight, image_frequencies, to_folded, to_image
from pushframe.forward import forward_model
from pushframe.linear import leading_factor, library_inverse, small_inverse
from pushframe.prior import (
    KNOTS,
    LARGEST_RISE,
    TERMS,
    WAVES,
    counted_basis,
    fit_spectrum,
    largest_rise,
    power_law,
    radial_basis,
    scaled,
    spectral_basis,
    spectrum_at,
)
from pushframe.spectral import LOW_ROWS, AliasBlocks, transfer, transfer_slopes, typical_rows

CASES = [(2, (9, 10)), (3, (8, 7)), (4, (6, 6)), (2, (8, 8))]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("scale", "lattice"), CASES)
def test_folding_there_and_back_keeps_image_and_energy(scale: int, lattice: tuple) -> None:
    image = torch.randn(2, scale * lattice[0], scale * lattice[1], generator=generator())
    folded = to_folded(image, scale)
    assert folded.shape == (2, scale**2, lattice[0], lattice[1] // 2 + 1)
    torch.testing.assert_close(to_image(folded, scale, lattice[1]), image, atol=2e-6, rtol=0)
    energy = (folded.abs() ** 2 * half_weight(lattice[1], image)).sum()
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
    seen = transfer(flow, (size, size), scale).predict(to_folded(image, scale))
    expected = torch.fft.rfft2(frames, norm="ortho")
    assert (seen - expected).abs().max() < 5e-6
    wrong = transfer(-flow, (size, size), scale).predict(to_folded(image, scale))
    assert (wrong - expected).abs().max() > 0.1  # twin: flow the other way


def blocks(frames: int = 5, scale: int = 2) -> tuple[AliasBlocks, Tensor, Tensor, Tensor]:
    """Blocks with what they are made of, frequency first: h (a, c, N, K), weights, prior."""
    flow = 2 * torch.rand(1, frames, 2, generator=generator(1)) - 1
    see = transfer(flow, (6, 6), scale)
    precision = 1 + 3 * torch.rand(1, frames, generator=generator(2))
    prior = 0.5 + torch.rand(1, scale**2, 6, 4, generator=generator(3))
    solved = AliasBlocks(see, precision, prior)
    return solved, see.whole[0].permute(2, 3, 0, 1), precision[0], prior[0].permute(1, 2, 0)


@pytest.mark.parametrize("scale", [2, 3])
def test_blocks_are_the_gaussian_posterior(scale: int) -> None:
    solved, see, w, prior = blocks(scale=scale)
    data = torch.randn(1, 5, 6, 4, dtype=torch.complex64, generator=generator(4))
    found = solved.mean(data)[0]
    for y, x in ((0, 0), (2, 1), (5, 3)):
        h, s = see[y, x], prior[y, x]
        normal = h.mH @ (w[:, None] * h) + torch.diag(1 / s)
        mean = torch.linalg.solve(normal, h.mH @ (w * data[0, :, y, x]))
        torch.testing.assert_close(found[:, y, x], mean, atol=1e-5, rtol=0)
        inverse = solved.covariance[0, :, :, y, x]
        torch.testing.assert_close(inverse, torch.linalg.inv(normal), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            solved.log_det[0, y, x], torch.linalg.slogdet(normal)[1], atol=1e-4, rtol=0
        )


def test_determinant_slope_and_leverage_against_dense() -> None:
    solved, see, w, _ = blocks()
    count = half_weight(6, w)
    down, right = (2j * math.pi * f for f in axis_frequencies((6, 6), 2, w))
    slopes = solved.see.rows * down, solved.see.columns * right
    fy, fx = image_frequencies((6, 6), 2, w)
    total, mirrored = torch.zeros(5, 3), torch.zeros(5)
    for y in range(6):
        for x in range(4):
            h, inverse = see[y, x], solved.covariance[0, :, :, y, x]
            answer = inverse @ h.mH * w  # (K, N)
            shifts = [2j * math.pi * f[:, y, x] for f in (fy, fx)]
            for kind, t in enumerate((*shifts, torch.ones(4))):
                total[:, kind] += count[x] * ((h * t) * answer.mT).sum(-1).real
            mirrored += count[x] * ((h * shifts[0]) * (inverse.mT @ h.mH * w).mT).sum(-1).real
    found = solved.determinant_slope(count, slopes)[0]
    torch.testing.assert_close(found, total, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(solved.leverage(count)[0], total[:, 2], atol=1e-3, rtol=1e-4)
    assert (found[:, 0] - mirrored).abs().max() > 0.1  # twin: the inverse not conjugated


@pytest.mark.parametrize(("scale", "lattice"), CASES)
def test_the_determinant_grows_with_shifts_as_its_slope_says(scale: int, lattice: tuple) -> None:
    flow = 1.6 * torch.rand(1, scale**2 + 2, 2, generator=generator()) - 0.8
    w = 100 * (1 + torch.rand(1, scale**2 + 2, generator=generator(1)))
    prior = 1 + torch.rand(1, scale**2, lattice[0], lattice[1] // 2 + 1, generator=generator(2))
    count = half_weight(lattice[1], w)

    def half_log_det(off: Tensor) -> Tensor:
        log_det = AliasBlocks(transfer(flow + off, lattice, scale), w, prior).log_det
        return (log_det * count).sum((-1, -2))[0] / 2

    see = transfer(flow, lattice, scale)
    exact = transfer_slopes(flow, lattice, scale)
    fy, fx = axis_frequencies(lattice, scale, w)
    ideal = 2j * math.pi * scale * fy * see.rows, 2j * math.pi * scale * fx * see.columns
    solved = AliasBlocks(see, w, prior)
    found, other = (solved.determinant_slope(count, slopes)[0, :, :2] for slopes in (exact, ideal))
    step, numeric = 0.02 / scale, torch.zeros_like(found)
    for frame, axis in itertools.product(range(scale**2 + 2), range(2)):
        off = torch.zeros_like(flow)
        off[0, frame, axis] = step
        numeric[frame, axis] = (half_log_det(off) - half_log_det(-off)) / (2 * step)
    size = float(numeric.norm())
    assert float((found - numeric).norm()) < 0.02 * size
    assert float((other - numeric).norm()) > 0.1 * size  # twin: ideal shifts


def test_information_is_that_of_the_marginal_covariance() -> None:
    solved, see, w, prior = blocks()
    change = torch.randn(1, 5, 3, 6, 4, dtype=torch.complex64, generator=generator(5))
    count = half_weight(6, w)
    found = solved.information(change, count)[0]
    total = torch.zeros(15, 15)
    for y in range(6):
        for x in range(4):
            h = see[y, x]
            covariance = (h * prior[y, x]) @ h.mH + torch.diag(1 / w)
            inverse = torch.linalg.inv(covariance)
            columns = torch.zeros(5, 15, dtype=torch.complex64)
            for frame in range(5):
                columns[frame, 3 * frame : 3 * frame + 3] = change[0, frame, :, y, x]
            total += count[x] * (columns.mH @ inverse @ columns).real
    torch.testing.assert_close(found, total, atol=2e-3, rtol=1e-4)


def test_answers_move_the_mean_as_the_data_would() -> None:
    solved, *_ = blocks()
    data = torch.randn(1, 5, 6, 4, dtype=torch.complex64, generator=generator(6))
    alone = torch.zeros_like(data)
    alone[:, 3] = data[:, 3]
    torch.testing.assert_close(
        solved.answers(data[:, :, None])[:, 3, 0], solved.mean(alone), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize(("scale", "lattice"), CASES)
def test_images_are_solved_in_their_half_spectrum(scale: int, lattice: tuple[int, int]) -> None:
    flow = 2 * torch.rand(2, 5, 2, generator=generator()) - 1
    knots = power_law(torch.tensor([1.0, 2.0]))
    prior = spectrum_at(knots, spectral_basis(*image_frequencies(lattice, scale, flow)))
    blocks = AliasBlocks(transfer(flow, lattice, scale), torch.ones(2, 5), prior)
    image = torch.randn(2, scale * lattice[0], scale * lattice[1], generator=generator())
    solved = blocks.solve_image(torch.fft.rfft2(image))
    expected = to_image(blocks.solve(to_folded(image, scale)), scale, lattice[1])
    found = torch.fft.irfft2(solved, s=image.shape[1:])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", [small_inverse, library_inverse])
def test_small_inverse_against_the_library(way: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
    root = torch.randn(7, 3, 4, 6, dtype=torch.complex64, generator=generator())
    matrix = root @ root.mH + 0.1 * torch.eye(4)
    inverse, log_det = way(matrix.movedim(1, -1))
    expected = torch.linalg.inv(matrix).movedim(1, -1)
    torch.testing.assert_close(inverse, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(matrix)[1], atol=1e-4, rtol=1e-4)


def test_leading_factor_takes_the_largest_first() -> None:
    root = torch.randn(2, 9, 4, generator=generator())
    matrix = root @ root.mT
    whole = leading_factor(matrix, 4)
    torch.testing.assert_close(whole @ whole.mT, matrix, atol=1e-4, rtol=0)
    part = leading_factor(matrix, 2)
    assert (part.square().sum((1, 2)) <= matrix.diagonal(dim1=1, dim2=2).sum(1) + 1e-4).all()


def whole_basis(size: int) -> tuple[Tensor, Tensor]:
    """The basis at all frequencies of a square image, (F, TERMS), and what a fit sums."""
    side = torch.fft.fftfreq(size)
    basis = spectral_basis(side[:, None], side).flatten(0, 1)
    return basis, counted_basis(basis, torch.ones(len(basis), 1))


def wiener(data: Tensor, knots: Tensor, basis: Tensor, noise_var: float) -> list[Tensor]:
    """Prior, power of the mean and known share of images in white noise: what a fit is given."""
    prior = spectrum_at(knots, basis)
    known = prior / (prior + noise_var)
    return [prior, known.square() * data, known]


def test_the_spectrum_of_noisy_images_is_found() -> None:
    """From draws of a spectrum that falls far below the noise, in the steps that a search has."""
    size, noise_var = 128, 1e-4
    basis, counted = whole_basis(size)
    law = power_law(torch.tensor([0.02]))
    frequency = torch.logspace(math.log10(1 / 256), math.log10(math.sqrt(0.5)), KNOTS)
    truth = law.clone()
    truth[:, :KNOTS] -= 60 * frequency**2  # e^-15 of a power law at the Nyquist frequency
    power = spectrum_at(truth, basis)
    draws = torch.randn(6, 2, size * size, generator=generator()).square().mean(1)
    data = draws * (power + noise_var)
    knots = law.expand(6, -1)
    for _ in range(8):
        knots = fit_spectrum(knots, *wiener(data, knots, basis, noise_var), counted, 0)
    shown = truth[0, :KNOTS] > math.log(noise_var)
    assert (knots.mean(0) - truth[0])[6:KNOTS][shown[6:]].abs().max() < 0.3
    assert knots[:, KNOTS - 1].max() < math.log(noise_var) - 4  # truth: -14.8, noise: -9.2
    assert knots[:, KNOTS:].abs().max() < 0.1  # no directions where there are none

    slow = law[:, :KNOTS].expand(6, -1)  # twin: the share is not what is wrong
    curve = basis[:, :KNOTS]
    for _ in range(8):
        _, mean, known = wiener(data, slow, curve, noise_var)
        slow = ((mean @ curve) / (known @ curve)).nan_to_num(1).log()
    assert slow[:, -1].min() > math.log(noise_var) - 3.5


def test_power_law_has_the_stated_variance() -> None:
    side = torch.fft.fftfreq(200)
    power = spectrum_at(power_law(torch.tensor([0.01, 0.3])), spectral_basis(side[:, None], side))
    torch.testing.assert_close(power.mean((1, 2)), torch.tensor([0.01, 0.3]), rtol=0.05, atol=0)
    assert math.isclose(float(radial_basis(side[:, None], side).sum(-1).max()), 1, rel_tol=1e-5)


def test_the_spectrum_rises_no_further_than_it_may() -> None:
    axis = torch.fft.fftfreq(64)
    basis, counted = whole_basis(64)
    frequency = (axis[:, None] ** 2 + axis**2).sqrt().flatten()
    power = 1 / (frequency**2 + 1e-3) + 900 * torch.exp(-(((frequency - 0.4) / 0.04) ** 2))
    ones = torch.ones_like(power)
    alone = 1 / (frequency**2 + 1e-3)

    def fitted(power: torch.Tensor, rise: float) -> torch.Tensor:
        knots = torch.zeros(1, TERMS)
        for _ in range(8):
            prior = spectrum_at(knots, basis)
            knots = fit_spectrum(knots, prior, power[None], ones[None], counted, rise)
        return knots

    assert fitted(power, 0).shape == (1, TERMS)
    assert bool((fitted(power, 0)[:, :KNOTS].diff() <= 0).all())
    for rise in (0, 1, 2.3):  # power rises by a factor of thirty
        curve = fitted(power, rise)[0, :KNOTS]
        assert abs(float((curve - curve.cummin(0).values).max()) - rise) < 0.1
        # one that falls by itself is left alone
        assert bool((fitted(alone, rise)[:, :KNOTS].diff() < 0).all())


def test_the_spectrum_of_few_frames_does_not_rise() -> None:
    may = torch.tensor([False, False, True, True])
    frames = torch.tensor([3, 8, 9, 15])
    torch.testing.assert_close(largest_rise(frames, 2, days=False)[:, 0], LARGEST_RISE * may)
    assert float(largest_rise(frames[-1:], 3, days=False)) == 0
    assert not largest_rise(frames, 2, days=True).any()


def test_directions_of_a_scene_are_found() -> None:
    """Of streets that run one way, and of an optic that is sharper along one axis, in noise."""
    size, noise_var = 96, 1e-3
    basis, counted = whole_basis(size)
    law = power_law(torch.tensor([0.05]))
    truth = law.expand(4, -1).clone()
    truth[:, KNOTS:] = torch.randn(4, WAVES, generator=generator()).clamp(-1, 1) / 2
    draws = torch.randn(4, 2, size * size, generator=generator(1)).square().mean(1)
    data = draws * (spectrum_at(truth, basis) + noise_var)
    knots = law.expand(4, -1)
    for _ in range(10):
        knots = fit_spectrum(knots, *wiener(data, knots, basis, noise_var), counted, 0)
    off = (basis @ (knots - truth).T)[basis[:, :6].sum(1) == 0]
    blind = (basis @ (F.pad(knots[:, :KNOTS], [0, WAVES]) - truth).T)[basis[:, :6].sum(1) == 0]
    assert off.square().mean().sqrt() < 0.2
    assert blind.square().mean().sqrt() > 0.35  # twin: the curve alone


def test_a_spectrum_is_that_of_a_real_image() -> None:
    """The power at a frequency and at its opposite are the same, those of the borders too."""
    terms = torch.randn(1, TERMS, generator=generator())
    for size in (16, 17):
        side = torch.fft.fftfreq(size)
        power = spectrum_at(terms, spectral_basis(side[:, None], side))
        opposite = power.flip(1, 2).roll((1, 1), (1, 2))
        torch.testing.assert_close(power, opposite)


def test_more_power_leaves_the_directions() -> None:
    terms = torch.randn(2, TERMS, generator=generator())
    side = torch.fft.fftfreq(12)
    basis = spectral_basis(side[:, None], side)
    torch.testing.assert_close(
        spectrum_at(scaled(terms, 3.0), basis), 3 * spectrum_at(terms, basis), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("size", [3, 7, 31, 64])
def test_typical_rows_stand_for_all(size: int) -> None:
    rows, times = typical_rows(size, torch.device("cpu"))
    assert float(times.sum()) == pytest.approx(size)
    assert len(set(rows.tolist())) == len(rows) <= size
    assert bool((times[torch.minimum(rows, size - rows) <= LOW_ROWS] == 1).all())


def test_few_rows_tell_what_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of changes that lie in the lowest rows, as a level's does, too."""
    generator = torch.Generator().manual_seed(0)
    flow_px = torch.rand(2, 6, 2, generator=generator) - 0.5
    lattice, count = (64, 16), half_weight(16, flow_px)
    prior = torch.ones(2, 4, 64, 9)
    blocks = AliasBlocks(transfer(flow_px, lattice, 2), torch.ones(2, 6), prior)
    change = torch.randn(2, 6, 2, 64, 9, generator=generator, dtype=torch.complex64)
    change[:, :, 1, 3:-2] = 0
    exact = blocks.information(change, count)
    own = exact.diagonal(dim1=1, dim2=2).unflatten(1, (6, 2))

    def off(which: int) -> float:
        rough = blocks.information(change, count, roughly=True)
        rough = rough.diagonal(dim1=1, dim2=2).unflatten(1, (6, 2))
        return float((rough / own - 1)[..., which].abs().max())

    assert off(0) < 0.3
    assert off(1) < 1e-5
    typical_rows.cache_clear()
    monkeypatch.setattr(spectral, "LOW_ROWS", -1)
    assert off(1) > 0.3  # twin: each third row alone
    typical_rows.cache_clear()
