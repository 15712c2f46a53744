"""Exposures far from what was stated: found, put right, and told; nothing else is taken for one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Burst, Simulated
from pushframe.infer import Reconstruction, count_samples
from pushframe.methods import METHODS
from pushframe.noise_law import estimate_noise_law
from pushframe.product import Product
from pushframe.registration import register
from pushframe.simulate import PRESETS, simulate, simulate_one, with_options
from pushframe.solver import (
    Belief,
    Evidence,
    exposure,
    locate,
    locate_translations,
    measure,
    solve,
)
from pushframe.solver.begin import begin
from pushframe.solver.exposure import at_true_exposure, exposure_excess
from pushframe.solver.outliers import on_reference_grid

FRAME = 3


def misstated(burst: Burst, frame: int, times: float) -> Burst:
    """The same raw pixels, whose exposure is said to be `times` shorter than it was."""
    excess = torch.ones_like(burst.exposure)
    excess[..., frame] = 1 / times
    return at_true_exposure(burst, excess)


def found(burst: Burst) -> torch.Tensor:
    return exposure_excess(burst, on_reference_grid(burst, register(burst)))


@pytest.fixture(scope="module")
def clean() -> Simulated:
    setting = with_options(PRESETS["paper"], size=48, frames=7)
    return simulate(sources(setting, 3), setting, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("frame", [0, FRAME])
@pytest.mark.parametrize("times", [0.3, 0.8, 1.3, 2.0, 8.0])
def test_a_factor_is_found_of_any_frame(clean: Simulated, times: float, frame: int) -> None:
    expected = torch.ones(3, 7)
    expected[:, frame] = times
    expected = expected / expected[:, :1]
    excess = found(misstated(clean.burst, frame, times))
    torch.testing.assert_close(excess, expected, rtol=0.015, atol=0)


def test_raw_pixels_and_their_noise_stay_as_they_are(clean: Simulated) -> None:
    wrong = misstated(clean.burst, FRAME, 2.0)
    torch.testing.assert_close(wrong.raw_dn(), clean.burst.raw_dn())
    assert not torch.allclose(wrong.frames, clean.burst.frames)


@pytest.mark.parametrize("preset", ["paper", "affine", "continuous"])
def test_right_exposures_are_left_alone(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = with_options(PRESETS[preset], size=40, frames=5, exposure_error=0.01)
    made = simulate(sources(setting, 6, 11), setting, torch.Generator().manual_seed(1))
    assert (found(made.burst) == 1).all()
    monkeypatch.setattr(exposure, "LEAST_EXCESS", 1.0)  # twin
    monkeypatch.setattr(exposure, "EXPLAINED", 2.0)
    assert (found(made.burst) != 1).any()


@pytest.mark.parametrize("frame", [0, 1])
@pytest.mark.parametrize("frames", [2, 3, 4, 5])
def test_few_frames_suffice(frames: int, frame: int) -> None:
    """What is left of the usual frame is not nothing for its being the median itself."""
    setting = with_options(PRESETS["paper"], size=48, frames=frames)
    made = simulate(sources(setting, 8), setting, torch.Generator().manual_seed(0))
    for times in (0.5, 1.3, 2.0):
        expected = torch.ones(8, frames)
        expected[:, frame] = times
        expected = expected / expected[:, :1]
        excess = found(misstated(made.burst, frame, times))
        right = ((excess / expected - 1).abs() < 0.03).all(1)
        assert int(right.sum()) >= (7 if frames == 3 else 8)


def test_what_adds_is_no_factor(clean: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pedestal and a veil of cloud are as bright as a longer exposure, but hide the scene."""
    frames = clean.burst.frames
    usual = frames[:, FRAME].mean((-1, -2), keepdim=True)

    def brightened(frame: torch.Tensor) -> Burst:
        brighter = frames.clone()
        brighter[:, FRAME] = frame
        return dataclasses.replace(clean.burst, frames=brighter)

    own = frames[:, FRAME]
    for spoilt in (own + 0.1 * usual, own + 0.3 * usual, 0.7 * own + 0.6 * usual):
        assert (found(brightened(spoilt)) == 1).all()
    excess = found(brightened(1.3 * own))[:, FRAME]  # twin: as bright, by a factor
    assert excess.tolist() == pytest.approx([1.3] * 3, abs=0.02)
    monkeypatch.setattr(exposure, "LIFTED", torch.inf)  # twin: whether it adds is not asked
    assert (found(brightened(own + 0.1 * usual)) != 1).any()


