"""The local prior: its operator, what it learns, and the bars that follow from it."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from conftest import sources

import pushframe.local_prior as module
from pushframe.burst import Simulated
from pushframe.gaussian import GaussianProblem
from pushframe.local_prior import LocalPrior
from pushframe.noise import frame_noise_var
from pushframe.prior import power_law
from pushframe.simulate import PRESETS, simulate
from pushframe.solver.detail import POWER_RANGE, local_prior
from pushframe.solver.image import detailed, reconstruct
from pushframe.solver.spectrum import first_knots, spectrum_of_burst
from pushframe.solver.variance import detailed_variance, local_variance, stationary_variance

CANVASES = [(8, 8), (6, 10), (7, 9)]


def random_root(canvas: tuple[int, int]) -> torch.Tensor:
    """`S^-1/2` of a spectrum that only depends on the size of a frequency."""
    fy, fx = torch.fft.fftfreq(canvas[0])[:, None], torch.fft.rfftfreq(canvas[1])
    return (0.1 + fy**2 + fx**2).double()[None]


def unit_power(canvas: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    plain = torch.ones(1, *canvas, dtype=torch.float64)
    return plain, torch.stack([plain, 0 * plain, plain], 1)


def distance_from_stationary(canvas: tuple[int, int]) -> float:
    root = random_root(canvas)
    image = torch.randn(1, *canvas, generator=torch.Generator().manual_seed(0)).double()
    seen = LocalPrior.of_power(root, *unit_power(canvas)).apply(image)
    plain = torch.fft.irfft2(torch.fft.rfft2(image) * root**2, s=canvas)
    return float((seen - plain).abs().max() / plain.abs().max())


@pytest.mark.parametrize("canvas", CANVASES)
def test_with_power_one_everywhere_it_is_the_stationary_prior(canvas: tuple[int, int]) -> None:
    assert distance_from_stationary(canvas) < 1e-6


def test_cosines_imaginary_at_the_last_frequency_would_lose_power(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = module._directions

    def wrong(canvas: tuple[int, int], device: torch.device) -> torch.Tensor:
        filters = right(canvas, device).clone()
        filters[1, canvas[0] // 2] *= 1j
        filters[2, :, -1] *= 1j
        return filters

    monkeypatch.setattr(module, "_directions", wrong)
    assert distance_from_stationary((8, 8)) > 1e-2


def random_local(canvas: tuple[int, int]) -> LocalPrior:
    generator = torch.Generator().manual_seed(1)
    factor = torch.randn(1, 2, 2, *canvas, generator=generator).double()
    turned = torch.einsum("bijhw,bkjhw->bikhw", factor, factor)
    turned = [turned[:, 0, 0] + 0.2, turned[:, 0, 1], turned[:, 1, 1] + 0.2]
    plain = torch.rand(1, *canvas, generator=generator).double() + 0.1
    return LocalPrior.of_power(random_root(canvas), plain, torch.stack(turned, 1))


@pytest.mark.parametrize("canvas", CANVASES)
def test_it_is_symmetric_and_positive(canvas: tuple[int, int]) -> None:
    local, size = random_local(canvas), canvas[0] * canvas[1]
    columns = [
        local.apply(unit.view(1, *canvas)).flatten()
        for unit in torch.eye(size, dtype=torch.float64)
    ]
    matrix = torch.stack(columns)
    torch.testing.assert_close(matrix, matrix.T, atol=1e-7, rtol=1e-6)
    assert float(torch.linalg.eigvalsh((matrix + matrix.T) / 2)[0]) > 0


@pytest.mark.parametrize(
    ("axis", "share"), [(0, 1 / 2 / 3 + 1 / 2 / 4), (1, 1 / 2 / 3 + 1 / 2 / 9)]
)
def test_a_wave_is_weighed_by_the_power_along_its_own_axis(axis: int, share: float) -> None:
    canvas = (16, 16)
    plain, turned = unit_power(canvas)
    turned[:, 0], turned[:, 2] = 4, 9  # yy, xx
    place = torch.arange(16).double() / 16
    wave = torch.cos(2 * math.pi * 3 * (place[:, None] if axis == 0 else place)).expand(1, 16, 16)
    root = random_root(canvas)
    energy = (wave * LocalPrior.of_power(root, 3 * plain, turned).apply(wave)).sum()
    usual = (wave * torch.fft.irfft2(torch.fft.rfft2(wave) * root**2, s=canvas)).sum()
    assert float(energy / usual) == pytest.approx(share, rel=1e-6)
    swapped = LocalPrior.of_power(root, 3 * plain, turned.flip(1)).apply(wave)
    assert float((wave * swapped).sum() / usual) != pytest.approx(share, rel=0.1)


def test_the_power_is_the_mean_over_directions() -> None:
    local = random_local((6, 6))
    plain, yy, yx, xx = local.precision.unbind(1)
    angle = torch.arange(4096).double()[:, None, None, None] / 4096 * 2 * math.pi
    y, x = angle.sin(), angle.cos()
    directed = 1 / (plain + y**2 * yy + 2 * y * x * yx + x**2 * xx)
    torch.testing.assert_close(local.power(), directed.mean(0), rtol=1e-5, atol=0)


def small_problem(height: int = 18, frames: int = 5, noise_std: float = 0.01) -> GaussianProblem:
    flow_px = torch.rand(1, frames, 2, generator=torch.Generator().manual_seed(5)) * 2 - 1
    precision = torch.full((1, frames, height, height), 1 / noise_std**2)
    return GaussianProblem(flow_px, precision, power_law(torch.tensor([0.01])), 2)


def with_quiet_left(problem: GaussianProblem, quiet: float, busy: float) -> GaussianProblem:
    """Little detail in the left half of the canvas, much in the right; isotropic."""
    plain = torch.full((1, *problem.canvas), quiet)
    plain[..., problem.canvas[1] // 2 :] = busy
    turned = torch.stack([plain, 0 * plain, plain], 1)
    return problem.with_detail(LocalPrior.of_power(problem.stiffness.sqrt(), plain, turned))


def exact_variance(problem: GaussianProblem) -> torch.Tensor:
    """The diagonal of the inverse of the normal matrix, over the frames' field."""
    size = problem.canvas[0] * problem.canvas[1]
    unit = torch.eye(size).view(size, 1, *problem.canvas)
    matrix = torch.stack([problem.normal(column)[0].flatten() for column in unit]).double()
    diagonal = torch.linalg.inv((matrix + matrix.T) / 2).diagonal()
    return problem.crop(diagonal.view(1, *problem.canvas)).float()


