"""The training step: a paraphrase of the paper, on one screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..burst import Burst, NoiseLaw, stack
from ..data import Batch, Stream, draws
from ..geometry import random_tau, subsample
from ..loss import l1, motion_l1, mse, self_supervised_nll, supervised_nll
from ..model import Motion, MotionKind, Network, find_motion
from ..noise import frame_noise_var
from .config import LossConfig, TrainConfig

MAX_GAIN_ERROR = 0.2  # of a stated exposure; beyond it the fit has failed


class Ready(NamedTuple):
    """A batch, all done that depends on no weight: what the network is given, what it must meet.

    target: the reference and tau the grid shift under which it is met, or None and the truth.
    seen: (B,) bool, bursts whose motion was found; None for all.
    """

    given: Any
    target: Burst | None
    tau: Tensor | None
    truth: Tensor | None
    seen: Tensor | None = None

    def part(self, rows: Tensor) -> Ready:
        """Some bursts of the batch."""
        given, target, tau, truth, seen = self
        return Ready(
            given.part(rows),
            None if target is None else target.part(rows),
            None if tau is None else tau[rows],
            None if truth is None else truth[rows],
            None if seen is None else seen[rows],
        )

    @classmethod
    def joined(cls, all_ready: Sequence[Ready]) -> Ready:
        """Several batches as one."""
        if len(all_ready) == 1:
            return all_ready[0]
        given, target, tau, truth, seen = zip(*all_ready, strict=True)
        return cls(
            type(given[0]).joined(given),
            None if target[0] is None else stack(target),
            None if tau[0] is None else torch.cat(tau),
            None if truth[0] is None else torch.cat(truth),
            None if seen[0] is None else torch.cat(seen),
        )


def batch_loss(network: Network, batch: Batch, config: TrainConfig) -> Tensor:
    """The loss of one shard of a batch."""
    if config.loss.kind == "motion":
        _, motion = registered(network, batch, config.motion)
        noise_var = frame_noise_var(batch.burst)
        return motion_l1(motion.flow_px, _known(batch.flow_px), noise_var)
    return loss_of(network, make_ready(network, batch, config), config.loss)


def make_ready(network: Network, batch: Batch, config: TrainConfig) -> Ready:
    """Register, drop the reference, shift the grid; or keep it and take the truth."""
    burst, motion = without_lost(*registered(network, batch, config.motion))
    if config.loss.kind == "supervised":
        seen = burst.valid.flatten(1).any(1)
        return Ready(network.prepare(burst, motion), None, None, _known(batch.truth), seen)
    tau = random_tau(len(burst.frames), network.scale, batch.generator)
    return without_reference(network, burst, motion, tau)


def registered(network: Network, batch: Batch, kind: MotionKind) -> tuple[Burst, Motion]:
    """The bursts of a batch and their motion; one that bends is no "translations"."""
    if batch.bends and kind in ("translations", "rough_translations"):
        kind = "solver"
    return find_motion(network, batch.burst, kind, batch.flow_px)


def without_reference(network: Network, burst: Burst, motion: Motion, tau: Tensor) -> Ready:
    """What the network is given of a batch, and the reference that it must predict."""
    inputs, target = burst.split_reference()  # v_1 leaves the input here and nowhere else
    shifted = motion.without_reference().shifted(tau, network.scale)
    return Ready(network.prepare(inputs, shifted), target, tau, None)


def loss_of(network: Network, ready: Ready, loss: LossConfig) -> Tensor:
    """How badly the reference, or the truth, is predicted."""
    posterior = network.conclude(ready.given)
    target, tau = ready.target, ready.tau
    if target is None or tau is None:
        truth = _known(ready.truth)
        return supervised_nll(posterior, truth, loss.outlier_nats, ready.seen)
    reference, valid = target.frames[:, 0], target.valid[:, 0]
    if loss.kind in ("mse", "l1"):
        distance = mse if loss.kind == "mse" else l1
        return distance(subsample(posterior.mean, network.scale, tau), reference, valid)
    noise = _law(target.noise, loss.noise_corrected)
    return self_supervised_nll(
        posterior, reference, valid, tau, noise, target.gain, loss.detail, loss.outlier_nats
    )


def reference_loss(
    network: Network, burst: Burst, motion: Motion, tau: Tensor, loss: LossConfig
) -> Tensor:
    """How badly the reference is predicted from the other frames, under the grid shift tau."""
    return loss_of(network, without_reference(network, burst, motion, tau), loss)


class Desk:
    """Batches made ready together, kept for the steps that learn from their bursts.

    Registration and solver cost a GPU little more for many bursts than for few, and a network
    learns more from many small steps, each of bursts of all kinds, than from few large ones.
    """

    def __init__(self, network: Network, stream: Stream, config: TrainConfig) -> None:
        data = config.data
        self.steps = data.pool * data.parts  # in which all bursts of a pool are used once
        self.ahead = self.steps * data.uses > 1
        self.network, self.stream, self.config = network, stream, config
        self.kept: dict[int, tuple[int, Ready]] = {}

    def loss(self, step: int, shard: int) -> Tensor:
        """The loss of one shard of one step."""
        data, steps = self.config.data, self.steps
        if not self.ahead:
            return batch_loss(self.network, self.stream.batch(step, shard), self.config)
        number, place = divmod(step, steps * data.uses)
        use, part = divmod(place, steps)
        if shard not in self.kept or self.kept[shard][0] != number:
            self.kept.pop(shard, None)  # room for the next
            self.kept[shard] = (number, self._pool(number, shard))
        host, _ = draws(self.config.seed, number, shard, use)
        count = data.batch // data.shards // data.parts
        rows = torch.from_numpy(host.permutation(count * steps)[part * count : (part + 1) * count])
        device = next(self.network.parameters()).device
        ready = self.kept[shard][1].part(rows.to(device))
        return loss_of(self.network, ready, self.config.loss)

    @torch.no_grad()
    def _pool(self, number: int, shard: int) -> Ready:
        pool = self.config.data.pool
        batches = (self.stream.batch(number * pool + k, shard) for k in range(pool))
        return Ready.joined([make_ready(self.network, batch, self.config) for batch in batches])


def without_lost(burst: Burst, motion: Motion) -> tuple[Burst, Motion]:
    """Bursts whose motion could not be found are masked: they teach nothing, and harm nothing.

    Left out of the loss alone, what is not a number would still reach the gradient.
    """
    good = torch.isfinite(motion.flow_px).flatten(1).all(1)
    good = good & ((motion.gain - 1).abs() < MAX_GAIN_ERROR).all(1)
    rest = good.view(-1, *[1] * (motion.flow_px.ndim - 1))
    burst = dataclasses.replace(burst, valid=burst.valid & good[:, None, None, None])
    flow_px = torch.where(rest, motion.flow_px, 0)
    gain = torch.where(good[:, None], motion.gain, 1)
    covariance = motion.covariance
    if covariance is not None:
        covariance = torch.where(good[:, None, None], covariance, 0)
    return burst, Motion(flow_px, gain, covariance)


def _known(truth: Tensor | None) -> Tensor:
    """What only a simulator knows."""
    assert truth is not None  # `TrainConfig.check` asks for images
    return truth


def _law(noise: NoiseLaw | None, corrected: bool) -> NoiseLaw:
    assert noise is not None  # every stream states one, or estimates it
    return noise if corrected else noise.map(torch.zeros_like)
