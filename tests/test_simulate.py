"""The simulator: its distributions, its accuracy, its repeatability."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from conftest import sources

from pushframe.errors import UsageError
from pushframe.forward import forward_model
from pushframe.geometry import pixel_grid, subsample
from pushframe.simulate import PRESETS, preset, simulate, simulate_one, with_options
from pushframe.windows import simulate_windows, window_corners, window_seed

PAPER = PRESETS["paper"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def residual_dn(made, setting) -> torch.Tensor:
    """Frames less their noise-free prediction from the truth, raw DN, inner pixels."""
    clean = forward_model(made.flow_px, made.burst.shape, setting.scale, 0).forward(made.truth)
    inner = (made.burst.frames - clean)[..., 8:-8, 8:-8]
    return inner * made.burst.gain[..., None, None]


def test_the_paper_setting() -> None:
    setting = with_options(PAPER, size=32, frames=200)
    made = simulate(sources(setting, 4), setting, generator())
    burst = made.burst
    assert burst.frames.shape == (4, 200, 32, 32)
    assert made.truth.shape == (4, 64, 64)
    assert bool(burst.valid.all())
    steps = torch.log(burst.exposure)
    gamma = torch.exp(steps.amax(1) / 5)
    assert ((gamma > 1.2) & (gamma < 1.4)).all()
    power = (steps / gamma.log()[:, None]).round()
    torch.testing.assert_close(gamma[:, None] ** power, burst.exposure)
    counts = torch.bincount((power + 5).long().flatten(), minlength=11)
    assert (counts - 800 / 11).abs().max() < 5 * (800 / 11) ** 0.5
    assert ((burst.noise.b.sqrt() > 5) & (burst.noise.b.sqrt() < 18)).all()
    assert bool((burst.noise.a == 0).all())
    assert bool((made.flow_px[:, 0] == 0).all())
    moved = made.flow_px[:, 1:]
    assert moved.abs().max() <= 1
    assert float(moved.var()) == pytest.approx(1 / 3, rel=0.1)


def test_raw_noise_has_the_stated_std_at_every_exposure() -> None:
    setting = with_options(PAPER, size=48, frames=6)
    made = simulate(sources(setting, 3), setting, generator(1))
    std_dn = residual_dn(made, setting).std((-1, -2))
    stated = made.burst.noise.b.sqrt()[:, None]
    assert ((std_dn / stated - 1).abs() < 0.1).all()  # 1024 pixels: 2.2% standard error


def test_affine_noise_grows_with_the_signal() -> None:
    setting = with_options(PRESETS["affine"], size=48, frames=8)
    made = simulate(sources(setting, 2), setting, generator(2))
    burst = made.burst
    clean = forward_model(made.flow_px, burst.shape, 2, 0).forward(made.truth)
    dn = (clean * burst.gain[..., None, None])[..., 8:-8, 8:-8]
    z = residual_dn(made, setting) / (0.1187 * dn + 12.05).sqrt()
    bright = dn > dn.median()
    for part in (bright, ~bright):
        assert float(z[part].std()) == pytest.approx(1, abs=0.05)


def test_the_longest_exposure_first() -> None:
    plain = with_options(PAPER, size=16, frames=12)
    made = [
        simulate(sources(plain, 4), with_options(plain, longest_first=first), generator()).burst
        for first in (False, True)
    ]
    usual, sorted_ = (burst.exposure for burst in made)
    assert not torch.equal(usual[:, 0], usual.amax(1))
    assert torch.equal(sorted_[:, 0], sorted_.amax(1))
    torch.testing.assert_close(usual.sort(1).values, sorted_.sort(1).values)  # the same otherwise


def test_exposure_error_is_in_the_pixels_not_in_the_statement() -> None:
    setting = dataclasses.replace(
        PAPER, size=32, frames=40, exposure_error=0.05, noise_std_dn=(0.01, 0.01)
    )
    source = sources(setting, 2)
    made = simulate(source, setting, generator(3))
    clean = forward_model(made.flow_px, (32, 32), 2, 0).forward(made.truth)
    ratio = (made.burst.frames / clean)[..., 8:-8, 8:-8].mean((-1, -2))
    assert float(ratio[:, 1:].std()) == pytest.approx(0.05, rel=0.3)
    assert float((ratio[:, 0] - 1).abs().max()) < 1e-4  # the reference is the scale
    exact = simulate(source, dataclasses.replace(setting, exposure_error=0.0), generator(3))
    assert torch.equal(exact.burst.exposure, made.burst.exposure)


def test_saturation_clips_at_the_white_level_and_masks() -> None:
    setting = dataclasses.replace(PAPER, size=32, frames=10, saturate=True)
    made = simulate(2 * sources(setting, 1), setting, generator(4))
    dn = made.burst.frames * made.burst.gain[..., None, None]
    assert 0 < float((~made.burst.valid).float().mean()) < 1
    assert float(dn.max()) == pytest.approx(3400, rel=1e-5)
    assert float(dn[made.burst.valid].max()) < 3400
    assert bool(simulate(2 * sources(setting, 1), PAPER_32, generator(4)).burst.valid.all())


PAPER_32 = dataclasses.replace(PAPER, size=32, frames=10)


@pytest.mark.parametrize("motion", ["affine", "drift"])
def test_bent_motion_reaches_its_stated_size(motion: str) -> None:
    setting = dataclasses.replace(PAPER, size=24, frames=4, motion=motion, shift_px=0.0)
    made = simulate(sources(setting, 2), setting, generator(5))
    flow = made.flow_px
    assert flow.shape == (2, 4, 2, 24, 24)
    assert bool((flow[:, 0] == 0).all())
    peak = flow[:, 1:].abs().amax((-1, -2, -3))
    torch.testing.assert_close(peak, torch.full_like(peak, 0.5))
    assert float(flow.diff(dim=-1).abs().max()) < 0.1  # smooth
    curvature = flow.diff(n=2, dim=-1).abs().max()
    assert (float(curvature) < 1e-5) == (motion == "affine")


def test_the_source_is_the_truth_with_its_margin() -> None:
    source = sources(PAPER_32, 1)
    made = simulate(source, PAPER_32, generator())
    assert torch.equal(made.truth, source[:, 12:-12, 12:-12])
    # reference at rest: pixel l of the frame is pixel 2 l of the truth, but for noise
    error = (made.burst.frames[:, 0] - subsample(made.truth, 2)) * made.burst.gain[:, 0]
    assert float(error.std()) == pytest.approx(float(made.burst.noise.b.sqrt()), rel=0.1)


def test_continuous_frames_share_no_kernel_with_the_forward_model() -> None:
    quiet = dataclasses.replace(
        PRESETS["continuous"], size=40, frames=6, noise_std_dn=(1e-3, 1e-3), exposure_steps=0
    )
    mismatch = {}
    for sigma in (0.5, 0.7):
        setting = dataclasses.replace(quiet, psf_hpx=sigma)
        made = simulate(sources(setting, 3), setting, generator(6))
        assert made.truth.shape == (3, 80, 80)
        mismatch[sigma] = float(residual_dn(made, setting)[:, 1:].square().mean().sqrt())
    assert 0.5 < mismatch[0.7] < 8  # the truth is nearly band-limited
    assert mismatch[0.5] > 2 * mismatch[0.7]  # the high-res grid itself is aliased
    shared = dataclasses.replace(quiet, oversampling=1, psf_hpx=0.0)
    made = simulate(sources(shared, 1), shared, generator(6))
    assert float(residual_dn(made, shared).square().mean().sqrt()) < 0.1


def resampling_error(name: str, frequency: tuple[float, float]) -> float:
    """RMS error, raw DN at unit exposure, of frames of a sinusoid that spans 0 to 2400 DN."""
    quiet = dataclasses.replace(
        preset(name),
        size=40,
        frames=24,
        noise_a=0.0,
        noise_std_dn=(0.0, 0.0),
        exposure_steps=0,
        psf_hpx=0.0,
    )

    def wave(position: torch.Tensor) -> torch.Tensor:  # position (2, ...), truth px
        angle = 2 * math.pi * (frequency[0] * position[0] + frequency[1] * position[1])
        return (1200 + 1200 * torch.cos(angle)) / quiet.white_level

    grid = pixel_grid((quiet.source_size,) * 2, torch.zeros(1, dtype=torch.float64))
    source = wave(grid / quiet.oversampling - quiet.margin_hpx)
    made = simulate(source[None], quiet, generator(7))
    x = pixel_grid(made.burst.shape, made.flow_px)
    exact = wave(2 * (x + made.flow_px[0, ..., None, None]).transpose(0, 1))
    error = (made.burst.frames[0].double() - exact)[..., 6:-6, 6:-6]
    return float(error.square().mean().sqrt()) * quiet.white_level


@pytest.mark.parametrize("name", list(PRESETS))
def test_resampling_error_is_20_times_below_the_weakest_noise(name: str) -> None:
    weakest_dn = preset(name).noise_std_dn[0]
    share = [(0.7, 0.0), (0.0, 0.65), (0.49, 0.49), (0.3, 0.6), (0.1, 0.05)]  # of Nyquist
    worst = max(resampling_error(name, (0.5 * y, 0.5 * x)) for y, x in share)
    assert worst < weakest_dn / 20
    beyond = resampling_error(name, (0.5 * 0.99, 0.0))
    # at Nyquist the HR kernel must fail, the twice finer grid of `continuous` must not
    assert (beyond > weakest_dn / 20) == (preset(name).oversampling == 1)


def test_one_seed_one_burst() -> None:
    setting = dataclasses.replace(PAPER, size=16, frames=3)
    source = sources(setting, 1)[0]
    first, second = (simulate_one(source, setting, 11) for _ in range(2))
    assert torch.equal(first.burst.frames, second.burst.frames)
    assert first.burst.frames.ndim == 3
    assert not torch.equal(first.burst.frames, simulate_one(source, setting, 12).burst.frames)


@pytest.mark.parametrize("scale", [3, 4])
def test_other_scales(scale: int) -> None:
    setting = dataclasses.replace(PAPER, size=20, frames=3, scale=scale)
    made = simulate(sources(setting, 1), setting, generator())
    assert made.truth.shape == (1, 20 * scale, 20 * scale)
    assert made.scale == scale
    std_dn = residual_dn(made, setting).std((-1, -2))
    assert ((std_dn / made.burst.noise.b.sqrt()[:, None] - 1).abs() < 0.5).all()


def test_one_frame_is_enough() -> None:
    setting = dataclasses.replace(PAPER, size=16, frames=1)
    assert simulate(sources(setting, 1), setting, generator()).burst.count == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 5}, "scale of 2, 3, 4"),
        ({"frames": 0}, "frames of at least 1"),
        ({"size": 2}, "size of at least 8"),
        ({"psf_hpx": -0.1}, "psf_hpx of at least 0"),
        ({"noise_a": float("inf")}, "noise_a of at least 0 and finite"),
        ({"gamma": (0.0, 0.0)}, "gamma above 0, got 0 to 0"),
        ({"exposure_steps": -3}, "exposure_steps of at least 0, got -3"),
        ({"shift_px": 9.0}, "margin_hpx of at least 18"),
    ],
)
def test_settings_are_checked(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_options(PAPER, **change)


def test_wrong_sources_are_refused() -> None:
    with pytest.raises(UsageError, match=r"sources of shape \(B, 152, 152\)"):
        simulate(torch.zeros(1, 100, 152), PAPER, generator())
    with pytest.raises(UsageError, match="preset of paper, affine, continuous"):
        preset("papr")


def test_windows_tile_without_overlap_and_skip_nan() -> None:
    import numpy as np

    assert len(window_corners((900, 900), PAPER)) == 25
    assert window_corners((151, 900), PAPER) == []
    setting = dataclasses.replace(PAPER, size=16, frames=2, margin_hpx=4)
    image = np.random.default_rng(0).uniform(100, 900, (80, 120)).astype(np.float32)
    image[5, 5] = np.nan
    made = list(simulate_windows(image, "a", setting, 0))
    assert len(made) == 5
    np.testing.assert_allclose(made[0].truth.numpy() * 3400, image[4:36, 44:76], rtol=1e-6)


def test_a_window_keeps_its_seed_whatever_stands_beside_it() -> None:
    assert window_seed(0, "a.tif", (0, 152)) == window_seed(0, "a.tif", (0, 152))
    seeds = {window_seed(s, n, c) for s in (0, 1) for n in "ab" for c in ((0, 0), (0, 152))}
    assert len(seeds) == 8
