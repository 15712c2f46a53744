"""Evaluations as text: the paper's Table 1 and Table 2, one column a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .checks import counted

BALANCED = "image_balanced."
HEADLINE = BALANCED + "psnr_db"
# row title, key, factor, format
TABLE_1 = (
    ("PSNR pooled (dB)", "psnr_pooled_db", 1, ".2f"),
    ("V-RMSE (x 1e-5)", "v_rmse", 1e5, ".2f"),
    ("sharpness (x 1e-3)", "sharpness", 1e3, ".2f"),
)
TABLE_2 = (
    ("V-RMSE (x 1e-5)", "v_rmse_per_burst", 1e5, ".2f"),
    ("calibration error", "calibration_error_per_burst", 1, ".3f"),
    ("sharpness (x 1e-3)", "sharpness", 1e3, ".2f"),
    ("RMSE (x 1e-3)", "rmse_per_burst", 1e3, ".2f"),
)
SUMMARY = (
    ("PSNR, image-balanced (dB)", HEADLINE, 1, ".2f"),
    ("PSNR, mean over bursts (dB)", "psnr_db", 1, ".2f"),
    ("PSNR, pooled (dB)", "psnr_pooled_db", 1, ".2f"),
    ("RMSE, pooled (x 1e-3)", "rmse", 1e3, ".3f"),
    ("calibration error, image-balanced", BALANCED + "calibration_error_per_burst", 1, ".4f"),
    ("calibration error, pooled", "calibration_error", 1, ".4f"),
    ("mean z^2, pooled", "mean_z2", 1, ".3f"),
    ("NLL, image-balanced", BALANCED + "nll_per_burst", 1, ".3f"),
    ("CRPS, image-balanced (x 1e-3)", BALANCED + "crps_per_burst", 1e3, ".3f"),
    ("motion error, image-balanced (px)", BALANCED + "flow_rmse_px_per_burst", 1, ".4f"),
    ("motion error, pooled (px)", "flow_rmse_px", 1, ".4f"),
    ("holes (%)", "holes", 100, ".2f"),
)


def tables_markdown(evaluation: Mapping[str, Any]) -> str:
    """All tables of one evaluation as a Markdown page."""
    methods = evaluation["methods"]
    head = (
        f"{about(evaluation)}, scale {evaluation['scale']}, "
        f"border {evaluation['border_hpx']} high-res px. "
        "Image-balanced: the mean over the bursts of an image, then over images; below it the "
        f"90 % interval of {evaluation['bootstrap']['draws']} bootstrap draws of images and bursts."
    )
    return "\n".join(
        (
            "# Evaluation\n",
            head + "\n",
            "## Summary\n",
            _lines(list(methods), summary_rows(evaluation)),
            "\n## Table 1: reconstruction and uncertainty, pooled over the test set\n",
            _table(TABLE_1, methods, _cell),
            "\n## Table 2: by sub-grid, mean over bursts (sharpness pooled)\n",
            "Each cell shows the sub-grids `s*l + tau` where they lie: a line for each tau_y, "
            "in it a value for each tau_x; the first is the one that the reference samples.\n",
            _table(TABLE_2, methods, _grid_cell),
            "",
        )
    )


def about(evaluation: Mapping[str, Any]) -> str:
    """What was evaluated, for a title."""
    return ", ".join(
        (
            f"{counted(evaluation['bursts'], 'burst')} of {counted(evaluation['images'], 'image')}",
            counted(evaluation["frames"], "frame"),
            f"{evaluation['motion']} motion",
        )
    )


def summary_rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """Title and a cell for each method; below a balanced mean its interval, if it has one."""
    every = [method["all"] for method in evaluation["methods"].values()]
    rows = []
    for title, key, factor, form in SUMMARY:
        means = [number(figures, key, factor, form) for figures in every]
        name = key.removeprefix(BALANCED)
        balanced = key.startswith(BALANCED)
        bounds = [figures["interval_90"][name] if balanced else None for figures in every]
        rows += _with_interval(title, means, bounds, factor, form)
        if key == HEADLINE:
            rows += _paired_rows(evaluation)
    return rows


def _paired_rows(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """What each method gains over the one it is paired with, on the same bursts."""
    paired, names = evaluation["paired"], list(evaluation["methods"])
    if len(names) == 1:
        return []
    # a method may be a file of weights: its name is no dotted key
    found = [paired["psnr_db"].get(name) for name in names]
    gains = ["-" if gain is None else format(gain, "+.2f") for gain in found]
    bounds = [paired["interval_90"].get(name) for name in names]
    title = f"PSNR less that of {paired['against']} (dB)"
    return _with_interval(title, gains, bounds, 1, "+.2f")


def _with_interval(
    title: str, means: list[str], bounds: Sequence[Any], factor: float, form: str
) -> list[list[str]]:
    """A row of means and, where there is an interval, a row of them below."""
    rows = [[title, *means]]
    if any(bound is not None for bound in bounds):
        spelt = [bound and [format(edge * factor, form) for edge in bound] for bound in bounds]
        rows.append(["- 90 % interval", *("-" if x is None else " to ".join(x) for x in spelt)])
    return rows


def _table(rows: Sequence[tuple[str, str, float, str]], methods: Mapping, cell: Any) -> str:
    return _lines(
        list(methods),
        [
            [title, *(cell(figures, key, factor, form) for figures in methods.values())]
            for title, key, factor, form in rows
        ],
    )


def _lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of rows that begin with their title."""
    head = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _cell(figures: Mapping[str, Any], key: str, factor: float, form: str) -> str:
    return number(figures["all"], key, factor, form)


def _grid_cell(figures: Mapping[str, Any], key: str, factor: float, form: str) -> str:
    rows = [
        " ".join(number(cell, key, factor, form) for cell in row) for row in figures["subgrids"]
    ]
    return "<br>".join(rows)


def number(figures: Mapping[str, Any], key: str, factor: float, form: str) -> str:
    """One figure as text; a dash where the method has no such thing."""
    value: Any = figures
    for part in key.split("."):
        value = value[part]
    return "-" if value is None else format(value * factor, form)
