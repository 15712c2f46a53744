"""Bursts an hour against the number of workers: `run_here` and a local Dask cluster.

    OMP_NUM_THREADS=1 python benchmarks/throughput.py --out benchmarks/results/throughput_cpu.json

Simulated bursts of 12 frames of 64x64, `solver`, without reports; one thread a worker. The time
includes the start of the workers. Speed beyond the number of cores is not to be expected.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from record import record

from pushframe.deliver import Order
from pushframe.io import write_burst
from pushframe.many import run_here, run_on_cluster
from pushframe.orders import find_inputs, plan_orders
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, simulate_one, with_options


def make_bursts(folder: Path, count: int) -> None:
    setting = with_options(PRESETS["paper"], size=64, frames=12)
    side = setting.source_size
    for seed in range(count):
        scene = torch.from_numpy(procedural_scene((side, side), seed)) / setting.white_level
        write_burst(simulate_one(scene, setting, seed).burst, folder / f"burst_{seed:03d}.npz")


def measure(folder: Path, way: str, workers: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as out:
        pattern = Order(Path(), Path(out), method="solver", report=False)
        orders = plan_orders(find_inputs([str(folder)]), pattern, None)
        begin = time.perf_counter()
        if way == "processes":
            results = list(run_here(orders, workers))
        else:
            from distributed import LocalCluster

            with LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster:
                results = list(run_on_cluster(orders, cluster.scheduler_address))
        seconds = time.perf_counter() - begin
    assert all(result.error is None for result in results)
    return {
        "way": way,
        "workers": workers,
        "bursts": len(orders),
        "seconds": round(seconds, 1),
        "bursts_per_hour": round(3600 * len(orders) / seconds),
        "seconds_a_burst_in_a_worker": round(sum(r.seconds for r in results) / len(results), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--bursts", type=int, default=24)
    parser.add_argument("--ways", nargs="+", default=["processes", "dask"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_bursts(Path(folder), options.bursts)
        for way in options.ways:
            for workers in options.workers:
                rows.append(measure(Path(folder), way, workers))
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.out:
        load = os.getloadavg()[0]
        record(options.out, "throughput", cores=os.cpu_count(), load_after=load, rows=rows)


if __name__ == "__main__":
    main()
