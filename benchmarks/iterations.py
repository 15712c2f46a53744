"""What more steps of the search do to motion and image where the model is inexact.

    python benchmarks/iterations.py ../shared/data/hr/test --out benchmarks/results/iterations.json

Bursts of the preset `continuous`, whose scenes hold more than their high-res grid, begun by
Lucas-Kanade: after so many steps of the search, alone and with those that then take out what
windows do to frames, the rms error of the motion and the PSNR of the image on the grid asked for,
errors pooled.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from record import record
from torch import Tensor

from pushframe.burst import Simulated, stack
from pushframe.registration import register
from pushframe.simulate import PRESETS, with_options
from pushframe.solver.belief import FIRST_JITTER_PX
from pushframe.solver.image import reconstruct
from pushframe.solver.motion import Pace, Task
from pushframe.sources import SimulatedCases, find_sources

STEPS = (1, 2, 4, 8, 16)
LAST_STEPS = 3  # which take out what windows do; restless bursts take more
PSF_HPX = (0.7, 0.5)
BORDER_HPX = 8  # that PSNR leaves out
SCALE = 2


def square_errors(batch: Simulated, steps: int, alone: bool) -> Tensor:
    """Mean squares of bursts: motion along an axis, px^2, and image, (B, 2).

    steps: 0 for motion as it begins. alone: without steps after them.
    """
    assert batch.flow_px is not None
    start_px = register(batch.burst)
    kept = torch.ones(start_px.shape[:2], dtype=torch.bool)
    task = Task(
        batch.burst, start_px, kept, SCALE, max(STEPS), moving=steps > 0, unbiased=not alone
    )
    fit = task.fit(FIRST_JITTER_PX, Pace(max(steps, 1), LAST_STEPS))
    good = fit.good(batch.burst)
    made = reconstruct(batch.burst, good, fit.flow_px, fit.gain, fit.knots, SCALE)
    inside = slice(BORDER_HPX, -BORDER_HPX)
    missed = (made.mean - batch.truth)[:, inside, inside]
    off_px = (fit.flow_px - batch.flow_px)[:, 1:]
    return torch.stack([off_px.square().mean((1, 2)), missed.square().mean((1, 2))], 1)


def figures(errors: Tensor) -> dict[str, float]:
    """Of the mean squares of many bursts, (B, 2)."""
    motion, image = errors.double().mean(0)
    return {"motion_px": float(motion.sqrt()), "psnr_db": float(-10 * image.log10())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    rows: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    bursts = 0
    for psf_hpx in PSF_HPX:
        change = {"psf_hpx": psf_hpx, "frames": options.frames, "size": options.size}
        setting = with_options(PRESETS["continuous"], **change)
        cases = SimulatedCases(find_sources(options.images), setting, options.seed)
        made = [case.simulated for case in cases]
        batch = Simulated(
            stack([one.burst for one in made]),
            torch.stack([one.truth for one in made]),
            torch.stack([one.flow_px for one in made if one.flow_px is not None]),
        )
        bursts = len(made)
        rows[str(psf_hpx)] = {}
        for steps in (0, *STEPS):
            found = {
                name: figures(square_errors(batch, steps, name == "alone"))
                for name in ("alone", "with_last_steps")
            }
            rows[str(psf_hpx)][str(steps)] = found
            print(f"PSF {psf_hpx}, {steps} steps: {found}", flush=True)
    result = {
        "bursts": bursts,
        "frames": options.frames,
        "size": options.size,
        "seed": options.seed,
        "last_steps": LAST_STEPS,
        "rows": rows,
    }
    if options.out:
        record(options.out, "iterations", **result)


if __name__ == "__main__":
    main()
