"""What two bad frames in fifteen cost the solver, and what they would cost one who knew them.

    python benchmarks/bad_frames.py ../shared/data/hr/test --out benchmarks/results/bad_frames.json

Frame 4 shows another image, a bright blob of half the white level lies in frame 9. Solves of each
burst, the paper's setting, seed 0: clean, spoilt, by an oracle (frame 4 dropped, the blob's pixels
masked, everything else used), with both frames dropped. What the oracle loses went with the data.
Beside them, what the clean burst loses with each one of its frames, all motion being true: what no
method can win back.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from record import record

from pushframe.bootstrap import balanced_mean, interval_90
from pushframe.burst import Burst, stack
from pushframe.evaluate import Case
from pushframe.metrics import Metrics
from pushframe.noise import frame_noise_var
from pushframe.simulate import PRESETS, Simulation, with_options
from pushframe.solver import solve
from pushframe.sources import SimulatedCases, find_sources

FOREIGN, BLOBBED = 4, 9
BLOB_HEIGHT, BLOB_SIGMA_PX = 0.5, 3.0
FELT = 0.1  # of the noise's standard deviation, beyond which a pixel belongs to the blob
BATCH = 8


def blob(shape: tuple[int, int]) -> torch.Tensor:
    """A Gaussian off the middle of a frame, normalised radiance, (H, W)."""
    y, x = (torch.arange(size) - 0.4 * size for size in shape)
    return BLOB_HEIGHT * torch.exp(-(y[:, None] ** 2 + x**2) / (2 * BLOB_SIGMA_PX**2))


def variants(burst: Burst, others: torch.Tensor) -> dict[str, Burst]:
    """The same bursts clean, spoilt, and as two helpers with hindsight would give them.

    others: (B, H, W) frames of other scenes.
    """
    frames, valid = burst.frames.clone(), burst.valid.clone()
    bright = blob(burst.shape)
    frames[:, FOREIGN] = others
    frames[:, BLOBBED] += bright
    valid[:, BLOBBED] &= bright < FELT * frame_noise_var(burst)[:, BLOBBED].sqrt()
    spoilt = dataclasses.replace(burst, frames=frames)
    known = dataclasses.replace(burst, frames=frames, valid=valid)
    rest = [k for k in range(burst.count) if k != FOREIGN]
    return {
        "clean": burst,
        "spoilt": spoilt,
        "oracle": known.select(rest),
        "dropped": spoilt.select([k for k in rest if k != BLOBBED]),
    }


def lost_with_each(cases: Sequence[Case], setting: Simulation) -> list[float]:
    """What bursts of known motion lose with each frame but the reference, dB, their mean."""
    flow_px = torch.stack([case.simulated.flow_px for case in cases])

    def psnr_db(frames: list[int]) -> float:
        metrics = Metrics(setting.scale)
        for first in range(0, len(cases), BATCH):
            group = cases[first : first + BATCH]
            burst = stack([case.simulated.burst for case in group]).select(frames)
            known = flow_px[first : first + BATCH, frames]
            truth = torch.stack([case.simulated.truth for case in group])
            solved = solve(burst, setting.scale, known)
            metrics.update(solved.posterior, truth, [case.group for case in group])
        return float(metrics.psnr_db().mean())

    every = list(range(setting.frames))
    whole, lost = psnr_db(every), []
    for left_out in every[1:]:
        lost.append(whole - psnr_db([k for k in every if k != left_out]))
        print(f"without frame {left_out} {lost[-1]:.2f} dB less", flush=True)
    return lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    setting = with_options(PRESETS["paper"], frames=options.frames)
    cases = list(SimulatedCases(find_sources(options.images), setting, options.seed))
    bursts = [case.simulated.burst for case in cases]
    metrics: dict[str, Metrics] = {}
    named = 0
    for first in range(0, len(cases), BATCH):
        group = cases[first : first + BATCH]
        # half the test set on, that is in another image
        away = [(first + k + len(cases) // 2) % len(cases) for k in range(len(group))]
        others = torch.stack([bursts[k].frames[FOREIGN] for k in away])
        truth = torch.stack([case.simulated.truth for case in group])
        batch = stack([case.simulated.burst for case in group])
        for name, burst in variants(batch, others).items():
            solved = solve(burst, setting.scale)
            sums = metrics.setdefault(name, Metrics(setting.scale))
            sums.update(solved.posterior, truth, [case.group for case in group])
            if name == "spoilt":
                named += int((~solved.kept[:, FOREIGN]).sum())
        so_far = ", ".join(f"{name} {sums.psnr_db().mean():.2f}" for name, sums in metrics.items())
        print(f"{first + len(group)} of {len(cases)} bursts, dB: {so_far}", flush=True)

    images = metrics["clean"].groups
    psnr = {name: sums.psnr_db() for name, sums in metrics.items()}
    result = {
        "frames": options.frames,
        "seed": options.seed,
        "bursts": len(cases),
        "foreign_frame_named": named,
        "lost_with_each_frame_db": lost_with_each(cases, setting),
        "rows": {
            name: {
                "psnr_db": float(psnr[name].mean()),
                "mean_z2": sums.compute()["all"]["mean_z2"],
                "calibration_error": sums.compute()["all"]["calibration_error"],
                "above_spoilt_db": balanced_mean(psnr[name] - psnr["spoilt"], images),
                "interval_90": interval_90(psnr[name] - psnr["spoilt"], images),
            }
            for name, sums in metrics.items()
        },
    }
    print(result)
    if options.out:
        record(options.out, "bad_frames", **result)


if __name__ == "__main__":
    main()
