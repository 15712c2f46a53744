"""Tiles of a scene registered alone against tiles that share the scene's motion.

    python benchmarks/scene_motion.py ../shared/data/hr/train --out scene_motion.json

Scenes are simulated and cut into tiles. For both ways: the error of the tiles' motion, the PSNR of
the product, and by how much neighbouring tiles disagree where they overlap (seams).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
from record import record
from torch import Tensor

from pushframe import scene_motion, seams
from pushframe.burst import Simulated
from pushframe.infer import Reconstruction
from pushframe.io import read_image
from pushframe.scene_motion import Tile
from pushframe.simulate import PRESETS
from pushframe.solver import draws
from pushframe.windows import simulate_windows

IMAGES = ("sn3_vegas_like_down", "s2_coast_B8A", "dji_0034_d3", "gizeh_img1_0p7m")
BORDER_PX = 4


class Watched(Reconstruction):
    """A reconstruction that keeps the motion and the image of each tile."""

    def _lay_tiles(self, tiles, seams):  # type: ignore[no-untyped-def]
        run = self.method.run
        seen = []

        def kept(burst, scale, motion):  # type: ignore[no-untyped-def]
            seen.append(run(burst, scale, motion))
            return seen[-1]

        method, self.method = self.method, dataclasses.replace(self.method, run=kept)
        blocks = list(super()._lay_tiles(tiles, seams))
        self.method = method
        for k, tile in enumerate(tiles):
            self.tiles.append((tile, seen[0].flow_px[k], seen[0].posterior.mean[k]))
        return iter(blocks)


def motion_error_px(tile: Tile, flow_px: Tensor, true_px: Tensor) -> float:
    """Mean squared error of the flow of a tile, a component, px^2."""
    wide = flow_px if flow_px.ndim == 4 else flow_px[..., None, None]
    true = true_px[..., tile[0], tile[1]] if true_px.ndim == 4 else true_px[..., None, None]
    return float((wide - true)[1:].square().mean())


def disagreement(tiles: list[tuple[Tile, Tensor, Tensor]], scale: int) -> float:
    """The rms difference of tiles where they overlap, away from their borders."""
    squares = []
    for k, (one, _, first) in enumerate(tiles):
        for other, _, second in tiles[k + 1 :]:
            parts = []
            for a, b in zip(one, other, strict=True):
                low, high = max(a.start, b.start) + BORDER_PX, min(a.stop, b.stop) - BORDER_PX
                parts.append((low, high, a.start, b.start))
            if all(high > low for low, high, *_ in parts):
                here, there = (
                    tuple(slice(scale * (p[0] - p[w]), scale * (p[1] - p[w])) for p in parts)
                    for w in (2, 3)
                )
                squares.append(float((first[here] - second[there]).square().mean()))
    return float(np.sqrt(np.mean(squares)))


def figures(made: Simulated, scale: int, shared: bool) -> dict[str, float]:
    """Of one scene, with tiles that share its motion or not."""
    making = Watched(made.burst, scale, "solver")
    making.tiles = []
    if not shared:
        making.method = dataclasses.replace(making.method, believes=False)
    begun = time.process_time()
    product = making.product()
    taken = time.process_time() - begun
    assert made.flow_px is not None
    errors = [motion_error_px(tile, flow, made.flow_px) for tile, flow, _ in making.tiles]
    inner = slice(8, -8)
    error = product.mean / float(made.burst.gain[0]) - made.truth.numpy()
    z2 = (error * float(made.burst.gain[0]) / product.std) ** 2
    return {
        "motion_px": float(np.sqrt(np.mean(errors))),
        "worst_tile_px": float(np.sqrt(np.max(errors))),
        "psnr_db": float(-10 * np.log10(np.nanmean(error[inner, inner] ** 2))),
        "seam_dn": 3400 * disagreement(making.tiles, scale),
        "mean_z2": float(np.nanmean(z2[inner, inner])),
        "cpu_s": taken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", nargs="+", default=list(IMAGES))
    parser.add_argument("--motion", nargs="+", default=["translation", "affine", "drift"])
    parser.add_argument("--frames", nargs="+", type=int, default=[5, 8, 15])
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--bend", type=float, default=0.5, help="px at most, over the scene")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=draws.DRAWS, help="for bars of bent tiles")
    asked = parser.parse_args()
    seams.LARGEST_TILE_PX = seams.TILE_PX = asked.tile
    scene_motion.WINDOW_PX = min(asked.tile, scene_motion.WINDOW_PX)
    draws.DRAWS = asked.draws
    command = f"{Path(__file__).name} {' '.join(sys.argv[1:])}"
    rows = []
    for frames, motion, name in itertools.product(asked.frames, asked.motion, asked.images):
        setting = dataclasses.replace(
            PRESETS["paper"],
            size=asked.size,
            frames=frames,
            motion=motion,
            bend_px=asked.bend,
            scale=asked.scale,
        )
        image = read_image(asked.folder / f"{name}.tif")
        made = next(simulate_windows(image, name, setting, asked.seed))
        ways = {way: figures(made, asked.scale, way == "scene") for way in WAYS}
        row = {"motion": motion, "frames": frames, "image": name, **ways}
        print(json.dumps(row), flush=True)
        rows.append(row)
        if asked.out:
            record(asked.out, "scene_motion", command=command, rows=rows)


WAYS = ("alone", "scene")

if __name__ == "__main__":
    main()
