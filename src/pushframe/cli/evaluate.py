"""`pushframe evaluate`: methods compared on bursts whose truth is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from ..config import load_config
from ..errors import UsageError
from ..evaluate import Case, evaluate
from ..io import atomic_files, check_files
from ..methods import METHODS, check_methods
from ..plots import coverage_png, need_matplotlib
from ..simulate import PRESETS, preset, with_options
from ..sources import SimulatedCases, find_bursts, find_sources, read_cases
from ..tables import about, summary_rows, tables_markdown
from ..version import __version__
from ..weights import shipped_weights
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
    "; ".join(f"{name}: {method.about}" for name, method in METHODS.items())
    + f"; or weights: {', '.join(shipped_weights())}, or a .safetensors file"
)
COMPARED = ("bicubic", "shift_and_add", "map", "solver")
FILES = ("evaluation.json", "tables.md", "coverage.png")


def command(
    paths: str = typer.Argument(
        ...,
        metavar="IMAGES_OR_BURSTS",
        help="Image, folder of images, or scene:SEED; or a burst with truth, or a folder of them.",
    ),
    to: Path = typer.Option(..., "--out", "-o", help="Folder for the results."),
    methods: str = typer.Option(",".join(COMPARED), help=f"Comma-separated: {METHODS_HELP}."),
    motion: str = typer.Option("estimated", help="estimated, or true (the simulator's own)."),
    preset_name: str | None = typer.Option(
        None, "--preset", help=f"One of {', '.join(PRESETS)}. Default paper. Images only."
    ),
    frames: int | None = typer.Option(None, help="Frames in a burst. Default 15. Images only."),
    size: int | None = typer.Option(None, help="Side of a frame, px. Default 64. Images only."),
    scale: int | None = typer.Option(None, help="Zoom, 2-4. Default 2. Images only."),
    seed: int | None = typer.Option(
        None, min=0, help="Same seed, same bursts. Default 0. Images only."
    ),
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

      pushframe evaluate images/test --out out --methods map,solver,base

      pushframe evaluate images/test --out out --motion true --preset continuous

      pushframe evaluate bursts/ --out out --methods map_sampled --json
    """
    names = checked_methods(methods, motion, to, device)
    bursts = find_bursts(paths)
    given = {"frames": frames, "size": size, "scale": scale}
    if bursts:
        options = {"preset": preset_name, **given, "seed": seed, "set": settings or None}
        refuse_options(paths, options)
    chosen, seed = preset_name or "paper", seed or 0
    setting = load_config(with_options(preset(chosen), **given), overrides=settings)
    check_methods(names, None if bursts else setting.scale)
    made = None if bursts else SimulatedCases(find_sources(paths), setting, seed)
    cases: Iterable[Case] = read_cases(bursts) if made is None else made
    result = measure(cases, len(bursts) or None, names, motion == "true", border, device)
    if made is not None:
        result |= facts_of(made, chosen)
    for text in result["notes"]:
        note(text)
    write_results(result, to)
    if as_json:
        print_json(result)
    else:
        print_summary(result)
        out.print(f"\nwritten: {to}/{', '.join(FILES)}", highlight=False)


def checked_methods(methods: str, motion: str, to: Path, device: str) -> list[str]:
    """The names of the methods; what can be known to fail is said before any work."""
    if motion not in ("estimated", "true"):
        raise UsageError(f"expected --motion estimated or true, got {motion!r}: choose one")
    names = [name.strip() for name in methods.split(",") if name.strip()]
    check_methods(names)
    check_files([to / name for name in FILES])
    check_device(device)
    need_matplotlib()
    return names


def refuse_options(paths: str, options: Mapping[str, object]) -> None:
    """UsageError where an option of the simulator is given with bursts that are made already."""
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise UsageError(
            f"expected images to simulate from with {', '.join(given)}, got bursts ({paths}), "
            "which are used as they are: leave those options out"
        )


def measure(
    cases: Iterable[Case],
    total: int | None,
    names: list[str],
    true_motion: bool,
    border: int,
    device: str,
) -> dict[str, Any]:
    """The figures of each method, behind a progress bar; total: number of bursts, if known."""
    with progress("evaluating", total) as (bar, task):

        def on_batch(count: int) -> None:
            bar.advance(task, count)

        result = evaluate(cases, names, true_motion, border, device, on_batch)
    return {**result, "version": __version__}


def facts_of(made: SimulatedCases, preset_name: str) -> dict[str, Any]:
    """How bursts were simulated and which images held none, for the JSON; the latter is noted."""
    setting = made.setting
    for name in made.skipped:
        note(f"{name} has no window of {setting.source_size} px without nodata: left out")
    simulation = {"preset": preset_name, "seed": made.seed, **dataclasses.asdict(setting)}
    return {"simulation": simulation, "skipped": made.skipped}


def write_results(result: dict[str, Any], to: Path) -> None:
    """The three files, all or none."""
    with atomic_files(to) as draft:
        write_json(draft / "evaluation.json", result)
        (draft / "tables.md").write_text(tables_markdown(result))
        coverage_png(result, draft / "coverage.png")


def print_summary(result: dict[str, Any]) -> None:
    """The main figures as a table on the terminal."""
    from rich.table import Table

    table = Table(title=about(result))
    table.add_column("")
    for name in result["methods"]:
        table.add_column(name, justify="right")
    for row in summary_rows(result):
        table.add_row(*row)
    out.print(table)
