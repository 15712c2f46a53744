"""The settings of a training run: typed, from TOML, each with its meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..checks import require
from ..config import load_values, read_values, suggestion
from ..data import DataConfig
from ..errors import UsageError
from ..model import NETWORKS, HdrDspConfig, MotionKind
from .checkpoint import Progress

LIKELIHOODS = ("self_supervised", "supervised")
HEEDED_BY = {  # options of the loss, and its kinds that heed them
    "detail": ("self_supervised",),
    "noise_corrected": ("self_supervised",),
    "outlier_nats": LIKELIHOODS,
}


@dataclass(frozen=True)
class LossConfig:
    """What is minimised. `mse` and `l1` compare with the reference, as `self_supervised` does;
    `motion` teaches a network's own motion by simulated shifts.

    detail: compare high-passed images. noise_corrected: add the reference's noise to the
    predicted variance (without it the network learns the sum of both). outlier_nats: bursts that
    much less likely than the median of their batch are left out (`loss.gaussian_nll`).
    """

    kind: Literal["self_supervised", "supervised", "mse", "l1", "motion"] = "self_supervised"
    detail: bool = False
    noise_corrected: bool = True
    outlier_nats: float = 6.0

    def check(self) -> None:
        """Refuse what cannot be meant."""
        nats = self.outlier_nats
        require(nats > 0, "loss.outlier_nats above 0", nats, "raise it", UsageError)
        for name, kinds in HEEDED_BY.items():
            value = getattr(self, name)
            require(
                self.kind in kinds or value == getattr(LossConfig, name),
                f"loss.kind of {' or '.join(kinds)} with loss.{name} = {str(value).lower()}",
                f"{self.kind}, which has no such option",
                "change one of them",
                UsageError,
            )


@dataclass(frozen=True)
class ScheduleConfig:
    """How long and how fast. One of steps and minutes; minutes count over all parts of a run.

    warmup: share of the run in which the rate rises; it then falls as a cosine to zero.
    optimiser: "adam", or "muon", which learns more from a step (`train.optimiser`).
    clip: largest norm of a gradient. averaging: decay of the weights' moving average, a step.
    """

    steps: int = 0
    minutes: float = 0.0
    optimiser: Literal["adam", "muon"] = "adam"
    learning_rate: float = 4e-4
    warmup: float = 0.02
    clip: float = 1.0
    weight_decay: float = 1e-4
    averaging: float = 0.999

    def check(self) -> None:
        """Refuse what cannot be meant."""
        bounds = {
            "steps": (self.steps >= 0, "of at least 0"),
            "minutes": (0 <= self.minutes < math.inf, "of at least 0 and finite"),
            "learning_rate": (0 < self.learning_rate < math.inf, "above 0 and finite"),
            "warmup": (0 <= self.warmup < 1, "from 0 to below 1"),
            "clip": (self.clip > 0, "above 0"),
            "weight_decay": (0 <= self.weight_decay < math.inf, "of at least 0 and finite"),
            "averaging": (0 <= self.averaging <= 1, "from 0 to 1"),
        }
        for name, (ok, wanted) in bounds.items():
            value = getattr(self, name)
            require(ok, f"schedule.{name} {wanted}", value, "correct it", UsageError)
        require(
            (self.steps > 0) != (self.minutes > 0),
            "one of schedule.steps and schedule.minutes above zero",
            f"steps = {self.steps}, minutes = {self.minutes:g}",
            "set one of them",
            UsageError,
        )

    def share_done(self, progress: Progress) -> float:
        """How much of the run is done, 0 to 1."""
        if self.steps:
            return progress.step / self.steps
        return progress.seconds / 60 / self.minutes

    def rate(self, share: float) -> float:
        """The learning rate after a share of the run: a ramp, then half a cosine."""
        if share < self.warmup:
            return self.learning_rate * (share / self.warmup + 1e-3)
        turn = (share - self.warmup) / (1 - self.warmup)
        return self.learning_rate * (0.5 + 0.5 * math.cos(math.pi * min(turn, 1.0)))


@dataclass(frozen=True)
class TrainConfig:
    """A training run. `model` holds the fields of the network's own configuration.

    start: weights to begin with, of the same network; random ones if empty.
    """

    network: str = "hdr_dsp"
    model: Any = field(default_factory=HdrDspConfig)
    motion: MotionKind = "solver"
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    start: str = ""
    seed: int = 0
    compile: bool = False
    mixed_precision: bool = True
    log_every: int = 50
    validate_every: int = 1000
    checkpoint_every: int = 500

    def check(self) -> None:
        """Refuse what cannot be meant, before anything starts."""
        self.schedule.check()
        self.loss.check()
        self.data.check(self.model.scale)
        for name in ("log_every", "validate_every", "checkpoint_every"):
            value = getattr(self, name)
            require(value >= 1, f"{name} of at least 1", value, "raise it", UsageError)
        require(self.seed >= 0, "seed of at least 0", self.seed, "raise it", UsageError)
        self._check_truth()
        self._check_motion()
        self._check_pool()

    def _check_truth(self) -> None:
        """What only a simulator knows is asked of simulated bursts alone."""
        asked = {
            'loss.kind = "supervised"': self.loss.kind == "supervised",
            'loss.kind = "motion"': self.loss.kind == "motion",
            'motion = "true"': self.motion == "true",
        }
        for name, told in asked.items():
            require(
                not (told and self.data.bursts),
                f"data.images for {name}, which needs what a simulator knows",
                "data.bursts",
                "change one of them",
                UsageError,
            )

    def _check_motion(self) -> None:
        """A network's own motion is learnt where it is used, and used where it is learnt."""
        own, finds = self.motion == "network", getattr(self.model, "finds_motion", False)
        require(
            own or self.loss.kind != "motion",
            'motion = "network" with loss.kind = "motion", which teaches a network\'s own motion',
            f'motion = "{self.motion}"',
            "change one of them",
            UsageError,
        )
        require(
            finds or not own,
            'a network that finds motion with motion = "network"',
            f"{self.network} without",
            "use hdr_dsp with model.finds_motion = true, or another motion",
            UsageError,
        )
        require(
            own or not finds or bool(self.start),
            'motion = "network" with model.finds_motion = true',
            f'motion = "{self.motion}"',
            "the weights will use their own motion, which nothing would have taught: change one of "
            "them, or start from weights that have learnt it",
            UsageError,
        )

    def _check_pool(self) -> None:
        """What is made ready ahead depends on no weight, and can be joined."""
        data = self.data
        require(
            self.motion != "network" or data.parts * data.pool * data.uses == 1,
            "data.parts, pool and uses of 1 for a network that learns to find motion",
            f"{data.parts}, {data.pool} and {data.uses}",
            "what is made ready ahead depends on no weight: set them to 1, and data.batch lower",
            UsageError,
        )
        fewest, most = data.frames
        require(
            data.pool == 1 or fewest == most or NETWORKS[self.network].mixes_counts,
            "batches of as many frames, for a network that is given the frames themselves",
            f"{fewest} to {most} frames",
            "use data.pool = 1, or one number of frames",
            UsageError,
        )


