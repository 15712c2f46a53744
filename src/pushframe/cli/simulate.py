"""`pushframe simulate`: bursts with their truth, from images or procedural scenes."""

from __future__ import annotations

from pathlib import Path

import typer

from ..checks import counted
from ..config import load_config
from ..errors import FileError, UsageError
from ..io import atomic_files, write_burst
from ..simulate import PRESETS, preset, with_options
from ..sources import find_sources, simulate_count
from .console import JSON_OPTION, SET_OPTION, out, print_json, progress

SUFFIXES = {"npz": ".npz", "folder": "", "stack": ".tif"}


def command(
    image: str = typer.Argument(
        ..., metavar="IMAGE_OR_DIR", help="An image, a folder of images, or scene:SEED."
    ),
    to: Path = typer.Option(..., "--out", "-o", help="A new or empty folder for the bursts."),
    preset_name: str = typer.Option("paper", "--preset", help=f"One of {', '.join(PRESETS)}."),
    frames: int | None = typer.Option(None, help="Frames in a burst. Default 15."),
    size: int | None = typer.Option(None, help="Side of a frame, px. Default 64."),
    scale: int | None = typer.Option(None, help="Zoom from frame to truth, 2-4. Default 2."),
    count: int | None = typer.Option(
        None, help="Bursts from each image; all its windows once if not given."
    ),
    seed: int = typer.Option(0, min=0, help="Same seed, same bursts."),
    kind: str = typer.Option("npz", "--format", help="npz, folder (TIFF frames) or stack (TIFF)."),
    settings: list[str] = SET_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Make bursts of noisy, aliased, multi-exposure frames from sharp images, with their truth.

    Bursts appear in the folder when all are made: an error or Ctrl-C half-way leaves nothing.

    Examples:

      pushframe simulate scene:7 --out bursts --count 4

      pushframe simulate images/ --out bursts --preset continuous --frames 8 --set psf_hpx=0.5

      pushframe simulate city.tif --out bursts --format folder --set motion=drift
    """
    if kind not in SUFFIXES:
        raise UsageError(f"expected --format npz, folder or stack, got {kind!r}: choose one")
    if count is not None and count < 1:
        raise UsageError(f"expected --count of at least 1, got {count}: raise it")
    setting = with_options(preset(preset_name), frames=frames, size=size, scale=scale)
    setting = load_config(setting, overrides=settings)
    sources = find_sources(image)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise FileError(f"expected a new or empty folder, got {to}: choose another --out")
    stems = [Path(source.name.replace(":", "_")).stem for source in sources]
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise UsageError(
            f"expected images of different names, got {twice!r} twice: their bursts would collide"
        )
    written: list[str] = []
    with (
        atomic_files(to) as draft,
        progress("simulating", len(sources) * count if count else None) as (bar, task),
    ):
        for source, stem in zip(sources, stems, strict=True):
            for index, made in enumerate(simulate_count(source, setting, seed, count)):
                name = f"{stem}_{index:04d}{SUFFIXES[kind]}"
                write_burst(made.burst, draft / name, truth=made.truth, flow_px=made.flow_px)
                written.append(str(to / name))
                bar.advance(task)
    if as_json:
        print_json({"bursts": written})
    else:
        bursts, each = counted(len(written), "burst"), counted(setting.frames, "frame")
        out.print(f"{bursts} of {each} in {to}", highlight=False)
