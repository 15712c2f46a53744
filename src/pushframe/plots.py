"""Figures as PNG files."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .checks import counted
from .errors import MissingPackageError
from .io import atomic_path


def need_matplotlib() -> None:
    """Say what to install before any work is done, where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(
            "expected matplotlib for figures, got none: pip install 'pushframe[report]'"
        )


def coverage_png(evaluation: Mapping[str, Any], path: Path) -> None:
    """Measured against nominal coverage of each method: all pixels bold, sub-grids thin."""
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="ideal")
    levels = evaluation["levels"]
    shown = {k: v for k, v in evaluation["methods"].items() if v["all"]["coverage"]}
    for index, (name, figures) in enumerate(shown.items()):
        color = f"C{index}"
        brief = "/".join(Path(name).with_suffix("").parts[-2:])[-32:]  # weights go by their path
        label = f"{brief} (CE {figures['all']['calibration_error']:.3f})"
        axes.plot(levels, figures["all"]["coverage"], color=color, label=label)
        for row in figures["subgrids"]:
            for cell in row:
                if cell["coverage"]:  # a sub-grid of holes alone has none
                    axes.plot(levels, cell["coverage"], color=color, linewidth=0.6, alpha=0.6)
    if not shown:
        axes.text(0.5, 0.4, "no method has an error bar", ha="center", color="0.4")
    axes.set(
        xlabel="nominal coverage",
        ylabel="measured coverage",
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
        title=f"{counted(evaluation['bursts'], 'burst')}, "
        f"{counted(evaluation['frames'], 'frame')}, {evaluation['motion']} motion",
    )
    axes.legend(loc="upper left", frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
