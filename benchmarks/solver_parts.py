"""What each part of the solver is worth: the same bursts with one of them switched off.

    python benchmarks/solver_parts.py ../shared/data/hr/train \
      --out benchmarks/results/solver_parts.json

The first window of each image, estimated motion. A part is replaced by what one would do without
it; "all of them" is the solver as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from record import record

from pushframe import prior
from pushframe.burst import Simulated, stack
from pushframe.metrics import Metrics
from pushframe.motion_table import mean_shift
from pushframe.prior import fit_spectrum, without_directions
from pushframe.registration import register
from pushframe.simulate import Simulation, preset, with_options
from pushframe.solver import lost, piece, search, solve, spectrum
from pushframe.solver.search import Search
from pushframe.sources import find_sources
from pushframe.spectral import AliasBlocks
from pushframe.windows import simulate_windows

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper, 15 frames": ("paper", {"frames": 15}),
    "paper, 8 frames": ("paper", {"frames": 8}),
    "paper, 5 frames": ("paper", {"frames": 5}),
    "paper, 15 frames, noise of 1 DN": ("paper", {"frames": 15, "noise_std_dn": (1.0, 1.0)}),
    "continuous, PSF 0.5, 15 frames": ("continuous", {"frames": 15, "size": 48, "psf_hpx": 0.5}),
}

# what is put in the place of each part
WITHOUT: dict[str, list[tuple[object, str, Any]]] = {
    "the determinant in the steps": [
        (
            AliasBlocks,
            "determinant_slope",
            lambda blocks, *_: blocks.precision.new_zeros(*blocks.precision.shape, 3),
        )
    ],
    "directions of the spectrum": [
        (module, "fit_spectrum", lambda *given: without_directions(fit_spectrum(*given)))
        for module in (search, spectrum)
    ],
    "a spectrum that may rise": [(prior, "LARGEST_RISE", 0.0)],
    "taking out what windows do": [(Search, "unbias", lambda _: None)],
    "other peaks": [(lost, "highest_peak", lambda _, fit: fit)],
    "the finer grid": [(piece, "finer", lambda *_: None)],
    "the local prior": [(piece, "detailed", lambda made, _: made)],
}
ALL, START, KNOWN = (
    "all of them",
    "all of them, motion of Lucas-Kanade",
    "all of them, known motion",
)


@contextmanager
def without(part: str) -> Iterator[None]:
    """The solver less a part; as it is for all other names."""
    with ExitStack() as stack:
        for replaced in WITHOUT.get(part, []):
            stack.enter_context(patch.object(*replaced))
        yield


def bursts(images: str, setting: Simulation, seed: int) -> list[tuple[str, Simulated]]:
    """The first burst of each image, with its name."""
    found = []
    for source in find_sources(images):
        pixels = source.read(setting, bursts=1)
        made = next(iter(simulate_windows(pixels, source.name, setting, seed)), None)
        if made is not None:
            found.append((source.name, made))
    return found


def figures(
    part: str, group: list[tuple[str, Simulated]], scale: int, device: str
) -> dict[str, float]:
    """Error, motion and honesty of a variant of the solver."""
    names, made = zip(*group, strict=True)
    burst = stack([one.burst for one in made]).to(device)
    truth = torch.stack([one.truth for one in made]).to(device)
    true_px = torch.stack([one.flow_px for one in made]).to(device)
    motion = true_px if part == KNOWN else register(burst) if part == START else None
    with without(part):
        solved = solve(burst, scale, motion)
    metrics = Metrics(scale)
    metrics.update(solved.posterior, truth, names)
    result = metrics.compute()["all"]
    square = (mean_shift(solved.flow_px) - true_px)[:, 1:].square().mean((1, 2))
    chosen = {key: float(result[key]) for key in ("psnr_db", "mean_z2", "nll")}
    return chosen | {
        "motion_px": float(square.mean().sqrt()),
        "motion_px_median": float(square.sqrt().cpu().quantile(0.5)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.settings:
        kind, changes = SETTINGS[name]
        setting = with_options(preset(kind), **changes)
        group = bursts(options.images, setting, options.seed)
        for part in (ALL, KNOWN, START, *WITHOUT):
            row = {"setting": name, "variant": part, "bursts": len(group)}
            rows.append(row | figures(part, group, setting.scale, options.device))
            told = [f"{key} {value:.4g}" for key, value in rows[-1].items() if key not in row]
            print(f"{name}, {'without ' * (part in WITHOUT)}{part}:", *told, sep="  ", flush=True)
            if options.out:
                record(options.out, "solver_parts", options.device, rows=rows)


if __name__ == "__main__":
    main()
