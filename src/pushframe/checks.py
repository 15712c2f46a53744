"""Where shapes and values are checked, each failure in the words of the user's data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .errors import BurstError, PushframeError, UsageError

SCALES = (2, 3, 4)
LEFT_OUT = "was left out:"  # in every note on a frame that is not used
REPLACED = "is the reference instead"  # in every note on a reference that gave way
MIN_AREA = 1e-9  # of a pixel, over the square of its longest side


def require(
    ok: bool, expected: str, got: object, do: str, error: type[PushframeError] = BurstError
) -> None:
    """Raise `error` in the house form (expected, got, what to do) unless `ok`."""
    if not ok:
        raise error(f"expected {expected}, got {got}: {do}")


def counted(count: object, noun: str) -> str:
    """A number with its noun: 1 frame, 15 frames."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def check_scale(scale: int) -> int:
    """The zoom factor: an integer from 2 to 4."""
    require(
        isinstance(scale, int) and scale in SCALES,
        f"a scale of {', '.join(map(str, SCALES))}",
        scale,
        "choose one of them",
        UsageError,
    )
    return scale


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """`tensor` has exactly `shape`."""
    require(
        tuple(tensor.shape) == tuple(shape),
        f"{name} of shape {tuple(shape)}",
        tuple(tensor.shape),
        f"give one {name} value for each entry of that shape",
    )


def check_window(rows: slice, columns: slice, shape: tuple[int, int]) -> None:
    """A window holds pixels of a frame of `shape`."""
    inside = all(
        range(*part.indices(size)) for part, size in zip((rows, columns), shape, strict=True)
    )
    require(
        inside,
        f"a window of rows and columns within {shape[0]}x{shape[1]}",
        f"rows {_span(rows)} and columns {_span(columns)}, outside of the frame",
        "correct it",
        UsageError,
    )


def _span(part: slice) -> str:
    return ":".join("" if end is None else str(end) for end in (part.start, part.stop))


def frame_label(index: int, name: str) -> str:
    """How messages name a frame: by its place in the burst and, if it has one, by its file."""
    return f"frame {index}" if name == f"frame {index}" else f"frame {index} ({name})"


def check_frames(frames: Tensor, valid: Tensor, names: tuple[str, ...]) -> None:
    """Each frame (N, H, W) has valid pixels, none infinite, and not all the same value."""
    for index, (frame, mask, name) in enumerate(zip(frames, valid, names, strict=True)):
        where = frame_label(index, name)
        require(
            not bool(torch.isinf(frame).any()),
            f"finite values in {where}",
            f"{int(torch.isinf(frame).sum())} infinite pixels",
            "mark bad pixels as NaN or in the valid mask",
        )
        require(
            bool(mask.any()),
            f"valid pixels in {where}",
            "none: every pixel is NaN, masked, saturated or stuck",
            "leave this frame out of the burst",
        )
        seen = frame[mask]
        require(
            seen.numel() == 1 or bool(seen.max() > seen.min()),
            f"an image in {where}",
            f"the constant {float(seen[0]):g}",
            "leave this frame out of the burst",
        )


def check_exposure(exposure: Tensor, names: tuple[str, ...]) -> None:
    """Each exposure (N,) is finite and positive."""
    for index, (value, name) in enumerate(zip(exposure.tolist(), names, strict=True)):
        require(
            value > 0 and value != float("inf"),
            f"a positive, finite exposure for {frame_label(index, name)}",
            f"{value:g}",
            "correct `exposure`",
        )


def check_positive(name: str, value: Tensor, *, zero_allowed: bool = False) -> None:
    """Every entry of `value` is finite and positive (or zero, where that is allowed)."""
    low = bool((value >= 0).all()) if zero_allowed else bool((value > 0).all())
    require(
        low and bool(torch.isfinite(value).all()),
        f"{name} {'not negative' if zero_allowed else 'above zero'} and finite",
        value.tolist(),
        f"correct `{name}`",
    )


def check_noise(a: Tensor, b: Tensor) -> None:
    """The law var = a * dn + b of raw pixels is not negative and not nothing."""
    check_positive("noise_a", a, zero_allowed=True)
    check_positive("noise_b", b, zero_allowed=True)
    require(
        bool(a + b > 0),
        "a noise law above zero",
        "noise_a = noise_b = 0",
        "give the law of the raw pixels, var = noise_a * dn + noise_b",
    )


def check_transform(transform: Sequence[float]) -> None:
    """An affine transform (a, b, c, d, e, f) is finite, and its pixels have an area."""
    a, b, _, d, e, _ = transform
    largest = max(map(abs, (a, b, d, e)))
    require(
        all(map(math.isfinite, transform)) and abs(a * e - b * d) > MIN_AREA * largest**2,
        "a transform of finite numbers, to pixels that have an area",
        ", ".join(f"{value:g}" for value in transform),
        "correct the georeference, or leave it out",
    )
