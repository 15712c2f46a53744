"""HDR-DSP's own motion: its size, its gradient through the loss, and that it learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from conftest import sources
from training import config, write_images

from pushframe.burst import Simulated
from pushframe.errors import UsageError
from pushframe.loss import motion_l1
from pushframe.methods import run_network
from pushframe.model import HdrDsp, HdrDspConfig, estimate_motion, find_motion
from pushframe.model.motion_net import MotionNet, frame_pairs
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.train import train
from pushframe.train.config import LossConfig
from pushframe.train.step import reference_loss
from pushframe.weights import load_weights

SMALL = HdrDspConfig(features=4, encoder_blocks=1, decoder_blocks=1, finds_motion=True)


@pytest.fixture(scope="module")
def made() -> Simulated:
    setting = with_options(PRESETS["paper"], size=20, frames=4)
    return simulate(sources(setting, 2), setting, torch.Generator().manual_seed(3))


def test_it_has_the_size_of_the_released_one() -> None:
    count = sum(parameter.numel() for parameter in MotionNet().parameters())
    assert count == pytest.approx(1.74e6, rel=0.005)


def test_pairs_are_standardised_and_blind_to_masked_pixels(made: Simulated) -> None:
    pairs = frame_pairs(made.burst).unflatten(0, (2, 4))
    assert pairs.shape == (2, 4, 2, 20, 20)
    torch.testing.assert_close(pairs.mean((-1, -2)), torch.zeros(2, 4, 2), atol=1e-4, rtol=0)
    torch.testing.assert_close(pairs.var((-1, -2)), torch.ones(2, 4, 2), atol=0.01, rtol=0)
    assert torch.equal(pairs[:, 2, 1], pairs[:, 0, 0])
    valid = made.burst.valid.clone()
    valid[:, 1, 3:7] = False
    filled = [
        dataclasses.replace(
            made.burst, frames=made.burst.frames.masked_fill(~valid, value), valid=valid
        )
        for value in (0.0, 5.0)
    ]
    torch.testing.assert_close(*(frame_pairs(burst) for burst in filled))


def test_the_reference_rests_and_the_loss_reaches_the_motion(made: Simulated) -> None:
    torch.manual_seed(0)
    network = HdrDsp(SMALL)
    burst, motion = find_motion(network, made.burst, "network")
    assert bool((motion.flow_px[:, 0] == 0).all())
    tau = torch.tensor([[0, 1], [1, 0]])
    reference_loss(network, burst, motion, tau, LossConfig()).backward()
    slopes = [parameter.grad.abs().sum() for parameter in network.motion_net.parameters()]
    assert all(bool(slope > 0) for slope in slopes)


def test_the_slope_in_the_flow_is_that_of_the_loss(made: Simulated) -> None:
    """Central differences in the flow of one frame, where no sample changes its pixel."""
    torch.manual_seed(0)
    network, tau = HdrDsp(SMALL).double(), torch.zeros(2, 2, dtype=torch.long)
    burst, motion = find_motion(HdrDsp(SMALL), made.burst, "network")
    flow = (made.flow_px + 0.013).double()

    def loss(value: torch.Tensor) -> torch.Tensor:
        moved = motion._replace(flow_px=value, gain=motion.gain.double())
        return reference_loss(network, burst, moved, tau, LossConfig())

    start = flow.clone().requires_grad_()
    loss(start).backward()
    step = torch.zeros_like(flow)
    step[0, 2, 1] = 1e-5
    with torch.no_grad():
        slope = float((loss(flow + step) - loss(flow - step)) / 2e-5)
    assert float(start.grad[0, 2, 1]) == pytest.approx(slope, rel=0.02, abs=1e-3)


def test_weighted_l1_is_its_definition() -> None:
    flow, true = torch.tensor([[[9.0, 9], [1, 2], [3, 5]]]), torch.zeros(1, 3, 2)
    noise_var = torch.tensor([1.0, 4.0, 0.25])[None, :, None, None].expand(1, 3, 2, 2)
    # weights 1, 1/2, 2 over their mean 7/6
    wanted = ((1 + 2) * 0.5 + (3 + 5) * 2) / (7 / 6) / 4
    assert float(motion_l1(flow, true, noise_var)) == pytest.approx(wanted)


def test_it_is_taught_by_shifts_then_tuned_through_the_loss(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    own = {"model__finds_motion": True, "motion": "network"}
    first = config(images, **own, loss__kind="motion", schedule__steps=30, log_every=10)
    train(first, tmp_path / "first")
    taught, _ = load_weights(tmp_path / "first" / "weights.safetensors")
    start = str(tmp_path / "first" / "weights.safetensors")
    again = config(images, **own, start=start, schedule__steps=2)
    train(again, tmp_path / "second")
    tuned, _ = load_weights(tmp_path / "second" / "weights.safetensors")
    before, after = (net.motion_net.last[0].weight for net in (taught, tuned))
    assert 0 < float((before - after).detach().abs().max()) < 0.01
    resumed = train(first, tmp_path / "first", resume=True)  # without moments of idle parts
    assert resumed.progress.step == 30
    with pytest.raises(UsageError, match="pool and uses of 1"):
        train(dataclasses.replace(again, data=dataclasses.replace(again.data, uses=2)), tmp_path)
    with pytest.raises(UsageError, match="weights to start from"):
        train(config(images, start=start), tmp_path / "third")


def test_weights_with_motion_use_it(made: Simulated) -> None:
    torch.manual_seed(0)
    network = HdrDsp(SMALL).eval()
    estimate = run_network(network, made.burst, 2, None)
    with torch.no_grad():
        wanted = network.own_motion(made.burst)
    torch.testing.assert_close(estimate.flow_px, wanted.flow_px)
    plain = HdrDsp(dataclasses.replace(SMALL, finds_motion=False))
    with pytest.raises(UsageError, match="a network that finds motion"):
        find_motion(plain, made.burst, "network")


@pytest.mark.parametrize("kind", ["network", "translation"])
def test_motion_without_a_network_is_of_a_known_kind(kind: str, made: Simulated) -> None:
    with pytest.raises(UsageError, match=rf"a motion of solver, .*, got '{kind}': .*find_motion"):
        estimate_motion(made.burst, 2, kind)
    for known in ("translations", "rough_translations", "lucas_kanade"):
        assert estimate_motion(made.burst, 2, known)[1].flow_px.shape == (2, 4, 2)
