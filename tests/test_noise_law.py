"""The noise law from the frames' disagreement: right on known laws, wrong when sabotaged."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe import noise_law
from pushframe.burst import Burst, NoiseLaw
from pushframe.errors import BurstError
from pushframe.noise import rounding_var
from pushframe.noise_law import (
    OVERSTATED,
    estimate_noise_law,
    is_overstated,
    regress,
    trimmed_power,
    with_noise_law,
)
from pushframe.simulate import PRESETS, simulate_one, with_options

TOLERANCE = 0.10  # of the variance at the 5th, 50th and 95th percentile of the raw pixels


def burst_of(preset: str, seed: int = 3) -> Burst:
    setting = with_options(PRESETS[preset], size=48, frames=10)
    return simulate_one(sources(setting, 1, seed)[0], setting, seed).burst


def unknown(burst: Burst) -> Burst:
    return dataclasses.replace(burst, noise=None)


def error_at_percentiles(burst: Burst, law: NoiseLaw) -> torch.Tensor:
    """Relative error of the predicted variance at the 5th, 50th, 95th percentile, (3,)."""
    assert burst.noise is not None
    dn = (burst.raw_dn() - burst.black_level)[burst.valid]
    dn = dn.quantile(torch.tensor([0.05, 0.5, 0.95])).clamp(min=0)
    return (law.a * dn + law.b) / (burst.noise.a * dn + burst.noise.b) - 1


@pytest.mark.parametrize("preset", ["paper", "affine"])
def test_the_law_of_a_burst_is_found(preset: str) -> None:
    burst = burst_of(preset)
    law = estimate_noise_law(unknown(burst))
    assert (error_at_percentiles(burst, law).abs() < TOLERANCE).all()


def test_without_the_freedom_correction_the_law_is_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(_problem: object, dn: torch.Tensor, *_rest: object) -> torch.Tensor:
        return torch.stack([dn, torch.ones_like(dn), torch.zeros_like(dn)])

    burst = burst_of("affine")
    monkeypatch.setattr(noise_law, "left_over", whole)
    law = estimate_noise_law(unknown(burst))
    assert (error_at_percentiles(burst, law)[1:] < -TOLERANCE).all()


def test_what_is_missed_at_borders_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = with_options(PRESETS["paper"], size=48, frames=12)
    burst = simulate_one(sources(setting, 1, 8)[0], setting, 8).burst
    law = estimate_noise_law(unknown(burst))
    assert (error_at_percentiles(burst, law).abs() < 0.02).all()
    monkeypatch.setattr(noise_law, "BORDER_PX", 0)  # twin
    law = estimate_noise_law(unknown(burst))
    assert (error_at_percentiles(burst, law) < -0.04).all()


def test_the_unit_of_exposure_does_not_matter() -> None:
    burst = unknown(burst_of("affine"))
    dn = burst.raw_dn()
    other = Burst.from_dn(dn, burst.exposure * 8, float(burst.white_level) / 2)
    law, same = estimate_noise_law(burst), estimate_noise_law(other)
    torch.testing.assert_close(same.a, law.a, rtol=0.02, atol=0)
    torch.testing.assert_close(same.a * 500 + same.b, law.a * 500 + law.b, rtol=0.02, atol=0)


def test_too_few_frames_are_refused() -> None:
    burst = unknown(burst_of("paper")).select([0, 1])
    with pytest.raises(BurstError, match=r"expected at least 3 frames.*got 2: give noise_a and"):
        estimate_noise_law(burst)


def test_a_batch_is_refused() -> None:
    with pytest.raises(BurstError, match=r"one burst of shape \(N, H, W\)"):
        estimate_noise_law(unknown(burst_of("paper")).batched())


def test_trimmed_power_is_true_for_normal_values_and_blind_to_outliers() -> None:
    values = 3 * torch.randn(40_000, generator=torch.Generator().manual_seed(1))
    assert abs(float(trimmed_power(values)) / 9 - 1) < 0.03
    values[:200] = 1000.0
    assert abs(float(trimmed_power(values)) / 9 - 1) < 0.03
    assert float(values.square().mean()) > 100  # the plain mean is lost


@pytest.mark.parametrize(("a", "b"), [(0.12, 12.0), (0.0, 80.0), (0.3, 0.0)])
def test_regression_recovers_a_law_and_never_goes_below_zero(a: float, b: float) -> None:
    dn = torch.linspace(10, 3000, 60)
    free = torch.linspace(0.3, 0.9, 60)
    missed = torch.linspace(0, 5, 60)
    power = (a * dn + b) * free + missed
    rows = torch.stack([power, dn * free, free, missed, dn, torch.full_like(dn, 300)], 1)
    law = regress(rows, NoiseLaw(torch.zeros(1), torch.full((1,), 500.0)), 1 / 12)
    torch.testing.assert_close(law.a, torch.tensor([a]), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(law.b, torch.tensor([b]), rtol=1e-3, atol=1e-3)


def test_frames_of_other_places_are_no_ground_for_a_law() -> None:
    burst = unknown(burst_of("affine"))
    others = [burst_of("affine", seed).frames[0] for seed in (4, 6)]
    mixed = dataclasses.replace(
        burst.select([0, 1, 2]), frames=torch.stack([burst.frames[0], *others])
    )
    with pytest.raises(BurstError, match=r"expected 3 frames that agree.*give noise_a"):
        estimate_noise_law(mixed)


def test_a_law_from_frames_that_cannot_be_registered_is_said_to_be_doubtful() -> None:
    setting = with_options(PRESETS["paper"], size=32, frames=6)
    scene = sources(setting, 1)[0]
    said = []
    for contrast in (1.0, 0.01):
        faint = 0.3 + contrast * (scene - scene.mean())
        burst = dataclasses.replace(simulate_one(faint, setting, 0).burst, noise=None)
        said.append(with_noise_law(burst, 2).notes)
    assert [len(notes) for notes in said] == [1, 2]
    assert "The scene shows too little to register its frames by" in said[1][1]


def test_a_frame_that_does_not_show_the_middle_has_no_say() -> None:
    burst = burst_of("affine")
    valid = burst.valid.clone()
    valid[2, 4:-4, 4:-4] = False
    holed = dataclasses.replace(burst, valid=valid, noise=None)
    told = with_noise_law(holed, 2)
    without = with_noise_law(unknown(burst.select([0, 1, *range(3, burst.count)])), 2)
    assert told.count == burst.count
    assert float(told.noise.a) == float(without.noise.a)
    assert float(told.noise.b) == float(without.noise.b)


def test_frames_that_hide_the_middle_are_counted() -> None:
    burst = burst_of("affine")
    valid = burst.valid.clone()
    valid[2:, 4:-4, 4:-4] = False
    with pytest.raises(BurstError, match=r"3 frames that show the middle.*got 2 of 10"):
        with_noise_law(dataclasses.replace(burst, valid=valid, noise=None), 2)


def grainy(shape: tuple[int, int] = (64, 64)) -> Burst:
    """Frames of a plane, with noise of var = 0.2 * dn + 25 DN^2."""
    generator = torch.Generator().manual_seed(0)
    dn = torch.linspace(100, 900, shape[1]).expand(4, *shape)
    dn = dn + (0.2 * dn + 25).sqrt() * torch.randn(dn.shape, generator=generator)
    return Burst.from_dn(dn.numpy(), torch.ones(4), 1000.0)


def test_frames_smoother_than_their_law_are_told() -> None:
    burst = grainy()
    assert not is_overstated(burst, NoiseLaw(0.2, 25.0))
    assert not is_overstated(burst, NoiseLaw(0.25, 30.0))
    assert is_overstated(burst, NoiseLaw(0.4, 60.0))
    clipped = dataclasses.replace(burst, frames=burst.frames.clone())
    clipped.frames[..., :20] = 0.0  # dark ground cut off, a third of each frame
    assert not is_overstated(clipped, NoiseLaw(0.2, 25.0))
    steps = dataclasses.replace(burst, frames=burst.frames * 0.002)  # to whole numbers
    steps = dataclasses.replace(steps, frames=(steps.frames * 1000).round() / 1000)
    assert not is_overstated(steps, NoiseLaw(0.0, float(rounding_var(steps.batched())[0])))


@pytest.mark.parametrize("times", [1.0, 3.0])
def test_a_law_that_frames_do_not_bear_out_is_noted(
    times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = NoiseLaw(0.2 * times, 25.0 * times)
    monkeypatch.setattr(noise_law, "_law_and_shift_error", lambda *_: (law, 0.0))
    assert (OVERSTATED in with_noise_law(grainy(), 2).notes) == (times == 3)


@pytest.mark.parametrize("preset", ["paper", "continuous"])
@pytest.mark.parametrize("noise_std_dn", [(10.0, 10.0), (60.0, 60.0)])
def test_clean_bursts_bear_their_law_out(preset: str, noise_std_dn: tuple[float, float]) -> None:
    setting = with_options(PRESETS[preset], size=40, frames=6)
    setting = dataclasses.replace(setting, noise_std_dn=noise_std_dn)
    for seed in range(2):
        burst = simulate_one(sources(setting, 1, seed)[0], setting, seed).burst
        assert OVERSTATED not in with_noise_law(unknown(burst), 2).notes