def test_variance_of_a_local_prior_against_the_dense_inverse() -> None:
    stationary = small_problem()
    problem = with_quiet_left(stationary, 0.2, 10.0)
    exact, stated = exact_variance(problem), detailed_variance(problem)
    quiet, busy = ((slice(None), slice(10, -10), slice(*ends)) for ends in ((8, 16), (19, 22)))
    for here in (quiet, busy):
        assert float(stated[here].mean() / exact[here].mean()) == pytest.approx(1, abs=0.12)
    # one prior for all would state far too much where it is quiet, too little where it is busy
    plain = stationary_variance(stationary)
    assert float(plain[quiet].mean() / exact[quiet].mean()) > 1.2
    assert float(plain[busy].mean() / exact[busy].mean()) < 0.85


def test_a_level_of_detail_that_is_nowhere_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """At levels far above the scene's the blocks may have no number; the bars keep theirs."""
    problem = with_quiet_left(small_problem(), 0.2, 10.0)
    usual = detailed_variance(problem)

    def without_high_levels(problem: GaussianProblem, power: torch.Tensor) -> torch.Tensor:
        high = (power >= 50)[:, None, None]
        assert bool(high.any())
        return local_variance(problem, power).masked_fill(high, torch.nan)

    monkeypatch.setattr("pushframe.solver.variance.local_variance", without_high_levels)
    torch.testing.assert_close(detailed_variance(problem), usual)


