"""Procedural scenes against real images: spectrum, gradients, energy above half Nyquist.

    python benchmarks/scene_statistics.py --images ../shared/data/hr/train --out docs/images

Prints a table and writes scene_statistics.png and scenes.png. Each image is one sample, whatever
its size; spectra are taken on the central 512 x 512 pixels at most.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tifffile

from pushframe.scenes import procedural_scene

SIZE = 512
SEEDS = range(8)
SHEET_SEEDS = (5, 6, 17, 13, 24, 0)
SHEET_PX = 320
HALF_NYQUIST = 0.25  # cycles per pixel
RINGS = np.linspace(0.01, 0.5, 50)  # edges, cycles per pixel
FITTED = (0.03, 0.45)  # cycles per pixel, range of the spectrum's slope
GRADIENTS = np.linspace(-12, 12, 97)  # edges, in standard deviations
REAL, DRAWN = "#1f77b4", "#d95f02"


@dataclass(frozen=True)
class Statistics:
    """Radial power per ring, density of gradients per bin, and three numbers."""

    spectrum: np.ndarray
    gradients: np.ndarray
    share: float
    slope: float
    kurtosis: float


def central(image: np.ndarray) -> np.ndarray:
    """The central SIZE x SIZE pixels, or all of a smaller image."""
    top, left = (max(length - SIZE, 0) // 2 for length in image.shape)
    return image[top : top + SIZE, left : left + SIZE].astype(np.float64)


def measure(image: np.ndarray) -> Statistics:
    """Statistics of one image: Hann window, mean removed, power over total AC power."""
    image = central(image)
    window = np.hanning(image.shape[0])[:, None] * np.hanning(image.shape[1])
    power = np.abs(np.fft.fft2((image - np.average(image, weights=window)) * window)) ** 2
    radius = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) for n in image.shape), indexing="ij"))
    power[radius < 1.5 / min(image.shape)] = 0  # what the window leaks from zero frequency
    power *= power.size / power.sum()
    ring = np.digitize(radius.ravel(), RINGS)
    count = np.bincount(ring, minlength=len(RINGS) + 1)
    spectrum = (np.bincount(ring, power.ravel(), len(RINGS) + 1) / count)[1:-1]
    middle = (RINGS[1:] + RINGS[:-1]) / 2
    fitted = (middle > FITTED[0]) & (middle < FITTED[1])
    slope = np.polyfit(np.log(middle[fitted]), np.log(spectrum[fitted]), 1)[0]
    step = np.diff(image, axis=1).ravel()
    step = (step - step.mean()) / step.std()
    gradients = np.histogram(step, GRADIENTS)[0] / step.size / (GRADIENTS[1] - GRADIENTS[0])
    share = power[radius > HALF_NYQUIST].sum() / power.sum()
    return Statistics(spectrum, gradients, float(share), float(slope), float((step**4).mean()))


def table(real: list[Statistics], drawn: list[Statistics]) -> str:
    """One row a figure: real median and 10-90 percentiles, procedural median and range."""
    rows = ["| figure | real median | real 10-90 % | procedural median | procedural range |"]
    rows.append("|---|---|---|---|---|")
    names = {
        "share": "energy above half Nyquist",
        "slope": "slope of the spectrum",
        "kurtosis": "kurtosis of the gradient (Gaussian: 3)",
    }
    for field, name in names.items():
        a = np.array([getattr(s, field) for s in real])
        b = np.array([getattr(s, field) for s in drawn])
        low, high = np.percentile(a, [10, 90])
        rows.append(
            f"| {name} | {np.median(a):.3g} | {low:.3g} to {high:.3g} "
            f"| {np.median(b):.3g} | {b.min():.3g} to {b.max():.3g} |"
        )
    return "\n".join(rows)


def _band(axis: plt.Axes, x: np.ndarray, real: np.ndarray, drawn: np.ndarray) -> None:
    """Band and median of the real curves, each drawn curve, and the median of those."""
    low, middle, high = np.percentile(real, [10, 50, 90], axis=0)
    axis.fill_between(x, low, high, color=REAL, alpha=0.2, lw=0, label="real, 10-90 %")
    axis.plot(x, middle, color=REAL, lw=1.8, label="real, median")
    for curve in drawn:
        axis.plot(x, curve, color=DRAWN, lw=0.6, alpha=0.45)
    axis.plot(x, np.median(drawn, axis=0), color=DRAWN, lw=1.8, label="procedural, median")


def draw_statistics(real: list[Statistics], drawn: list[Statistics], path: Path) -> None:
    """Three panels: spectrum, density of gradients, energy above half Nyquist."""
    figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.5), width_ratios=(1.15, 1.15, 0.8))
    middle = (RINGS[1:] + RINGS[:-1]) / 2
    _band(axes[0], middle, *(np.array([s.spectrum for s in g]) for g in (real, drawn)))
    axes[0].axvline(HALF_NYQUIST, color="0.6", lw=0.8, ls=":")
    axes[0].set(xscale="log", yscale="log", xlabel="cycles / pixel", title="Radial power spectrum")
    axes[0].set_ylabel("power / variance")
    ticks = (0.02, 0.05, 0.1, 0.25, 0.5)
    axes[0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].minorticks_off()
    axes[0].legend(fontsize=8, frameon=False)
    middle = (GRADIENTS[1:] + GRADIENTS[:-1]) / 2
    floor = 1e-6  # an empty bin has no logarithm
    _band(axes[1], middle, *(np.array([s.gradients for s in g]) + floor for g in (real, drawn)))
    bell = np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi)
    axes[1].plot(middle, bell, color="0.5", lw=1, ls="--", label="Gaussian")
    axes[1].set(yscale="log", ylim=(2e-6, 3), title="Horizontal gradient", xlabel="std")
    axes[1].set_ylabel("density")
    axes[1].legend(fontsize=8, frameon=False, handles=axes[1].lines[-1:])
    jitter = np.random.default_rng(0).uniform(-0.15, 0.15, 100)
    for at, (group, colour) in enumerate(((real, REAL), (drawn, DRAWN))):
        shares = [100 * s.share for s in group]
        axes[2].plot(at + jitter[: len(shares)], shares, "o", ms=4, color=colour, alpha=0.6, mew=0)
        axes[2].hlines(np.median(shares), at - 0.3, at + 0.3, color=colour, lw=2)
    axes[2].set(yscale="log", xlim=(-0.6, 1.6), title="Energy above half Nyquist")
    axes[2].set_xticks([0, 1], ["real", "procedural"])
    axes[2].set_yticks([2, 5, 10, 20], ["2 %", "5 %", "10 %", "20 %"])
    axes[2].minorticks_off()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_sheet(path: Path) -> None:
    """Six scenes, pixel for pixel, three by two; black is 0 and white 2600 DN, gamma 0.75."""
    gap = 6
    sheet = np.ones((2 * SHEET_PX + gap, 3 * SHEET_PX + 2 * gap))
    for place, seed in enumerate(SHEET_SEEDS):
        row, col = divmod(place, 3)
        scene = procedural_scene((SHEET_PX, SHEET_PX), seed)
        top, left = row * (SHEET_PX + gap), col * (SHEET_PX + gap)
        tone = np.clip(scene / 2600, 0, 1) ** 0.75
        sheet[top : top + SHEET_PX, left : left + SHEET_PX] = tone
    plt.imsave(path, sheet, cmap="gray", vmin=0, vmax=1)


def main() -> None:
    """Measure both groups, print the table, draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True, help="folder of single-band TIFFs")
    parser.add_argument("--out", type=Path, required=True, help="folder for the two figures")
    options = parser.parse_args()
    paths = sorted(options.images.glob("*.tif"))
    if not paths:
        parser.error(f"expected TIFF images in {options.images}, got none; pass their folder")
    real = [measure(tifffile.imread(path)) for path in paths]
    drawn = [measure(procedural_scene((SIZE, SIZE), seed)) for seed in SEEDS]
    print(f"{len(real)} real images, {len(drawn)} procedural scenes\n{table(real, drawn)}")
    options.out.mkdir(parents=True, exist_ok=True)
    draw_statistics(real, drawn, options.out / "scene_statistics.png")
    draw_sheet(options.out / "scenes.png")


if __name__ == "__main__":
    main()
