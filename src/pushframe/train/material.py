"""What a run trains and is judged on, opened from its configuration."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..burst import Burst, Simulated, stack
from ..data import (
    BurstStream,
    ImageStream,
    Stream,
    cut,
    held_out,
    read_bursts,
    read_images,
    validation_cases,
)
from ..metrics import Metrics
from ..model import Motion, MotionKind, Network, estimate_motion, find_motion
from ..version import __version__
from .checkpoint import State
from .config import LossConfig, TrainConfig
from .step import reference_loss

JUDGED_AT_ONCE = 8
FIGURES = ("psnr_db", "nll", "calibration_error", "mean_z2", "flow_rmse_px")


@dataclass(frozen=True)
class Material:
    """A stream of batches, a judge of networks, where the data come from and what was left out."""

    stream: Stream
    judge: Callable[[Network], dict[str, Any]]
    origin: dict[str, Any]
    left_out: list[str]

    def card(self, config: TrainConfig, state: State, figures: dict[str, Any]) -> dict[str, Any]:
        """What the weights of this run should say of themselves, and of those it started from."""
        progress, before = state.progress, state.ancestors
        lineage = {"started_from": before[-1]["weights"], "ancestors": before} if before else {}
        return {
            "trained_on": self.origin,
            "steps": progress.step,
            "minutes": round(progress.seconds / 60, 2),
            "crops" if config.data.bursts else "bursts": config.data.different(progress.step),
            "validation": figures,
            "config": dataclasses.asdict(config),
            "version": __version__,
            "commit": _commit(),
            **lineage,
        }


def open_material(config: TrainConfig, scale: int, device: str, skip_bad: bool) -> Material:
    """The stream and the judge of a configuration."""
    open_them = _from_bursts if config.data.bursts else _from_images
    return open_them(config, scale, device, [] if skip_bad else None)


def _from_bursts(
    config: TrainConfig, scale: int, device: str, left_out: list[str] | None
) -> Material:
    named = read_bursts(Path(config.data.bursts), config.data, scale, left_out)
    outside = held_out([entry.name for entry in named], config.data)
    inside = [entry.burst for entry, out in zip(named, outside, strict=True) if not out]
    kept = [entry.burst for entry, out in zip(named, outside, strict=True) if out]
    origin = {"bursts": len(inside), "held_out_bursts": len(kept)}
    stream = BurstStream(inside, config.data, config.seed, device)
    return Material(stream, ReferenceJudge(kept, config, device), origin, left_out or [])


def _from_images(
    config: TrainConfig, scale: int, device: str, left_out: list[str] | None
) -> Material:
    images = read_images(Path(config.data.images), left_out)
    outside = held_out([image.group for image in images], config.data)
    inside = [image for image, out in zip(images, outside, strict=True) if not out]
    kept = [image for image, out in zip(images, outside, strict=True) if out]
    stream = ImageStream(
        [image.pixels for image in inside], config.data, scale, config.seed, device
    )
    cases = validation_cases(kept, config.data, scale)
    origin = {
        "images": len(inside),
        "groups": sorted({image.group for image in inside}),
        "licences": sorted({image.licence for image in inside if image.licence}),
        "held_out_groups": sorted({image.group for image in kept}),
    }
    return Material(stream, TruthJudge(cases, config.motion, device), origin, left_out or [])


class ReferenceJudge:
    """Likelihood of the reference of held-out bursts, for want of a truth."""

    def __init__(self, bursts: list[Burst], config: TrainConfig, device: str) -> None:
        self.bursts, self.config, self.device = bursts, config, device

    @torch.no_grad()
    def __call__(self, network: Network) -> dict[str, Any]:
        """The mean over bursts and grid shifts; empty where nothing is held out."""
        losses, size = [], self.config.data.size
        for burst in self.bursts:
            corner = ((burst.shape[0] - size) // 2, (burst.shape[1] - size) // 2)
            middle = cut(burst, corner, size).to(self.device)
            middle, motion = find_motion(network, middle, self.config.motion)
            for shift in np.ndindex(network.scale, network.scale):
                tau = torch.tensor([shift], device=self.device)
                loss = reference_loss(network, middle, motion, tau, LossConfig())
                losses.append(float(loss))
        return {"held_out": {"nll": sum(losses) / len(losses)}} if losses else {}


class TruthJudge:
    """Accuracy and calibration of a network on simulated bursts, the reference an input again."""

    def __init__(
        self, cases: dict[str, list[tuple[str, Simulated]]], motion: MotionKind, device: str
    ) -> None:
        self.cases, self.motion, self.device = cases, motion, device
        self.known: dict[tuple[str, int], tuple[Any, Motion]] = {}

    @torch.no_grad()
    def __call__(self, network: Network) -> dict[str, Any]:
        """Figures by setting, as in the evaluation's JSON; empty where nothing is held out."""
        figures: dict[str, Any] = {}
        for name, rows in self.cases.items():
            if not rows:
                continue
            metrics = Metrics(network.scale)
            for first in range(0, len(rows), JUDGED_AT_ONCE):
                part = rows[first : first + JUDGED_AT_ONCE]
                burst, motion = self._registered((name, first), part, network)
                posterior = network(burst, motion)
                truth = torch.stack([made.truth for _, made in part]).to(self.device)
                groups = [group for group, _ in part]
                metrics.update(posterior, truth, groups, motion.flow_px, self._true_px(part))
            found: Any = metrics.compute()["all"]
            figures[name] = {key: found[key] for key in FIGURES}
        return figures

    def _registered(
        self, key: tuple[str, int], part: list[tuple[str, Simulated]], network: Network
    ) -> tuple[Any, Motion]:
        """The bursts of one batch with their motion, found once unless the network finds it."""
        if key not in self.known:
            burst = stack([made.burst for _, made in part]).to(self.device)
            flow_px = self._true_px(part)
            if self.motion == "network":
                return find_motion(network, burst, self.motion)
            self.known[key] = estimate_motion(burst, network.scale, self.motion, flow_px)
        return self.known[key]

    def _true_px(self, part: list[tuple[str, Simulated]]) -> Tensor:
        flows = [made.flow_px for _, made in part if made.flow_px is not None]
        return torch.stack(flows).to(self.device)


def _commit() -> str | None:
    """The commit of a working copy; None for an installed package, or without git."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():  # a virtual environment may lie in somebody else's repository
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git on this machine
        return None
    return done.stdout.strip() or None
