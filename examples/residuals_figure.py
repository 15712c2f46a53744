"""The picture of docs/solver.md: image, error bar and residuals of a burst with a spoilt frame.

    python examples/residuals_figure.py --out docs/images/solver_residuals.png

A burst is simulated from a procedural scene, and a cloud and a car are added to one frame. Needs
`pip install 'pushframe[report]'`.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from pushframe.burst import Burst
from pushframe.infer import Reconstruction
from pushframe.product import Product
from pushframe.report.encode import pooled
from pushframe.residuals import BORDER_PX, ResidualMap, residual_maps
from pushframe.scenes import procedural_scene
from pushframe.simulate import preset, simulate_one, with_options

SCENE, SEED, SPOILT = 15, 78, 2
SETTING = with_options(preset("paper"), size=72, frames=10)
CLOUD, CAR = (22.0, 47.0, 5.0, 0.12), (52, 20)  # row, column, sigma, height; row, column, px
SIGMAS = 5
INCHES, DPI = (12.0, 7.6), 80
ORANGE = (1.0, 0.55, 0.1)


def spoil(burst: Burst) -> Burst:
    """The burst with a cloud and a car in one frame."""
    frames = burst.frames.clone()
    y, x = torch.meshgrid(*(torch.arange(float(size)) for size in burst.shape), indexing="ij")
    row, column, sigma, height = CLOUD
    distance = (y - row) ** 2 + (x - column) ** 2
    frames[SPOILT] += height * torch.exp(-distance / (2 * sigma**2))
    frames[SPOILT, CAR[0] : CAR[0] + 3, CAR[1] : CAR[1] + 5] += 0.2
    return dataclasses.replace(burst, frames=frames)


def compute() -> tuple[Burst, Product, list[ResidualMap]]:
    """The burst, its product and the residuals of the reference, the spoilt and another frame."""
    side = SETTING.source_size
    scene = torch.from_numpy(procedural_scene((side, side), SCENE)) / SETTING.white_level
    burst = spoil(simulate_one(scene, SETTING, SEED).burst)
    making = Reconstruction(burst, SETTING.scale, "solver")
    product = making.product()
    maps = {one.index: one for one in residual_maps(making.witness, burst.count)}
    longest = int(burst.exposure.argmax())
    return burst, product, [maps[0], maps[longest], maps[SPOILT]]


def show(axis: plt.Axes, image: np.ndarray, title: str, remark: str, **scale: object) -> None:
    """One panel with square pixels over the field of the reference, without its rim."""
    axis.imshow(image, interpolation="nearest", extent=(0, 1, 1, 0), **scale)
    rim = BORDER_PX / SETTING.size
    axis.set(xlim=(rim, 1 - rim), ylim=(1 - rim, rim))
    axis.set_title(title, fontsize=15, fontweight="bold", loc="left", pad=23)
    axis.text(0, 1.022, remark, transform=axis.transAxes, fontsize=11.5, color="0.3")
    axis.set_axis_off()


def painted(one: ResidualMap) -> np.ndarray:
    """Residuals in grey, what was left out in orange, (H, W, 3)."""
    grey = np.clip((np.nan_to_num(one.z) / SIGMAS + 1) / 2, 0, 1)[..., None]
    return np.where(one.left[..., None], 0.24 + 0.76 * grey * np.array(ORANGE), grey)


def draw(burst: Burst, product: Product, maps: list[ResidualMap], path: Path) -> None:
    """Six panels: the spoilt frame, image and error bar; below, residuals of three frames."""
    figure, axes = plt.subplots(2, 3, figsize=INCHES, facecolor="white")
    low, high = np.nanpercentile(product.mean, [0.5, 99.5])
    grey = {"cmap": "gray", "vmin": low, "vmax": high}
    bar = pooled(product.std, product.scale)
    short, long = np.nanpercentile(bar[BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX], [0.5, 99.5])
    spoilt = (burst.frames[SPOILT] * burst.gain[0]).numpy()
    first, second = axes
    show(first[0], spoilt, f"Frame {SPOILT}", "with a cloud and a car", **grey)
    show(first[1], product.mean, "Image", f"{burst.count} frames, neither is in it", **grey)
    remark = f"sigma, means of {product.scale} x {product.scale} pixels"
    show(first[2], bar, "Error bar", remark, cmap="magma", vmin=short, vmax=long)
    bars = [first[2].images[0]]
    names = ["Reference", "Longest exposure", f"Frame {SPOILT}"]
    for axis, one, name in zip(second, maps, names, strict=True):
        left = f"residuals: {one.share:.0%} left out, rms {one.rms:.2f}"
        show(axis, painted(one), name, left, cmap="gray", vmin=-SIGMAS, vmax=SIGMAS)
    bars.append(plt.cm.ScalarMappable(plt.Normalize(-SIGMAS, SIGMAS), "gray"))
    figure.subplots_adjust(0.02, 0.02, 0.925, 0.9, 0.04, 0.26)
    for axis, shown, unit in zip((first[2], second[2]), bars, ("DN", "sigma"), strict=True):
        box = axis.get_position()
        place = figure.add_axes((box.x1 + 0.01, box.y0, 0.013, box.height))
        scale = figure.colorbar(shown, cax=place, extend="both")
        scale.outline.set_linewidth(0.4)
        scale.ax.set_title(unit, fontsize=11.5, loc="left")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="PNG to write")
    path = parser.parse_args().out
    path.parent.mkdir(parents=True, exist_ok=True)
    burst, product, maps = compute()
    draw(burst, product, maps, path)
    print(f"{path}: left out of frame {SPOILT} {maps[-1].share:.1%}; {product.provenance['notes']}")


if __name__ == "__main__":
    main()
