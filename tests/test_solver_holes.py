"""Frames with holes: the image solved to the end, and the spectrum that it has."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Simulated
from pushframe.simulate import PRESETS, simulate
from pushframe.solver.image import reconstruct
from pushframe.solver.motion import spectrum_of_translations
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
    assert (seen - whole)[:, -5:].max() < 0.7 < (twin - whole)[:, -5:].max()