def test_the_dark_tells_no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the scene at a hundredth of its light, which noise hides."""
    setting = with_options(PRESETS["paper"], size=64, frames=8, noise_std_dn=(18.0, 18.0))
    scenes = sources(setting, 6)
    light = torch.where(torch.arange(scenes.shape[-1]) < 0.6 * scenes.shape[-1], 0.01, 1.0)
    made = simulate(scenes * light, setting, torch.Generator().manual_seed(0))
    wrong = misstated(made.burst, FRAME, 1.3)
    assert found(wrong)[:, FRAME].tolist() == pytest.approx([1.3] * 6, rel=0.03)
    monkeypatch.setattr(exposure, "DARK_SIGMAS", 0.0)  # twin
    assert found(wrong)[:, FRAME].tolist() != pytest.approx([1.3] * 6, rel=0.03)


def test_a_dark_scene_tells_no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its median is next to 0, and which pixels are bright is a matter of noise."""
    setting = with_options(PRESETS["paper"], size=48, frames=9)
    made = simulate(0.001 * sources(setting, 24), setting, torch.Generator().manual_seed(0))

    def factors() -> torch.Tensor:
        return exposure_excess(made.burst, on_reference_grid(made.burst, made.flow_px))

    assert (factors() == 1).all()
    monkeypatch.setattr(exposure, "LIT_SIGMAS", -torch.inf)  # twin
    assert (factors() != 1).any()


def test_a_few_bright_pixels_tell_no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = with_options(PRESETS["paper"], size=48, frames=9)
    dark = torch.full_like(sources(setting, 16), 0.002)
    dark[:, 47:50, 47:50] = 0.5
    made = simulate(dark, setting, torch.Generator().manual_seed(0))

    def factors() -> torch.Tensor:
        return exposure_excess(made.burst, on_reference_grid(made.burst, made.flow_px))

    assert int((factors() != 1).any(1).sum()) <= 1
    monkeypatch.setattr(exposure, "LEAST_TELLING", 1)  # twin
    assert int((factors() != 1).any(1).sum()) > 3


def test_a_flat_scene_has_a_factor_too() -> None:
    """There an offset explains as much, and it does not matter which of the two it was."""
    setting = with_options(PRESETS["paper"], size=48, frames=7)
    flat = 0.045 + 0.02 * (sources(setting, 4) - 0.3)
    made = simulate(flat, setting, torch.Generator().manual_seed(0))
    excess = found(misstated(made.burst, FRAME, 1.3))[:, FRAME]
    assert excess.tolist() == pytest.approx([1.3] * 4, rel=0.02)


def test_days_differ_in_light_not_in_exposure(clean: Simulated) -> None:
    wrong = misstated(clean.burst, FRAME, 1.6)
    assert (found(wrong) != 1).any()
    assert (found(dataclasses.replace(wrong, days=True)) == 1).all()


def test_what_is_located_is_said_of_stated_exposures(clean: Simulated) -> None:
    wrong = misstated(clean.burst, FRAME, 1.6)
    expected, gain = pytest.approx([1.6] * 3, rel=0.005), 3 * FRAME + 2
    for find in (locate, locate_translations):
        right, told = find(clean.burst, 2), find(wrong, 2)
        assert told.gain[:, FRAME].tolist() == expected
        ratio = (told.covariance / right.covariance)[:, gain, gain]
        assert ratio.tolist() == pytest.approx([1.6**2] * 3, rel=0.15)


