"""One frame on disk, read window by window; never whole unless asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..burst import GeoRef

ALL = slice(None)


class Frame(Protocol):
    """A single-band image: name, size (H, W), dtype, georeference, and windows of its pixels."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def georef(self) -> GeoRef | None: ...

    def read(self, rows: slice = ALL, columns: slice = ALL) -> np.ndarray:
        """The window within the frame as float32 DN, NaN where invalid, (h, w)."""


@dataclass(frozen=True, eq=False)
class ArrayFrame:
    """A frame that is an array (H, W) in memory, or mapped from an .npy file."""

    pixels: np.ndarray
    name: str
    georef: GeoRef | None = None

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.pixels.shape
        return height, width

    @property
    def dtype(self) -> str:
        return self.pixels.dtype.name

    def read(self, rows: slice = ALL, columns: slice = ALL) -> np.ndarray:
        return to_float32(self.pixels[rows, columns])


def to_float32(pixels: np.ndarray) -> np.ndarray:
    """Pixels of any real dtype as float32; what float32 cannot hold becomes infinite."""
    with np.errstate(over="ignore"):
        return pixels.astype(np.float32, copy=False)


def read_window(frame: Frame, rows: slice, columns: slice) -> np.ndarray:
    """A window that may reach beyond the frame, NaN there, float32 DN (h, w)."""
    window = np.full((rows.stop - rows.start, columns.stop - columns.start), np.nan, np.float32)
    inside = [
        slice(max(part.start, 0), min(part.stop, size))
        for part, size in zip((rows, columns), frame.shape, strict=True)
    ]
    if all(part.start < part.stop for part in inside):
        place = [
            slice(part.start - whole.start, part.stop - whole.start)
            for part, whole in zip(inside, (rows, columns), strict=True)
        ]
        window[place[0], place[1]] = frame.read(inside[0], inside[1])
    return window


def spread_windows(shape: tuple[int, int], side: int, count: int) -> list[tuple[slice, slice]]:
    """At most `count`^2 windows of `side` px spread evenly over an image; itself if it is small.

    An axis shorter than two windows is taken whole, up to twice `side`.
    """
    axes = []
    for size in shape:
        if size < 2 * side:
            axes.append([slice(0, size)])
            continue
        number = min(count, size // side)
        starts = [round(k * (size - side) / (number - 1)) for k in range(number)]
        axes.append([slice(start, start + side) for start in starts])
    return [(rows, columns) for rows in axes[0] for columns in axes[1]]


def block_means(
    read: Callable[[slice, slice], np.ndarray], shape: tuple[int, int], step: int
) -> np.ndarray:
    """The means of blocks of `step` px, valid pixels alone, (H // step, W // step).

    Strips of the image are read one after the other; NaN where a block has no valid pixel.
    """
    height, width = (size // step for size in shape)
    rows = []
    for row in range(height):
        strip = read(slice(row * step, (row + 1) * step), slice(0, width * step))
        blocks = strip.reshape(step, width, step)
        seen = ~np.isnan(blocks)
        total = np.where(seen, blocks, 0).sum((0, 2), dtype=np.float64)
        count = seen.sum((0, 2))
        rows.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    return np.stack(rows).astype(np.float32)
