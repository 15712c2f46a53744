"""The picture of the README: a frame, its interpolation, the result, the truth, error, error bar.

    python examples/readme_figure.py --out docs/images/readme.png

A burst in the paper's setting is simulated from a procedural scene and super-resolved by the best
method, which estimates the motion itself. Needs `pip install 'pushframe[report]'`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

import pushframe as pf
from pushframe.methods import best_method
from pushframe.scenes import procedural_scene
from pushframe.simulate import preset, simulate_one, with_options

SCENE, SEED = 15, 78
SETTING = with_options(preset("paper"), size=96)
TOP, LEFT, SIDE = 84, 90, 96  # the part of the truth that is shown, high-res px
INCHES, DPI = (12.0, 8.62), 100


@dataclass(frozen=True)
class Shown:
    """What the panels show, whole images in DN of the reference frame."""

    frame: np.ndarray
    bicubic: pf.Product
    best: pf.Product
    truth: np.ndarray
    frames: int

    @property
    def error(self) -> np.ndarray:
        """|result - truth| of the best method."""
        return np.abs(self.best.mean - self.truth)

    def rms_dn(self, product: pf.Product) -> float:
        """Root mean square error of a product over the part shown."""
        return float(np.sqrt(np.mean(crop(product.mean - self.truth) ** 2)))


def crop(image: np.ndarray) -> np.ndarray:
    """The part of a high-resolution image that is shown."""
    return image[TOP : TOP + SIDE, LEFT : LEFT + SIDE]


def compute() -> Shown:
    """Simulate the burst and super-resolve it."""
    side = SETTING.source_size
    scene = torch.from_numpy(procedural_scene((side, side), SCENE)) / SETTING.white_level
    made = simulate_one(scene, SETTING, SEED)
    return Shown(
        frame=made.burst.raw_dn()[0].numpy(),
        bicubic=pf.super_resolve(made.burst, SETTING.scale, "bicubic"),
        best=pf.super_resolve(made.burst, SETTING.scale),
        truth=(made.truth * made.burst.gain[0]).numpy(),
        frames=made.burst.count,
    )


def show(axis: plt.Axes, image: np.ndarray, title: str, remark: str, **scale: object) -> None:
    """One panel with square pixels. Low-res pixel l has the centre of high-res pixel s*l."""
    height, width = image.shape
    zoom = SETTING.truth_size // height
    extent = (-zoom / 2, zoom * width - zoom / 2, zoom * height - zoom / 2, -zoom / 2)
    axis.imshow(image, interpolation="nearest", extent=extent, **scale)
    axis.set(xlim=(LEFT - 0.5, LEFT + SIDE - 0.5), ylim=(TOP + SIDE - 0.5, TOP - 0.5))
    axis.set_title(title, fontsize=15, fontweight="bold", loc="left", pad=23)
    axis.text(0, 1.022, remark, transform=axis.transAxes, fontsize=11.5, color="0.3")
    axis.set_axis_off()


def draw(shown: Shown, path: Path) -> None:
    """Six panels, three by two; grey is one scale, and so are error and error bar."""
    figure, axes = plt.subplots(2, 3, figsize=INCHES, facecolor="white")
    low, high = np.percentile(crop(shown.truth), [0.5, 99.7])
    grey = {"cmap": "gray", "vmin": low, "vmax": high}
    both = np.stack([crop(shown.error), crop(shown.best.std)])
    heat = {"cmap": "magma", "vmin": 0, "vmax": np.nanpercentile(both, 99)}
    result = f"{shown.frames} frames, rms error {shown.rms_dn(shown.best):.1f} DN"
    blurred = f"bicubic, rms error {shown.rms_dn(shown.bicubic):.1f} DN"
    first, second = axes
    show(first[0], shown.frame, "One frame", "noisy and aliased", **grey)
    show(first[1], shown.bicubic.mean, "Interpolated", blurred, **grey)
    show(first[2], shown.best.mean, "pushframe", result, **grey)
    show(second[0], shown.truth, "Truth", "unknown to the method", **grey)
    show(second[1], shown.error, "Error", "pushframe against the truth", **heat)
    show(second[2], shown.best.std, "Error bar", "one sigma, stated without the truth", **heat)
    figure.subplots_adjust(0.02, 0.02, 0.925, 0.925, 0.04, 0.17)
    box = second[2].get_position()
    place = figure.add_axes((box.x1 + 0.01, box.y0, 0.013, box.height))
    bar = figure.colorbar(second[2].images[0], cax=place, extend="max")
    bar.outline.set_linewidth(0.4)
    bar.ax.set_title("DN", fontsize=11.5, loc="left")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="PNG to write")
    path = parser.parse_args().out
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = compute()
    draw(shown, path)
    print(
        f"{path}: {best_method(SETTING.scale)} {shown.rms_dn(shown.best):.1f} DN, bicubic", end=" "
    )
    print(f"{shown.rms_dn(shown.bicubic):.1f} DN rms; white is {SETTING.white_level:g} DN")


if __name__ == "__main__":
    main()
