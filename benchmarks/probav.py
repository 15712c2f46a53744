"""The solver on real bursts with a measured truth: PROBA-V at scale 3, scored as the challenge.

    python benchmarks/probav.py ../shared/data/probav --out benchmarks/results/probav.json

The score is the challenge's cPSNR: clear pixels of HR.png alone, the mean difference removed, the
best of all shifts within 3 px, peak 65535. `bicubic` is the clearest frame, interpolated;
`bicubic_mean` the challenge's own baseline, the mean of the interpolated clearest frames. The truth
was taken by another camera on another day, so that much of what remains is not resolution.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import record

from pushframe.align import align
from pushframe.baselines import bicubic
from pushframe.infer import Reconstruction
from pushframe.io import open_burst, read_image, write_product
from pushframe.io.datasets import is_probav
from pushframe.io.raster import open_layers

SCALE = 3
BORDER_HPX = 3
PEAK_DN = 65535.0
# Scenes whose scores were seen while the solver was made fit for them; the others were scored once.
LOOKED_AT = (
    "NIR/imgset0618", "NIR/imgset0749", "NIR/imgset0805", "NIR/imgset1105",
    "RED/imgset0018", "RED/imgset0170", "RED/imgset0173", "RED/imgset0204",
)  # fmt: skip


def cpsnr(image: np.ndarray, truth: np.ndarray, clear: np.ndarray) -> tuple[float, float]:
    """The best PSNR within 3 px of shift, less the mean difference; and the share scored.

    image, truth: (384, 384) DN; clear: bool. Pixels of the image that are NaN are not scored.
    """
    reach = 2 * BORDER_HPX + 1
    rows, columns = (size - 2 * BORDER_HPX for size in truth.shape)
    inner = image[BORDER_HPX : BORDER_HPX + rows, BORDER_HPX : BORDER_HPX + columns]
    best, share = -np.inf, 0.0
    for down in range(reach):
        for right in range(reach):
            place = slice(down, down + rows), slice(right, right + columns)
            seen = clear[place] & np.isfinite(inner)
            off = (truth[place] - inner)[seen] / PEAK_DN
            score = float(-10 * np.log10(np.mean((off - off.mean()) ** 2)))
            if score > best:
                best, share = score, float(seen.sum() / clear[place].sum())
    return best, share


def bicubic_mean(scene: Path) -> np.ndarray:
    """The mean of the interpolated frames that are as clear as the clearest, DN."""
    burst = open_burst(scene).read()
    clear = burst.valid.float().mean((-1, -2))
    best = [k for k in range(burst.count) if clear[k] == clear.max()]
    images = []
    for k in best:
        alone = burst.select([k])
        image = bicubic(alone.batched(), SCALE).mean[0] * alone.gain[0] + alone.black_level
        images.append(image.numpy())
    return np.nanmean(np.stack(images), 0)


def score_scene(scene: Path, methods: list[str], keep: Path | None) -> dict[str, Any]:
    """The scores of one scene."""
    truth, clear = read_image(scene / "HR.png"), _mask(scene / "SM.png")
    name = f"{scene.parent.name}/{scene.name}"
    row: dict[str, Any] = {"scene": name, "looked_at": name in LOOKED_AT, "clear": clear.mean()}
    row["bicubic_mean"] = cpsnr(bicubic_mean(scene), truth, clear)[0]
    aligned = align(open_burst(scene))
    source = aligned.source
    row |= {"frames": len(aligned.table), "used": source.count, "reference": source.names[0]}
    for method in methods:
        begin = time.perf_counter()
        making = Reconstruction(source, SCALE, method)
        product = making.product()
        if making.facts.noise is not None:
            row |= {"noise_a": float(making.facts.noise.a), "noise_b": float(making.facts.noise.b)}
        row[f"{method}_s"] = round(time.perf_counter() - begin, 2)
        row[method], row[f"{method}_scored"] = cpsnr(product.mean, truth, clear)
        if keep is not None:
            write_product(product, keep / f"{scene.parent.name}_{scene.name}_{method}.npz")
    return row


def _mask(path: Path) -> np.ndarray:
    """Where SM.png is clear; it may be so everywhere, which is no image."""
    return open_layers(path, driver="PNG")[0].read() > 0


def summary(rows: list[dict[str, Any]], methods: list[str]) -> dict[str, Any]:
    """Means over all scenes, and over those looked at and untouched."""
    names = ["bicubic_mean", *methods]
    groups = {"all": rows} | {
        name: [row for row in rows if row["looked_at"] == looked]
        for name, looked in (("looked_at", True), ("untouched", False))
    }
    means: dict[str, Any] = {}
    for group, those in groups.items():
        if those:
            means[group] = {name: float(np.mean([row[name] for row in those])) for name in names}
            means[group]["scenes"] = len(those)
            if "solver" in methods:
                ahead = sum(row["solver"] > row["bicubic_mean"] for row in those)
                means[group]["solver_ahead_of_bicubic_mean"] = ahead
    return means


def save(path: Path, rows: list[dict[str, Any]], methods: list[str]) -> None:
    """The result so far, whole or not at all."""
    ordered = sorted(rows, key=lambda row: row["scene"])
    record(path, "probav", unit="cPSNR, dB", mean=summary(rows, methods), rows=ordered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="scenes, in folders of RED and NIR")
    parser.add_argument("--methods", nargs="+", default=["bicubic", "solver"])
    parser.add_argument("--scenes", choices=["all", "looked_at", "untouched"], default="all")
    parser.add_argument("--keep", type=Path, help="a folder for the products")
    parser.add_argument("--out", type=Path, help="written after each scene; those in it are kept")
    options = parser.parse_args()

    rows: list[dict[str, Any]] = []
    if options.out and options.out.exists():
        rows = json.loads(options.out.read_text())["rows"]
    done = {row["scene"] for row in rows}
    for scene in sorted(path for path in options.folder.glob("*/*") if is_probav(path)):
        name = f"{scene.parent.name}/{scene.name}"
        half = "looked_at" if name in LOOKED_AT else "untouched"
        if name in done or options.scenes not in ("all", half):
            continue
        rows.append(score_scene(scene, options.methods, options.keep))
        shown = {key: value for key, value in rows[-1].items() if not key.endswith("_scored")}
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                        for k, v in shown.items()), flush=True)  # fmt: skip
        if options.out:
            save(options.out, rows, options.methods)
    print(json.dumps(summary(rows, options.methods), indent=1))


if __name__ == "__main__":
    main()