def test_a_belief_is_not_overruled_by_shade(clean: Simulated) -> None:
    """What is dimmer than a scene, all of whose other windows say so, is under a cloud."""
    shaded = misstated(clean.burst, FRAME, 0.6)
    mean = torch.zeros(3, 7, 3)
    mean[..., :2] = clean.flow_px
    sure = torch.diag_embed(torch.full((3, 7, 3), 1e-4))
    assert (begin(shaded, Belief(mean, sure)).excess == 1).all()
    mean[:, FRAME, 2] = -0.4  # twin: the scene says it too
    expected = pytest.approx([0.6] * 3)
    assert begin(shaded, Belief(mean, sure)).excess[:, FRAME].tolist() == expected


def test_evidence_under_a_belief_is_of_stated_exposures(clean: Simulated) -> None:
    mean = torch.zeros(3, 7, 3)
    mean[..., :2] = clean.flow_px
    sure = torch.diag_embed(torch.full((3, 7, 3), 1e-4))
    right = measure(clean.burst, 2, Belief(mean.clone(), sure))
    mean[:, FRAME, 2] = 0.6
    told = measure(misstated(clean.burst, FRAME, 1.6), 2, Belief(mean, sure))
    off = (told.mean - right.mean)[..., -1]
    assert off[:, FRAME].tolist() == pytest.approx([0.6] * 3, abs=0.01)
    off[:, FRAME] = 0
    assert float(off.abs().max()) < 0.01


