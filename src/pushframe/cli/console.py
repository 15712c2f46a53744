"""What the commands share: how they speak, show progress and take common options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from ..errors import UsageError
from ..io import atomic_path

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)

JSON_OPTION = typer.Option(False, "--json", help="Print JSON for a program to read.")
SET_OPTION = typer.Option(
    [],
    "--set",
    metavar="KEY=VALUE",
    help="Change any field of the simulator, e.g. motion=drift, psf_hpx=0.5, "
    "exposure_error=0.01, saturate=true, noise_std_dn=[1,40]. Repeatable.",
)


def fail(message: str) -> None:
    """One line on stderr."""
    err.print(f"[bold red]error:[/] {escape(' '.join(message.split()))}", highlight=False)


def note(message: str) -> None:
    """A remark on stderr, so that stdout stays for results."""
    err.print(f"[yellow]note:[/] {escape(message)}", highlight=False)


def print_json(value: Any) -> None:
    """JSON alone on stdout."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False))


def write_json(path: Path, value: Any) -> None:
    """A JSON file that appears whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


def check_device(name: str) -> None:
    """Refuse a device that is not here, before any work."""
    import torch

    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"expected a device of this machine, got {name!r}: use cpu, or cuda where "
            "`pushframe info` shows a GPU"
        ) from error


def flattened(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat


@contextmanager
def progress(label: str, total: int | None) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar on stderr with the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # rich would leave an empty line in a log file
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        yield bar, bar.add_task(label, total=total)
