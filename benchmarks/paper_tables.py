"""The paper's evaluation: twins trained with and without truth, Table 1, Table 2 and Figure 1.

    python benchmarks/paper_tables.py --out twins --minutes 20 --device cuda \
        --config configs/paper_twins.toml configs/paper_twins_on_solver.toml \
        --test ../shared/data/hr/test

Each configuration names its network, which gets twins of its own. Twins share steps, batch,
initial weights, bursts and motion; the supervised one sees the truth, and the reference among its
inputs. `--minutes` is measured once and becomes a number of steps, the same for all runs of a
network. With `--stop-after-minutes` the command ends early: give it again, and it goes on from the
checkpoints. When all runs are done the tables are written.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from paper_figure import figure_1

from pushframe.burst import Burst
from pushframe.errors import PushframeError, UsageError
from pushframe.evaluate import evaluate
from pushframe.methods import METHODS, Estimate, Method, run_network
from pushframe.model import Network, estimate_motion
from pushframe.noise import normalised_noise_var
from pushframe.plots import coverage_png
from pushframe.posterior import Posterior
from pushframe.simulate import preset, with_options
from pushframe.sources import SimulatedCases, find_sources
from pushframe.tables import BALANCED, SUMMARY, TABLE_1, TABLE_2, number, tables_markdown
from pushframe.train import train
from pushframe.train.book import WEIGHTS
from pushframe.train.checkpoint import LOG, NAME, read_state
from pushframe.train.config import TrainConfig, load_train_config
from pushframe.weights import load_weights

TWINS = {"self-sup.": [], "supervised": ["loss.kind=supervised"]}
ABLATIONS = {"uncorrected": ["loss.noise_corrected=false"], "detail": ["loss.detail=true"]}
PROBE_STEPS = 120
FRAME_COUNTS = (3, 5, 8, 12, 15, 20)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    deadline = time.monotonic() + 60 * options.stop_after_minutes
    runs = TWINS | (ABLATIONS if options.ablations else {})
    for network in options.networks:
        steps = options.steps[network] or planned_steps(network, options)
        for name, changes in runs.items():
            config = configured(network, options, steps, changes)
            if not finish(config, run_folder(options.out, network, name), options, deadline):
                print("not done yet: give the same command again to go on", flush=True)
                return
    results = {network: judge(network, runs, options) for network in options.networks}
    write(results, options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--config",
        type=Path,
        nargs="+",
        default=[Path("configs/paper_twins.toml")],
        help="one for each network, which it names",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20.0, help="of each run")
    parser.add_argument(
        "--steps",
        type=int,
        nargs="+",
        default=[0],
        help="of each run, instead of minutes: one number, or one for each --config",
    )
    parser.add_argument("--ablations", action="store_true", help="train the ablated losses too")
    parser.add_argument("--stop-after-minutes", type=float, default=float("inf"))
    parser.add_argument("--test", default="../shared/data/hr/test", help="images or scene:SEED")
    parser.add_argument("--frames", type=int, nargs="+", default=FRAME_COUNTS)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--border", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the test bursts")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        options.networks = networks_of(options.config, options.settings)
    except PushframeError as error:
        parser.error(str(error))
    counts = options.steps * len(options.config) if len(options.steps) == 1 else options.steps
    if len(counts) != len(options.config):
        parser.error(
            f"expected one number of --steps, or {len(options.config)}, one for each --config, "
            f"got {len(counts)}"
        )
    options.steps = dict(zip(options.networks, counts, strict=True))
    return options


def networks_of(paths: list[Path], settings: list[str]) -> dict[str, Path]:
    """The configuration of each network, by the name that is in it."""
    found: dict[str, Path] = {}
    for path in paths:
        name = load_train_config(path, settings).network
        if name in found:
            raise UsageError(
                f"expected one --config for each network, got {found[name]} and {path}, both of "
                f"{name}: leave one out, or give it an --out of its own"
            )
        found[name] = path
    return found


def run_folder(out: Path, network: str, name: str) -> Path:
    return out / "runs" / f"{network}-{name.rstrip('.')}"


def configured(
    network: str, options: argparse.Namespace, steps: int, changes: list[str]
) -> TrainConfig:
    length = [f"schedule.steps={steps}", "schedule.minutes=0.0"]
    return load_train_config(options.networks[network], [*options.settings, *length, *changes])


def planned_steps(network: str, options: argparse.Namespace) -> int:
    """`--minutes` as a number of steps, measured once and kept beside the runs."""
    path = options.out / f"plan-{network}.json"
    if not path.exists():
        config = configured(network, options, PROBE_STEPS, [])
        config = dataclasses.replace(
            config, log_every=PROBE_STEPS // 3, validate_every=10**9, checkpoint_every=10**9
        )
        probe = options.out / "runs" / f"{network}-probe"
        train(config, probe, options.device)
        losses = [json.loads(line) for line in (probe / LOG).read_text().splitlines()]
        rate = [line["samples_per_s"] for line in losses if "loss" in line][-1]
        a_step = config.data.batch / config.data.parts
        steps = max(1, round(60 * options.minutes * rate / a_step))
        path.write_text(json.dumps({"steps": steps, "samples_per_s": rate}))
    return int(json.loads(path.read_text())["steps"])


def finish(config: TrainConfig, run: Path, options: argparse.Namespace, deadline: float) -> bool:
    """Train a run until it is done or time is up; whether it is done."""
    resume = (run / NAME).exists()
    if resume and config.schedule.share_done(read_state(run)[0]) >= 1:
        return True
    left = (deadline - time.monotonic()) / 60
    if left <= 0:
        return False
    print(f"{'resuming' if resume else 'training'} {run}", flush=True)
    state = train(config, run, options.device, resume, left, on_log=lambda line, _: print(line))
    return config.schedule.share_done(state.progress) >= 1


def without_reference(
    network: Network, burst: Burst, scale: int, flow_px: torch.Tensor | None
) -> Estimate:
    """The network as it was trained: the reference tells the motion and nothing else."""
    kind = "solver" if flow_px is None else "true"
    burst, motion = estimate_motion(burst, scale, kind, flow_px)
    with torch.no_grad():
        posterior = network(burst.select(range(1, burst.count)), motion.without_reference())
    return Estimate(posterior, motion.flow_px)


def fused(network: Network, burst: Burst, scale: int, flow_px: torch.Tensor | None) -> Estimate:
    """Laine's fusion: the reference joins on its own sub-grid, `nu R / (nu + R)`."""
    estimate = without_reference(network, burst, scale, flow_px)
    mean, var = estimate.posterior.mean.clone(), estimate.posterior.var.clone()
    own = (slice(None), slice(None, None, scale), slice(None, None, scale))
    noise_var = reference_noise(burst, mean[own])
    gain = var[own] / (var[own] + noise_var) * burst.valid[:, 0]
    mean[own] += gain * (burst.frames[:, 0] - mean[own])
    var[own] *= 1 - gain
    return estimate._replace(posterior=Posterior(mean, var))