def test_samples_count_as_exposures_were(clean: Simulated) -> None:
    run = METHODS["solver"].run
    right = count_samples(clean.burst, run(clean.burst, 2, None), 2)
    wrong = misstated(clean.burst, FRAME, 4.0)
    estimate = run(wrong, 2, None)
    told = count_samples(wrong, estimate, 2)
    assert (told - right).abs().max() < 0.05
    as_stated = count_samples(wrong, estimate._replace(gain=None), 2)  # twin
    assert (as_stated - right).abs().max() > 0.5


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("times", [0.5, 2.5])
def test_the_image_is_that_of_right_exposures(
    clean: Simulated, times: float, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    motion = clean.flow_px if known else None
    right = solve(clean.burst, 2, motion)
    wrong = misstated(clean.burst, FRAME, times)

    def apart() -> float:
        """From the image of right exposures, in its error bars, rms."""
        solved = solve(wrong, 2, motion)
        off = (solved.posterior.mean - right.posterior.mean).square() / right.posterior.var
        return float(off.nanmean().sqrt())

    solved = solve(wrong, 2, motion)
    assert apart() < 0.3
    assert solved.kept.all()
    assert solved.gain[:, FRAME].tolist() == pytest.approx([times] * 3, rel=0.005)
    monkeypatch.setattr(exposure, "LEAST_EXCESS", 99.0)
    assert apart() > 0.45  # twin


def test_errors_are_those_of_gains_as_they_are_said(clean: Simulated) -> None:
    wrong = misstated(clean.burst, FRAME, 2.0)
    excess = found(wrong)
    said, unsaid = solve(wrong, 2), solve(at_true_exposure(wrong, excess), 2)
    gain = 3 * FRAME + 2
    torch.testing.assert_close(said.gain, unsaid.gain * excess)
    ratio = (said.covariance / unsaid.covariance)[:, gain]
    assert ratio[:, gain].tolist() == pytest.approx((excess[:, FRAME] ** 2).tolist(), rel=1e-3)
    assert ratio[:, 3].tolist() == pytest.approx(excess[:, FRAME].tolist(), rel=1e-3)  # of dy


def test_beliefs_and_evidence_follow_exposures() -> None:
    """A frame of gain 1 at its true exposure has a gain of 1.5 as it was stated."""
    excess = torch.tensor([[1.0, 1.5]])
    mean = torch.zeros(1, 2, 3)
    mean[..., 2] = 0.01
    covariance = torch.diag_embed(torch.full((1, 2, 3), 1e-4))
    told = Evidence(mean, covariance).as_stated(excess)
    assert told.mean[0, :, 2].tolist() == pytest.approx([0.01, 0.515])
    assert told.covariance[0, 1].diagonal().tolist() == pytest.approx([1e-4, 1e-4, 2.25e-4])
    back = Belief(*told).at_exposure(excess)
    torch.testing.assert_close(back.mean, mean)
    torch.testing.assert_close(back.covariance, covariance)


def test_tiles_of_a_scene_share_a_wrong_exposure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LARGEST_TILE_PX", "TILE_PX"):
        monkeypatch.setattr(f"pushframe.seams.{name}", 64)
    setting = with_options(PRESETS["paper"], size=100, frames=9)
    made = simulate_one(sources(setting, 1, 5)[0], setting, 4)
    right, wrong = (Reconstruction(b) for b in (made.burst, misstated(made.burst, FRAME, 1.6)))
    expected, product = right.product(), wrong.product()

    def error(product: Product) -> tuple[float, float]:
        """Root mean square, and mean square in error bars."""
        unit = float(made.burst.exposure[0] * made.burst.white_level)
        off = torch.from_numpy(product.mean / unit) - made.truth
        surprise = (off / torch.from_numpy(product.std / unit)).square().nanmean()
        return float(off.square().nanmean().sqrt()), float(surprise)

    assert wrong.scene is not None
    assert float(1 + wrong.scene.mean[FRAME, -wrong.scene.mean.shape[1] // 3]) == pytest.approx(
        1.6, abs=0.01
    )
    assert (
        "frame 3 is 1.60 times as bright as its stated exposure says; corrected in the product"
        in product.provenance["notes"]
    )
    rms, surprise = error(product)
    assert rms < 1.02 * error(expected)[0]
    assert surprise < 1.3


@pytest.mark.parametrize("known", [False, True])
def test_exposures_are_put_right_where_motion_bends(known: bool) -> None:
    setting = with_options(PRESETS["paper"], size=40, frames=8, motion="drift")
    made = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(2))
    motion = made.flow_px if known else None
    right, wrong = (solve(b, 2, motion) for b in (made.burst, misstated(made.burst, FRAME, 1.6)))
    assert float(wrong.gain[0, FRAME]) == pytest.approx(1.6, rel=0.01)
    off = (wrong.posterior.mean - right.posterior.mean).square() / right.posterior.var
    assert float(off.nanmean().sqrt()) < 0.3


@pytest.mark.parametrize("frame", [0, FRAME])
def test_shade_on_a_part_of_a_frame_is_no_exposure(
    clean: Simulated, frame: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shaded(light: torch.Tensor) -> Burst:
        frames = clean.burst.frames.clone()
        frames[:, frame] *= 0.6 + 0.4 * light
        return dataclasses.replace(clean.burst, frames=frames)

    column = torch.arange(48)
    parts = [shaded((column >= share * 48).float()) for share in (0.3, 0.5, 0.75)]
    for burst in (*parts, shaded(column / 47)):
        assert (found(burst) == 1).all()
    monkeypatch.setattr(exposure, "MOST", 0.5)  # twin: the median does not see the rest
    assert (found(parts[2]) != 1).any()


def test_the_noise_law_does_not_suffer() -> None:
    setting = with_options(PRESETS["paper"], size=48, frames=10)
    burst = dataclasses.replace(simulate_one(sources(setting, 1)[0], setting, 3).burst, noise=None)
    right, wrong = (estimate_noise_law(b) for b in (burst, misstated(burst, FRAME, 1.7)))
    assert float(wrong.b) == pytest.approx(float(right.b), rel=0.02)
