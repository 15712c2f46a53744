"""Which part of a scene: a window in pixels, or bounds on the map."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .burst import GeoRef
from .checks import require
from .errors import UsageError


class Window(NamedTuple):
    """A part of the reference frame, low-res px."""

    row: int
    column: int
    height: int
    width: int


class Bounds(NamedTuple):
    """A part of the map, in the CRS of the reference frame."""

    west: float
    south: float
    east: float
    north: float


def window_of_bounds(bounds: Bounds, georef: GeoRef | None, shape: tuple[int, int]) -> Window:
    """The pixels that bounds touch, clipped to the scene of `shape`."""
    if georef is None or georef.transform is None:
        raise UsageError(
            "expected a burst with a map projection for bounds (--bbox), got one without: "
            "give the part in pixels (--window)"
        )
    require(
        bounds.west < bounds.east and bounds.south < bounds.north,
        "bounds west,south,east,north with west < east and south < north",
        ",".join(f"{value:g}" for value in bounds),
        "put them in order",
        UsageError,
    )
    a, b, c, d, e, f = georef.transform
    corners = np.array([[x - c, y - f] for x in bounds[::2] for y in bounds[1::2]])
    columns, rows = np.linalg.solve(np.array([[a, b], [d, e]]), corners.T)
    part = [
        (max(0, math.floor(place.min() + 1e-6)), min(size, math.ceil(place.max() - 1e-6)))
        for place, size in zip((rows, columns), shape, strict=True)
    ]
    if any(start >= stop for start, stop in part):
        ground = np.array([[a * x + b * y + c, d * x + e * y + f]
                           for x in (0, shape[1]) for y in (0, shape[0])])  # fmt: skip
        low, high = ground.min(0), ground.max(0)
        raise UsageError(
            f"expected bounds that meet the scene ({low[0]:.10g},{low[1]:.10g},{high[0]:.10g},"
            f"{high[1]:.10g}), got {','.join(f'{value:.10g}' for value in bounds)}: correct them, "
            "in the CRS of the frames"
        )
    (top, bottom), (left, right) = part
    return Window(top, left, bottom - top, right - left)


def within(window: Window, shape: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns of a window that must lie in a scene of `shape`."""
    row, column, height, width = window
    inside = row >= 0 and column >= 0 and height > 0 and width > 0
    require(
        inside and row + height <= shape[0] and column + width <= shape[1],
        f"a window row,column,height,width within {shape[0]}x{shape[1]}",
        ",".join(map(str, window)),
        "correct it",
        UsageError,
    )
    return slice(row, row + height), slice(column, column + width)
