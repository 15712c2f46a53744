"""The simulator: bursts and low-res megapixels a second, and how exactly it resamples.

    python benchmarks/simulator.py --out benchmarks/results/simulator_cpu.json
    python benchmarks/simulator.py --device cuda --out benchmarks/results/simulator_cuda.json

15 frames of 64 x 64 pixels. A case is run until warm, then in rounds; the fastest round counts,
since others may share the machine. On a CPU that others use set OMP_NUM_THREADS=1 as well: a thread
that waits for a busy core holds up all others. On a GPU random numbers are drawn there, and rounds
are timed by CUDA events.

Accuracy: sinusoids from 0 to 2400 DN below 0.7 of Nyquist, whose shifted samples are known exactly,
without noise and blur; the worst rms error stands against the weakest noise of the preset. Needs
torch and numpy.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import circumstances, record
from torch import Tensor

from pushframe.geometry import pixel_grid
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, Simulation, simulate

CASES = {**PRESETS, "paper, drift": dataclasses.replace(PRESETS["paper"], motion="drift")}
BATCHES = (1, 8, 32)
ROUNDS, ROUND_S, WARM_UP_S = 12, 0.25, 0.4
ENOUGH_S = 5.0  # no further round after that
SHARES = [(0.7, 0.0), (0.0, 0.65), (0.49, 0.49), (0.3, 0.6), (0.1, 0.05)]  # (y, x) of Nyquist
BORDER_PX = 6  # where the kernel of a frame's sample reaches beyond the source


def seconds_a_call(run: Callable[[], object], device: torch.device) -> float:
    """The time of one call in the fastest round, after warm-up."""
    calls, begin = 0, time.perf_counter()
    while calls < 1 or time.perf_counter() - begin < WARM_UP_S:
        run()
        _wait(device)
        calls += 1
    count = max(1, math.ceil(ROUND_S * calls / (time.perf_counter() - begin)))
    rounds: list[float] = []
    while len(rounds) < ROUNDS and sum(rounds) < ENOUGH_S:
        rounds.append(_round(run, count, device))
    return min(rounds) / count


def _round(run: Callable[[], object], count: int, device: torch.device) -> float:
    """Seconds that `count` calls take."""
    if device.type != "cuda":
        begin = time.perf_counter()
        for _ in range(count):
            run()
        return time.perf_counter() - begin
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        run()
    stop.record()
    _wait(device)
    return start.elapsed_time(stop) / 1e3


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_speed(name: str, batch: int, device: torch.device) -> dict[str, Any]:
    """Bursts a second and low-res megapixels a second of one case."""
    setting = CASES[name]
    side = setting.source_size
    scene = torch.from_numpy(procedural_scene((side, side), 7)) / setting.white_level
    source = scene.to(device).expand(batch, side, side).contiguous()
    generator = torch.Generator(device).manual_seed(0)
    seconds = seconds_a_call(lambda: simulate(source, setting, generator), device)
    pixels = setting.frames * setting.size**2
    return {
        "case": name,
        "batch": batch,
        "bursts_per_s": _digits(batch / seconds),
        "megapixels_per_s": _digits(batch * pixels / seconds / 1e6),
    }


def resampling_error_dn(setting: Simulation, share: tuple[float, float], device: Any) -> float:
    """RMS error, DN at unit exposure, of noise-free frames of a sinusoid (share of Nyquist)."""
    quiet = dataclasses.replace(
        setting, noise_a=0.0, noise_std_dn=(0.0, 0.0), exposure_steps=0, psf_hpx=0.0
    )

    def wave(position_hpx: Tensor) -> Tensor:  # (2, ...)
        angle = math.pi * (share[0] * position_hpx[0] + share[1] * position_hpx[1])
        return (1200 + 1200 * torch.cos(angle)) / quiet.white_level

    like = torch.zeros(1, dtype=torch.float64, device=device)
    grid = pixel_grid((quiet.source_size,) * 2, like)
    source = wave(grid / quiet.oversampling - quiet.margin_hpx)
    made = simulate(source[None], quiet, torch.Generator().manual_seed(7))
    flow_px = made.flow_px[0]  # (N, 2) or (N, 2, H, W)
    flow_px = flow_px if flow_px.ndim == 4 else flow_px[..., None, None]
    x = pixel_grid(made.burst.shape, flow_px)
    exact = wave(quiet.scale * (x + flow_px).transpose(0, 1))
    inner = slice(BORDER_PX, -BORDER_PX)
    error = (made.burst.frames[0].double() - exact)[..., inner, inner]
    return float(error.square().mean().sqrt()) * quiet.white_level


def measure_accuracy(name: str, device: torch.device) -> dict[str, Any]:
    """The worst resampling error of one case, against its weakest noise."""
    worst = max(resampling_error_dn(CASES[name], share, device) for share in SHARES)
    weakest = CASES[name].noise_std_dn[0]
    return {
        "case": name,
        "worst_rms_error_dn": _digits(worst),
        "weakest_noise_dn": _digits(weakest),
        "noise_over_error": _digits(weakest / worst),
    }


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--out", type=Path, help="JSON to write")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("expected a CUDA device, got none: use --device cpu")
    facts = circumstances(options.device)
    print(f"{facts['device']}, {facts['threads']} threads, torch {facts['torch']}\n")
    print(f"{'case':<14}{'batch':>6}{'bursts/s':>11}{'LR MP/s':>10}")
    speed = []
    for name in CASES:
        for batch in BATCHES:
            row = measure_speed(name, batch, device)
            speed.append(row)
            rates = f"{row['bursts_per_s']:>11g}{row['megapixels_per_s']:>10g}"
            print(f"{name:<14}{batch:>6}{rates}", flush=True)
    accuracy = [measure_accuracy(name, device) for name in CASES]
    print(f"\n{'case':<14}{'worst rms error, DN':>21}{'weakest noise, DN':>19}{'ratio':>8}")
    for row in accuracy:
        errors = f"{row['worst_rms_error_dn']:>21g}{row['weakest_noise_dn']:>19g}"
        print(f"{row['case']:<14}{errors}{row['noise_over_error']:>8g}")
    if options.out:
        record(options.out, "simulator", options.device, speed=speed, accuracy=accuracy)
        print(f"\nwritten: {options.out}")


if __name__ == "__main__":
    main()
