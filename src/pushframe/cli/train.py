"""`pushframe train`: a network from sharp images or from bursts alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ..errors import FileError, UsageError
from ..train import TrainConfig, load_train_config, train
from ..train.book import WEIGHTS
from ..train.checkpoint import LOG, NAME, read_state
from ..train.memory import enough_memory
from ..train.team import Team
from .console import JSON_OPTION, check_device, err, flattened, note, out, print_json

TRAIN_SET_OPTION = typer.Option(
    [],
    "--set",
    metavar="KEY=VALUE",
    help="Change any field of the configuration, e.g. schedule.steps=2000 (in place of the file's "
    "schedule.minutes), data.batch=8, loss.kind=supervised. Repeatable.",
)
FREE = (  # what may differ when a run goes on
    *("schedule.steps", "schedule.minutes", "log_every", "validate_every", "checkpoint_every"),
    *("compile", "data.images", "data.bursts"),
)


def command(
    config: Path = typer.Option(..., "--config", "-c", help="A TOML file; see configs/."),
    to: Path = typer.Option(..., "--out", "-o", help="Folder of the run."),
    settings: list[str] = TRAIN_SET_OPTION,
    resume: bool = typer.Option(False, "--resume", help="Go on from the run's checkpoint."),
    stop_after_minutes: float = typer.Option(
        math.inf, help="End this part of the run then; go on later with --resume."
    ),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave out images or bursts that cannot be used, and say which."
    ),
    device: str = typer.Option("cpu", help="cpu or cuda."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Train a network; killed at any moment, it goes on with --resume.

    Writes log.jsonl (losses, speed, validation figures), checkpoint.safetensors and
    weights.safetensors, the averaged weights with their card. data.validation_groups names images,
    or groups of them, that are held out to judge the network by.

    Examples:

      pushframe train --config configs/small.toml --out run --set data.images=images/
      --set 'data.validation_groups=["place_7"]'

      pushframe train --config own.toml --out run --resume --device cuda

      pushframe train --config own.toml --out run --set data.bursts=bursts/ --skip-bad
    """
    chosen = load_train_config(config, settings)
    check_device(device)
    if resume:
        _check_same(chosen, to)
    elif Team.is_led_from_here() and _holds_something(to):
        raise FileError(
            f"expected a new or empty folder, got {to}: choose another --out, or go on with "
            "--resume"
        )
    left_out: list[str] = []
    with _live(left_out) as on_log, enough_memory(chosen, to):
        state = train(chosen, to, device, resume, stop_after_minutes, skip_bad, on_log)
    if not Team.is_led_from_here():
        return
    done, step = chosen.schedule.share_done(state.progress) >= 1, state.progress.step
    files = {"weights": str(to / WEIGHTS), "checkpoint": str(to / NAME), "log": str(to / LOG)}
    if as_json:
        print_json({"done": done, "step": step, **files, "left_out": left_out})
        return
    said = "done" if done else f"stopped at step {step}, go on with --resume"
    out.print(f"{said}: {files['weights']}, {files['checkpoint']}", highlight=False)


def _holds_something(run: Path) -> bool:
    """Whether a folder holds more than drafts of a run that was killed as it began."""
    if not run.is_dir():
        return run.exists()
    return any(not entry.name.startswith(".pushframe-") for entry in run.iterdir())


def _check_same(config: TrainConfig, run: Path) -> None:
    """A run goes on with the configuration it was started with."""
    _, before = read_state(run)
    old, new = flattened(before), flattened(dataclasses.asdict(config))
    changed = {k for k in old.keys() | new.keys() if old.get(k) != new.get(k)} - set(FREE)
    for key in sorted(changed)[:1]:
        raise UsageError(
            f"expected {key} = {old.get(key)!r} as the run was started with, got "
            f"{new.get(key)!r}: resume with the same configuration, or start a new run"
        )


@contextmanager
def _live(left_out: list[str]) -> Iterator[Callable[[dict[str, Any], float], None]]:
    """A bar with the share done, and a line for each validation; plain lines where piped.

    left_out: takes what the run left out, which is said, too.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("training", total=1.0)

        def on_log(line: dict[str, Any], share: float) -> None:
            if "left_out" in line:
                left_out.extend(line["left_out"])
                for text in line["left_out"]:
                    note(text)
                return
            text = _spell(line)
            if "validation" in line or not err.is_terminal:
                bar.console.print(text, highlight=False)
            bar.update(task, completed=min(share, 1.0), description=text[:90])

        yield on_log


def _spell(line: dict[str, Any]) -> str:
    if "validation" in line:
        parts = [
            f"{name}: "
            + ", ".join(f"{key} {value:.4g}" for key, value in figures.items() if value is not None)
            for name, figures in line["validation"].items()
        ]
        return f"step {line['step']}  " + "; ".join(parts)
    return (
        f"step {line['step']}  loss {line['loss']:.4f}  {line['samples_per_s']:.0f} samples/s  "
        f"{line['minutes']:.1f} min"
    )
