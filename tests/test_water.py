"""Dark water: next to no large shapes, and ripples. Its spectrum rises."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pushframe import prior
from pushframe.burst import Simulated
from pushframe.simulate import PRESETS, simulate
from pushframe.solver import joint, lost, motion, rise, search, solve
from pushframe.solver.motion import Task

PAPER = PRESETS["paper"]


def dark_water(calm: float = 1.0, **change) -> Simulated:
    """Next to no large shapes, and ripples of three high-res px; less of them near the borders."""
    setting = dataclasses.replace(PAPER, **change)
    side = setting.source_size
    axis = torch.fft.fftfreq(side)
    frequency = (axis[:, None] ** 2 + axis**2).sqrt()
    ripples = 0.05 + torch.exp(-(((frequency - 0.36) / 0.2) ** 2))
    draw = torch.Generator().manual_seed(0)
    texture = torch.fft.ifft2(torch.fft.fft2(torch.randn(side, side, generator=draw)) * ripples)
    place = torch.linspace(-1, 1, side).abs()
    middle = torch.maximum(place[:, None], place) < 0.6
    height = torch.where(middle, 0.006, 0.006 * calm)
    water = 0.045 + height * texture.real / texture.real.std()
    return simulate(water[None], setting, torch.Generator().manual_seed(1))


def never_back_to_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are judged by where they end: stated exposures, the start, are exact here."""
    monkeypatch.setattr(search.Search, "keep_the_better", lambda *_: None)


@pytest.mark.parametrize("rising", [True, False])
def test_gains_do_not_pay_for_a_wrong_spectrum(
    rising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brightness is that of the frames, also where a falling curve is all that is fitted."""
    batch = dark_water()
    if rising:
        never_back_to_the_start(monkeypatch)
    else:
        monkeypatch.setattr(prior, "LARGEST_RISE", 0.0)

    def off() -> torch.Tensor:
        return (solve(batch.burst, 2).posterior.mean - batch.truth)[:, 8:-8, 8:-8]

    assert abs(float(off().mean())) < 1e-3 * 0.045
    for module in (search, joint):
        monkeypatch.setattr(module, "owed_to_spectrum", lambda _, grown: 0 * grown)
    assert abs(float(off().mean())) > 1e-2 * 0.045  # twin


def test_a_spectrum_may_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error bars of water are honest; those of a curve that only falls are not."""
    batch = dark_water()

    def surprise() -> float:
        posterior = solve(batch.burst, 2).posterior
        assert posterior.var is not None
        square = (posterior.mean - batch.truth).square() / posterior.var
        return float(square[:, 8:-8, 8:-8].mean())

    assert 0.9 < surprise() < 1.1
    monkeypatch.setattr(prior, "LARGEST_RISE", 0.0)
    assert abs(surprise() - 1) > 0.3  # twin


def test_gains_read_off_whole_frames_do_not_pay_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ripples in the middle, where windows show more of them than there is."""
    monkeypatch.setattr(motion, "RESTLESS", -1.0)  # all are looked at closely
    never_back_to_the_start(monkeypatch)
    batch = dark_water(calm=0.2)
    kept = torch.ones(1, 15, dtype=torch.bool)

    def off() -> float:
        return abs(float(Task(batch.burst, batch.flow_px, kept, 2).settled().gain.mean() - 1))

    assert off() < 2e-4
    monkeypatch.setattr(search, "owed_to_spectrum", lambda _, grown: 0 * grown)
    assert off() > 1e-2  # twin


@pytest.mark.parametrize("frames", [5, 8])
def test_few_frames_of_water_are_fitted_again(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = dark_water(frames=frames, size=48)

    def error() -> float:
        mean = solve(batch.burst, 2).posterior.mean
        return float((mean - batch.truth)[:, 8:-8, 8:-8].square().mean().sqrt())

    ends = error()
    monkeypatch.setattr(rise, "HELD", torch.inf)
    assert ends < 0.9 * error()  # twin


def test_a_frame_of_water_that_began_a_wave_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spectrum that may rise leaves nothing unexplained, wherever the frame is."""
    batch = dark_water(frames=8, size=40)
    kept, start_px = torch.ones(1, 8, dtype=torch.bool), batch.flow_px.clone()
    start_px[:, 3] += torch.tensor([1.4, -0.9])

    def off() -> float:
        found_px = lost.fit_translations(batch.burst, start_px, kept, 2).flow_px
        return float((found_px - batch.flow_px)[:, 1:].square().mean().sqrt())

    assert off() < 0.03
    monkeypatch.setattr(lost, "energy_at", lambda *given: -given[2].sum((1, 2)) * 0)
    assert off() > 0.1  # twin: that from the start


def test_nine_frames_of_which_one_was_left_out_are_few() -> None:
    batch = dark_water(frames=9, size=32)
    kept = torch.ones(1, 9, dtype=torch.bool)
    fit = Task(batch.burst, batch.flow_px, kept, 2).settled()
    assert not rise.held_down(Task(batch.burst, batch.flow_px, kept, 2), fit)
    kept[:, 5] = False
    fewer = Task(batch.burst, batch.flow_px, kept, 2)
    assert rise.held_down(fewer, fewer.settled())
