"""A whole scene from burst to product: speed, accuracy and memory of `super_resolve`.

    python benchmarks/scene.py ../shared/data/hr/train/s2a_t33uuu_20160608.tif --size 640 \
      --device cuda --out benchmarks/results/scene_h200.json

The paper's setting: one burst of 15 frames, simulated from the first window of an image or of a
procedural scene. Everything is timed: the scene's motion, tiles, networks, stitching. The first
run, which a GPU begins with building kernels, is timed apart.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

import torch
from record import record
from solver import told

from pushframe.infer import super_resolve
from pushframe.simulate import PRESETS, with_options
from pushframe.sources import find_sources, simulate_count

BORDER_HPX = 16  # of the scene, where fewer frames show it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="+", help="image files, or scene:SEED")
    parser.add_argument("--size", type=int, default=640, help="side of a frame, px")
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--methods", nargs="+", default=["solver", "base"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    setting = with_options(PRESETS["paper"], frames=options.frames, size=options.size)
    rows = []
    for image in options.images:
        (source,) = find_sources(image)
        made = next(iter(simulate_count(source, setting, 0, 1)))
        burst, inner = made.burst.to(options.device), slice(BORDER_HPX, -BORDER_HPX)
        for method in options.methods:
            seconds = []
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            for _ in range(options.runs + 1):
                begin = time.perf_counter()
                product = super_resolve(burst, method=method)
                seconds.append(time.perf_counter() - begin)
            dn = float(burst.gain[0])
            mean, std = (torch.from_numpy(x)[inner, inner] for x in (product.mean, product.std))
            error = mean / dn - made.truth[inner, inner]
            row = {
                "image": source.name,
                "frames": options.frames,
                "size": options.size,
                "method": method,
                "hr_mp_per_s": made.truth.numel() / 1e6 / statistics.median(seconds[1:]),
                "first_run_s": seconds[0],
                "psnr_db": -10 * math.log10(float(error.square().mean())),
                "mean_z2": float((error / (std / dn)).square().mean()),
            }
            if options.device == "cuda":
                row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            rows.append(row)
            print("  ".join(map(told, row, row.values())), flush=True)
            if options.out:  # a row at a time: a run that is cut off keeps those before
                record(options.out, "scene", options.device, rows=rows)


if __name__ == "__main__":
    main()