@pytest.fixture(scope="module")
def few() -> Simulated:
    """Five frames of scenes whose left half was made flat."""
    setting = dataclasses.replace(PRESETS["paper"], size=48, frames=5)
    scenes = sources(setting, 3)
    middle = scenes.shape[-1] // 2
    scenes[..., :middle] = scenes[..., :middle].mean((-1, -2), keepdim=True)
    return simulate(scenes, setting, torch.Generator().manual_seed(0))


def first_image(one: Simulated, good: torch.Tensor):
    gain = torch.ones_like(one.burst.exposure)
    knots = spectrum_of_burst(one.burst, good, one.flow_px, gain, 2)
    return reconstruct(one.burst, good, one.flow_px, gain, knots, 2)


def test_it_finds_the_detail_and_gains_by_it(few: Simulated) -> None:
    made = first_image(few, few.burst.valid)
    better = detailed(made, few.burst.valid)
    assert better.problem.local is not None
    power = better.problem.crop(better.problem.local.power())
    assert (power[:, 8:-8, 8:40].median() < 0.5 * power[:, 8:-8, 56:-8].median()).all()
    error, before = (
        (image.mean - few.truth)[:, 8:-8, 8:-8].square().mean((1, 2)) for image in (better, made)
    )
    assert (10 * torch.log10(before / error) > 0.2).all()


def test_nothing_is_learnt_where_nothing_was_seen(few: Simulated) -> None:
    good = few.burst.valid.clone()
    good[..., 12:36, 4:20] = False  # of the flat half
    made = first_image(few, good)
    power = made.problem.crop(local_prior(made.problem, made.image).power())
    torch.testing.assert_close(power[:, 34:62, 18:30], torch.ones(3, 28, 12), atol=0.05, rtol=0)
    seen = first_image(few, few.burst.valid)
    quiet = seen.problem.crop(local_prior(seen.problem, seen.image).power())
    assert float(quiet[:, 34:62, 18:30].median()) < 0.5


def test_a_part_of_a_problem_keeps_its_own_detail(few: Simulated) -> None:
    problem = detailed(first_image(few, few.burst.valid), few.burst.valid).problem
    image = torch.randn(3, *problem.canvas, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([2, 0])
    torch.testing.assert_close(
        problem.part(index).normal(image[index]), problem.normal(image)[index]
    )


def test_noise_alone_is_not_taken_for_detail() -> None:
    """Bursts drawn from the stationary prior itself: the power found is 1 on average."""
    problem = small_problem(48, 6, 0.003)
    generator = torch.Generator().manual_seed(0)
    shape = (1, *problem.canvas)
    scene = problem.filter(torch.randn(shape, generator=generator), problem.prior.sqrt())
    noise = torch.randn(problem.precision.shape, generator=generator) * 0.003
    image = problem.solve(problem.model.forward(scene) + noise)
    power = problem.crop(local_prior(problem, image).power())[:, 8:-8, 8:-8]
    assert float(power.mean()) == pytest.approx(1, abs=0.1)
    assert float((power <= POWER_RANGE[0]).float().mean()) < 0.01


def test_levels_of_detail_are_those_of_each_burst(paper_batch: Simulated) -> None:
    """All bursts and levels at once are the same as one by one."""
    burst = paper_batch.burst
    noise_var = frame_noise_var(burst)
    knots = first_knots(burst.frames, burst.valid, noise_var)
    problem = GaussianProblem(paper_batch.flow_px, burst.valid / noise_var, knots, 2)
    power = torch.tensor([0.2, 1.0, 30.0])
    together = local_variance(problem, power)
    for entry, level in itertools.product(range(len(knots)), range(len(power))):
        one = problem.part(torch.tensor([entry]))
        alone = local_variance(one, power[level : level + 1])[0, 0]
        torch.testing.assert_close(together[entry, level], alone, rtol=1e-4, atol=0)
    assert float((together[0] / together[1]).log().abs().max()) > 0.02  # they do differ
