"""burst.toml: what TIFF frames cannot say themselves, and which files are the frames."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checks import require
from ..errors import FileError
from .contents import KEYS, check_keys
from .guard import decoding, naming, need_file

NAME = "burst.toml"
TIFF = (".tif", ".tiff")
SKYSAT = r"^\d{8}_\d{6}_ss\w+d[123]_\d{4}_basic_l1a_panchromatic_dn\.tiff?$"


@dataclass(frozen=True)
class Sidecar:
    """Where the frames of a burst are, and the keys that go with them.

    home: the side-car, or the place where one is missing; frames: a single stack, or one file a
    frame, each as its path from the folder of `home`.
    """

    home: Path
    stack: str | None = None
    frames: tuple[str, ...] = ()
    table: Mapping[str, Any] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        """The path of a file that the side-car names."""
        return self.home.parent / name

    @property
    def files(self) -> list[Path]:
        """The side-car, the frames, and the files that the side-car names besides."""
        names = [*self.frames, *_named_besides(self.table)]
        return [self.home, *map(self.file, names if self.stack is None else [self.stack, *names])]


def find_sidecar(path: Path) -> Sidecar:
    """The side-car of a folder, of a TIFF stack, or the .toml itself, with its frames found."""
    if path.is_dir():
        home = path / NAME
        return _with_frames(home, _load(home) if home.is_file() else {})
    need_file(path)
    if path.suffix.lower() == ".toml":
        return _with_frames(path, _load(path))
    own, shared = path.with_suffix(".toml"), path.parent / NAME
    if own.is_file():
        table = _load(own)
        with naming(own):
            require(
                table.get("frames", path.name) == path.name,
                f'frames = "{path.name}", or no `frames`, in the side-car of {path.name}',
                repr(table.get("frames"))[:60],
                "correct `frames`, or read the side-car itself",
            )
        return Sidecar(own, path.name, table=table)
    if shared.is_file():
        table = _load(shared)
        if table.get("frames") == path.name:
            return Sidecar(shared, path.name, table=table)
    return Sidecar(own, path.name)


def _with_frames(home: Path, table: Mapping[str, Any]) -> Sidecar:
    """The side-car with the frames that it names, or else those of its folder."""
    with naming(home if home.is_file() else home.parent):
        frames = table.get("frames")
        if frames is None and home.name != NAME:
            named = [home.stem + suffix for suffix in TIFF]
            frames = next((name for name in named if home.with_name(name).is_file()), None)
            require(
                frames is not None,
                f"`frames` in the side-car, or {named[0]} beside it",
                "neither",
                "name the frames",
                FileError,
            )
        if isinstance(frames, str):
            return Sidecar(home, frames, table=table)
        files = tuple(tiffs(home.parent, table) if frames is None else strings("frames", frames))
        require(bool(files), "TIFF frames in the folder", "none", "put them there", FileError)
        return Sidecar(home, frames=files, table=table)


def _load(path: Path) -> dict[str, Any]:
    """The table of a side-car, each key known."""
    with decoding(path, "a TOML file"):
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    with naming(path):
        check_keys(table, KEYS)
    return table


def tiffs(folder: Path, table: Mapping[str, Any]) -> list[str]:
    """The TIFFs of a folder in natural order, less those that are truth or masks.

    Beside SkySat's L1A frames, what else a delivery holds is no frame.
    """
    other = [os.path.normpath(name) for name in _named_besides(table)]
    names = [entry.name for entry in folder.iterdir() if entry.suffix.lower() in TIFF]
    names = [name for name in names if re.search(SKYSAT, name)] or names
    return sorted(
        (name for name in names if name not in other and not name.startswith(".")), key=natural
    )


def beside_tiff(path: Path) -> list[Path]:
    """The files beside a TIFF that GDAL reads with it: RPC, world file, mask, metadata."""
    if path.suffix.lower() not in TIFF:
        return []
    names = [
        f"{path.stem}{end}" for end in ("_RPC.TXT", "_rpc.txt", ".RPB", ".tfw", ".tifw", ".wld")
    ]
    names += [f"{path.name}{end}" for end in (".msk", ".aux.xml")]
    return [path.with_name(name) for name in names if path.with_name(name).is_file()]


def _named_besides(table: Mapping[str, Any]) -> list[str]:
    """The files of truth, flows and masks that a table names."""
    valid = table.get("valid", [])
    values = [table.get("truth"), table.get("flow_px")]
    values += valid if isinstance(valid, list) else [valid]
    return [value for value in values if isinstance(value, str)]


def has_skysat(folder: Path) -> bool:
    """Whether a folder holds SkySat L1A frames, told by their names."""
    return any(re.search(SKYSAT, entry.name) for entry in folder.iterdir())


def natural(name: str) -> tuple[list[tuple[int, int | str]], str]:
    """A sorting key that reads digits as numbers: frame_2 before frame_10."""
    parts = re.split(r"([0-9]+)", name.casefold())
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts if part], name


def strings(key: str, value: Any) -> list[str]:
    """`value` as a list of strings."""
    require(
        isinstance(value, list) and all(isinstance(item, str) for item in value),
        f"{key} as a list of strings",
        repr(value)[:60],
        f"correct `{key}`",
    )
    return value


def sidecar_text(fields: Mapping[str, Any]) -> str:
    """A side-car in TOML; numbers are written so that they read back the same."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in fields.items())


def _toml(value: Any) -> str:
    """A string, number, truth value or nested list in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
