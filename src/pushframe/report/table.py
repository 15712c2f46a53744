"""The metrics of an evaluation as rows of text, with units, the best of each column marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DASH = "–"


@dataclass(frozen=True)
class Column:
    """One metric: its key in the evaluation, heading, unit, definition, digits.

    in_dn: the value is normalised radiance and is shown in DN of the reference frame.
    best: picks the best of the column, or None where smaller is not better by itself.
    """

    key: str
    heading: str
    unit: str
    meaning: str
    digits: int
    in_dn: bool = False
    best: Callable[[Sequence[float]], float] | None = min


@dataclass(frozen=True)
class Cell:
    """One number of the table as text, with its column and whether it is the best."""

    column: Column
    text: str
    best: bool


COLUMNS = (
    Column(
        "psnr_db",
        "PSNR",
        "dB",
        "Peak signal-to-noise ratio against the truth, peak = white level. Higher is better.",
        2,
        best=max,
    ),
    Column(
        "rmse",
        "RMSE",
        "DN",
        "Root mean square of estimate minus truth, in DN of the reference frame. Lower is better.",
        2,
        in_dn=True,
    ),
    Column(
        "calibration_error",
        "Calibration error",
        "",
        "Mean distance between the stated and the measured coverage over all levels. "
        "0 is perfectly honest.",
        4,
    ),
    Column(
        "sharpness",
        "Sharpness",
        "DN",
        "Mean length of the 90% interval. Shorter is better only where coverage is right, "
        "so no best is marked.",
        1,
        in_dn=True,
        best=None,
    ),
    Column(
        "nll",
        "NLL",
        "nats",
        "Mean negative log-likelihood of the truth, of normalised radiance. Lower is better.",
        3,
    ),
    Column(
        "crps",
        "CRPS",
        "DN",
        "Continuous ranked probability score: accuracy and honesty in one number. Lower is better.",
        2,
        in_dn=True,
    ),
    Column(
        "flow_rmse_px",
        "Registration error",
        "px",
        "Root mean square error of the estimated motion, in low-resolution pixels. "
        "Lower is better.",
        4,
    ),
)


def number_of(metrics: Mapping[str, Any] | None, key: str) -> float | None:
    """The finite number under `key`, or None where there is no such thing."""
    value = (metrics or {}).get(key)
    return float(value) if value is not None and math.isfinite(value) else None


def all_pixels(evaluation: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The metrics of method `name` over all pixels; empty where it was not evaluated."""
    return (evaluation.get("methods", {}).get(name) or {}).get("all") or {}


def format_number(value: float | None, digits: int) -> str:
    """Fixed point with `digits` decimals and a real minus sign, none for zero; a dash for None."""
    if value is None:
        return DASH
    rounded = round(value, digits) + 0.0  # minus zero becomes zero
    return f"{rounded:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def metric_rows(evaluation: Mapping[str, Any], gain: float) -> list[tuple[str, list[Cell]]]:
    """One row a method, one cell a column; `gain`: DN of the reference for radiance 1.

    What rounds to the best value is marked as well: the digits shown are what is claimed.
    """
    names = list(evaluation.get("methods", {}))
    columns = []
    for column in COLUMNS:
        unit = gain if column.in_dn else 1.0
        numbers = [number_of(all_pixels(evaluation, name), column.key) for name in names]
        known = [value * unit for value in numbers if value is not None]
        best = column.best(known) if column.best and len(known) > 1 else None
        texts = [
            format_number(None if value is None else value * unit, column.digits)
            for value in numbers
        ]
        winner = format_number(best, column.digits) if best is not None else None
        if set(texts) <= {winner, DASH}:  # all alike: none is the best
            winner = None
        columns.append([Cell(column, text, text == winner) for text in texts])
    return [(name, [cells[row] for cells in columns]) for row, name in enumerate(names)]
