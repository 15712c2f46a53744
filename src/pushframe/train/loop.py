"""The training loop: simulate, register, drop the reference, predict it, learn from the error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..model import NETWORKS, Network
from ..weights import ancestry, load_weights, to_device
from .book import Book
from .checkpoint import State, load_checkpoint
from .config import ScheduleConfig, TrainConfig
from .material import open_material
from .optimiser import BETAS, Muon
from .step import Desk
from .team import Team


def train(
    config: TrainConfig,
    run: Path,
    device: str = "cpu",
    resume: bool = False,
    stop_after_minutes: float = math.inf,
    skip_bad: bool = False,
    on_log: Callable[[dict[str, Any], float], None] = lambda *_: None,
) -> State:
    """Train a network into the folder `run`, from the start or from its last checkpoint.

    stop_after_minutes: end this part of the run then, to be resumed. on_log: told each line of
    the log and the share of the run that is done.
    """
    config.check()
    begun, clock = time.perf_counter(), None
    device = Team.own_device(device)
    team = Team.join(device)
    shards = team.shards(config.data.shards)
    set_arithmetic()
    torch.manual_seed(config.seed)
    network = to_device(NETWORKS[config.network](config.model), torch.device(device)).train()
    network.mixed_precision = config.mixed_precision
    state = State.start(network, _optimiser(network, config.schedule))
    if resume:
        load_checkpoint(run, state)
    elif config.start:
        state.begin_with(load_weights(config.start, network.scale)[0], ancestry(config.start))
    material = open_material(config, network.scale, device, skip_bad)
    book = Book(config, run, team, state, material, on_log)
    desk = Desk(network, material.stream, config)
    if config.compile:
        torch.compiler.reset()  # several runs in one process would use up its cache
        for part in network.heavy_parts():
            part.compile()

    while (share := team.agree(config.schedule.share_done(state.progress), device)) < 1:
        state.optimiser.param_groups[0]["lr"] = config.schedule.rate(share)
        total = torch.zeros((), device=device)
        for shard in shards:
            loss = desk.loss(state.progress.step, shard) / config.data.shards
            loss.backward()
            total += loss.detach()
        team.add_gradients(network)
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.schedule.clip)
        if bool(torch.isfinite(norm)):  # else one burst would undo all that was learnt
            state.optimiser.step()
        state.optimiser.zero_grad()
        state.progress.step += 1
        state.update_average(config.schedule.averaging)

        now = time.perf_counter()
        state.progress.seconds += 0 if clock is None else now - clock  # the first step compiles
        clock = now
        book.keep(team.add(total), norm)
        if team.agree(float(now - begun > 60 * stop_after_minutes), device):
            break
    book.close()
    team.leave()
    return state


def set_arithmetic() -> None:
    """Simulator, solver and loss in true float32: TF32 costs the solver 0.1 dB."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def _optimiser(network: Network, schedule: ScheduleConfig) -> torch.optim.Optimizer:
    if schedule.optimiser == "muon":
        return Muon(network.parameters(), schedule.learning_rate, schedule.weight_decay)
    return torch.optim.AdamW(
        network.parameters(),
        lr=schedule.learning_rate,
        betas=BETAS,
        weight_decay=schedule.weight_decay,
        fused=next(network.parameters()).is_cuda,
    )
