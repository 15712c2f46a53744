"""What is written about a training run: log, validation figures, checkpoints, weights."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import TrainingError
from ..weights import save_weights
from .checkpoint import Log, State, clear_leftovers, save_checkpoint
from .config import LIKELIHOODS, TrainConfig
from .material import Material
from .team import Team

WEIGHTS = "weights.safetensors"
EXPLODED_NATS = 10.0  # above the best mean loss of a logging interval
EXPLODED_RATIO = 100.0  # the same for losses that are not likelihoods


class Book:
    """Keeps the run's folder; in a team only its leader writes."""

    def __init__(
        self,
        config: TrainConfig,
        run: Path,
        team: Team,
        state: State,
        material: Material,
        on_log: Callable[[dict[str, Any], float], None],
    ) -> None:
        self.config, self.run, self.team = config, run, team
        self.state, self.material, self.on_log = state, material, on_log
        self.judged = copy.deepcopy(state.network).eval()  # carries the average at validation
        self.figures: dict[str, Any] = {}
        self.losses: list[Tensor] = []
        self.since = time.perf_counter()
        self.saved = state.progress.step
        if team.leads:
            clear_leftovers(run)
            self.log = Log(run, state.progress.step)
            if state.progress.step == 0:  # so that --resume works from the very start
                save_checkpoint(run, state, dataclasses.asdict(config))
        if material.left_out:
            self._write(left_out=material.left_out)

    def keep(self, loss: Tensor, norm: Tensor) -> None:
        """Take note of one step, and do what is due after it."""
        self.losses.append(loss)
        step, config = self.state.progress.step, self.config
        last = config.schedule.share_done(self.state.progress) >= 1
        if step % config.log_every == 0 or last:
            self._write_losses(norm)
        if step % config.validate_every == 0 or last:
            self._validate()
        if step % config.checkpoint_every == 0 or last:
            self._checkpoint()

    def close(self) -> None:
        """Leave the run so that it can go on from here."""
        if self.saved < self.state.progress.step:
            self._checkpoint()

    def _write_losses(self, norm: Tensor) -> None:
        mean, progress = self._checked_mean(), self.state.progress
        steps, self.losses = len(self.losses), []
        progress.best = mean if progress.best is None else min(progress.best, mean)
        now, data = time.perf_counter(), self.config.data
        self._write(
            loss=mean,
            gradient_norm=float(norm),
            learning_rate=self.state.optimiser.param_groups[0]["lr"],
            samples_per_s=steps * data.batch / data.parts / (now - self.since),
            minutes=progress.seconds / 60,
        )
        self.since = now

    def _checked_mean(self) -> float:
        """The mean loss since the last line; stop where it is no number, or far above its best."""
        best, losses = self.state.progress.best, torch.stack(self.losses)
        sound = losses[torch.isfinite(losses)]  # steps that were no numbers were not taken
        mean = float(sound.mean()) if 2 * len(sound) > len(losses) else math.nan
        likelihood = self.config.loss.kind in LIKELIHOODS
        limit = math.inf
        if best is not None:
            limit = best + EXPLODED_NATS if likelihood else best * EXPLODED_RATIO
        if math.isfinite(mean) and mean <= limit:
            return mean
        good = f"the checkpoint of step {self.saved} in {self.run} is good" if self.saved else ""
        raise TrainingError(
            f"expected a loss below {limit:.4g}, got {mean:.4g} at step "
            f"{self.state.progress.step}: lower schedule.learning_rate, or look at the data"
            + (f"; {good}, go on from it with --resume" if good else "")
        )

    def _validate(self) -> None:
        if self.team.leads:
            self.judged.load_state_dict(self.state.average)
            self.figures = self.material.judge(self.judged)
            if self.figures:
                self._write(validation=self.figures)
        self.since = time.perf_counter()

    def _checkpoint(self) -> None:
        if self.losses:
            self._checked_mean()  # what is saved must be good
        if self.team.leads:
            save_checkpoint(self.run, self.state, dataclasses.asdict(self.config))
            card = self.material.card(self.config, self.state, self.figures)
            save_weights(self.state.network, self.run / WEIGHTS, card, self.state.average)
        self.saved = self.state.progress.step

    def _write(self, **facts: Any) -> None:
        if self.team.leads:
            line = {"step": self.state.progress.step, **facts}
            self.log.write(**line)
            self.on_log(line, self.config.schedule.share_done(self.state.progress))
