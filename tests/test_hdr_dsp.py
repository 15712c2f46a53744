"""The paper's network: any frames in any order, masks, units, chunks, both scales."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Burst, NoiseLaw, Simulated
from pushframe.errors import UsageError
from pushframe.filters import gaussian_blur
from pushframe.geometry import subsample
from pushframe.model import HdrDsp, HdrDspConfig, Motion, estimate_motion
from pushframe.model.hdr_dsp import registered_base
from pushframe.posterior import Posterior
from pushframe.simulate import PRESETS, simulate, with_options

SMALL = HdrDspConfig(features=8, encoder_blocks=1, decoder_blocks=2)


def made(frames: int = 6, scale: int = 2, **options: object) -> Simulated:
    setting = with_options(PRESETS["paper"], size=16, frames=frames, scale=scale, **options)
    return simulate(sources(setting, 2), setting, torch.Generator().manual_seed(1))


def network(config: HdrDspConfig = SMALL) -> HdrDsp:
    torch.manual_seed(0)
    return HdrDsp(config).eval()


def known(simulated: Simulated) -> Motion:
    return Motion(simulated.flow_px, torch.ones_like(simulated.burst.exposure))


def close(one: Posterior, other: Posterior, relative: float = 1e-4) -> bool:
    gaps = ((one.mean - other.mean) / one.var.sqrt(), one.var / other.var - 1)
    return all(bool((gap.abs() < relative).all()) for gap in gaps)


@torch.no_grad()
def test_order_of_frames_does_not_matter() -> None:
    case, net = made(), network()
    order = [4, 0, 5, 2, 1, 3]
    motion = known(case)
    mixed = Motion(motion.flow_px[:, order], motion.gain[:, order])
    whole = net(case.burst, motion)
    assert close(whole, net(case.burst.select(order), mixed))
    assert not close(whole, net(case.burst.select(order), motion))  # flows of other frames


@torch.no_grad()
@pytest.mark.parametrize("frames", [1, 2, 30])
def test_any_number_of_frames(frames: int) -> None:
    case = made(frames)
    posterior = network()(case.burst, known(case))
    assert posterior.mean.shape == (2, 32, 32)
    assert bool(torch.isfinite(posterior.mean).all())
    assert bool((posterior.var > 0).all())


@torch.no_grad()
@pytest.mark.parametrize("scale", [3, 4])
def test_other_scales_run(scale: int) -> None:
    case = made(scale=scale)
    net = network(dataclasses.replace(SMALL, scale=scale))
    assert net(case.burst, known(case)).mean.shape == (2, 16 * scale, 16 * scale)


@torch.no_grad()
def test_frames_in_chunks_are_frames_at_once() -> None:
    case, net = made(9), network()
    chunked = net(case.burst, known(case))
    assert close(chunked, net.train()(case.burst, known(case)))


@torch.no_grad()
def test_masked_pixels_have_no_say_and_a_masked_frame_is_no_frame() -> None:
    case, net = made(), network()
    valid = case.burst.valid.clone()
    valid[:, 2, 3:9, 4:11] = False
    valid[:, 5] = False
    results = []
    for filling in (0.0, 9.0):
        frames = case.burst.frames.masked_fill(~valid, filling)
        burst = dataclasses.replace(case.burst, frames=frames, valid=valid)
        results.append(net(burst, known(case)))
    assert close(*results)
    motion = known(case)
    short = Motion(motion.flow_px[:, :5], motion.gain[:, :5])
    assert close(results[0], net(burst.select(range(5)), short))
    assert not close(results[0], net(case.burst, motion))


@torch.no_grad()
def test_nothing_seen_at_all_is_still_finite() -> None:
    case = made(2)
    burst = dataclasses.replace(case.burst, valid=torch.zeros_like(case.burst.valid))
    posterior = network()(burst, known(case))
    assert bool(torch.isfinite(posterior.mean).all() & torch.isfinite(posterior.var).all())


@torch.no_grad()
def test_another_sensor_range_is_the_same_image() -> None:
    """Radiance times 5, law with it: mean times 5, variance times 25."""
    case, net = made(), network()
    bright = Burst(
        5 * case.burst.frames,
        case.burst.exposure,
        case.burst.white_level,
        NoiseLaw(5 * case.burst.noise.a, 25 * case.burst.noise.b),
        case.burst.valid,
    )
    one, other = net(case.burst, known(case)), net(bright, known(case))
    assert close(Posterior(5 * one.mean, 25 * one.var), other, 1e-3)


@torch.no_grad()
def test_a_gain_is_taken_out_of_pixels_and_law() -> None:
    case, net = made(), network()
    gain = 1 + 0.02 * torch.arange(6.0).expand(2, 6)
    moved = dataclasses.replace(case.burst, frames=case.burst.frames * gain[..., None, None])
    moved = dataclasses.replace(moved, exposure=case.burst.exposure / gain)
    plain, corrected = net(case.burst, known(case)), net(moved, known(case)._replace(gain=gain))
    assert close(plain, corrected, 1e-3)
    assert not close(plain, net(moved, known(case)), 1e-3)


@torch.no_grad()
def test_the_grid_shift_moves_the_base() -> None:
    """`(A_tau base')_l = (D base)_l` for the base under flows shifted by tau."""
    case = made(15)
    tau = torch.tensor([[1, 0], [1, 1]])
    for sign, right in ((1, True), (-1, False)):
        smooth, weight = gaussian_blur(case.burst.frames, 1.0), case.burst.valid / 1.0
        motions = (known(case), known(case).shifted(sign * tau, 2))
        base = [registered_base(smooth, weight, motion.flow_px, 2) for motion in motions]
        plain = subsample(base[0], 2)[:, 3:-3, 3:-3]
        moved = subsample(base[1], 2, tau)[:, 3:-3, 3:-3]
        gap = float((moved - plain).pow(2).mean().sqrt() / plain.std())
        assert (gap < 0.05) == right


def test_motion_by_each_name() -> None:
    case = made(6, exposure_error=0.01)
    for kind, limit_px in (("solver", 0.1), ("lucas_kanade", 0.3), ("true", 1e-9)):
        burst, motion = estimate_motion(case.burst, 2, kind, case.flow_px)
        assert float((motion.flow_px - case.flow_px).abs().max()) <= limit_px
        assert burst.frames.shape == case.burst.frames.shape
        assert motion.gain.shape == (2, 6)
    with pytest.raises(UsageError, match="true motion"):
        estimate_motion(case.burst, 2, "true")


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"model\.features of at least 1"):
        HdrDspConfig(features=0)
