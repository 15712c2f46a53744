"""The training step: a paraphrase of the paper, on one screen."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..burst import Burst, NoiseLaw
from ..checks import require
from ..data import Batch
from ..errors import UsageError
from ..geometry import random_tau, subsample
from ..loss import l1, motion_l1, mse, self_supervised_nll, supervised_nll
from ..model import Motion, Network, find_motion
from ..noise import frame_noise_var
from .config import LossConfig, TrainConfig

MAX_GAIN_ERROR = 0.2  # of a stated exposure; beyond it the fit has failed


def batch_loss(network: Network, batch: Batch, config: TrainConfig) -> Tensor:
    """The loss of one shard of a batch."""
    burst, motion = find_motion(network, batch.burst, config.motion, batch.flow_px)
    if config.loss.kind == "motion":
        return motion_l1(motion.flow_px, _known(batch.flow_px), frame_noise_var(burst))
    burst, motion = without_lost(burst, motion)
    if config.loss.kind == "supervised":
        seen = burst.valid.flatten(1).any(1)[:, None, None]
        return supervised_nll(network(burst, motion), _known(batch.truth), seen)
    tau = random_tau(len(burst.frames), network.scale, batch.generator)
    return reference_loss(network, burst, motion, tau, config.loss)


def reference_loss(
    network: Network, burst: Burst, motion: Motion, tau: Tensor, loss: LossConfig
) -> Tensor:
    """How badly the reference is predicted from the other frames, under the grid shift tau."""
    inputs, target = burst.split_reference()  # v_1 leaves the input here and nowhere else
    posterior = network(inputs, motion.without_reference().shifted(tau, network.scale))
    reference, valid = target.frames[:, 0], target.valid[:, 0]
    if loss.kind in ("mse", "l1"):
        distance = mse if loss.kind == "mse" else l1
        return distance(subsample(posterior.mean, network.scale, tau), reference, valid)
    noise = _law(burst.noise, loss.noise_corrected)
    return self_supervised_nll(posterior, reference, valid, tau, noise, target.gain, loss.detail)


def without_lost(burst: Burst, motion: Motion) -> tuple[Burst, Motion]:
    """Bursts whose motion could not be found are masked: they teach nothing, and harm nothing."""
    good = torch.isfinite(motion.flow_px).flatten(1).all(1)
    good = good & ((motion.gain - 1).abs() < MAX_GAIN_ERROR).all(1)
    rest = good.view(-1, *[1] * (motion.flow_px.ndim - 1))
    burst = dataclasses.replace(burst, valid=burst.valid & good[:, None, None, None])
    flow_px = torch.where(rest, motion.flow_px, 0)
    return burst, Motion(flow_px, torch.where(good[:, None], motion.gain, 1))


def _known(truth: Tensor | None) -> Tensor:
    """What only a simulator knows."""
    require(
        truth is not None,
        "bursts with truth for supervised training",
        "bursts alone",
        'use loss.kind = "self_supervised"',
        UsageError,
    )
    assert truth is not None
    return truth


def _law(noise: NoiseLaw | None, corrected: bool) -> NoiseLaw:
    assert noise is not None  # every stream states one, or estimates it
    return noise if corrected else noise.map(torch.zeros_like)
