"""A reference whose own exposure is a little off: all other frames contradict it together."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Burst
from pushframe.methods import gain_error
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver import certainty, locate, locate_translations, motion, solve
from pushframe.solver.certainty import learn_gain_std
from pushframe.solver.exposure import at_true_exposure
from pushframe.solver.motion_prior import MotionPrior
from pushframe.solver.search import Search


def misstated(burst: Burst, frame: int, times: float) -> Burst:
    """The same raw pixels, whose exposure is said to be `times` shorter than it was."""
    excess = torch.ones_like(burst.exposure)
    excess[..., frame] = 1 / times
    return at_true_exposure(burst, excess)


@pytest.fixture(scope="module")
def clean() -> Burst:
    setting = with_options(PRESETS["paper"], size=64, frames=15)
    return simulate(sources(setting, 4), setting, torch.Generator().manual_seed(0)).burst


def surprise(burst: Burst, true_gain: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Errors of gains over what they are stated to be, rms, and their mean errors, (B,) each."""
    solved = solve(burst, 2)
    off = (solved.gain / true_gain - 1)[:, 1:]
    stated = gain_error(solved.covariance)[:, 1:] / true_gain
    return (off / stated).square().mean(1).sqrt(), off.mean(1)


@pytest.mark.parametrize("times", [1.005, 1.6])
def test_the_others_say_so(clean: Burst, times: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6 is far off, and put right roughly beforehand."""
    wrong = misstated(clean, 0, times)
    surprised, off = surprise(wrong, 1 / times)
    assert float(surprised.max()) < 2.5
    assert float(off.abs().max()) < 1.5e-3
    monkeypatch.setattr(motion.Task, "free_reference", lambda _, __, fit: fit)  # twin
    surprised, _ = surprise(wrong, 1 / times)
    assert float(surprised.max()) > 4


@pytest.mark.parametrize("find", [locate, locate_translations])
def test_whoever_asks_is_told(clean: Burst, find) -> None:
    """Gains that were put right roughly are not passed on as if they were right."""
    located = find(misstated(clean, 0, 1.6), 2)
    off = (located.gain * 1.6 - 1)[:, 1:] / (gain_error(located.covariance)[:, 1:] * 1.6)
    assert float(off.square().mean(1).sqrt().max()) < 2.5


def test_masked_bursts_are_told_too(clean: Burst, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are fitted in space, with gains about what they were in Fourier space."""
    draw = torch.rand(clean.valid.shape, generator=torch.Generator().manual_seed(1))
    masked = dataclasses.replace(clean, valid=draw > 0.01).part(torch.arange(2))
    right = solve(masked, 2).posterior

    def apart() -> float:
        image = solve(misstated(masked, 0, 1.01), 2).posterior
        off = (image.mean / 1.01 - right.mean)[:, 8:-8, 8:-8]
        return float((off.square() / right.var[:, 8:-8, 8:-8]).mean((1, 2)).max().sqrt())

    assert apart() < 0.4
    monkeypatch.setattr(motion.Task, "free_reference", lambda _, __, fit: fit)  # twin
    assert apart() > 0.8


def test_two_frames_do_not_know_whose_exposure_is_off() -> None:
    setting = with_options(PRESETS["paper"], size=48, frames=2)
    burst = simulate(sources(setting, 4), setting, torch.Generator().manual_seed(0)).burst
    for frame in range(2):
        wrong = misstated(burst, frame, 1.6)
        surprised, _ = surprise(wrong, 1.6 if frame else 1 / 1.6)
        assert float(surprised.max()) < 3.5


def test_batch_mates_of_a_freed_burst_stay_as_they_are(clean: Burst) -> None:
    wrong = misstated(clean, 0, 1.01)
    mixed = dataclasses.replace(
        clean,
        frames=torch.cat([wrong.frames[:2], clean.frames[2:]]),
        exposure=torch.cat([wrong.exposure[:2], clean.exposure[2:]]),
    )
    ours, alone = solve(mixed, 2), solve(clean, 2)
    close = {"rtol": 1e-5, "atol": 1e-7, "equal_nan": True}
    torch.testing.assert_close(ours.posterior.mean[2:], alone.posterior.mean[2:], **close)
    torch.testing.assert_close(ours.posterior.var[2:], alone.posterior.var[2:], **close)
    torch.testing.assert_close(ours.covariance[2:], alone.covariance[2:], **close)


def test_bars_and_brightness_are_right(clean: Burst, monkeypatch: pytest.MonkeyPatch) -> None:
    right = solve(clean, 2).posterior

    def apart() -> float:
        """From the image of right exposures, in its error bars, rms, of the worst burst."""
        image = solve(misstated(clean, 0, 1.005), 2).posterior
        off = (image.mean / 1.005 - right.mean)[:, 8:-8, 8:-8]
        return float((off.square() / right.var[:, 8:-8, 8:-8]).mean((1, 2)).max().sqrt())

    assert apart() < 0.25
    monkeypatch.setattr(motion.Task, "free_reference", lambda _, __, fit: fit)  # twin
    assert apart() > 0.5


def test_right_exposures_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole frames deny what frames under windows say."""
    setting = with_options(PRESETS["paper"], size=48, frames=12)
    made = simulate(sources(setting, 12), setting, torch.Generator().manual_seed(0)).burst
    asked: list[torch.Tensor] = []

    def surprise(search: Search, moving: bool) -> torch.Tensor:
        asked.append(certainty.reference_surprise(search, moving))
        return asked[-1]

    monkeypatch.setattr(motion, "reference_surprise", surprise)
    monkeypatch.setattr(motion, "DOUBTED", 1.0)
    gain = solve(made, 2).gain
    assert sum(len(surprised) for surprised in asked[1:]) >= 3  # that are asked twice
    assert float((gain - 1).abs().max()) < 1e-3


def test_whole_frames_that_say_the_opposite_confirm_nothing(
    clean: Burst, monkeypatch: pytest.MonkeyPatch
) -> None:
    burst = clean.part(torch.arange(1))
    kept, still = torch.ones(1, 15).bool(), torch.zeros(1, 15, 2)

    def freed(*surprises: float) -> bool:
        told = iter(torch.tensor([value]) for value in surprises)
        monkeypatch.setattr(motion, "reference_surprise", lambda *_: next(told))
        return bool(motion.Task(burst, still, kept, 2, moving=False).settled().freed)

    assert freed(-4.0, -4.0)
    assert freed(4.0, 4.0)
    assert not freed(-4.0, 4.0)
    assert not freed(2.0, 4.0)


def test_a_reference_left_alone_has_no_common_gain(clean: Burst) -> None:
    kept = torch.zeros(4, 15).bool()
    kept[:, 0] = True
    fit = motion.Task(clean, torch.zeros(4, 15, 2), kept, 2, moving=False).settled()
    fit = dataclasses.replace(fit, freed=torch.ones(4).bool())
    assert fit.common_gain().tolist() == [1.0] * 4


def test_frames_are_never_quite_sure_of_the_reference(
    clean: Burst, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of other errors is more than next to no noise."""
    search = Search(clean.part(torch.arange(1)), torch.zeros(1, 15, 2), torch.ones(1, 15).bool(), 2)
    search.look()
    search.step(moving=False)
    search.gain = torch.full((1, 15), 1.001)
    search.gain[:, 0] = 1
    search.information = 1e12 * torch.eye(45)[None]  # next to no error of their own
    surprise = certainty.reference_surprise(search, moving=False)
    assert float(surprise) == pytest.approx(1e-3 / 4e-4, rel=0.02)
    monkeypatch.setattr(certainty, "UNSTATED_STD", 0.0)  # twin
    assert float(certainty.reference_surprise(search, moving=False)) > 100


def test_a_frame_that_is_off_by_itself_is_not_the_reference(clean: Burst) -> None:
    solved = solve(misstated(clean, 3, 1.01), 2)
    assert solved.gain[:, 3].tolist() == pytest.approx([1.01] * 4, abs=3e-3)
    assert float((solved.gain[:, [1, 2, *range(4, 15)]].mean(1) - 1).abs().max()) < 1e-3


def prior_of(gain_std: float, reference_std: float) -> MotionPrior:
    prior = MotionPrior(None, torch.ones(1, 5, dtype=torch.float64))
    prior.gain_std = torch.full((1,), gain_std, dtype=torch.float64)
    prior.reference_std = torch.full((1,), reference_std, dtype=torch.float64)
    return prior


def test_gains_are_off_each_and_together() -> None:
    """The oracle: what the inverse of `gain_std**2 + reference_std**2 1 1'` makes of gains."""
    prior, gain = prior_of(0.002, 0.03), torch.tensor([[1.0, 1.01, 0.99, 1.03, 7.0]]).double()
    kept = torch.tensor([[True, True, True, True, False]])
    covariance = 0.002**2 * torch.eye(3).double() + 0.03**2
    expected = torch.linalg.inv(covariance) @ (gain[0, 1:4] - 1)
    pull = prior.pull(torch.zeros(1, 5, 2).double(), gain, kept)[0, :, 2]
    torch.testing.assert_close(pull[1:4], expected, rtol=1e-9, atol=0)
    system = prior.system(torch.zeros(1, 15, 15).double(), kept, prior.free(kept, False), False)
    chosen = torch.tensor([5, 8, 11])
    found = torch.linalg.inv(system[0][chosen[:, None], chosen])
    torch.testing.assert_close(found, covariance, rtol=1e-9, atol=0)
    alone = prior_of(0.002, 0.0).pull(torch.zeros(1, 5, 2).double(), gain, kept)[0, 1:4, 2]
    torch.testing.assert_close(alone, (gain[0, 1:4] - 1) / 0.002**2)  # twin


def test_frames_spread_about_their_mean_where_the_reference_is_off(clean: Burst) -> None:
    search = Search(clean.part(torch.arange(1)), torch.zeros(1, 15, 2), torch.ones(1, 15).bool(), 2)
    search.look()
    search.step(moving=False)
    search.gain = 1.02 + 0.002 * (-1) ** torch.arange(15)[None]
    search.gain[:, 0] = 1
    search.information = 1e12 * torch.eye(45)[None]  # next to no error of their own
    learn_gain_std(search)
    assert float(search.motion_prior.gain_std) == pytest.approx(0.02, rel=0.05)
    search.motion_prior.reference_std = torch.full((1,), 0.03)
    learn_gain_std(search)
    assert float(search.motion_prior.gain_std) == pytest.approx(0.002, rel=0.1)


def test_exposures_and_gains_are_one_thing_to_the_likelihood(clean: Burst) -> None:
    """A frame of twice the stated exposure has half the noise once its gain is taken out."""
    excess = torch.linspace(1, 2, 15).expand(4, -1)
    kept, still = torch.ones(4, 15).bool(), torch.zeros(4, 15, 2)
    given = Search(at_true_exposure(clean, excess), still, kept, 2)
    found = Search(clean, still, kept, 2, gain=excess)
    for search in (given, found):
        search.knots = given.knots
        search.look()
        search.budget()
    torch.testing.assert_close(found.energy(), given.energy(), rtol=1e-3, atol=0)
    torch.testing.assert_close(found.mismatch, given.mismatch, rtol=1e-2, atol=1e-9)