def load_train_config(path: Path | None, overrides: Sequence[str] = ()) -> TrainConfig:
    """The configuration of a TOML file and `key=value` overrides; unknown keys are refused.

    The network is found first, since the fields of `model` depend on it.
    """
    values = read_values(path, overrides)
    name = values.get("network", TrainConfig.network)
    if not isinstance(name, str) or name not in NETWORKS:
        overridden = any(_key(text) == "network" for text in overrides)
        raise UsageError(
            ("" if path is None or overridden else f"{path}: ")
            + f"expected a network of {', '.join(NETWORKS)}, got {name!r}: "
            f"{suggestion(str(name), list(NETWORKS))}"
        )
    base = replace(TrainConfig(), model=NETWORKS[name].Config())
    config = load_values(base, values, path, overrides)
    config = replace(config, schedule=_with_one_length(config.schedule, overrides))
    config.check()
    return config


def _with_one_length(schedule: ScheduleConfig, overrides: Sequence[str]) -> ScheduleConfig:
    """The schedule without the file's minutes where an override gives steps alone, or reversed."""
    given = {_key(text) for text in overrides}
    by_steps, by_minutes = "schedule.steps" in given, "schedule.minutes" in given
    if by_steps and not by_minutes and schedule.steps > 0:
        return replace(schedule, minutes=0.0)
    if by_minutes and not by_steps and schedule.minutes > 0:
        return replace(schedule, steps=0)
    return schedule


def _key(override: str) -> str:
    return override.partition("=")[0].strip()
