"""Arrays to what a browser reads: PNG data URIs to look at, 16-bit codes to read values from."""

from __future__ import annotations

import base64
import io
import math
from typing import TypedDict

import numpy as np

from .packages import load_package

RESIDUAL_SIGMAS = 5.0
ORANGE = np.array([1.0, 0.55, 0.1])  # share of red, green and blue where pixels were left out
HOLE = 65535  # the 16-bit code of a pixel of which nothing is known


class Packed(TypedDict):
    """An image in 16-bit codes, `value = offset + step * code`, code 65535 = NaN.

    codes: base64 of little-endian uint16, row by row.
    """

    height: int
    width: int
    offset: float
    step: float
    codes: str


def pack_values(values: np.ndarray) -> Packed:
    """An image (H, W) as 16-bit codes, within half of `step` = (max - min) / 65534.

    What is not finite becomes a hole.
    """
    known = np.isfinite(values)
    seen = values[known].astype(np.float64)
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)
    step = (high - low) / (HOLE - 1) or 1.0
    codes = np.full(values.shape, HOLE, dtype="<u2")
    codes[known] = np.clip(np.rint((seen - low) / step), 0, HOLE - 1).astype("<u2")
    return Packed(
        height=values.shape[0],
        width=values.shape[1],
        offset=low,
        step=step,
        codes=base64.b64encode(codes.tobytes()).decode("ascii"),
    )


def pooled(values: np.ndarray, side: int) -> np.ndarray:
    """Means of blocks of side x side pixels of an image (H, W), both multiples of `side`.

    NaN where one of a block is.
    """
    height, width = values.shape
    return values.reshape(height // side, side, width // side, side).mean((1, 3))


def stretch_of(values: np.ndarray, low: float = 0.5, high: float = 99.5) -> tuple[float, float]:
    """The display range of an image: two percentiles of its finite values, never equal."""
    seen = values[np.isfinite(values)]
    if not seen.size:
        return 0.0, 1.0
    bottom, top = (float(x) for x in np.percentile(seen, [low, high]))
    return bottom, top if top > bottom else math.nextafter(bottom, math.inf) + 1e-6


def levels_of(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Display levels (H, W) uint8 of an image between `low` (1) and `high` (255); 0 is a hole."""
    share = np.clip((np.nan_to_num(values, posinf=high, neginf=low) - low) / (high - low), 0, 1)
    levels = np.rint(1 + 254 * share).astype(np.uint8)
    levels[~np.isfinite(values)] = 0
    return levels


def colour_table(name: str = "inferno") -> np.ndarray:
    """The 256 colours of a matplotlib colour map, (256, 3) uint8."""
    colours = load_package("matplotlib").colormaps[name](np.arange(256))
    return np.rint(255 * np.asarray(colours)[:, :3]).astype(np.uint8)


def png_uri(levels: np.ndarray, colours: np.ndarray | None = None) -> str:
    """A PNG data URI of levels (H, W) uint8, grey or through `colours` (256, 3); 0 transparent."""
    image = load_package("PIL.Image").fromarray(levels)
    if colours is not None:
        image.putpalette(colours.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, transparency=0)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def grey_uri(values: np.ndarray, low: float, high: float) -> str:
    """A grey PNG data URI of an image (H, W) stretched between `low` and `high`."""
    return png_uri(levels_of(values, low, high))


def colour_uri(values: np.ndarray, high: float, colours: np.ndarray) -> str:
    """A PNG data URI of an image (H, W) of errors, coloured from 0 to `high`."""
    return png_uri(levels_of(values, 0.0, high), colours)


def residual_uri(z: np.ndarray, left: np.ndarray) -> str:
    """A PNG data URI of residuals in standard deviations (H, W), from -5 black to 5 white.

    left: (H, W) bool, pixels that were left out, in orange. What is not known is transparent.
    """
    grey = np.clip((np.nan_to_num(z) / RESIDUAL_SIGMAS + 1) / 2, 0, 1)
    levels = np.rint(1 + 126 * grey + 127 * left).astype(np.uint8)
    levels[~np.isfinite(z)] = 0
    steps = np.linspace(0, 255, 127)[:, None]
    orange = 60 + (steps * 0.76) * ORANGE
    colours = np.zeros((256, 3), np.uint8)
    colours[1:128], colours[128:255] = np.rint(steps), np.rint(orange)
    return png_uri(levels, colours)
