"""Speed of the solver: high-res megapixels a second on a batch of simulated bursts.

    python benchmarks/solver.py --scenes procedural ../shared/data/hr/test --batches 512 1024 \
        --device cuda --out benchmarks/results/solver_h200.json

The paper's setting, 15 frames of 64x64 by default. Bursts of 8 procedural scenes; or of windows of
a folder of images, spread evenly over all there are, each as often as the batch needs it. Hard ones
among them are searched for again. Each figure is the median of several timed runs after a warm-up,
between device events on a GPU. Accuracy is measured in the same run, so that no speed is reported
for a solver that does not solve.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from record import record

from pushframe.baselines import map_estimate
from pushframe.metrics import Metrics
from pushframe.registration import register
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, Simulation, simulate, with_options
from pushframe.solver import solve
from pushframe.sources import find_sources
from pushframe.windows import window_corners

PROCEDURAL = "procedural"


def timed(work: Callable[[], object], device: str, runs: int) -> float:
    """Median seconds of one call, after one that is not counted."""
    work()
    seconds = []
    for _ in range(runs):
        if device == "cuda":
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            stop.record()
            torch.cuda.synchronize()
            seconds.append(start.elapsed_time(stop) / 1000)
        else:
            begin = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def sources(scenes: str, setting: Simulation, batch: int) -> torch.Tensor:
    """So many source images, normalised radiance: procedural, or windows of a folder's images."""
    side = setting.source_size
    if scenes == PROCEDURAL:
        found = [torch.from_numpy(procedural_scene((side, side), seed)) for seed in range(8)]
        chosen = [found[k % len(found)] for k in range(batch)]
    else:
        found = []
        for source in find_sources(scenes):
            pixels = source.read(setting, bursts=1)
            for row, column in window_corners((pixels.shape[0], pixels.shape[1]), setting):
                found.append(torch.from_numpy(pixels[row : row + side, column : column + side]))
        chosen = [found[k * len(found) // batch] for k in range(batch)]
    return torch.stack(chosen) / setting.white_level


def told(key: str, value: float | str) -> str:
    """A figure as it is printed."""
    return f"{key} {value}" if isinstance(value, str) else f"{key} {value:.5g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--scenes", nargs="+", default=[PROCEDURAL], help=f"{PROCEDURAL}, or folders of images"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--frames", type=int, nargs="+", default=[15])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    rows = []
    for scenes, frames in itertools.product(options.scenes, options.frames):
        setting = with_options(PRESETS["paper"], frames=frames)
        for batch in options.batches:
            source = sources(scenes, setting, batch)
            made = simulate(source, setting, torch.Generator().manual_seed(0))
            burst = made.burst.to(options.device)
            truth, flow_px = made.truth.to(options.device), made.flow_px.to(options.device)
            megapixels = truth.numel() / 1e6
            row = {"scenes": "/".join(Path(scenes).parts[-2:]), "frames": frames, "batch": batch}
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            tasks = {
                "register": lambda burst=burst: register(burst),
                "map": lambda burst=burst, flow=flow_px: map_estimate(burst, flow, 2),
                "solver": lambda burst=burst: solve(burst, 2),
            }
            for name, work in tasks.items():
                row[f"{name}_hr_mp_per_s"] = megapixels / timed(work, options.device, options.runs)
            solved = solve(burst, 2)
            metrics = Metrics(2)
            motion = solved.flow_px if solved.flow_px.ndim == 3 else solved.flow_px.mean((-1, -2))
            metrics.update(solved.posterior, truth, ["scene"] * batch, motion, flow_px)
            figures = metrics.compute()["all"]
            row |= {name: figures[name] for name in ("psnr_db", "flow_rmse_px")}
            if options.device == "cuda":
                row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            rows.append(row)
            print("  ".join(map(told, row, row.values())), flush=True)
            if options.out:  # a row at a time: a run that is cut off keeps those before
                record(options.out, "solver", options.device, rows=rows)


if __name__ == "__main__":
    main()
