"""What is trained on, what a batch is, and what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..burst import Burst
from ..checks import require
from ..errors import UsageError
from .mixture import Mixture, check_extremes


@dataclass(frozen=True)
class DataConfig:
    """What is trained on.

    images: a folder of sharp images in DN, from which bursts are simulated; or bursts: a folder
        of bursts, no truth needed. One of the two.
    validation_groups: held out, by the `group` of MANIFEST.csv beside the images or above them,
        or by the file's stem where there is none.
    validation: simulated settings to validate on, `preset:frames`; validation_bursts: of each.
    batch: bursts drawn together, by all processes; shards: portions it is drawn in, one after the
        other in one process, shared among several. parts: steps in which a batch is learnt.
    pool: batches made ready together and mixed, so that a step learns from several settings.
    uses: how often each burst of a pool is learnt from before the next pool is made.
    frames: fewest and most frames of a burst, one number drawn for each batch; few_frames: even in
        its logarithm, so that few are drawn more often. size: side of a frame, px.
    mixture: how bursts are simulated.
    """

    images: str = ""
    bursts: str = ""
    validation_groups: tuple[str, ...] = ()
    validation: tuple[str, ...] = ("paper:15", "paper:5")
    validation_bursts: int = 32
    batch: int = 32
    shards: int = 1
    parts: int = 1
    pool: int = 1
    uses: int = 1
    frames: tuple[int, int] = (5, 20)
    few_frames: bool = False
    size: int = 64
    mixture: Mixture = field(default_factory=Mixture)

    def check(self, scale: int) -> None:
        """Refuse what cannot be meant at a zoom, before anything is read."""
        for name in ("batch", "shards", "parts", "pool", "uses", "validation_bursts"):
            value = getattr(self, name)
            require(value >= 1, f"data.{name} of at least 1", value, "raise it", UsageError)
        require(
            self.batch % (self.shards * self.parts) == 0,
            f"data.batch to be a multiple of data.shards x parts = {self.shards * self.parts}",
            self.batch,
            "change one of them",
            UsageError,
        )
        require(
            2 <= self.frames[0] <= self.frames[1],
            "data.frames as [fewest, most], fewest of at least 2",
            list(self.frames),
            "a reference needs frames beside it",
            UsageError,
        )
        require(self.size >= 16, "data.size of at least 16", self.size, "raise it", UsageError)
        require(
            bool(self.images) != bool(self.bursts),
            "one of data.images and data.bursts",
            "both" if self.images else "neither",
            "name the folder to train on",
            UsageError,
        )
        if self.images:
            check_extremes(self, scale)

    def different(self, steps: int) -> int:
        """How many different bursts, or crops of bursts, are learnt from in the first `steps`."""
        once = self.pool * self.parts  # steps in which all bursts of a pool are used
        pools, rest = divmod(steps, once * self.uses)
        return (pools * once + min(rest, once)) * self.batch // self.parts

    def draw_count(self, host: np.random.Generator) -> int:
        """The number of frames of one batch."""
        fewest, most = self.frames
        if self.few_frames:
            return int(np.exp(host.uniform(np.log(fewest), np.log(most + 1))))
        return int(host.integers(fewest, most + 1))


class Batch(NamedTuple):
    """One shard of a batch. truth and flow_px are None where only bursts are known.

    generator: on the device, for what else is drawn at random in this step. bends: whether the
    motion was drawn to change over the frames.
    """

    burst: Burst
    truth: Tensor | None
    flow_px: Tensor | None
    generator: torch.Generator
    bends: bool = False


class Stream(Protocol):
    """An endless, randomly accessible row of batches."""

    def batch(self, step: int, shard: int) -> Batch:
        """Shard `shard` of batch `step`."""
        ...


def draws(*entropy: int) -> tuple[np.random.Generator, int]:
    """A generator for the host and a seed for the device, the same for the same numbers."""
    sequence = np.random.SeedSequence(entropy)
    return np.random.default_rng(sequence), int(sequence.generate_state(1, np.uint64)[0] >> 1)


def held_out(groups: Sequence[str], config: DataConfig) -> list[bool]:
    """Which entries belong to the validation groups; an unknown group is an error."""
    for name in config.validation_groups:
        require(
            name in groups,
            f"data.validation_groups among {', '.join(sorted(set(groups)))}",
            name,
            "correct the name",
            UsageError,
        )
    outside = [group in config.validation_groups for group in groups]
    require(
        not all(outside),
        "something left to train on",
        "all groups held out",
        "shorten data.validation_groups",
        UsageError,
    )
    return outside
