"""Where a training run stands, in one file that is replaced whole: kill it at any moment.

Weights, their average, the optimiser's two moments and its count of the steps that it took are
tensors of one safetensors file; step, time and configuration are its metadata. What the step draws
at random is a function of seed and step, so there is no other state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ..checks import require
from ..errors import FileError, UsageError
from ..io import atomic_path, sweep
from ..io.guard import unwritable
from ..model import Network

NAME = "checkpoint.safetensors"
LOG = "log.jsonl"
MOMENTS = ("exp_avg", "exp_avg_sq")
COUNT = "step"  # that the optimiser took: fewer than the run's where a gradient was no number


@dataclass
class Progress:
    """How far a run is. seconds: spent training, over all its parts; best: lowest loss so far."""

    step: int = 0
    seconds: float = 0.0
    best: float | None = None


@dataclass
class State:
    """All that a run changes: weights, their moving average, optimiser, progress.

    ancestors: cards of the weights that it started from (`weights.ancestry`).
    """

    network: Network
    average: dict[str, Tensor]
    optimiser: torch.optim.Optimizer
    progress: Progress
    ancestors: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, network: Network, optimiser: torch.optim.Optimizer) -> State:
        """The state before the first step."""
        average = {name: value.detach().clone() for name, value in network.state_dict().items()}
        return cls(network, average, optimiser, Progress())

    def begin_with(self, other: Network, ancestors: list[dict[str, Any]]) -> None:
        """Start from the weights of another network of the same configuration."""
        require(
            self.network.config == other.config,
            f"weights to start from of {self.network.config}",
            other.config,
            "change model or start",
            UsageError,
        )
        self.ancestors = ancestors
        self.network.load_state_dict(other.state_dict())
        self.average = {
            name: value.detach().clone() for name, value in self.network.state_dict().items()
        }

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """`average <- decay * average + (1 - decay) * weights`, forgetting faster at first."""
        decay = min(decay, self.progress.step / (self.progress.step + 9))
        weights = self.network.state_dict()
        torch._foreach_lerp_(
            list(self.average.values()), [weights[name] for name in self.average], 1 - decay
        )


def save_checkpoint(run: Path, state: State, config: dict[str, Any]) -> None:
    """Replace the checkpoint of a run."""
    tensors = {f"network.{name}": value for name, value in state.network.state_dict().items()}
    tensors |= {f"average.{name}": value for name, value in state.average.items()}
    for name, parameter in state.network.named_parameters():
        known = state.optimiser.state.get(parameter, {})
        tensors |= {f"{key}.{name}": known[key] for key in (*MOMENTS, COUNT) if key in known}
    tensors = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    facts = {"progress": vars(state.progress), "config": config, "ancestors": state.ancestors}
    with atomic_path(run / NAME) as draft:
        draft.write_bytes(save(tensors, metadata={"state": json.dumps(facts)}))


def read_state(run: Path) -> tuple[Progress, dict[str, Any]]:
    """Progress and configuration of a run's checkpoint."""
    progress, config, _ = _read_facts(run)
    return progress, config


def _read_facts(run: Path) -> tuple[Progress, dict[str, Any], list[dict[str, Any]]]:
    """Progress, configuration and ancestors; checkpoints of before had none of the last."""
    path = run / NAME
    if not path.is_file():
        raise FileError(f"expected a checkpoint, got nothing at {path}: start without --resume")
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["state"])
        return Progress(**facts["progress"]), facts["config"], facts.get("ancestors", [])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"{path}: expected a checkpoint, got a file that cannot be read ({error}): "
            "restore it, or start a new run"
        ) from error


def load_checkpoint(run: Path, state: State) -> None:
    """Put a fresh state where the checkpoint of a run stands."""
    state.progress, _, state.ancestors = _read_facts(run)
    tensors = load_file(run / NAME)
    try:
        state.network.load_state_dict(_part(tensors, "network"))
        for name, value in _part(tensors, "average").items():
            state.average[name].copy_(value)
        moments = {key: _part(tensors, key) for key in MOMENTS}
        all_taken = dict.fromkeys(moments["exp_avg"], torch.tensor(float(state.progress.step)))
        counts = _part(tensors, COUNT) or all_taken  # checkpoints of before had no counts
        for name, parameter in state.network.named_parameters():
            if name not in moments["exp_avg"]:
                continue  # never had a gradient
            known = {
                key: torch.empty_like(parameter).copy_(values[name])
                for key, values in moments.items()
                if name in values
            }
            if name in counts:  # the fused optimiser counts on the device
                known[COUNT] = counts[name].to(parameter.device, copy=True)
            state.optimiser.state[parameter] = known
    except (KeyError, RuntimeError) as error:
        raise FileError(
            f"{run / NAME}: expected the network of this configuration, got another ({error}): "
            "use the configuration the run was started with"
        ) from error


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {name.removeprefix(start): x for name, x in tensors.items() if name.startswith(start)}


def clear_leftovers(run: Path) -> None:
    """Make the folder of a run, without the drafts that a killed part may have left in it."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(run, error) from error
    sweep(run)


class Log:
    """One JSON object a line: step, losses, speed, validation figures."""

    def __init__(self, run: Path, step: int) -> None:
        """Open the log of a run that stands at `step`; lines beyond it are of a killed part."""
        self.path = run / LOG
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError):
                break  # a line that was being written when the run was killed
        with atomic_path(self.path) as draft:
            draft.write_text("".join(f"{line}\n" for line in kept))

    def write(self, **facts: Any) -> None:
        """Add a line."""
        try:
            with self.path.open("a") as stream:
                stream.write(json.dumps(facts) + "\n")
        except OSError as error:
            raise unwritable(self.path, error) from error
