"""The solver: its gradient, its convergence, its accuracy, its honesty, its robustness."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from conftest import sources
from torch import Tensor

from pushframe import Burst
from pushframe.baselines import map_estimate
from pushframe.burst import Simulated
from pushframe.filters import gaussian_blur
from pushframe.gaussian import GaussianProblem
from pushframe.methods import METHODS
from pushframe.metrics import Metrics
from pushframe.motion_table import MotionTable
from pushframe.noise import frame_noise_var
from pushframe.registration import register
from pushframe.simulate import PRESETS, simulate
from pushframe.solver import Solution, peaks, solve
from pushframe.solver.fit import Fit
from pushframe.solver.image import reconstruct
from pushframe.solver.motion import Pace, Task
from pushframe.solver.moving_window import moving_window
from pushframe.solver.peaks import energy_at, fit_motion
from pushframe.solver.search import Search
from pushframe.solver.variance import stationary_variance


def made(frames: int = 10, size: int = 48, count: int = 3, seed: int = 0, **change) -> Simulated:
    setting = dataclasses.replace(PRESETS["paper"], size=size, frames=frames, **change)
    return simulate(sources(setting, count), setting, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def batch() -> Simulated:
    return made()


@pytest.fixture(scope="module")
def solved(batch: Simulated):
    return solve(batch.burst, 2)


def rmse(flow: torch.Tensor, true: torch.Tensor) -> float:
    return float((flow - true)[:, 1:].square().mean().sqrt())


def psnr(mean: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * torch.log10((mean - truth)[..., 8:-8, 8:-8].square().mean((-1, -2))).mean())


def all_kept(burst: Burst) -> torch.Tensor:
    return torch.ones(burst.frames.shape[:2], dtype=torch.bool)


@pytest.mark.parametrize("frames", [4, 10])
def test_the_slope_is_the_derivative_of_the_likelihood(
    frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By finite differences of the energy, for a scene without power near the Nyquist frequency
    (there the kernel is no ideal shift); without the determinant it would not be."""
    setting = dataclasses.replace(PRESETS["paper"], size=48, frames=frames)
    smooth = gaussian_blur(sources(setting, 1)[:, None], 1.5)[:, 0]
    one = simulate(smooth, setting, torch.Generator().manual_seed(2))
    search = Search(one.burst, one.flow_px + 0.03, all_kept(one.burst), 2)
    for _ in range(3):
        search.look()
    knots, window = search.knots, moving_window(one.burst.shape, search.flow_px, search.margin_px)
    # the likelihood is that of the windowed frames: here the window stands still
    monkeypatch.setattr("pushframe.solver.moving_window.moving_window", lambda *_: window)

    def energy(flow_px: torch.Tensor) -> float:
        search.flow_px, search.knots = flow_px, knots
        search.look()
        search.knots = knots
        return float(search.energy())

    base = search.flow_px.clone()
    step, measured = 0.01, torch.zeros(frames, 2)
    for frame in range(1, frames):
        for axis in (0, 1):
            moved = torch.zeros_like(base)
            moved[0, frame, axis] = step
            gap = energy(base + moved) - energy(base - moved)
            measured[frame, axis] = -gap / (4 * step)  # energy is minus twice the log likelihood
    energy(base)
    slope = search.slope(search.changes(whole=False))[0, :, :2]
    off = float((slope - measured)[1:].norm())
    assert off < 0.2 * float(measured[1:].norm())
    shifted = search.lattice.shifted(search.placed.see)
    lost = search.blocks.determinant_slope(search.lattice.count, shifted)[0, :, :2]
    assert float((slope + lost - measured)[1:].norm()) > 2 * off  # twin: the energy alone


def test_it_registers_better_than_lucas_kanade(batch: Simulated, solved) -> None:
    assert rmse(solved.flow_px, batch.flow_px) < 0.006
    assert rmse(solved.flow_px, batch.flow_px) < 0.6 * rmse(register(batch.burst), batch.flow_px)
    assert bool((solved.flow_px[:, 0] == 0).all())


