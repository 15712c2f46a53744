"""What frames buy: accuracy, motion and error bar of each method against the number of frames.

    for n in 3 4 5 6 8 10 12 15 20; do
      pushframe evaluate ../shared/data/hr/test --methods bicubic,shift_and_add,map,solver \\
        --frames $n --device cuda --out out/est$n
    done
    python examples/solver_curve.py --evaluations out --out docs/images/solver_curve.png \\
      --summary benchmarks/results/solver_curve.json

Reads `evaluation.json` of every subfolder `est*`. Needs `pip install 'pushframe[report]'`.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator, ScalarFormatter

COLOURS = {"bicubic": "0.55", "shift_and_add": "#b07c2c", "map": "#2b6ca3", "solver": "#c0322b"}
FIGURES = (
    "psnr_db",
    "psnr_pooled_db",
    "flow_rmse_px",
    "rmse",
    "calibration_error",
    "calibration_error_per_burst",
    "mean_z2",
    "sharpness",
)


def predicted_rms(std_bins: list[dict] | None) -> float | None:
    """Root of the mean predicted variance, all pixels: the rms error that the bars announce."""
    if not std_bins:
        return None
    pixels = sum(row["pixels"] for row in std_bins)
    return math.sqrt(sum(row["pixels"] * row["predicted_rms"] ** 2 for row in std_bins) / pixels)


def summarise(folder: Path) -> dict:
    """The figures of every `est*/evaluation.json`, by number of frames and method."""
    found = [json.loads(p.read_text()) for p in folder.glob("est*/evaluation.json")]
    if not found:
        raise SystemExit(f"expected {folder}/est*/evaluation.json, got none: see --help")
    settings = [{k: v for k, v in e["simulation"].items() if k != "frames"} for e in found]
    if any(setting != settings[0] for setting in settings):
        raise SystemExit("expected evaluations that differ in frames alone: name another folder")
    rows = {}
    for evaluation in sorted(found, key=lambda e: e["frames"]):
        rows[str(evaluation["frames"])] = {
            name: {key: method["all"][key] for key in FIGURES}
            | {"predicted_rms": predicted_rms(method["all"]["std_bins"])}
            for name, method in evaluation["methods"].items()
        }
    about = {key: found[0][key] for key in ("version", "bursts", "scale", "border_hpx", "motion")}
    return {"example": "solver_curve", **about, "simulation": settings[0], "frames": rows}


def curve(summary: dict, method: str, key: str) -> tuple[list[int], list[float]]:
    """Frames and figures of a method, where it has one."""
    pairs = [(int(n), row[method][key]) for n, row in summary["frames"].items()]
    return [n for n, value in pairs if value is not None], [v for _, v in pairs if v is not None]


def draw(summary: dict, path: Path) -> None:
    """PSNR; rms error of the motion; the error that the bars announce beside the real one."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.3), facecolor="white")
    for method, colour in COLOURS.items():
        counts, psnr = curve(summary, method, "psnr_db")
        left.plot(counts, psnr, "o-", color=colour, markersize=4)
        left.annotate(
            method, (counts[-1], psnr[-1]), (5, -3), textcoords="offset points", color=colour
        )
    for method, label in (("map", "Lucas-Kanade"), ("solver", "solver")):
        counts, flow = curve(summary, method, "flow_rmse_px")
        middle.plot(counts, flow, "o-", color=COLOURS[method], markersize=4)
        middle.annotate(
            label,
            (counts[-1], flow[-1]),
            (0, 8),
            textcoords="offset points",
            color=COLOURS[method],
            ha="right",
        )
    white_dn = summary["simulation"]["white_level"]
    counts, actual = curve(summary, "solver", "rmse")
    _, stated = curve(summary, "solver", "predicted_rms")
    right.plot(
        counts,
        [white_dn * x for x in stated],
        "s",
        color="black",
        markersize=8,
        markerfacecolor="none",
        label="stated by the error bars",
    )
    right.plot(
        counts,
        [white_dn * x for x in actual],
        "o-",
        color=COLOURS["solver"],
        markersize=4,
        label="measured against the truth",
    )
    right.legend(frameon=False, loc="lower left", borderaxespad=0.1)
    right.set_ylim(bottom=2.5)
    titles = {left: "PSNR, dB", middle: "Motion, px rms", right: "Error of the solver, DN rms"}
    for axis, title in titles.items():
        axis.set_title(title, loc="left", fontweight="bold")
        axis.set_xlabel("frames")
        axis.set_xscale("log")
        axis.set_xticks(counts, [str(n) for n in counts])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    left.set_xlim(right=counts[-1] * 2.1)
    middle.set_yscale("log")
    middle.set_ylim(0.001, 0.03)
    right.set_yscale("log")
    for axis, ticks in ((middle, (0.001, 0.002, 0.005, 0.01, 0.02)), (right, (3, 5, 10, 20, 50))):
        axis.set_yticks(ticks)
        axis.yaxis.set_major_formatter(ScalarFormatter())
        axis.yaxis.set_minor_locator(NullLocator())
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--evaluations", type=Path, required=True, help="folder of est*/")
    parser.add_argument("--out", type=Path, required=True, help="PNG to write")
    parser.add_argument("--summary", type=Path, help="JSON to write")
    parser.add_argument("--device", help="device of the evaluations, for the summary")
    options = parser.parse_args()
    summary = summarise(options.evaluations)
    if options.device:
        summary = {"device": options.device, **summary}
    draw(summary, options.out)
    if options.summary:
        options.summary.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{options.out}: {', '.join(summary['frames'])} frames")


if __name__ == "__main__":
    main()
