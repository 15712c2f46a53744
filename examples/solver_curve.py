"""What frames buy: accuracy, motion and error bar of each method against the number of frames.

    for n in 3 4 5 6 8 10 12 15 20; do
      pushframe evaluate ../shared/data/hr/test --methods bicubic,shift_and_add,map,solver \\
        --frames $n --out out/est$n
    done
    python examples/solver_curve.py --evaluations out --out docs/images/solver_curve.png \\
      --summary benchmarks/results/solver_curve.json

Reads `evaluation.json` of every subfolder `est*`. PSNR, gain and motion are image-balanced, with
their 90 % intervals; the errors on the right are pooled. Needs `pip install 'pushframe[report]'`.
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
BALANCED = ("psnr_db", "calibration_error_per_burst", "flow_rmse_px_per_burst")
KINDS = ("image_balanced", "interval_90")


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
            | {kind: {key: method["all"][kind][key] for key in BALANCED} for kind in KINDS}
            | {"gain_db": gain(evaluation, name)}
            for name, method in evaluation["methods"].items()
        }
    keys = ("version", "bursts", "images", "scale", "border_hpx", "motion", "bootstrap")
    about = {key: found[0][key] for key in keys}
    return {"example": "solver_curve", **about, "simulation": settings[0], "frames": rows}


def gain(evaluation: dict, method: str) -> dict | None:
    """PSNR of a method over `map` on the same bursts, with its interval; None for `map` itself."""
    paired = evaluation["paired"]
    if paired["against"] != "map" or method == "map":
        return None
    return {"mean": paired["psnr_db"][method], "interval_90": paired["interval_90"][method]}


def curve(summary: dict, method: str, key: str) -> tuple[list[int], list[float]]:
    """Frames and pooled figures of a method, where it has one."""
    pairs = [(int(n), row[method][key]) for n, row in summary["frames"].items()]
    return [n for n, value in pairs if value is not None], [v for _, v in pairs if v is not None]


def band(summary: dict, method: str, key: str) -> tuple[list[int], list[float], list, list]:
    """Frames, image-balanced means of a method, and the bounds of their intervals."""
    counts = [int(n) for n in summary["frames"]]
    rows = [row[method] for row in summary["frames"].values()]
    if key == "gain_db":
        means = [row[key]["mean"] for row in rows]
        bounds = [row[key]["interval_90"] for row in rows]
    else:
        means = [row["image_balanced"][key] for row in rows]
        bounds = [row["interval_90"][key] for row in rows]
    # a single burst has no interval
    low, high = zip(*(b or (m, m) for b, m in zip(bounds, means, strict=True)), strict=True)
    return counts, means, list(low), list(high)


def draw_band(axis, summary: dict, method: str, key: str, label: str, offset: tuple) -> None:
    """One method: its image-balanced means, and the 90 % interval as a band."""
    counts, means, low, high = band(summary, method, key)
    colour = COLOURS[method]
    axis.fill_between(counts, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(counts, means, "o-", color=colour, markersize=4)
    axis.annotate(
        label,
        (counts[-1], means[-1]),
        offset,
        textcoords="offset points",
        color=colour,
        ha="left" if offset[0] > 0 else "right",
    )


def draw_errors(axis, summary: dict) -> None:
    """The rms error that the bars of the solver state, beside the measured one."""
    white_dn = summary["simulation"]["white_level"]
    counts, actual = curve(summary, "solver", "rmse")
    _, stated = curve(summary, "solver", "predicted_rms")
    axis.plot(
        counts,
        [white_dn * x for x in stated],
        "s",
        color="black",
        markersize=8,
        markerfacecolor="none",
        label="stated by the error bars",
    )
    axis.plot(
        counts,
        [white_dn * x for x in actual],
        "o-",
        color=COLOURS["solver"],
        markersize=4,
        label="measured against the truth",
    )
    axis.legend(frameon=False, loc="lower left", borderaxespad=0.1)
    axis.set_ylim(bottom=2.5)


def draw(summary: dict, path: Path) -> None:
    """PSNR; gain over `map`; error of the motion; stated beside measured error."""
    figure, (left, over, middle, right) = plt.subplots(1, 4, figsize=(16, 4.3), facecolor="white")
    for method in COLOURS:
        draw_band(left, summary, method, "psnr_db", method, (5, -3))
    draw_band(over, summary, "solver", "gain_db", "", (5, -3))
    over.axhline(0, color="0.6", linewidth=1, linestyle="--")
    for method, label in (("map", "Lucas-Kanade"), ("solver", "solver")):
        draw_band(middle, summary, method, "flow_rmse_px_per_burst", label, (0, 8))
    draw_errors(right, summary)
    counts = [int(n) for n in summary["frames"]]
    titles = {
        left: "PSNR, dB",
        over: "PSNR of solver over map, dB",
        middle: "Motion, px rms",
        right: "Error of the solver, DN rms",
    }
    for axis, title in titles.items():
        axis.set_title(title, loc="left", fontweight="bold")
        axis.set_xlabel("frames")
        axis.set_xscale("log")
        axis.set_xticks(counts, [str(n) for n in counts])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    left.set_xlim(right=counts[-1] * 2.4)
    middle.set_yscale("log")
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
