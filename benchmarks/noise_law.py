"""How well the noise law of a burst is estimated from the burst itself.

    python benchmarks/noise_law.py ../shared/data/hr/test --out benchmarks/results/noise_law.json

Bursts of the test images with their law taken away, in the paper's setting (one noise for all
pixels) and in `affine` (noise that grows with the signal). The variance that the estimated law
predicts against the true one, at the 5th, 50th and 95th percentile of the raw pixels.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from record import record

from pushframe.burst import Burst, NoiseLaw
from pushframe.noise_law import estimate_noise_law
from pushframe.simulate import PRESETS, with_options
from pushframe.sources import SimulatedCases, find_sources

PERCENTILES = (5, 50, 95)
PRESETS_JUDGED = ("paper", "affine")


def relative_errors(burst: Burst, law: NoiseLaw) -> torch.Tensor:
    """Predicted over true variance less one, at the percentiles, (3,)."""
    assert burst.noise is not None
    dn = (burst.raw_dn() - burst.black_level)[burst.valid]
    dn = dn.quantile(torch.tensor(PERCENTILES) / 100).clamp(min=0)
    return (law.a * dn + law.b) / (burst.noise.a * dn + burst.noise.b) - 1


def judged(errors: torch.Tensor) -> dict[str, list[float]]:
    """Figures of errors (bursts, 3), one a percentile."""
    size = errors.abs()
    return {
        "mean": errors.mean(0).tolist(),
        "median_size": size.median(0).values.tolist(),
        "rms": errors.square().mean(0).sqrt().tolist(),
        "largest": size.amax(0).tolist(),
        "share_within_10_percent": (size <= 0.10).double().mean(0).tolist(),
        "share_within_4_percent": (size <= 0.04).double().mean(0).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    rows = {}
    for name in PRESETS_JUDGED:
        setting = with_options(PRESETS[name], frames=options.frames)
        errors, places = [], []
        for case in SimulatedCases(find_sources(options.images), setting, options.seed):
            burst = case.simulated.burst
            law = estimate_noise_law(dataclasses.replace(burst, noise=None), setting.scale)
            errors.append(relative_errors(burst, law))
            places.append(case.group)
            told = ", ".join(f"{float(error):+.3f}" for error in errors[-1])
            print(f"{name} {len(errors)} {case.group}: {told}", flush=True)
        rows[name] = {"bursts": len(errors), **judged(torch.stack(errors))}
        worst = int(torch.stack(errors).abs().amax(1).argmax())
        rows[name]["worst_image"] = places[worst]
    result = {
        "frames": options.frames,
        "seed": options.seed,
        "percentiles": PERCENTILES,
        "rows": rows,
    }
    print(result)
    if options.out:
        record(options.out, "noise_law", **result)


if __name__ == "__main__":
    main()
