"""Training batches from bursts without truth: crops of real frames, any of them the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..burst import Burst, stack
from ..checks import LEFT_OUT, require
from ..errors import FileError, PushframeError
from ..io import list_bursts, read_burst
from ..noise_law import with_noise_law
from .config import Batch, DataConfig, draws

TRIES = 8  # for a crop whose reference is not mostly masked


class NamedBurst(NamedTuple):
    """A burst and its file's stem."""

    name: str
    burst: Burst


def read_bursts(
    folder: Path, config: DataConfig, scale: int, left_out: list[str] | None = None
) -> list[NamedBurst]:
    """All bursts of a folder, in the order of their names, each large enough and with a noise law.

    left_out: takes a note on each that cannot be used; None: stop at the first.
    """
    require(folder.is_dir(), "a folder of bursts", folder, "correct data.bursts", FileError)
    found = []
    for path in sorted({*folder.glob("*.npz"), *list_bursts(folder)}):
        try:
            burst = read_burst(path)
            require(
                burst.count >= config.frames[0] and min(burst.shape) >= config.size,
                f"{path} of at least {config.frames[0]} frames of {config.size}x{config.size} px",
                f"{burst.count} frames of {burst.shape[0]}x{burst.shape[1]}",
                "lower data.frames or data.size, or leave it out with --skip-bad",
            )
            require(
                not burst.days,
                f"{path} with frames of one day",
                "days = true",
                "what changes between days is no burst to learn from: leave it out with --skip-bad",
            )
            found.append(NamedBurst(path.stem, with_noise_law(burst, scale)))
        except PushframeError as error:
            if left_out is None:
                raise
            left_out.append(f"{path.name} {LEFT_OUT} {error}")
    got = "; ".join([f"none in {folder}", *(left_out or [])[:1]])
    require(bool(found), "bursts to train on", got, "add some", FileError)
    return found


class BurstStream:
    """Crops, frames, order and orientation drawn at random from bursts kept in memory."""

    def __init__(self, bursts: Sequence[Burst], config: DataConfig, seed: int, device: str) -> None:
        self.bursts, self.config, self.seed, self.device = list(bursts), config, seed, device

    def batch(self, step: int, shard: int) -> Batch:
        """One shard; the number of frames is that of the whole step."""
        host, _ = draws(self.seed, step)
        wanted = self.config.draw_count(host)
        count = min(wanted, max(burst.count for burst in self.bursts))
        enough = [burst for burst in self.bursts if burst.count >= count]
        host, seed = draws(self.seed, step, shard)
        crops = [
            self._crop(host, enough[host.integers(len(enough))], count)
            for _ in range(self.config.batch // self.config.shards)
        ]
        generator = torch.Generator(self.device).manual_seed(seed)
        return Batch(stack(crops).to(self.device), None, None, generator)

    def _crop(self, host: np.random.Generator, burst: Burst, count: int) -> Burst:
        """`count` frames of a burst in any order, a window of them, turned in one of 8 ways."""
        for _ in range(TRIES):
            frames = host.permutation(burst.count)[:count].tolist()
            corner = [
                int(host.integers(0, length - self.config.size + 1)) for length in burst.shape
            ]
            flips = host.integers(0, 2, 3).tolist()
            crop = cut(burst.select(frames), (corner[0], corner[1]), self.config.size, flips)
            if float(crop.valid[0].float().mean()) > 0.5:
                break
        return crop


def cut(
    burst: Burst, corner: tuple[int, int], size: int, flips: Sequence[int] = (0, 0, 0)
) -> Burst:
    """A window of a burst as a batch of one: flipped down, flipped right, transposed where told."""
    rows, columns = (slice(first, first + size) for first in corner)

    def turned(pixels: Tensor) -> Tensor:
        pixels = pixels.flip([axis for axis, flip in ((-2, flips[0]), (-1, flips[1])) if flip])
        return pixels.mT if flips[2] else pixels

    window = burst.tile(rows, columns)
    return dataclasses.replace(window, frames=turned(window.frames), valid=turned(window.valid))
