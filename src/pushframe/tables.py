"""Evaluations as text: the paper's Table 1 and Table 2, one column a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    ("PSNR, mean over bursts (dB)", "psnr_db", 1, ".2f"),
    ("PSNR, image-balanced (dB)", "image_balanced.psnr_db", 1, ".2f"),
    ("PSNR, pooled (dB)", "psnr_pooled_db", 1, ".2f"),
    ("RMSE, pooled (x 1e-3)", "rmse", 1e3, ".3f"),
    ("calibration error, pooled", "calibration_error", 1, ".4f"),
    ("calibration error, per-burst mean", "calibration_error_per_burst", 1, ".4f"),
    ("mean z^2", "mean_z2", 1, ".3f"),
    ("NLL", "nll", 1, ".3f"),
    ("CRPS (x 1e-3)", "crps", 1e3, ".3f"),
    ("registration RMSE (px)", "flow_rmse_px", 1, ".4f"),
    ("holes (%)", "holes", 100, ".2f"),
)


def tables_markdown(evaluation: Mapping[str, Any]) -> str:
    """All tables of one evaluation as a Markdown page."""
    methods = evaluation["methods"]
    head = (
        f"{evaluation['bursts']} bursts, {evaluation['frames']} frames, "
        f"scale {evaluation['scale']}, {evaluation['motion']} motion, "
        f"border {evaluation['border_hpx']} high-res px."
    )
    return "\n".join(
        (
            "# Evaluation\n",
            head + "\n",
            "## Summary\n",
            _table(SUMMARY, methods, _cell),
            "\n## Table 1: reconstruction and uncertainty, pooled over the test set\n",
            _table(TABLE_1, methods, _cell),
            "\n## Table 2: by sub-grid, mean over bursts (sharpness pooled)\n",
            "Each cell shows the sub-grids `s*l + tau` where they lie: a line for each tau_y, "
            "in it a value for each tau_x; the first is the one that the reference samples.\n",
            _table(TABLE_2, methods, _grid_cell),
            "",
        )
    )


def _table(rows: Sequence[tuple[str, str, float, str]], methods: Mapping, cell: Any) -> str:
    lines = [f"| | {' | '.join(methods)} |", f"|---|{'---:|' * len(methods)}"]
    for title, key, factor, form in rows:
        cells = [cell(figures, key, factor, form) for figures in methods.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
