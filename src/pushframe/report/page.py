"""The demo page: from a simulated burst and its results to one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..burst import Simulated
from ..checks import require
from ..errors import UsageError
from ..posterior import Posterior
from ..product import Product
from .encode import colour_table, colour_uri, grey_uri, pooled, stretch_of
from .layers import Layers, collect_layers, show_window
from .packages import load_package
from .parts import colour_bar, frame_cards, viewer_data, write_page
from .svg import Coverage, coverage_svg, z_histogram_svg
from .table import COLUMNS, DASH, all_pixels, format_number, metric_rows, number_of

SERIES_COLOURS = 6  # as many as page.css defines


def write_demo_page(
    path: str | Path,
    simulated: Simulated,
    posteriors: Mapping[str, Posterior],
    best: str,
    evaluation: Mapping[str, Any],
    product: Product,
) -> None:
    """Write one HTML file that shows a burst, its truth, every method and its error bars.

    simulated: one burst, frames (N, H, W) and truth (s*H, s*W), normalised radiance.
    posteriors: mean (s*H, s*W), NaN where nothing is known, and var or None, by method name.
    best: the method shown as the result. evaluation: schema pushframe-evaluation/1.
    product: its provenance is listed. The file appears whole or not at all.
    """
    require(
        best in posteriors,
        f"best to be one of {', '.join(posteriors) or 'the posteriors'}",
        best,
        "name a method that has a posterior",
        UsageError,
    )
    require(
        simulated.burst.frames.ndim == 3,
        "a single burst of shape (N, H, W)",
        tuple(simulated.burst.frames.shape),
        "write one page for each burst of a batch",
        UsageError,
    )
    context = page_context(simulated, posteriors, best, evaluation, product)
    write_page(path, "page.html.j2", context)


def page_context(
    simulated: Simulated,
    posteriors: Mapping[str, Posterior],
    best: str,
    evaluation: Mapping[str, Any],
    product: Product,
) -> dict[str, Any]:
    """Everything the template asks for; images and errors in raw DN of the reference frame."""
    burst = simulated.burst
    whole = collect_layers(simulated, posteriors)
    shown = show_window(whole)
    stretch = stretch_of(whole.known_truth)
    error_top = _error_top(whole, best)
    colours = colour_table()
    return {
        "best": best,
        "count": burst.count,
        "frame_size": burst.shape,
        "size": whole.known_truth.shape,
        "shown_size": shown.known_truth.shape,
        "scale": whole.scale,
        "summary": summary_numbers(evaluation, best),
        "data": viewer_data(shown, best, stretch, error_top, colours),
        "frames": frame_cards(burst, shown, stretch),
        "registered": shown.shifts_px is not None,
        "has_truth": True,
        "panels": _panels(shown, best, stretch, error_top, colours),
        "colour_bar": colour_bar(error_top, colours),
        **_honesty(whole, best, evaluation),
        "columns": COLUMNS,
        "rows": metric_rows(evaluation, float(burst.gain[0])),
        "bursts": evaluation.get("bursts"),
        "border": evaluation.get("border_hpx") or 0,
        "provenance": {str(key): str(value) for key, value in product.provenance.items()},
    }


def summary_numbers(evaluation: Mapping[str, Any], best: str) -> dict[str, Any]:
    """PSNR of the result, its distance to the weakest other method, and its 90% coverage.

    Each is text, or None where the evaluation does not know it.
    """
    psnr = number_of(all_pixels(evaluation, best), "psnr_db")
    others = {
        name: value
        for name in evaluation.get("methods", {})
        if name != best
        and (value := number_of(all_pixels(evaluation, name), "psnr_db")) is not None
    }
    rival = min(others, key=others.__getitem__) if others and psnr is not None else None
    ahead = psnr - others[rival] if psnr is not None and rival is not None else 0.0
    levels = evaluation.get("levels") or []
    coverage = all_pixels(evaluation, best).get("coverage") or []
    at_90 = [
        share
        for level, share in zip(levels, coverage, strict=False)
        if abs(level - 0.9) < 1e-6 and share is not None
    ]
    return {
        "psnr": None if psnr is None else format_number(psnr, 1),
        "rival": rival,
        "ahead": format_number(abs(ahead), 1),
        "above": ahead >= 0,
        "coverage_90": format_number(100 * at_90[0], 1) if at_90 else None,
    }


def _error_top(layers: Layers, best: str) -> float:
    """The top of the colour scale that errors and error bars of the result share, DN."""
    images = [np.abs(layers.error(best)), *([layers.std[best]] if best in layers.std else [])]
    return max(stretch_of(image, 0.0, 99.0)[1] for image in images)


def _panels(
    layers: Layers, best: str, stretch: tuple[float, float], error_top: float, colours: np.ndarray
) -> list[dict[str, str]]:
    """Result, truth, |error| and error bar as pictures; the last only where there is one.

    The maps in colour are means of s x s pixels, as in the report of a product.
    """
    error = pooled(np.abs(layers.error(best)), layers.scale)
    panels = [
        {
            "title": "Result",
            "alt": f"Image by {best}",
            "uri": grey_uri(layers.mean[best], *stretch),
        },
        {"title": "Truth", "alt": "The true image", "uri": grey_uri(layers.known_truth, *stretch)},
        {
            "title": "|Error|",
            "alt": f"Absolute error of {best}",
            "uri": colour_uri(error, error_top, colours),
        },
    ]
    if best in layers.std:
        panels.append(
            {
                "title": "Error bar",
                "alt": f"Predicted standard deviation of {best}",
                "uri": colour_uri(pooled(layers.std[best], layers.scale), error_top, colours),
            }
        )
    return panels


def _honesty(layers: Layers, best: str, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Coverage curves and histogram of z of the methods with error bars, the result first."""
    names = list(dict.fromkeys([best, *layers.mean, *evaluation.get("methods", {})]))
    curves = {name: curve for name in names if (curve := _coverage(evaluation, name)) is not None}
    border = int(evaluation.get("border_hpx") or 0)
    scores = {name: layers.z_scores(name, border) for name in names if name in layers.std}
    scores = {name: z for name, z in scores.items() if z.size}
    used = [name for name in names if name in curves or name in scores]
    series = {name: index % SERIES_COLOURS for index, name in enumerate(used)}
    markup = load_package("markupsafe").Markup
    facts = []
    for name in used:
        metrics, z = all_pixels(evaluation, name), scores.get(name)
        error = format_number(number_of(metrics, "calibration_error"), 3)
        spread = DASH if z is None else f"{float(np.mean(z**2)):.2f}"
        tails = DASH if z is None else f"{100 * float(np.mean(np.abs(z) > 3)):.2f}%"
        facts.append(
            {"name": name, "series": series[name], "error": error, "z2": spread, "tails": tails}
        )
    return {
        "coverage": markup(coverage_svg(evaluation["levels"], curves, series)) if curves else None,
        "histogram": markup(z_histogram_svg(scores, series)) if scores else None,
        "legend": facts,
    }


def _coverage(evaluation: Mapping[str, Any], name: str) -> Coverage | None:
    """The coverage curves of one method, or None where it has no error bar."""
    method = evaluation.get("methods", {}).get(name) or {}
    whole = (method.get("all") or {}).get("coverage")
    if not whole or None in whole:
        return None
    grids = [grid.get("coverage") for row in method.get("subgrids") or [] for grid in row]
    return Coverage(whole, [grid for grid in grids if grid and None not in grid])
