"""Speed of the solver: high-res megapixels a second on a batch of simulated bursts.

    python benchmarks/solver.py --device cuda --out benchmarks/results/solver_h200.json
    python benchmarks/solver.py --images ../shared/data/hr/train --batches 681 --device cuda

The paper's setting, 15 frames of 64x64 by default. Bursts of 8 procedural scenes; or of windows of
images, spread evenly, of which some in a hundred are hard and are searched for again. Each figure
is the median of several timed runs after a warm-up, between device events on a GPU. Accuracy is
measured in the same run, so that no speed is reported for a solver that does not solve.
"""

from __future__ import annotations

import argparse
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


def sources(images: str | None, setting: Simulation, batch: int) -> torch.Tensor:
    """So many source images, normalised radiance: of windows of images, or procedural."""
    if images is None:
        side = setting.source_size
        scenes = [torch.from_numpy(procedural_scene((side, side), seed)) for seed in range(8)]
    else:
        scenes = []
        for source in find_sources(images):
            pixels, side = source.read(setting, bursts=1), setting.source_size
            for row, column in window_corners((pixels.shape[0], pixels.shape[1]), setting):
                scenes.append(torch.from_numpy(pixels[row : row + side, column : column + side]))
    chosen = [scenes[k * len(scenes) // batch if images else k % 8] for k in range(batch)]
    return torch.stack(chosen) / setting.white_level


def told(key: str, value: float | str) -> str:
    """A figure as it is printed."""
    return f"{key} {value}" if isinstance(value, str) else f"{key} {value:.5g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", help="folder of images; procedural scenes by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--frames", type=int, nargs="+", default=[15])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    rows = []
    for frames in options.frames:
        setting = with_options(PRESETS["paper"], frames=frames)
        for batch in options.batches:
            source = sources(options.images, setting, batch)
            made = simulate(source, setting, torch.Generator().manual_seed(0))
            burst = made.burst.to(options.device)
            truth, flow_px = made.truth.to(options.device), made.flow_px.to(options.device)
            megapixels = truth.numel() / 1e6
            row = {"scenes": "images" if options.images else "procedural"}
            row |= {"frames": frames, "batch": batch}
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
