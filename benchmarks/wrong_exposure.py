r"""What an exposure that is far from what was stated costs the solver.

    python benchmarks/wrong_exposure.py ../shared/data/hr/train \
        --out benchmarks/results/wrong_exposure.json

The same raw pixels with right exposures, and with that of one frame stated too short by a factor: a
frame in the middle of the burst, or the reference, in whose unit the image then is. The paper's
setting, seed 0, the first windows of each image.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from record import record

from pushframe.burst import Burst, stack
from pushframe.evaluate import Case
from pushframe.metrics import Metrics
from pushframe.posterior import Posterior
from pushframe.simulate import PRESETS, with_options
from pushframe.solver import solve
from pushframe.solver.exposure import at_true_exposure
from pushframe.sources import SimulatedCases, find_sources

FRAMES = (15, 8, 5)
FACTORS = (1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 8.0)
OTHER = 3  # the frame in the middle
BATCH = 8


def misstated(burst: Burst, frame: int, factor: float) -> Burst:
    """The burst as if the exposure of one frame were `factor` times shorter than it was."""
    excess = torch.ones_like(burst.exposure)
    excess[:, frame] = 1 / factor
    return at_true_exposure(burst, excess)


def measured(cases: list[Case], frame: int, factor: float) -> dict[str, Any]:
    """Accuracy in the unit of right exposures, and how well the gains were found."""
    metrics, errors, left_out = Metrics(2), [], 0
    for first in range(0, len(cases), BATCH):
        group = cases[first : first + BATCH]
        solved = solve(misstated(stack([c.simulated.burst for c in group]), frame, factor), 2)
        unit = factor if frame == 0 else 1.0
        mean, var = solved.posterior.mean, solved.posterior.var
        assert var is not None
        posterior = Posterior(mean / unit, var / unit**2)
        metrics.update(
            posterior, torch.stack([c.simulated.truth for c in group]), [c.group for c in group]
        )
        true = torch.ones_like(solved.gain)
        true[:, frame] = factor
        errors.append((solved.gain * true[:, :1] / true - 1)[:, 1:].flatten())
        left_out += int((~solved.kept[:, frame]).sum())
    found = metrics.compute()["all"]
    return {
        "psnr_db": float(metrics.psnr_db().mean()),
        "mean_z2": found["mean_z2"],
        "calibration_error": found["calibration_error"],
        "gain_error": float(torch.cat(errors).square().mean().sqrt()),
        "left_out": left_out,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--windows", type=int, default=2, help="of each image")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    rows = []
    for frames in FRAMES:
        setting = with_options(PRESETS["paper"], frames=frames)
        seen: Counter[str] = Counter()
        cases = []
        for case in SimulatedCases(find_sources(options.images), setting, 0):
            seen[case.group] += 1
            if seen[case.group] <= options.windows:
                cases.append(case)
        for frame, factor in [(OTHER, 1.0), *((k, f) for k in (OTHER, 0) for f in FACTORS)]:
            row = {"frames": frames, "frame": frame, "factor": factor, "bursts": len(cases)}
            rows.append(row | measured(cases, frame, factor))
            print(rows[-1], flush=True)
    if options.out:
        record(options.out, "wrong_exposure", rows=rows)


if __name__ == "__main__":
    main()
