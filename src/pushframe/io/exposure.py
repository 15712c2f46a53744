"""Exposures that files state themselves: the metadata of the frames, or SkySat's frame index."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .guard import decoding
from .raster import RasterFrame

TAGS = ("exposure_time", "exposure", "integration_time", "exif_exposuretime")
INDEX_FILES = "*frame_index.csv"
INDEX_COLUMNS = ("integration_time_ms", "integration_time", "exposure_ms", "exposure_time")
INDEX_NAMES = ("filename", "name")
DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
EXPOSURE = re.compile(
    rf"(?P<open>\()?\s*(?P<above>{DECIMAL})(?:\s*/\s*(?P<below>{DECIMAL}))?\s*(?P<unit>[^\W\d_]*)\s*"
    r"(?(open)\))"
)


def stated_exposure(folder: Path, frames: Sequence[RasterFrame]) -> tuple[np.ndarray, str] | None:
    """Exposures (N,) and the sentence that says where they were found; None without them."""
    for path in sorted(folder.glob(INDEX_FILES)):
        found = _from_index(path, frames)
        if found is not None:
            return found
    for tag in TAGS:
        values = _numbers([_folded(frame.metadata).get(tag) for frame in frames])
        if values is not None:
            return values, f"Exposures were read from the frames' own tag {tag}."
    return None


def _from_index(path: Path, frames: Sequence[RasterFrame]) -> tuple[np.ndarray, str] | None:
    """Exposures of a frame index, a line a frame that names its file, with or without suffixes."""
    with decoding(path, "a CSV table"), path.open(newline="", encoding="utf-8-sig") as stream:
        lines = [_folded(line) for line in csv.DictReader(stream)]
    for column in INDEX_COLUMNS:
        texts = [
            next((line.get(column) for line in lines if _is_of(line, frame.name)), None)
            for frame in frames
        ]
        values = _numbers(texts)
        if values is not None:
            return values, f"Exposures were read from {column} of {path.name}."
    return None


def _is_of(line: Mapping[str, str], file: str) -> bool:
    """Whether a line of a frame index speaks of a file: they share all but its last words."""
    given = [Path(line[key]).stem for key in INDEX_NAMES if line.get(key)]
    stem = Path(file).stem
    return any(stem == name or stem.startswith(f"{name}_") for name in given)


def _folded(table: Mapping[str | None, str | None]) -> dict[str, str]:
    """A table with its keys in small letters, less what is empty or unnamed."""
    return {
        key.strip().lower(): value
        for key, value in table.items()
        if isinstance(key, str) and isinstance(value, str)
    }


def _numbers(texts: Sequence[str | None]) -> np.ndarray | None:
    """Positive numbers, one for each text, (N,); None unless all are such, in one unit."""
    read = [_number(text) for text in texts]
    found = [pair for pair in read if pair is not None]
    if not found or len(found) < len(read) or len({unit for _, unit in found}) > 1:
        return None
    return np.array([value for value, _ in found])


def _number(text: str | None) -> tuple[float, str] | None:
    """The positive number of '0.004', '(0.004)', '1/250' or '4 ms' and its unit; None else."""
    found = EXPOSURE.fullmatch((text or "").strip())
    if found is None:
        return None
    above, below = float(found["above"]), float(found["below"] or 1)
    if above <= 0 or below <= 0 or not math.isfinite(above / below):
        return None
    return above / below, found["unit"].lower()
