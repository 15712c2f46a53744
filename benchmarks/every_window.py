"""Every window of a folder of images, estimated motion against known: which ones are lost, and why.

    python benchmarks/every_window.py ../shared/data/hr/train --frames 15 8 5 \
      --out benchmarks/results/every_window.json

Means hide what a user meets: one burst in a hundred that is 30 dB off. The table counts them, and
the worst are named, with the corner of their window.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from record import record

from pushframe.burst import Simulated, stack
from pushframe.config import load_config
from pushframe.metrics import Metrics
from pushframe.posterior import Posterior
from pushframe.simulate import Simulation, preset, with_options
from pushframe.solver import solve
from pushframe.sources import find_sources
from pushframe.windows import simulate_windows, window_corners

NAMED = 8  # of the worst bursts
OFF_PX = 0.03


def measured(group: list[Simulated], scale: int, device: str) -> list[dict[str, float]]:
    """PSNR with estimated and with known motion, motion error and mean z^2 of each burst."""
    burst = stack([made.burst for made in group]).to(device)
    truth = torch.stack([made.truth for made in group]).to(device)
    true_px = torch.stack([made.flow_px for made in group]).to(device)
    found, known = solve(burst, scale), solve(burst, scale, true_px)
    rows = []
    for k in range(len(group)):
        sums = [Metrics(scale), Metrics(scale)]
        for one, solved in zip(sums, (found, known), strict=True):
            mean, var = solved.posterior.mean[k, None], solved.posterior.var[k, None]
            one.update(Posterior(mean, var), truth[k, None], ["burst"])
        flow_px = found.flow_px[k]
        flow_px = flow_px.mean((-1, -2)) if flow_px.ndim == 4 else flow_px
        rows.append(
            {
                "psnr_db": float(sums[0].psnr_db()[0]),
                "lost_db": float(sums[1].psnr_db()[0] - sums[0].psnr_db()[0]),
                "motion_px": float((flow_px - true_px[k])[1:].square().mean().sqrt()),
                "mean_z2": float(sums[0].compute()["all"]["mean_z2"]),
            }
        )
    return rows


def summary(rows: list[dict]) -> dict[str, float]:
    """How many are lost, beside what is usual."""
    lost, off, z2 = (
        np.array([row[key] for row in rows]) for key in ("lost_db", "motion_px", "mean_z2")
    )
    return {
        "bursts": len(rows),
        "psnr_db": float(np.mean([row["psnr_db"] for row in rows])),
        "lost_db": float(lost.mean()),
        "lost_db_median": float(np.median(lost)),
        "lost_over_1_db": int((lost > 1).sum()),
        "lost_over_3_db": int((lost > 3).sum()),
        "motion_px_median": float(np.median(off)),
        f"motion_over_{OFF_PX:g}_px": int((off > OFF_PX).sum()),
        "mean_z2": float(z2.mean()),
    }


def windows(images: str, setting: Simulation, seed: int) -> list[tuple[dict, Simulated]]:
    """The bursts of all windows, with where they are from."""
    found = []
    for source in find_sources(images):
        pixels = source.read(setting, bursts=1)
        corners = window_corners((pixels.shape[0], pixels.shape[1]), setting)
        made = list(simulate_windows(pixels, source.name, setting, seed))
        if len(made) == len(corners):  # no holes
            places = [{"image": source.name, "corner": list(corner)} for corner in corners]
            found += list(zip(places, made, strict=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--frames", type=int, nargs="+", default=[15])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    results = []
    for frames in options.frames:
        setting = load_config(preset(options.preset), overrides=options.settings)
        setting = with_options(setting, frames=frames)
        cases = windows(options.images, setting, options.seed)
        rows: list[dict] = []
        for first in range(0, len(cases), options.batch):
            part = cases[first : first + options.batch]
            figures = measured([made for _, made in part], setting.scale, options.device)
            rows += [place | one for (place, _), one in zip(part, figures, strict=True)]
        worst = sorted(rows, key=lambda row: -row["lost_db"])[:NAMED]
        results.append({"frames": frames} | summary(rows) | {"worst": worst})
        print(results[-1], flush=True)
        if options.out:  # a row at a time: a run that is cut off keeps those before
            chosen = {
                "preset": options.preset,
                "settings": options.settings,
                "seed": options.seed,
            }
            record(options.out, "every_window", options.device, **chosen, rows=results)


if __name__ == "__main__":
    main()
