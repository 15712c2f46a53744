r"""What each input of our network is worth: `small`, trained on with one of them withheld.

    python benchmarks/network_inputs.py ../shared/data/hr/train \
        --out benchmarks/results/network_inputs.json

Each row starts from the shipped weights, is denied an input (its maps are zero), and learns to do
without: the same bursts in the same steps, self-supervised, of the mixture that `small` was trained
on but for drifting ones. The first learns on with all of them. Judged on the training groups held
out, with estimated motion. Longer learning would make up for a part: what a row loses is at most
what its input is worth.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from learned_ceiling import held_out
from record import record
from torch import Tensor

from pushframe.data import draws
from pushframe.model import OnSolver
from pushframe.model.on_solver import CHANNELS, Evidence
from pushframe.posterior import Posterior
from pushframe.simulate import Simulation, preset, with_options
from pushframe.train.config import TrainConfig, load_train_config
from pushframe.train.material import TruthJudge, open_material
from pushframe.train.optimiser import Muon
from pushframe.train.step import Ready, loss_of, make_ready
from pushframe.weights import load_weights

SMALL = Path(__file__).parents[1] / "configs/small.toml"
BATCH = 32  # bursts of one number of frames; of a step, of all
SETTINGS = {
    "paper, 15 frames": with_options(preset("paper"), frames=15),
    "paper, 5 frames": with_options(preset("paper"), frames=5),
    "continuous, PSF 0.5": with_options(preset("continuous"), frames=15, psf_hpx=0.5),
}
GATE = -1  # in place of a map: the data's verdict on what is proposed
IMAGE, BAR, SIZES, MEANS, FINER = (0, 1), (2,), (3,), (4, 5), tuple(range(6, CHANNELS))
DENIED = {
    "nothing": (),
    "the image": IMAGE,
    "its error bar": BAR,
    "how large residuals are": SIZES,
    "residuals on the high-res grid": MEANS,
    "residuals on a grid twice as fine": FINER,
    "all residuals": SIZES + MEANS + FINER,
    "all but the image": BAR + SIZES + MEANS + FINER,
    "the data's verdict on the proposal": (GATE,),
}


class Closed:
    """A gate that lets nothing of a proposal through."""

    def accept(self, proposal: Tensor) -> Tensor:
        return torch.zeros_like(proposal)


class Denied(OnSolver):
    """`OnSolver` that is not shown some of its maps."""

    denied: tuple[int, ...] = ()

    def conclude(self, given: Evidence) -> Posterior:
        shown = torch.ones(CHANNELS, 1, 1)
        shown[[channel for channel in self.denied if channel != GATE]] = 0
        gate: Any = Closed() if GATE in self.denied else given.gate
        return super().conclude(given._replace(maps=given.maps * shown, gate=gate))

    def fast(self, like: Tensor) -> AbstractContextManager[None]:
        """As on a GPU: in learning, too."""
        return torch.autocast(like.device.type, torch.bfloat16)


class Alone(OnSolver):
    """What the network is handed, and no network: the solver."""

    def conclude(self, given: Evidence) -> Posterior:
        return Posterior(given.mean, given.var)


@dataclass(frozen=True)
class Lesson:
    """What all rows learn from: bursts made ready once, the steps and the rate."""

    ready: Ready
    config: TrainConfig
    steps: int

    def learn(self, network: OnSolver) -> None:
        """The steps of `train`, from bursts that are there."""
        schedule = self.config.schedule
        optimiser = Muon(network.parameters(), schedule.learning_rate, schedule.weight_decay)
        bursts, rows = self.ready.given.mean.shape[0], torch.empty(0, dtype=torch.long)
        network.train()
        for step in range(self.steps):
            if len(rows) < BATCH:
                host, _ = draws(self.config.seed, step, 0, 0)
                rows = torch.from_numpy(host.permutation(bursts))
            part, rows = self.ready.part(rows[:BATCH]), rows[BATCH:]
            optimiser.param_groups[0]["lr"] = schedule.rate(step / self.steps)
            loss_of(network, part, self.config.loss).backward()
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), schedule.clip)
            if bool(torch.isfinite(norm)):
                optimiser.step()
            optimiser.zero_grad()
        network.eval()


def lesson(config: TrainConfig, batches: int, steps: int) -> Lesson:
    """Bursts of the training groups, made ready."""
    stream = open_material(config, config.model.scale, "cpu", skip_bad=False).stream
    network = OnSolver(config.model)
    with torch.no_grad():
        made = [make_ready(network, stream.batch(number, 0), config) for number in range(batches)]
    return Lesson(Ready.joined(made), config, steps)


def judge(config: TrainConfig, settings: dict[str, Simulation]) -> TruthJudge:
    """Bursts of the groups held out, of each setting."""
    cases = {name: held_out(config, setting) for name, setting in settings.items()}
    return TruthJudge(cases, "solver", "cpu")


def settings(options: argparse.Namespace) -> TrainConfig:
    """The configuration of `small`, for so few bursts."""
    changes = ["motion=translations", "data.mixture.drifting=0", "compile=false"]
    changes += [f"data.images={options.images}", f"data.size={options.size}"]
    changes += [f"data.batch={BATCH}", "data.parts=1", "data.pool=1", "data.uses=1"]
    changes += [f"schedule.steps={options.steps}", f"schedule.learning_rate={options.rate}"]
    return load_train_config(SMALL, changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--bursts", type=int, default=3072, help="to learn from")
    parser.add_argument("--size", type=int, default=48, help="side of their frames, px")
    parser.add_argument("--steps", type=int, default=288)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    config = settings(options)
    taught, judged = lesson(config, options.bursts // BATCH, options.steps), judge(config, SETTINGS)
    rows = [{"denied": "the network"} | judged(Alone(config.model))]
    print(rows[0], flush=True)
    start, _ = load_weights("small", config.model.scale)
    for name, channels in DENIED.items():
        network = Denied(config.model)
        network.load_state_dict(start.state_dict())
        network.denied = channels
        taught.learn(network)
        rows.append({"denied": name} | judged(network))
        print(rows[-1], flush=True)
        if options.out:
            run = {"bursts": options.bursts, "size": options.size, "rate": options.rate}
            record(options.out, "network_inputs", **run, steps=options.steps, rows=rows)


if __name__ == "__main__":
    main()
