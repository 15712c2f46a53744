"""Bursts that hang together, and each way in which they may not."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from conftest import sources

from pushframe import Burst
from pushframe.registration import agreement, register
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
    assert bad[0].startswith("frame 2: disagrees with the reference: clouded, or of another place")


def test_a_frame_of_another_place_that_is_somewhat_alike_is_named() -> None:
    """Its brightness differs, too: that is no fault of the exposure."""
    burst, other = one(3), one(9)
    frames = burst.frames.clone()
    frames[2] = 0.7 * frames[2] + 0.5 * other.frames[2]
    odd = dataclasses.replace(burst, frames=frames)
    _, correlation, _ = agreement(odd.batched(), register(odd.batched()))
    assert 0.6 < float(correlation[0, 2]) < 0.9
    assert [text[:18] for text in verdicts(odd, "bad")] == ["frame 2: disagrees"]


def test_a_wrong_exposure_is_named() -> None:
    burst = one()
    frames = burst.frames.clone()
    frames[3] *= 1.4
    bad = verdicts(dataclasses.replace(burst, frames=frames), "bad")
    assert len(bad) == 1
    assert "frame 3: 1.40 times as bright" in bad[0]
    assert verdicts(dataclasses.replace(burst, frames=frames, days=True), "bad") == []


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


def test_one_frame_is_not_fit() -> None:
    assert [text[:34] for text in verdicts(one().select([0]), "bad")] == [
        "expected at least 2 frames, got 1:"
    ]


def test_two_frames_need_a_noise_law() -> None:
    unknown = dataclasses.replace(one(), noise=None)
    assert verdicts(one().select([0, 1]), "bad") == []
    assert verdicts(unknown.select([0, 1, 2]), "bad") == []
    (bad,) = verdicts(unknown.select([0, 1]), "bad")
    assert "expected a noise law or at least 3 frames" in bad
    assert "give noise_a and noise_b" in bad


@pytest.mark.parametrize(
    ("shifts_px", "said"),
    [
        ([[0, 0], [0, 0], [0, 0]], "of whole rows and columns"),
        ([[0, 0], [1, -2], [2, 1]], "of whole rows and columns"),
        ([[0, 0], [1, 0.4], [0, 0.7]], "of whole rows:"),
        ([[0, 0], [0.1, -1], [-0.4, 2]], "of whole columns:"),
        ([[0, 0], [0.5, 0.5], [0, 0]], None),
    ],
)
def test_frames_on_one_grid_are_noted(shifts_px: list[list[float]], said: str | None) -> None:
    """Fine noise on a smooth scene, which can be registered to a hundredth of a pixel."""
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    random = torch.Generator().manual_seed(0)
    frames = [
        0.4 + 0.2 * torch.sin(0.3 * (x + dx)) * torch.cos(0.23 * (y + dy))
        + 0.001 * torch.randn(48, 48, generator=random)
        for dy, dx in shifts_px
    ]  # fmt: skip
    burst = Burst(torch.stack(frames), torch.ones(3), torch.tensor(3400.0))
    notes = [text for text in verdicts(burst, "note") if text.startswith("All frames lie")]
    assert [said in text for text in notes] == ([] if said is None else [True])


def test_a_scene_without_contrast_is_not_called_another_place() -> None:
    burst = one()
    noise = torch.randn(burst.frames.shape, generator=torch.Generator().manual_seed(0))
    flat = 0.2 + noise * burst.noise.b.sqrt() / burst.gain[:, None, None]
    assert verdicts(dataclasses.replace(burst, frames=flat), "bad") == []


def with_blob(burst: Burst, frame: int | None, sigma_px: float, height: float = 0.5) -> Burst:
    """The burst with a bright spot in one frame; None: one that moves through all of them."""
    frames = burst.frames.clone()
    y, x = (torch.arange(float(size)) for size in burst.shape)
    for k in range(burst.count) if frame is None else [frame]:
        at = burst.shape[0] / 2 + (5 * (k - burst.count / 2) if frame is None else 0)
        frames[k] += height * torch.exp(
            -((y[:, None] - at) ** 2 + (x - at) ** 2) / (2 * sigma_px**2)
        )
    return dataclasses.replace(burst, frames=frames)


@pytest.mark.parametrize("sigma_px", [2, 3])
def test_a_cloud_in_one_frame_is_noted(sigma_px: float) -> None:
    (note,) = verdicts(with_blob(one(), 3, sigma_px), "note")
    assert re.match(r"frame 3: \d+% of its pixels disagree with the other frames \(a cloud", note)
    assert note.endswith("are left out")
    assert verdicts(with_blob(one(), 3, sigma_px), "bad") == []
    unknown = dataclasses.replace(with_blob(one(), 3, sigma_px), noise=None)
    assert [text[:8] for text in verdicts(unknown, "note")] == ["frame 3:"]


def test_what_moves_through_all_frames_is_one_note() -> None:
    (note,) = verdicts(with_blob(one(), None, 1.5), "note")
    assert note.startswith("In 5 of 5 frames ")


@pytest.mark.parametrize("preset", ["paper", "affine", "continuous"])
def test_clean_frames_and_masks_are_not_called_clouds(preset: str) -> None:
    for seed in range(4):
        setting = dataclasses.replace(PRESETS[preset], size=40, frames=6)
        burst = simulate_one(sources(setting, 1, seed)[0], setting, seed).burst
        assert verdicts(burst, "note") == []
        assert verdicts(dataclasses.replace(burst, noise=None), "note") == []
        valid = burst.valid.clone()
        valid[2, 10:20, 10:20] = False
        assert verdicts(dataclasses.replace(burst, valid=valid), "note") == []


def test_a_small_cloud_in_a_large_scene_is_noted() -> None:
    setting = dataclasses.replace(PRESETS["paper"], size=200, frames=5)
    burst = simulate_one(sources(setting, 1)[0], setting, 3).burst
    assert verdicts(burst, "note") == []
    frames = burst.frames.clone()
    frames[2, 150:156, 20:26] += 0.5
    (note,) = verdicts(dataclasses.replace(burst, frames=frames), "note")
    assert re.match(r"frame 2: 0\.\d% of its pixels, \d% where it is most, disagree", note)
