"""What a network can gain over the solver at most, beside what was asked of it.

    python examples/ceiling_figure.py --out docs/images/learned_ceiling.png

Left, for each setting: `base`, the same trained on and told truth and motion, and a network of 33
million parameters told both. Right: the latter's PSNR while it learns. Reads the results of
`benchmarks/learned_ceiling.py`, `learned_ceiling_*.json`. Needs `pip install 'pushframe[report]'`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# setting: (shown as, asked for in dB, results)
SETTINGS = {
    "5": ("5 frames", 1.5, ("5", "base_5")),
    "8": ("8 frames", 1.0, ("8",)),
    "15": ("15 frames", 0.2, ("15", "base_15")),
    "psf": ("15 frames, PSF 0.5", 1.0, ("psf", "base_psf")),
}
MARKS = {
    "base": ("o", "#2b6ca3", "base"),
    "on_solver, told truth and motion": ("s", "#7aa6c9", "base, trained on, told truth and motion"),
    "large, told truth and motion": ("D", "#c0322b", "33 M parameters, told truth and motion"),
}
CURVE = "15"


def read(folder: Path, name: str) -> dict:
    """One result; methods are named as they are today."""
    found = json.loads((folder / f"learned_ceiling_{name}.json").read_text())
    for row in found["rows"]:
        if row["method"] == "large":
            row["method"] = "large, told truth and motion"
    return found


def gains(found: dict) -> dict[str, float]:
    """PSNR of each method less that of the solver."""
    psnr = {row["method"]: row["psnr_db"] for row in found["rows"]}
    return {name: value - psnr["solver"] for name, value in psnr.items() if name != "solver"}


def draw(folder: Path, out: Path) -> None:
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 3.6), width_ratios=[1.5, 1], layout="constrained"
    )
    for place, (_, asked, names) in enumerate(SETTINGS.values()):
        left.plot([place - 0.3, place + 0.3], [asked, asked], "k--", lw=1.2)
        left.annotate("asked for", (place + 0.3, asked), ha="right", va="bottom", fontsize=8)
        values = {k: v for name in names for k, v in gains(read(folder, name)).items()}
        for name, value in values.items():
            mark, colour, label = MARKS[name]
            labelled = label if label not in left.get_legend_handles_labels()[1] else None
            left.plot(place, value, mark, color=colour, label=labelled)
    left.set_xticks(range(len(SETTINGS)), [shown for shown, *_ in SETTINGS.values()])
    left.set_xlim(-0.5, len(SETTINGS) - 0.5)
    left.set_ylim(0, 1.7)
    left.set_ylabel("PSNR over the solver, dB (known motion)")
    left.legend(frameon=False, fontsize=8, loc="upper right")

    found = read(folder, CURVE)
    psnr = {row["method"]: row["psnr_db"] for row in found["rows"]}
    points = found["curve"]
    mark, colour, label = MARKS["large, told truth and motion"]
    right.plot(
        [point["minutes"] for point in points],
        [point["psnr_db"] - psnr["solver"] for point in points],
        f"{mark}-",
        color=colour,
        ms=4,
        label=label,
    )
    right.axhline(psnr["base"] - psnr["solver"], color=MARKS["base"][1], lw=1.2, label="base")
    right.axhline(SETTINGS[CURVE][1], color="k", ls="--", lw=1.2, label="asked for")
    right.set_ylim(0, 0.4)
    right.set_xlabel(f"minutes of training on an H200, {CURVE} frames")
    right.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.3, lw=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    draw(options.results, options.out)


if __name__ == "__main__":
    main()
