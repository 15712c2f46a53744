r"""What a detector whose pixels do not answer alike costs, and what is left once it is found.

    python benchmarks/uneven.py ../shared/data/hr/train --out benchmarks/results/uneven.json

The paper's setting, 15 frames, seed 0, the first window of each image. Frames get a pattern that
stays where it is while they move by up to a pixel, the least that tells a pattern from a scene.
"As it is": the solver on these frames. "Found": by `infer.Reconstruction`, as `pushframe run` does.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from record import record
from torch import Tensor

from pushframe.burst import Burst
from pushframe.evaluate import Case
from pushframe.infer import Reconstruction
from pushframe.simulate import PRESETS, with_options
from pushframe.solver import solve
from pushframe.sources import SimulatedCases, find_sources

FRAMES, SIDE, BORDER_HPX = 15, 64, 8
KINDS: dict[str, Callable[[Tensor, Burst, torch.Generator], Tensor]] = {
    "none": lambda frames, *_: frames,
    "response of pixels, 0.3 %": lambda f, _, g: f * (1 + 0.003 * drawn(g, SIDE, SIDE)),
    "response of pixels, 1 %": lambda f, _, g: f * (1 + 0.01 * drawn(g, SIDE, SIDE)),
    "response of pixels, 3 %": lambda f, _, g: f * (1 + 0.03 * drawn(g, SIDE, SIDE)),
    "response of columns, 0.3 %": lambda f, _, g: f * (1 + 0.003 * drawn(g, 1, SIDE)),
    "response of columns, 1 %": lambda f, _, g: f * (1 + 0.01 * drawn(g, 1, SIDE)),
    "offset of columns, 6 DN": lambda f, b, g: f + 6 * drawn(g, 1, SIDE) / b.gain[:, None, None],
    "offset of columns, 20 DN": lambda f, b, g: f + 20 * drawn(g, 1, SIDE) / b.gain[:, None, None],
}


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    """Values of variance 1."""
    return torch.randn(*shape, generator=generator)


def judged(mean: Tensor, var: Tensor, truth: Tensor) -> tuple[float, float]:
    """PSNR in dB and mean z^2, borders and unknown pixels left aside."""
    inside = (slice(BORDER_HPX, -BORDER_HPX),) * 2
    off = (mean - truth)[inside].square()
    psnr = float(-10 * torch.log10(off.nanmean()))
    return psnr, float((off / var[inside]).nanmean())


def measured(cases: list[Case], kind: str) -> dict[str, Any]:
    """Accuracy and honesty with a pattern in the frames, as it is and found."""
    plain, found, count = [], [], 0
    for index, (_, simulated) in enumerate(cases):
        burst = simulated.burst
        frames = KINDS[kind](burst.frames, burst, torch.Generator().manual_seed(index))
        burst = dataclasses.replace(burst, frames=frames)
        posterior = solve(burst.batched(), 2).posterior
        assert posterior.var is not None
        plain.append(judged(posterior.mean[0], posterior.var[0], simulated.truth))
        making, gain = Reconstruction(burst, method="solver"), float(burst.gain[0])
        product = making.product()
        mean, std = (torch.from_numpy(x) / gain for x in (product.mean, product.std))
        found.append(judged(mean, std.square(), simulated.truth))
        count += making.pattern is not None
    row: dict[str, Any] = {"pattern": kind, "bursts": len(cases), "found": count}
    for name, figures in (("as_it_is", plain), ("found", found)):
        psnr, z2 = zip(*figures, strict=True)
        row[f"psnr_db_{name}"], row[f"mean_z2_{name}"] = fmean(psnr), fmean(z2)
        row[f"median_z2_{name}"], row[f"largest_z2_{name}"] = median(z2), max(z2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    setting = with_options(PRESETS["paper"], frames=FRAMES, size=SIDE)
    first: dict[str, Case] = {}
    for case in SimulatedCases(find_sources(options.images), setting, 0):
        first.setdefault(case.group, case)
    rows = []
    for kind in KINDS:
        rows.append(measured(list(first.values()), kind))
        print(rows[-1], flush=True)
        if options.out:  # a row at a time: a run that is cut off keeps those before
            record(options.out, "uneven", rows=rows)


if __name__ == "__main__":
    main()