def test_it_reaches_what_known_motion_gives(batch: Simulated, solved) -> None:
    known = psnr(map_estimate(batch.burst, batch.flow_px, 2).mean, batch.truth)
    found = psnr(solved.posterior.mean, batch.truth)
    assert found > known - 0.8
    assert found > psnr(map_estimate(batch.burst, register(batch.burst), 2).mean, batch.truth)


def test_its_error_bars_are_honest_on_every_sub_grid(batch: Simulated, solved) -> None:
    metrics = Metrics(2)
    metrics.update(solved.posterior, batch.truth, ["a", "b", "c"])
    figures = metrics.compute()
    assert figures["all"]["calibration_error"] < 0.03
    assert figures["all"]["mean_z2"] == pytest.approx(1, abs=0.2)
    for row in figures["subgrids"]:
        for cell in row:
            assert cell["calibration_error"] < 0.06


def begun_off(one: Simulated, off_px: float) -> Tensor:
    """The true motion, but for the reference, up to so much off along each axis."""
    error = torch.rand(one.flow_px.shape, generator=torch.Generator().manual_seed(1))
    error = off_px * (2 * error - 1)
    error[:, 0] = 0
    return one.flow_px + error


@pytest.mark.parametrize("off_px", [0.1, 0.2, 0.5, 1.0])
def test_it_converges_from_a_start_that_is_off(
    batch: Simulated, off_px: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_px = begun_off(batch, off_px)
    fit = fit_motion(batch.burst, start_px, all_kept(batch.burst), 2)
    assert rmse(fit.flow_px, batch.flow_px) < 0.006
    if off_px == 1.0:  # twin: without a second look at fits in doubt
        monkeypatch.setattr(peaks, "doubtful", lambda _, fit: torch.zeros_like(fit.kept[:, 0]))
        alone = fit_motion(batch.burst, start_px, all_kept(batch.burst), 2)
        assert rmse(alone.flow_px, batch.flow_px) > 0.05


@pytest.mark.parametrize("off_px", [0.5, 1.0])
@pytest.mark.parametrize("frames", [5, 10, 15])
def test_it_ends_where_it_would_from_near(frames: int, off_px: float) -> None:
    one = made(frames, size=40, count=1)
    near, far = (
        fit_motion(one.burst, begun_off(one, px), all_kept(one.burst), 2).flow_px
        for px in (0.02, off_px)
    )
    assert rmse(far, near) < 0.003  # a fraction of what either is off


def test_shifts_of_several_pixels_are_found() -> None:
    far = made(shift_px=4.0, margin_hpx=20)
    assert rmse(solve(far.burst, 2).flow_px, far.flow_px) < 0.004


def test_five_frames_gain_over_lucas_kanade() -> None:
    few = made(5, size=64, count=4, seed=4)
    start = register(few.burst)
    fit = fit_motion(few.burst, start, all_kept(few.burst), 2)
    assert rmse(fit.flow_px, few.flow_px) < rmse(start, few.flow_px)


@pytest.mark.parametrize(("off_px", "brighter"), [(0.4, 1.0), (0.04, 1.0), (0.0, 1.02)])
def test_never_below_the_likelihood_of_its_start(
    batch: Simulated, off_px: float, brighter: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that lead two bursts of three astray, to places or gains that are bad but numbers."""
    task = Task(batch.burst, batch.flow_px, all_kept(batch.burst), 2, unbiased=False)
    step, astray = Search.step, torch.tensor([True, False, True])
    away_px = off_px * torch.randn(batch.flow_px.shape, generator=torch.Generator().manual_seed(3))
    away_px[:, 0] = 0

    def lead_astray(search: Search, moving: bool) -> None:
        step(search, moving)
        bad = batch.flow_px + away_px
        search.flow_px = torch.where(astray[:, None, None], bad, search.flow_px)
        gain = torch.full_like(search.gain, brighter)
        gain[:, 0] = 1
        search.gain = torch.where(astray[:, None], gain, search.gain)
        search._set_level()

    def lost(fit: Fit) -> Tensor:
        """By how much its energy is above that of the start, (B,)."""
        at_start = energy_at(task, fit, batch.flow_px, torch.ones_like(fit.gain))
        return energy_at(task, fit, fit.flow_px, fit.gain) - at_start

    monkeypatch.setattr(Search, "step", lead_astray)
    # as bad as numbers can be: no frame is to be blamed and none to be left out
    monkeypatch.setattr(Search, "expel", lambda search: torch.zeros_like(search.kept[:, 0]))
    fit = task.settled()
    assert torch.equal(fit.flow_px[astray], batch.flow_px[astray])
    assert torch.equal(fit.gain[astray], torch.ones_like(fit.gain[astray]))
    assert bool((lost(fit)[astray] == 0).all())
    assert float(lost(fit)[1]) < 0
    assert 0 < rmse(fit.flow_px[1:2], batch.flow_px[1:2]) < 0.01  # by itself: the others may return
    monkeypatch.setattr(Search, "keep_the_better", lambda *_: None)  # twin: no comparison
    assert bool((lost(task.settled())[astray] > 10).all())


@pytest.mark.parametrize("psf_hpx", [0.7, 0.5])
def test_more_iterations_never_hurt_where_the_model_is_inexact(
    psf_hpx: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joint fit without determinant, or without anchor, drifts away from the truth here."""
    setting = dataclasses.replace(PRESETS["continuous"], psf_hpx=psf_hpx, size=48, frames=10)
    one = simulate(sources(setting, 2), setting, torch.Generator().manual_seed(0))
    start, kept = register(one.burst), all_kept(one.burst)
    errors, reached = [rmse(start, one.flow_px)], []
    monkeypatch.setattr("pushframe.solver.motion.ENOUGH", Pace(16, 3))
    for steps in (2, 4, 8, 16):
        fit = Task(one.burst, start, kept, 2, steps).settled()
        good = ~fit.outlier & fit.kept[..., None, None]
        image = reconstruct(one.burst, good, fit.flow_px, fit.gain, fit.knots, 2).mean
        errors.append(rmse(fit.flow_px, one.flow_px))
        reached.append(psnr(image, one.truth))
    assert all(b < a + 5e-4 for a, b in itertools.pairwise(errors)), errors
    assert all(b > a - 0.05 for a, b in itertools.pairwise(reached)), reached


def test_the_stated_motion_error_is_the_real_one(batch: Simulated) -> None:
    fit = fit_motion(batch.burst, register(batch.burst), all_kept(batch.burst), 2)
    var = fit.covariance.diagonal(dim1=-2, dim2=-1).unflatten(1, (-1, 3))[:, 1:, :2]
    z2 = ((fit.flow_px - batch.flow_px)[:, 1:] ** 2 / var).mean()
    assert 0.4 < float(z2) < 2.5


def test_wrong_exposures_are_found_and_cost_little() -> None:
    exact, wrong = made(), made(exposure_error=0.02)
    lost = psnr(solve(exact.burst, 2).posterior.mean, exact.truth) - psnr(
        solve(wrong.burst, 2).posterior.mean, wrong.truth
    )
    assert lost < 1.3
    naive = psnr(map_estimate(exact.burst, exact.flow_px, 2).mean, exact.truth) - psnr(
        map_estimate(wrong.burst, wrong.flow_px, 2).mean, wrong.truth
    )
    assert naive > 3  # twin: exposures taken at their word


def test_a_foreign_frame_is_left_out_and_named(batch: Simulated) -> None:
    frames = batch.burst.frames.clone()
    frames[:, 4] = frames[:, 4].roll(1, 0)
    spoilt = dataclasses.replace(batch.burst, frames=frames)
    solution = solve(spoilt, 2)
    assert not bool(solution.kept[:, 4].any())
    without = [k for k in range(10) if k != 4]
    clean = psnr(solve(batch.burst.select(without), 2).posterior.mean, batch.truth)
    assert psnr(solution.posterior.mean, batch.truth) > clean - 0.5
    table = MotionTable(spoilt.names)
    table.update(spoilt, METHODS["solver"].run(spoilt, 2, None), torch.zeros(1, 10, 2))
    assert table.notes() == ["frame 4 disagrees with the others and was left out."]
    table.update(batch.burst, METHODS["solver"].run(batch.burst, 2, None), torch.zeros(1, 10, 2))
    assert table.notes() == ["frame 4 disagrees with the others and was left out in part."]


def test_a_moving_object_is_not_blended_in(batch: Simulated, solved) -> None:
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    blob = 0.5 * torch.exp(-((y - 22) ** 2 + (x - 16) ** 2) / 18)
    frames = batch.burst.frames.clone()
    frames[:, 6] += blob
    found = psnr(
        solve(dataclasses.replace(batch.burst, frames=frames), 2).posterior.mean, batch.truth
    )
    assert found > psnr(solved.posterior.mean, batch.truth) - 1.5


def test_invalid_pixels_have_no_say(batch: Simulated) -> None:
    valid = batch.burst.valid.clone()
    valid[:, 3, 10:22, 8:30] = False
    valid[:, 0, 30:36, 30:40] = False
    means = [
        solve(
            dataclasses.replace(
                batch.burst,
                valid=valid,
                frames=batch.burst.frames.where(valid, torch.tensor(fill)),
            ),
            2,
        ).posterior.mean
        for fill in (0.0, 7.0)
    ]
    torch.testing.assert_close(means[0], means[1], atol=1e-5, rtol=0)
    assert psnr(means[0], batch.truth) > 40


def test_the_order_of_frames_does_not_matter(batch: Simulated, solved) -> None:
    order = [0, 7, 3, 1, 9, 2, 8, 4, 6, 5]
    again = solve(batch.burst.select(order), 2)
    back = torch.argsort(torch.tensor(order))
    torch.testing.assert_close(again.flow_px[:, back], solved.flow_px, atol=1e-3, rtol=0)
    assert psnr(again.posterior.mean, solved.posterior.mean) > 60


def test_stationary_variance_against_perturbed_worlds(batch: Simulated) -> None:
    burst = batch.burst
    fit = fit_motion(burst, register(burst), all_kept(burst), 2)
    precision = burst.valid / frame_noise_var(burst)
    problem = GaussianProblem(fit.flow_px, precision, fit.knots, 2)
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([problem.crop(problem.sample_error(generator)) for _ in range(12)])
    sampled = draws.square().mean(0)[:, 12:-12, 12:-12]
    predicted = stationary_variance(problem)[:, 12:-12, 12:-12]
    for y in (0, 1):
        for x in (0, 1):
            ratio = sampled[:, y::2, x::2].mean((1, 2)) / predicted[:, y::2, x::2].mean((1, 2))
            assert ((ratio - 1).abs() < 0.1).all()


def test_signal_dependent_noise_is_followed() -> None:
    setting = dataclasses.replace(PRESETS["affine"], size=48, frames=10)
    one = simulate(sources(setting, 2), setting, torch.Generator().manual_seed(0))
    posterior = solve(one.burst, 2).posterior
    z2 = ((posterior.mean - one.truth) ** 2 / posterior.var)[:, 8:-8, 8:-8]
    bright = one.truth[:, 8:-8, 8:-8] > one.truth.median()
    assert float(z2[bright].mean()) == pytest.approx(1, abs=0.3)
    assert float(z2[~bright].mean()) == pytest.approx(1, abs=0.3)


def z2(solution: Solution, truth: Tensor) -> Tensor:
    """Mean squared error in units of the bars, (B,)."""
    posterior = solution.posterior
    return ((posterior.mean - truth) ** 2 / posterior.var)[:, 8:-8, 8:-8].mean((1, 2))


def test_scenes_that_hold_more_than_their_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sharp optic: solved on a finer grid; on its own, misfit and wider bars."""
    setting = dataclasses.replace(PRESETS["continuous"], psf_hpx=0.45, size=48, frames=10)
    one = simulate(sources(setting, 2), setting, torch.Generator().manual_seed(0))
    fine = solve(one.burst, 2)
    assert fine.posterior.mean.shape == one.truth.shape
    assert bool(((z2(fine, one.truth) - 1).abs() < 0.3).all())
    monkeypatch.setattr("pushframe.solver.finer.FINEST_SCALE", 0)  # twin
    coarse = solve(one.burst, 2)
    assert psnr(fine.posterior.mean, one.truth) > psnr(coarse.posterior.mean, one.truth) + 1
    assert bool((fine.mismatch < 0.2 * coarse.mismatch).all())
    assert float(z2(coarse, one.truth).mean()) < 4


def test_little_beyond_the_grid_is_much_of_a_quiet_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """A soft optic leaves next to nothing beyond the grid, but more than noise of half a DN."""
    setting = dataclasses.replace(
        PRESETS["continuous"], psf_hpx=0.8, noise_std_dn=(0.5, 0.5), size=32, frames=12
    )
    one = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(0))
    fine = psnr(solve(one.burst, 2).posterior.mean, one.truth)
    monkeypatch.setattr("pushframe.solver.finer.LEAST_SHARE", 0.1)  # twin: never enough
    assert fine > psnr(solve(one.burst, 2).posterior.mean, one.truth) + 3


@pytest.mark.parametrize("level", [0.0, 0.2])
def test_scenes_without_detail(level: float) -> None:
    """Water, cloud, night: nothing determines the spectrum, and nothing is to be seen."""
    setting = dataclasses.replace(PRESETS["paper"], size=32)
    source = torch.full((8, setting.source_size, setting.source_size), level)
    one = simulate(source, setting, torch.Generator().manual_seed(10))
    posterior = solve(one.burst, 2).posterior
    assert float((posterior.mean - level).abs().max()) < 5e-3  # frames: noise of up to 2e-2
    assert float(posterior.var.max()) < 1e-4
    assert bool((posterior.var > 0).all())


def test_scenes_of_their_grid_stay_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(6, size=48, count=2)
    asked = solve(one.burst, 2).posterior.mean
    monkeypatch.setattr("pushframe.solver.finer.FINEST_SCALE", 0)
    torch.testing.assert_close(asked, solve(one.burst, 2).posterior.mean)
    monkeypatch.setattr("pushframe.solver.finer.FINEST_SCALE", 4)
    monkeypatch.setattr("pushframe.solver.finer.LEAST_DIFFERENCE", -1e9)  # twin: always finer
    assert psnr(solve(one.burst, 2).posterior.mean, one.truth) < psnr(asked, one.truth) - 0.3


@pytest.mark.parametrize(("frames", "scale"), [(1, 2), (2, 2), (12, 3)])
def test_any_number_of_frames_and_scale(frames: int, scale: int) -> None:
    one = made(frames, size=32, count=1, scale=scale)
    posterior = solve(one.burst, scale).posterior
    assert posterior.mean.shape == (1, 32 * scale, 32 * scale)
    assert bool((posterior.var > 0).all())
    assert psnr(posterior.mean, one.truth) > 20


def test_known_motion_is_taken_as_given(batch: Simulated) -> None:
    solution = solve(batch.burst, 2, batch.flow_px)
    assert torch.equal(solution.flow_px, batch.flow_px)


def test_saturated_frames_are_registered_and_used() -> None:
    one = made(count=2, saturate=True, seed=1, white_level=2400.0, exposure_steps=2)
    assert 0.7 < float(one.burst.valid.float().mean()) < 0.999
    assert float(one.burst.valid[:, 0].float().mean()) > 0.7
    assert rmse(register(one.burst), one.flow_px) < 0.05
    solution = solve(one.burst, 2)
    assert rmse(solution.flow_px, one.flow_px) < 0.02
    plain = psnr(map_estimate(one.burst, register(one.burst), 2).mean, one.truth)
    assert psnr(solution.posterior.mean, one.truth) > plain


def test_a_search_that_was_lost_returns_to_its_start(batch: Simulated) -> None:
    start = register(batch.burst)
    search = Search(batch.burst, start, all_kept(batch.burst), 2)
    search.look()
    search.flow_px = batch.flow_px
    search.look()
    search.gain[0] = torch.nan
    search._set_level()
    search.unbias()
    search.look()
    assert not bool(torch.isfinite(search.energy()[0]))
    search.keep_the_better(start)
    assert torch.equal(search.flow_px[0], start[0])
    assert torch.equal(search.flow_px[1], batch.flow_px[1])
    assert torch.equal(search.gain[0], torch.ones_like(search.gain[0]))
    for found in (search.energy(), search.knots, search.whole.bias, search.whole.scene):
        assert bool(torch.isfinite(found).all())
    assert bool((search.whole.bias[1] != 0).any())  # the others keep what was found of them
