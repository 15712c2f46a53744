"""The yardsticks: each against an independent computation, and in their right order."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from conftest import sources
from hypothesis import given, settings
from hypothesis import strategies as st

from pushframe import NoiseLaw, gaussian
from pushframe.baselines import _prior, bicubic, map_estimate, shift_and_add
from pushframe.burst import Burst, Simulated
from pushframe.errors import UsageError
from pushframe.forward import canvas_shape, forward_model
from pushframe.gaussian import GaussianProblem, Spectra, weighted_mean
from pushframe.linear import conjugate_gradients
from pushframe.noise import frame_noise_var
from pushframe.ops import splat
from pushframe.simulate import PRESETS, simulate


def psnr(mean: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * torch.log10((mean - truth)[..., 8:-8, 8:-8].square().mean()))


def test_each_yardstick_is_several_db_above_the_last(paper_batch: Simulated) -> None:
    burst, flow, truth = paper_batch.burst, paper_batch.flow_px, paper_batch.truth
    results = [
        psnr(bicubic(burst, 2).mean, truth),
        psnr(shift_and_add(burst, flow, 2).mean, truth),
        psnr(map_estimate(burst, flow, 2).mean, truth),
    ]
    assert results[1] > results[0] + 2
    assert results[2] > results[1] + 8
    wrong = psnr(map_estimate(burst, -flow, 2).mean, truth)  # twin: flow the other way
    assert wrong < results[1]


def test_bicubic_puts_the_reference_on_pixel_s_l(paper_batch: Simulated) -> None:
    mean = bicubic(paper_batch.burst, 3).mean
    torch.testing.assert_close(mean[:, ::3, ::3], paper_batch.burst.frames[:, 0])


def test_bicubic_marks_what_a_hole_touches(paper_batch: Simulated) -> None:
    valid = paper_batch.burst.valid.clone()
    valid[:, 0, 5, 6] = False
    mean = bicubic(dataclasses.replace(paper_batch.burst, valid=valid), 2).mean
    rows, columns = torch.isnan(mean[0]).nonzero().unbind(1)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (9, 11, 11, 13)


def test_shift_and_add_against_a_loop(paper_batch: Simulated) -> None:
    burst = paper_batch.burst.select(range(3))
    flow = paper_batch.flow_px[:, :3]
    posterior = shift_and_add(burst, flow, 2)
    size = 80
    top, bottom, noise = np.zeros((3, size, size))
    frames, shift = burst.frames[0].double().numpy(), flow[0].double().numpy()
    gain = burst.gain[0].double().numpy()
    for k in range(3):
        var = float(burst.noise.b[0]) / gain[k] ** 2
        for y in range(40):
            for x in range(40):
                py, px = 2 * (y + shift[k, 0]), 2 * (x + shift[k, 1])
                for iy in (int(np.floor(py)), int(np.floor(py)) + 1):
                    for ix in (int(np.floor(px)), int(np.floor(px)) + 1):
                        if 0 <= iy < size and 0 <= ix < size:
                            share = (1 - abs(py - iy)) * (1 - abs(px - ix))
                            top[iy, ix] += share / var * frames[k, y, x]
                            bottom[iy, ix] += share / var
                            noise[iy, ix] += (share / var) ** 2 * var
    with np.errstate(invalid="ignore"):
        mean, std = top / bottom, np.sqrt(noise) / bottom
    np.testing.assert_allclose(posterior.mean[0].numpy(), mean, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(posterior.var[0].sqrt().numpy(), std, rtol=2e-3)


def test_holes_are_nan_never_zero(paper_batch: Simulated) -> None:
    one = paper_batch.burst.select([0])
    posterior = shift_and_add(one, torch.zeros(2, 1, 2), 2)
    known = ~torch.isnan(posterior.mean[0])
    assert int(known.sum()) == 40 * 40
    assert bool(known[::2, ::2].all())
    assert torch.equal(known, ~torch.isnan(posterior.var[0]))


@pytest.mark.parametrize("scale", [2, 3])
def test_map_leaves_holes_beyond_its_reach(scale: int) -> None:
    """One frame, a hole of 5x5: high-res px within s-1 of a sample are filled, others are NaN."""
    dn = torch.rand(1, 20, 20, generator=torch.Generator().manual_seed(1)) + 1
    dn[0, 8:13, 8:13] = torch.nan
    burst = Burst(dn, torch.ones(1), torch.tensor(1.0), NoiseLaw(0.0, 1e-4)).batched()
    mean = map_estimate(burst, torch.zeros(1, 1, 2), scale).mean[0]
    hole = torch.zeros_like(mean, dtype=torch.bool)
    hole[8 * scale : 12 * scale + 1, 8 * scale : 12 * scale + 1] = True  # all but its margin
    assert torch.equal(torch.isnan(mean), hole)


def test_a_sample_off_the_grid_is_dropped() -> None:
    ones = torch.ones(1, 1, 4, 4)
    sums = splat(ones, ones, torch.full((1, 1, 2), 2.0), 2)
    assert sums.weight[0, :4].sum() == 0
    assert float(sums.weight.sum()) == 4  # two of four rows and columns remain


@pytest.mark.parametrize("scale", [2, 3])
def test_products_and_scatter_are_the_same_splat(scale: int) -> None:
    generator = torch.Generator().manual_seed(scale)
    frames, weight = torch.rand(2, 2, 3, 7, 9, generator=generator)
    flow = 4 * torch.rand(2, 3, 2, generator=generator) - 2
    field = flow[..., None, None].expand(2, 3, 2, 7, 9)
    for one, other in zip(
        splat(frames, weight, flow, scale), splat(frames, weight, field, scale), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        assert torch.equal(one > 0, other > 0)


def test_effective_samples_count_equal_observations() -> None:
    frames = torch.ones(1, 5, 4, 4)
    samples = splat(frames, frames, torch.zeros(1, 5, 2), 2).samples
    assert float(samples[0, 2, 2]) == pytest.approx(5)
    assert float(samples[0, 1, 1]) == 0


@settings(max_examples=20, deadline=None)
@given(scale=st.integers(2, 4), height=st.integers(2, 7), width=st.integers(2, 7))
def test_splat_keeps_the_weight_of_inner_samples(scale: int, height: int, width: int) -> None:
    flow = torch.rand(1, 3, 2, generator=torch.Generator().manual_seed(height)) * 0.2
    frames = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(width))
    sums = splat(frames, torch.ones_like(frames), flow, scale)
    assert float(sums.weight.sum()) == pytest.approx(3 * height * width, rel=1e-4)
    assert float(sums.value.sum()) == pytest.approx(float(frames.sum()), rel=1e-4)


def test_map_solves_its_normal_equations() -> None:
    """Against a dense solve in float64 with an independently built prior."""
    setting = dataclasses.replace(PRESETS["paper"], size=8, frames=4)
    made = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(3))
    burst, flow = made.burst, made.flow_px
    size = canvas_shape((8, 8), 2, 8)
    model = forward_model(flow.double(), (8, 8), 2, 8)
    unit = torch.eye(size[0] * size[1], dtype=torch.float64).reshape(-1, *size)
    rows = torch.cat([forward_model(flow.double(), (8, 8), 2, 8).forward(u[None]) for u in unit])
    matrix = rows.flatten(1).T.numpy()
    gain = burst.gain[0].double().numpy()
    precision = np.repeat(gain**2 / float(burst.noise.b), 64) * model.inside.flatten().numpy()
    data = burst.frames[0].double().flatten().numpy()
    level = (precision * data).sum() / precision.sum()
    fy, fx = np.meshgrid(np.fft.fftfreq(size[0]), np.fft.fftfreq(size[1]), indexing="ij")
    shape = (fy**2 + fx**2 + 1e-4) ** -1.25
    reference = burst.frames[0, 0].double().numpy()
    signal = reference.var() - float(burst.noise.b) / gain[0] ** 2
    side = np.fft.fftfreq(256)  # the law's variance is that of a large image
    whole = ((side[:, None] ** 2 + side**2 + 1e-4) ** -1.25).mean()
    spectrum = max(signal, 0.05 * reference.var()) * shape / whole
    spread = np.fft.ifft2(np.fft.fft2(unit.numpy()) / spectrum).real.reshape(len(unit), -1)
    normal = matrix.T @ (precision[:, None] * matrix) + spread
    image = np.linalg.solve(normal, matrix.T @ (precision * (data - level))) + level
    expected = image.reshape(size)[8:-8, 8:-8]
    var = np.linalg.inv(normal).diagonal().reshape(size)[8:-8, 8:-8]
    noise_var = frame_noise_var(burst)
    problem = GaussianProblem(flow, burst.valid / noise_var, _prior(burst, noise_var), 2)
    solved = problem.solve(burst.frames - level, tolerance=1e-6)[0, 8:-8, 8:-8].numpy() + level
    off = (solved - expected) / np.sqrt(var)  # in posterior std; the prior is a fitted curve
    assert np.sqrt((off**2).mean()) < 0.08
    rough = map_estimate(burst, flow, 2).mean[0].numpy()  # stops where it no longer matters
    assert np.sqrt((((rough - expected) / np.sqrt(var)) ** 2).mean()) < 0.4
    sampled = map_estimate(burst, flow, 2, samples=200).var[0].numpy()
    ratio = sampled / var  # 200 samples: 10% standard error a pixel
    assert abs(np.median(ratio) - 1) < 0.06
    assert np.abs(ratio - 1).max() < 0.6


def test_map_error_bars_cover_with_true_motion(paper_batch: Simulated) -> None:
    posterior = map_estimate(paper_batch.burst, paper_batch.flow_px, 2, samples=16)
    z2 = (posterior.mean - paper_batch.truth).square() / posterior.var
    # 16 samples inflate the mean of z^2 by 16 / 14
    assert float(z2[..., 8:-8, 8:-8].mean()) == pytest.approx(16 / 14, rel=0.2)


def test_invalid_pixels_have_no_say_in_any_baseline(paper_batch: Simulated) -> None:
    valid = paper_batch.burst.valid.clone()
    valid[:, 2, 10:20, 10:20] = False
    flow = paper_batch.flow_px
    bursts = [
        dataclasses.replace(
            paper_batch.burst,
            valid=valid,
            frames=paper_batch.burst.frames.where(valid, torch.tensor(fill)),
        )
        for fill in (0.0, 9.0)
    ]
    for method in (shift_and_add, map_estimate):
        first, second = (method(burst, flow, 2).mean for burst in bursts)
        torch.testing.assert_close(first, second, equal_nan=True)


def test_the_order_of_frames_does_not_matter(paper_batch: Simulated) -> None:
    order = [0, 5, 3, 1, 2, 4, 6, 11, 10, 9, 8, 7]
    burst, flow = paper_batch.burst, paper_batch.flow_px
    for method in (shift_and_add, map_estimate):
        first = method(burst, flow, 2).mean
        second = method(burst.select(order), flow[:, order], 2).mean
        torch.testing.assert_close(first, second, atol=2e-4, rtol=0)


def test_bent_motion_and_other_scales() -> None:
    setting = dataclasses.replace(PRESETS["paper"], size=16, frames=6, motion="drift", scale=3)
    made = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(3))
    known = psnr(map_estimate(made.burst, made.flow_px, 3).mean, made.truth)
    still = psnr(map_estimate(made.burst, made.flow_px.mean((-1, -2)), 3).mean, made.truth)
    assert known > still + 1


def test_one_frame_is_reconstructed_everywhere(paper_batch: Simulated) -> None:
    one = paper_batch.burst.select([0])
    posterior = map_estimate(one, torch.zeros(2, 1, 2), 2)
    assert bool(torch.isfinite(posterior.mean).all())
    assert psnr(posterior.mean, paper_batch.truth) > 20


def test_signal_dependent_weights_do_not_bias_the_mean() -> None:
    setting = dataclasses.replace(PRESETS["affine"], size=40, frames=12, exposure_steps=0)
    flat = torch.full((1, setting.source_size, setting.source_size), 0.01)  # 34 DN, noise 4 DN
    made = simulate(flat, setting, torch.Generator().manual_seed(0))
    mean = shift_and_add(made.burst, made.flow_px, 2).mean
    count = 12 * 40 * 40
    standard_error = (0.1187 * 34 + 12.05) ** 0.5 / 3400 / count**0.5
    assert abs(float(mean.nanmean()) - 0.01) < 6 * standard_error


def test_negative_sample_count_is_refused(paper_batch: Simulated) -> None:
    with pytest.raises(UsageError, match="sample count"):
        map_estimate(paper_batch.burst, paper_batch.flow_px, 2, samples=-1)


class Dense(NamedTuple):
    """Matrices without a preconditioner, as `linear.System`."""

    matrix: torch.Tensor

    def normal(self, image: torch.Tensor) -> torch.Tensor:
        return self.matrix @ image

    def precondition(self, image: torch.Tensor) -> torch.Tensor:
        return image

    def dot(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (one * other).sum((1, 2), keepdim=True)

    def part(self, index: torch.Tensor) -> Dense:
        return Dense(self.matrix[index])


def test_conjugate_gradients_against_a_direct_solve() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 12, 12, dtype=torch.float64, generator=generator)
    matrix = root @ root.mT + 0.5 * torch.eye(12, dtype=torch.float64)
    right = torch.randn(3, 12, 1, dtype=torch.float64, generator=generator)
    right[1] = 0  # an entry that is solved at once must stay zero and finite
    x = conjugate_gradients(Dense(matrix), right, tolerance=1e-12)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, right), atol=1e-8, rtol=0)
    rough = conjugate_gradients(Dense(matrix), right, tolerance=1e-12, enough=0.1)
    residual = (right - matrix @ rough).square().sum((1, 2))
    assert bool((residual <= 0.1).all())
    assert float(residual.max()) > 1e-6  # enough is enough


def test_an_image_drawn_from_the_prior_has_the_energy_of_its_draw(paper_batch: Simulated) -> None:
    burst = paper_batch.burst
    noise_var = frame_noise_var(burst)
    knots = _prior(burst, noise_var)
    problem = GaussianProblem(paper_batch.flow_px, burst.valid / noise_var, knots, 2)
    white = torch.randn(2, *problem.canvas, generator=torch.Generator().manual_seed(0))
    drawn = problem.filter(white, problem.prior.sqrt())
    expected = white.square().sum((1, 2))
    torch.testing.assert_close(problem.prior_energy(drawn), expected, rtol=1e-4, atol=0)
    tighter = problem.tightened(2.0).prior_energy(drawn)  # twin: under another prior
    torch.testing.assert_close(tighter, 2 * expected, rtol=1e-4, atol=0)


def test_the_solver_of_images_starts_near_and_works_on_parts(paper_batch: Simulated) -> None:
    burst = paper_batch.burst
    noise_var = frame_noise_var(burst)
    precision = burst.valid / noise_var
    problem = GaussianProblem(paper_batch.flow_px, precision, _prior(burst, noise_var), 2)
    data = burst.frames - weighted_mean(burst.frames, precision)
    solved = problem.solve(data, tolerance=1e-5)

    def far(image: torch.Tensor) -> float:
        error = image - solved  # its energy, in posterior standard deviations
        return float((error * problem.normal(error)).mean().sqrt())

    def abrupt(place: torch.Tensor, size: int, taper: float) -> torch.Tensor:
        return ((place >= taper * size) & (place < size - taper * size)).to(data)

    start = far(problem.periodic_mean(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "tukey", abrupt)
        assert start < 0.9 * far(problem.periodic_mean(data))  # twin: frames that just end
    rough = problem.solve(data, tolerance=0, error_std=0.05)
    left = problem.model.adjoint(precision * data) - problem.normal(rough)
    left_std = (left * problem.precondition(left)).mean((1, 2)).sqrt()
    assert 0.01 < float(left_std.max()) < 0.06
    assert far(rough) < 0.1 * start
    chosen = torch.tensor([len(data) - 1])
    alone = solved.index_copy(0, chosen, problem.part(chosen).solve(data[chosen], tolerance=1e-5))
    assert far(alone) < 0.01  # rounding differs with the size of a batch


class Circulant(Spectra):
    """The usual preconditioner: each frequency as if the frames saw it alone."""

    def precondition(self, spectrum: torch.Tensor) -> torch.Tensor:
        problem = self.problem
        seen = problem.precision.sum((1, 2, 3)) / math.prod(problem.canvas)
        return spectrum / (problem.stiffness + seen[:, None, None])


def test_one_step_with_alias_blocks_does_what_ten_without_do(paper_batch: Simulated) -> None:
    burst, truth = paper_batch.burst, paper_batch.truth
    noise_var = frame_noise_var(burst)
    precision = burst.valid / noise_var
    problem = GaussianProblem(paper_batch.flow_px, precision, _prior(burst, noise_var), 2)
    level = weighted_mean(burst.frames, precision)
    right = torch.fft.rfft2(problem.model.adjoint(precision * (burst.frames - level)))

    def after(steps: int, system: Spectra) -> float:
        spectrum = conjugate_gradients(system, right, 0.0, max_steps=steps)
        image = problem.crop(torch.fft.irfft2(spectrum, s=problem.canvas)) + level[:, 0]
        return psnr(image, truth)

    assert after(1, Spectra(problem)) > after(10, Circulant(problem))
    ends = [after(60, system) for system in (Spectra(problem), Circulant(problem))]
    assert abs(ends[0] - ends[1]) < 0.3  # of the same problem


def test_noise_law_matters_to_the_weights(paper_batch: Simulated) -> None:
    burst = paper_batch.burst
    noisy = dataclasses.replace(burst, noise=NoiseLaw(burst.noise.a, 400 * burst.noise.b))
    told = map_estimate(burst, paper_batch.flow_px, 2).mean
    misled = map_estimate(noisy, paper_batch.flow_px, 2).mean
    assert psnr(told, paper_batch.truth) > psnr(misled, paper_batch.truth) + 1


def test_map_leaves_holes_where_nothing_was_seen(paper_batch: Simulated) -> None:
    valid = paper_batch.burst.valid.clone()
    valid[:, :, 10:20, 15:30] = False
    burst = dataclasses.replace(paper_batch.burst, valid=valid)
    mean = map_estimate(burst, paper_batch.flow_px, 2).mean
    assert bool(torch.isnan(mean[:, 26:32, 36:52]).all())
    assert 0.01 < float(torch.isnan(mean).float().mean()) < 0.1


def test_a_law_that_vanishes_in_the_dark_is_usable(paper_batch: Simulated) -> None:
    valid = paper_batch.burst.valid.clone()
    valid[:, 3, 5:35, 5:35] = False
    law = NoiseLaw(torch.ones(2), torch.zeros(2))
    burst = dataclasses.replace(paper_batch.burst, valid=valid, noise=law)
    for method in (shift_and_add, map_estimate):
        assert bool(torch.isfinite(method(burst, paper_batch.flow_px, 2).mean).all())
