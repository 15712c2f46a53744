"""Frames with holes: the image solved to the end, its spectrum, and the bursts beside them."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Burst, Simulated
from pushframe.prior import KNOTS
from pushframe.registration import register
from pushframe.simulate import PRESETS, simulate
from pushframe.solver import joint, locate, pieces, space
from pushframe.solver.image import reconstruct
from pushframe.solver.motion import Task, spectrum_of_translations
from pushframe.solver.search import Search
from pushframe.solver.space import fit_in_space
from pushframe.solver.spectrum import spectrum_of_burst
from pushframe.solver.variance import stationary_variance

SETTING = dataclasses.replace(PRESETS["paper"], frames=6, size=48)
HALF = 24  # px: where all frames but the first end


@pytest.fixture(scope="module")
def made() -> Simulated:
    return simulate(sources(SETTING, 1), SETTING, torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def good(made: Simulated) -> torch.Tensor:
    seen = made.burst.valid.clone()
    seen[:, 1:, :, HALF:] = False
    return seen


def test_an_image_of_frames_with_holes_is_solved_to_the_end(
    made: Simulated, good: torch.Tensor
) -> None:
    """Where frames have ended, the preconditioner takes the rest for next to nothing."""
    gain = torch.ones_like(made.burst.exposure)
    knots = spectrum_of_burst(made.burst, made.burst.valid, made.flow_px, gain, 2)
    found = reconstruct(made.burst, good, made.flow_px, gain, knots, 2)
    data = made.burst.frames - found.level
    least = found.problem.solve(data, found.image, 1e-6)
    twin = found.problem.solve(data, tolerance=2e-4, error_std=0.05)
    off, loose = (
        float(found.problem.crop(image - least).square().mean().sqrt())
        for image in (found.image, twin)
    )
    std = float(stationary_variance(found.problem).mean().sqrt())
    assert off < 0.3 * std < loose


def test_holes_leave_the_spectrum_as_it_is(made: Simulated, good: torch.Tensor) -> None:
    """A fill of the holes shows as power of the highest frequencies."""
    gain = torch.ones_like(made.burst.exposure)
    whole, seen = (
        spectrum_of_burst(made.burst, part, made.flow_px, gain, 2)
        for part in (made.burst.valid, good)
    )
    holed = dataclasses.replace(made.burst, valid=good)
    twin = spectrum_of_translations(holed, made.flow_px, gain, 2)
    high = slice(KNOTS - 5, KNOTS)
    assert (seen - whole)[:, high].max() < 0.7 < (twin - whole)[:, high].max()


def first_spectrum(burst: Burst) -> torch.Tensor:
    """Log power at the knots of the first burst, which tells of every look that was taken."""
    kept = torch.ones_like(burst.exposure, dtype=torch.bool)
    return Task(burst, register(burst), kept, 2, steps=2).settled().knots[:1]


def test_a_whole_burst_is_registered_as_if_it_were_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is masked in the other bursts of its batch."""
    setting = dataclasses.replace(SETTING, size=32)
    batch = simulate(sources(setting, 2), setting, torch.Generator().manual_seed(0)).burst
    valid = batch.valid.clone()
    valid[1, 2, 5:12, 5:12] = False
    batch = dataclasses.replace(batch, valid=valid)
    alone = first_spectrum(batch.part(torch.tensor([0])))
    rounding = 5e-4  # which differs with the size of a batch
    torch.testing.assert_close(first_spectrum(batch), alone, atol=rounding, rtol=0)

    def together(search: Search, looks: int) -> None:
        for _ in range(looks):
            search.look()

    monkeypatch.setattr(Search, "grow_into_masks", together)  # twin
    with pytest.raises(AssertionError):
        torch.testing.assert_close(first_spectrum(batch), alone, atol=rounding, rtol=0)


def test_a_fit_in_space_begins_with_the_spectrum_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a power law the first step of the gains goes astray, and they are late to return."""
    setting = dataclasses.replace(SETTING, size=32, frames=12)
    burst = simulate(sources(setting, 3), setting, torch.Generator().manual_seed(0)).burst.part(
        torch.tensor([1])
    )
    valid = burst.valid.clone()
    valid[:, 4, 5:17, 5:17] = False
    valid[:, 7, 10:20, 15:30] = False
    burst = dataclasses.replace(burst, valid=valid)

    def off() -> float:
        return float((locate(burst, 2).gain - 1).square().mean().sqrt())

    settled = space.CONVERGED_GAIN
    monkeypatch.setattr(space, "CONVERGED_GAIN", 0.005)  # not to wait for them
    # nor to take out what they pay for it
    monkeypatch.setattr(joint, "owed_to_spectrum", lambda _, grown: 0 * grown)
    assert off() < 2e-4
    # given last: the spectrum, and what gains are about
    monkeypatch.setattr(
        pieces, "fit_in_space", lambda *given: fit_in_space(*given[:-2], None, given[-1])
    )
    assert off() > 3e-4  # twin
    monkeypatch.setattr(space, "CONVERGED_GAIN", settled)
    assert off() < 2e-4  # they return
