"""`pushframe evaluate`: methods compared on bursts whose truth is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from ..config import load_config
from ..errors import UsageError
from ..evaluate import Case, evaluate
from ..io import atomic_path
from ..methods import METHODS, find_methods
from ..plots import coverage_png, need_matplotlib
from ..simulate import PRESETS, preset, with_options
from ..sources import SimulatedCases, find_bursts, find_sources, read_cases
from ..tables import SUMMARY, number, tables_markdown
from ..version import __version__
from .console import (
    JSON_OPTION,
    SET_OPTION,
    check_device,
    note,
    out,
    print_json,
    progress,
    write_json,
)

METHODS_HELP = (
    "Comma-separated: "
    + "; ".join(f"{name}: {method.about}" for name, method in METHODS.items())
    + "; or weights, by name or .safetensors file."
)


def command(
    paths: str = typer.Argument(
        ...,
        metavar="IMAGES_OR_BURSTS",
        help="Image, folder of images, or scene:SEED; or a burst with truth, or a folder of them.",
    ),
    to: Path = typer.Option(..., "--out", "-o", help="Folder for the results."),
    methods: str = typer.Option("bicubic,shift_and_add,map,solver", help=METHODS_HELP),
    motion: str = typer.Option("estimated", help="estimated, or true (the simulator's own)."),
    preset_name: str = typer.Option("paper", "--preset", help=f"One of {', '.join(PRESETS)}."),
    frames: int | None = typer.Option(None, help="Frames in a burst. Default 15."),
    size: int | None = typer.Option(None, help="Side of a frame, px. Default 64."),
    scale: int | None = typer.Option(None, help="Zoom, 2-4. Default 2."),
    seed: int = typer.Option(0, min=0, help="Same seed, same bursts."),
    border: int = typer.Option(8, min=0, help="High-res px left out along the edges."),
    device: str = typer.Option("cpu", help="cpu or cuda."),
    settings: list[str] = SET_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Measure accuracy and calibration of each method, on all pixels and on each sub-grid.

    Images become bursts: every non-overlapping window, simulated with its own seed, so that two
    runs and two machines see the same bursts. Writes evaluation.json, tables.md (the paper's
    Table 1 and Table 2) and coverage.png.

    Examples:

      pushframe evaluate images/test --out out --methods bicubic,shift_and_add,map

      pushframe evaluate images/test --out out --motion true --preset continuous

      pushframe evaluate bursts/ --out out --methods map_sampled --json
    """
    if motion not in ("estimated", "true"):
        raise UsageError(f"expected --motion estimated or true, got {motion!r}: choose one")
    names = [name.strip() for name in methods.split(",") if name.strip()]
    find_methods(names)
    check_device(device)
    need_matplotlib()
    setting = with_options(preset(preset_name), frames=frames, size=size, scale=scale)
    setting = load_config(setting, overrides=settings)
    bursts = find_bursts(paths)
    made = None if bursts else SimulatedCases(find_sources(paths), setting, seed)
    cases: Iterable[Case] = read_cases(bursts) if made is None else made
    with progress("evaluating", len(bursts) or None) as (bar, task):
        result: dict[str, Any] = evaluate(
            cases,
            names,
            motion == "true",
            border,
            device,
            on_batch=lambda count: bar.advance(task, count),
        )
    result["version"] = __version__
    if made is not None:
        result["simulation"] = {
            "preset": preset_name,
            "seed": seed,
            **dataclasses.asdict(setting),
        }
        result["skipped"] = made.skipped
        for name in made.skipped:
            note(f"{name} has no window of {setting.source_size} px without nodata: left out")
    write_json(to / "evaluation.json", result)
    with atomic_path(to / "tables.md") as temporary:
        temporary.write_text(tables_markdown(result))
    coverage_png(result, to / "coverage.png")
    if as_json:
        print_json(result)
    else:
        print_summary(result)
        out.print(f"\nwritten: {to}/evaluation.json, tables.md, coverage.png", highlight=False)


def print_summary(result: dict[str, Any]) -> None:
    """The main figures as a table on the terminal."""
    from rich.table import Table

    bursts = "1 burst" if result["bursts"] == 1 else f"{result['bursts']} bursts"
    title = f"{bursts}, {result['frames']} frames, {result['motion']} motion"
    table = Table(title=title)
    table.add_column("")
    for name in result["methods"]:
        table.add_column(name, justify="right")
    for title, key, factor, form in SUMMARY:
        cells = [number(m["all"], key, factor, form) for m in result["methods"].values()]
        table.add_row(title, *cells)
    out.print(table)