def reference_noise(burst: Burst, signal: torch.Tensor) -> torch.Tensor:
    """Noise variance of the reference, for any image (B, h, w) of the scene."""
    return normalised_noise_var(burst.noise, signal[:, None], burst.gain[:, :1])[:, 0]


class Subtracted:
    """The uncorrected variance less R after the fact; counts how often that is negative."""

    def __init__(self, network: Network) -> None:
        self.network, self.negative, self.pixels = network, 0, 0

    def __call__(self, burst: Burst, scale: int, flow_px: torch.Tensor | None) -> Estimate:
        estimate = run_network(self.network, burst, scale, flow_px)
        mean, var = estimate.posterior.mean, estimate.posterior.var
        left = var - reference_noise(burst, mean.nan_to_num())
        self.negative += int((left < 0).sum())
        self.pixels += int(torch.isfinite(left).sum())
        return estimate._replace(posterior=Posterior(mean, left.clamp(min=1e-8)))


def judge(network: str, runs: dict[str, list[str]], options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one network."""
    nets = {
        name: load_weights(run_folder(options.out, network, name) / WEIGHTS)[0] for name in runs
    }
    for net in nets.values():
        net.to(options.device)
    scale, free = nets["self-sup."].scale, nets["self-sup."]
    ways = {name: partial(run_network, net) for name, net in nets.items()}
    ways |= {
        "without reference": partial(without_reference, free),
        "Laine's fusion": partial(fused, free),
    }
    taken = Subtracted(nets["uncorrected"]) if "uncorrected" in nets else None
    if taken is not None:
        ways["uncorrected, R subtracted"] = taken
    METHODS.update({f"{network} {name}": Method(name, way) for name, way in ways.items()})

    def measured(names: list[str], frames: int, true_motion: bool = False) -> dict[str, Any]:
        setting = with_options(preset("paper"), frames=frames, size=options.size, scale=scale)
        cases = SimulatedCases(find_sources(options.test), setting, options.seed)
        names = [f"{network} {name}" for name in names]
        return evaluate(cases, names, true_motion, options.border, options.device)

    usual = 15 if 15 in options.frames else max(options.frames)
    return {
        "frames": usual,
        "twins": measured(list(TWINS), usual),
        "true_motion": measured(list(TWINS), usual, true_motion=True),
        "ablations": measured([name for name in ways if name != "supervised"], usual),
        "negative_share": None if taken is None else taken.negative / max(taken.pixels, 1),
        "by_frames": {str(n): measured(list(TWINS), n) for n in options.frames},
        "steps": {
            name: read_state(run_folder(options.out, network, name))[0].step for name in runs
        },
        "figure": figure_1(ways["self-sup."], options, scale, usual, network),
    }


def paper_columns() -> dict[str, Any]:
    """The figures that the paper prints, in the evaluation's schema; None for all others."""
    printed = {
        "paper, self-sup.": (
            (54.05, 2.50, 5.29),
            ((0.79, 0.060, 4.22, 1.26), (1.90, 0.041, 5.49, 1.53)),
            ((1.80, 0.038, 5.81, 1.60), (1.75, 0.032, 5.63, 1.46)),
        ),
        "paper, supervised": (
            (54.24, 2.51, 5.81),
            ((0.86, 0.021, 5.04, 1.21), (1.87, 0.023, 6.00, 1.47)),
            ((2.04, 0.024, 6.31, 1.54), (1.71, 0.027, 5.89, 1.39)),
        ),
    }
    keys = [key for _, key, *_ in (*SUMMARY, *TABLE_1, *TABLE_2)]
    balanced = dict.fromkeys(key.removeprefix(BALANCED) for key in keys)
    none: dict[str, Any] = dict.fromkeys((*keys, "coverage"))
    none |= {"image_balanced": balanced, "interval_90": balanced}

    def filled(rows: tuple[Any, ...], values: tuple[float, ...]) -> dict[str, Any]:
        given = {
            key: value / factor for (_, key, factor, _), value in zip(rows, values, strict=True)
        }
        return none | given

    return {
        name: {
            "all": filled(TABLE_1, whole),
            "subgrids": [[filled(TABLE_2, cell) for cell in row] for row in rows],
        }
        for name, (whole, *rows) in printed.items()
    }


def write(results: dict[str, Any], options: argparse.Namespace) -> None:
    """tables.md, tables.json and a coverage figure for each network."""
    parts = []
    for network, found in results.items():
        twins, names = found["twins"], [f"{network} {name}" for name in TWINS]
        own, other = (twins["methods"][name]["all"] for name in names)
        coverage_png(twins, options.out / f"coverage-{network}.png")
        beside = {**twins, "methods": {**twins["methods"], **paper_columns()}}
        parts += [
            tables_markdown(beside).replace("# Evaluation", f"# {network}: twins", 1),
            gap(own, other),
            tables_markdown(found["ablations"]).replace("# Evaluation", "## Ablations", 1),
            f"Share of negative variances after subtraction: {found['negative_share']}\n",
            tables_markdown(found["true_motion"]).replace("# Evaluation", "## True motion", 1),
            by_frames(found["by_frames"]),
        ]
    (options.out / "tables.md").write_text("\n".join(parts))
    (options.out / "tables.json").write_text(json.dumps(results, indent=1))
    print(f"written: {options.out}/tables.md, tables.json, coverage and figure 1", flush=True)


def gap(own: dict[str, Any], other: dict[str, Any]) -> str:
    """What the truth is worth, in a sentence."""
    below, pooled = (other[key] - own[key] for key in ("psnr_db", "psnr_pooled_db"))
    return (
        f"Self-supervised below supervised: {below:.3f} dB as a mean over bursts, {pooled:.3f} dB "
        f"pooled; V-RMSE {own['v_rmse'] / other['v_rmse']:.3f} times. "
        "The paper: 0.19 dB pooled, 1.00 times.\n"
    )


def by_frames(found: dict[str, Any]) -> str:
    """PSNR and calibration error against the number of frames."""
    names = list(next(iter(found.values()))["methods"])
    lines = [
        "## By number of frames\n",
        f"| frames | {' | '.join(f'{n}, PSNR (dB) | calibration error' for n in names)} |",
        f"|---|{'---:|---:|' * len(names)}",
    ]
    for frames, result in found.items():
        cells = []
        for name in names:
            figures = result["methods"][name]["all"]
            cells += [number(figures, "psnr_db", 1, ".2f")]
            cells += [number(figures, "calibration_error", 1, ".4f")]
        lines.append(f"| {frames} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
