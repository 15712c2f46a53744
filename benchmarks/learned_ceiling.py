r"""How much a network could gain at most: one that is told the truth and the motion.

    python benchmarks/learned_ceiling.py ../shared/data/hr/train --minutes 16 \
        --stop-after-minutes 9 --device cuda --run out/ceiling5 \
        --out benchmarks/results/learned_ceiling_5.json
    python benchmarks/learned_ceiling.py ../shared/data/hr/train --frames 8 --minutes 4.5 \
        --device cuda --run out/ceiling8 --out benchmarks/results/learned_ceiling_8.json
    python benchmarks/learned_ceiling.py ../shared/data/hr/train --network base --frames 15 \
        --psf 0.5 --steps 900 --device cuda --run out/ceiling_sharp \
        --out benchmarks/results/learned_ceiling_base_psf.json
    python benchmarks/learned_ceiling.py ../shared/data/hr/train --frames 15 --psf 0.5 \
        --minutes 5.8 --device cuda --run out/ceiling_sharp_large \
        --out benchmarks/results/learned_ceiling_psf.json

A U-Net of 33 million parameters (`base` has 2.6) proposes the image, in place of the trunk of
`on_solver`; or `base` is trained on. It learns from the truth, with the true motion, from bursts of
one number of frames of one setting alone, the paper's or that of a sharp optic: none of this can be
had in practice. Judged on the groups that `base` was selected on, beside `solver` and `base` with
the same motion. The same command again resumes it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from record import record
from torch import Tensor, nn

from pushframe.burst import Simulated, stack
from pushframe.data import read_images
from pushframe.methods import METHODS, find_methods
from pushframe.metrics import Metrics
from pushframe.model import NETWORKS, OnSolver, OnSolverConfig
from pushframe.model.blocks import ResidualBlock, conv
from pushframe.model.on_solver import CHANNELS
from pushframe.simulate import Simulation, preset, with_options
from pushframe.train import train
from pushframe.train.book import WEIGHTS
from pushframe.train.checkpoint import LOG, NAME
from pushframe.train.config import TrainConfig, load_train_config
from pushframe.weights import shipped_weights
from pushframe.windows import simulate_windows

BASE = Path(__file__).parents[1] / "configs/base.toml"
LARGE = "large"  # name of the network, in settings and results
JUDGED = 160  # bursts, at most
LEVELS = 3
JUDGED_AT_ONCE = 16


class UNet(nn.Module):
    """Residual blocks on grids each half as fine and twice as wide as the one before, and back."""

    def __init__(self, channels: int, features: int, blocks: int) -> None:
        super().__init__()
        widths = [features * 2**level for level in range(LEVELS)]
        self.first = conv(channels, features)
        self.down = nn.ModuleList([_chain(width, blocks) for width in widths])
        self.up = nn.ModuleList([_chain(width, blocks) for width in widths[:-1]])
        self.coarser = nn.ModuleList([nn.Conv2d(w, 2 * w, 2, stride=2) for w in widths[:-1]])
        self.finer = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[:-1]])

    def forward(self, x: Tensor) -> Tensor:
        x, passed = self.down[0](self.first(x)), []
        for coarser, blocks in zip(self.coarser, self.down[1:], strict=True):
            passed.append(x)
            x = blocks(coarser(x))
        for finer, blocks in reversed(list(zip(self.finer, self.up, strict=True))):
            x = blocks(passed.pop() + finer(x))
        return x


class Large(OnSolver):
    """`OnSolver` with a U-Net to propose the image; sides of frames are multiples of 4."""

    def __init__(self, config: OnSolverConfig) -> None:
        super().__init__(config)
        fold = config.scale**2
        self.proposal = UNet(fold * CHANNELS, config.features, config.proposal_blocks)

    def heavy_parts(self) -> Sequence[nn.Module]:
        return self.proposal, self.verdict


def _chain(features: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(features) for _ in range(blocks)))


def held_out(config: TrainConfig, setting: Simulation) -> list[tuple[str, Simulated]]:
    """Bursts of the groups held out, image after image, a window of each."""
    images = read_images(Path(config.data.images))
    kept = [image for image in images if image.group in config.data.validation_groups]
    rows = [
        [(image.name, made) for made in simulate_windows(image.pixels, image.name, setting, 0)]
        for image in kept
    ]
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*rows))
    return [case for case in mixed if case is not None][:JUDGED]


def judge(
    methods: Sequence[str], config: TrainConfig, setting: Simulation, device: str
) -> list[dict[str, Any]]:
    """The figures of each method, true motion, on bursts of the groups held out."""
    cases, rows = held_out(config, setting), []
    for name, method in find_methods(methods, config.model.scale).items():
        metrics = Metrics(config.model.scale)
        for first in range(0, len(cases), JUDGED_AT_ONCE):
            groups, made = zip(*cases[first : first + JUDGED_AT_ONCE], strict=True)
            burst = stack([one.burst for one in made]).to(device)
            flow_px = torch.stack([one.flow_px for one in made]).to(device)
            truth = torch.stack([one.truth for one in made]).to(device)
            found = method.run(burst, config.model.scale, flow_px)
            metrics.update(found.posterior, truth, list(groups))
        found_all: Any = metrics.compute()["all"]
        figures = {key: found_all[key] for key in ("psnr_db", "nll", "mean_z2")}
        known = name in METHODS or name in shipped_weights()
        shown = name if known else f"{config.network}, told truth and motion"
        rows.append({"method": shown, "bursts": len(cases), **figures})
    return rows


def curve(run: Path) -> list[dict[str, float]]:
    """What the log of a run says of its validation: minutes of training, PSNR, NLL."""
    points, minutes = [], 0.0
    for line in map(json.loads, (run / LOG).read_text().splitlines()):
        minutes = line.get("minutes", minutes)
        for figures in line.get("validation", {}).values():
            points.append({"minutes": minutes} | {key: figures[key] for key in ("psnr_db", "nll")})
    return points


def told(line: dict[str, Any], share: float) -> None:
    """Print a line of the log."""
    print(f"{share:.0%}", line, flush=True)


def settings(options: argparse.Namespace) -> list[str]:
    """The run, as `--set` of `pushframe train` would have it."""
    base, frames, sharp = load_train_config(BASE), options.frames, options.psf is not None
    groups = ", ".join(f'"{group}"' for group in base.data.validation_groups)
    sizes = {"network": LARGE, "features": 128, "proposal_blocks": 4, "verdict_blocks": 4}
    if options.network == "base":
        sizes = {"network": base.network, **vars(base.model)}
    changes = [
        f"network={sizes.pop('network')}",
        *(f"model.{name}={value}" for name, value in sizes.items()),
        "motion=true",
        "compile=true",
        "loss.kind=supervised",
        f"data.images={options.images}",
        f"data.validation_groups=[{groups}]",
        f'data.validation=["{"continuous" if sharp else "paper"}:{frames}"]',
        "data.validation_bursts=160",
        f"data.frames=[{frames}, {frames}]",
        "data.batch=1024",
        "data.parts=16",
        "data.pool=4",
        "data.uses=3",
        f"schedule.steps={options.steps}",
        f"schedule.minutes={0 if options.steps else options.minutes}",
        "schedule.optimiser=muon",
        "schedule.learning_rate=8e-4",
    ]
    if sharp:
        ends = f"data.mixture.psf_hpx=[{options.psf}, {options.psf}]"
        changes += ["data.mixture.paper=0", "data.mixture.continuous=1", ends]
    return changes + (["start=base"] if options.network == "base" else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--network", choices=[LARGE, "base"], default=LARGE)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--psf", type=float, help="of `continuous`, hpx; else `paper`")
    parser.add_argument("--minutes", type=float, default=16)
    parser.add_argument("--steps", type=int, default=0, help="instead of minutes")
    parser.add_argument("--stop-after-minutes", type=float, default=math.inf)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--run", type=Path, required=True, help="folder of the training run")
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    NETWORKS[LARGE] = Large
    changes = settings(options) + options.changes
    config = load_train_config(None, changes)
    setting = preset("paper" if options.psf is None else "continuous")
    setting = with_options(setting, frames=options.frames, psf_hpx=options.psf)
    resume = (options.run / NAME).exists()
    state = train(
        config, options.run, options.device, resume, options.stop_after_minutes, on_log=told
    )
    rows = judge(["solver", "base", str(options.run / WEIGHTS)], config, setting, options.device)
    for row in rows:
        print(row, flush=True)
    if options.out:
        size = sum(parameter.numel() for parameter in state.network.parameters())
        run = {"parameters": size, "minutes": state.progress.seconds / 60}
        run |= {"frames": options.frames, "psf_hpx": options.psf, "steps": state.progress.step}
        run |= {"settings": changes}
        if options.psf is None:  # validation has the preset's own
            run |= {"curve": curve(options.run)}
        record(options.out, "learned_ceiling", options.device, **run, rows=rows)


if __name__ == "__main__":
    main()
