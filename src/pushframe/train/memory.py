"""What is said where memory does not suffice for a training run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..errors import FileError, TrainingError
from .checkpoint import read_state
from .config import TrainConfig

SIGNS = (  # in what torch says of a CPU's memory, or of sizes beyond any memory
    *("can't allocate memory", "not enough memory", "out of memory"),
    *("storage size calculation overflowed", "integer multiplication overflow"),
)


@contextmanager
def enough_memory(config: TrainConfig, run: Path) -> Iterator[None]:
    """Name the settings to lower where a run asks for more memory than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_of_memory(error):
            raise
        said = str(error).partition("\n")[0] or type(error).__name__
        raise TrainingError(
            f"expected memory enough for {_sizes(config)}, got less ({said}): lower one of them, "
            f"for a new folder{_kept(run)}"
        ) from error


def _sizes(config: TrainConfig) -> str:
    """The settings that memory grows with, and their values."""
    data = config.data
    told = [f"data.{name} = {getattr(data, name)}" for name in ("batch", "pool", "size")]
    told.append(f"data.frames = {list(data.frames)}")
    if hasattr(config.model, "features"):
        told.append(f"model.features = {config.model.features}")
    return f"{', '.join(told[:-1])} and {told[-1]}"


def is_of_memory(error: RuntimeError) -> bool:
    """Whether torch failed for want of memory; on a CPU only its words tell."""
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or any(sign in words for sign in SIGNS)


def _kept(run: Path) -> str:
    """What there is to go on from."""
    try:
        step = read_state(run)[0].step
    except FileError:
        return ""
    if not step:
        return ""
    return (
        f"; the checkpoint of step {step} in {run} is good, go on from it with --resume where "
        "there is more memory"
    )
