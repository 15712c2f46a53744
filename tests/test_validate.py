"""Bursts that hang together, and each way in which they may not."""

from __future__ import annotations

import dataclasses

import torch
from conftest import sources

from pushframe import Burst
from pushframe.simulate import PRESETS, simulate_one
from pushframe.validate import examine


def one(seed: int = 3, **change: object) -> Burst:
    setting = dataclasses.replace(PRESETS["paper"], size=40, frames=5, **change)
    return simulate_one(sources(setting, 1, seed)[0], setting, seed).burst


def verdicts(burst: Burst, verdict: str) -> list[str]:
    return [finding.message for finding in examine(burst) if finding.verdict == verdict]


def test_a_good_burst_has_nothing_bad() -> None:
    for seed in range(3, 8):
        assert verdicts(one(seed), "bad") == []
    assert len(verdicts(one(), "good")) == 5


def test_a_frame_of_another_place_is_named() -> None:
    burst, other = one(3), one(9)
    frames = burst.frames.clone()
    frames[2] = other.frames[2]
    bad = verdicts(dataclasses.replace(burst, frames=frames), "bad")
    assert len(bad) == 1
    assert bad[0].startswith("frame 2: shows another place")


def test_a_wrong_exposure_is_named() -> None:
    burst = one()
    frames = burst.frames.clone()
    frames[3] *= 1.4
    bad = verdicts(dataclasses.replace(burst, frames=frames), "bad")
    assert len(bad) == 1
    assert "frame 3: 1.40 times as bright" in bad[0]


def test_masks_and_saturation_are_noted() -> None:
    burst = one()
    valid = burst.valid.clone()
    valid[1, :25] = False
    frames = burst.frames.clone()
    frames[4] = frames[4].clamp(max=float(frames[4].quantile(0.8)))
    notes = verdicts(dataclasses.replace(burst, valid=valid, frames=frames), "note")
    assert any("frame 1: only 38%" in text for text in notes)
    assert any("frame 4: 20% of its pixels sit at its maximum" in text for text in notes)


def test_reading_assumptions_are_repeated() -> None:
    burst = dataclasses.replace(one(), notes=("white_level was not given",))
    assert "white_level was not given" in verdicts(burst, "note")


def test_one_frame_and_unknown_noise() -> None:
    assert verdicts(one().select([0]), "bad") == []
    assert verdicts(dataclasses.replace(one(), noise=None), "bad") == []


def test_a_scene_without_contrast_is_not_called_another_place() -> None:
    burst = one()
    noise = torch.randn(burst.frames.shape, generator=torch.Generator().manual_seed(0))
    flat = 0.2 + noise * burst.noise.b.sqrt() / burst.gain[:, None, None]
    assert verdicts(dataclasses.replace(burst, frames=flat), "bad") == []
