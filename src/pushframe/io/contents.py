"""The keys of a burst, whatever its layout, their values checked; its truth, where it has one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from ..burst import Burst, Simulated
from ..checks import SCALES, counted, require
from ..config import suggestion
from ..errors import BurstError
from .frames import to_float32
from .opened import Opened

SCALARS = ("white_level", "black_level", "saturation_level", "noise_a", "noise_b")
KEYS = (
    "frames",
    "exposure",
    *SCALARS,
    "valid",
    "clean",
    "reference",
    "days",
    "truth",
    "flow_px",
    "notes",
)


def check_keys(keys: Iterable[str], known: tuple[str, ...]) -> None:
    """BurstError on a key that is not known, with one close to it, or all that are known."""
    for key in keys:
        if key not in known:
            raise BurstError(f"expected a known key, got {key!r}: {suggestion(key, known)}")


def numbers(key: str, value: Any, kinds: str = "uif") -> np.ndarray:
    """`value` as an array of numbers, its dtype kind among `kinds`."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of uneven lengths
        array = np.empty(0, dtype=object)
    require(
        array.dtype.kind in kinds,
        f"{key} in {'integers' if kinds == 'ui' else 'numbers'}",
        array.dtype.name if isinstance(value, np.ndarray) else repr(value)[:60],
        f"correct `{key}`",
    )
    return array


def number(key: str, value: Any, kinds: str = "uif") -> float:
    """`value` as one finite number."""
    array = numbers(key, value, kinds)
    require(array.size == 1, f"one number for {key}", f"{array.size}", f"correct `{key}`")
    require(bool(np.isfinite(array).all()), f"a finite {key}", array.item(), f"correct `{key}`")
    return float(array.item())


def flag(key: str, value: Any) -> bool:
    """`value` as true or false."""
    array = np.asarray(value)
    require(
        array.dtype.kind == "b" and array.size == 1,
        f"{key} as true or false",
        repr(value)[:60],
        f"correct `{key}`",
    )
    return bool(array.item())


def exposures(value: Any, count: int) -> np.ndarray | None:
    """The exposures (N,), one for each of `count` frames; None where none are given."""
    if value is None:
        return None
    array = numbers("exposure", value)
    require(
        array.shape == (count,),
        f"{counted(count, 'exposure')}, one for each frame",
        f"{array.size}" if array.ndim == 1 else f"the shape {array.shape}",
        "correct `exposure`",
    )
    return array


def simulated_of(opened: Opened) -> Simulated:
    """The Burst with its truth, `truth / white_level`, and its flows, reference first."""
    burst, truth = opened.source.read(), opened.verified().truth
    if truth is None:
        raise BurstError(
            "expected a simulated burst with `truth`, got none: give one that `pushframe simulate` "
            "wrote; `pushframe run` and `pushframe validate` need no truth"
        )
    image = torch.from_numpy(to_float32(truth)) / burst.white_level
    return Simulated(burst, check_truth(image, burst), known_flow(opened, burst))


def known_flow(opened: Opened, burst: Burst) -> torch.Tensor | None:
    """The flows of the files, checked, reference first; None where there are none."""
    given = opened.verified().flow_px
    if given is None:
        return None
    flow_px = torch.from_numpy(to_float32(given))
    check_flow(flow_px, burst)
    return flow_px[opened.source.order]


def check_truth(truth: torch.Tensor, burst: Burst) -> torch.Tensor:
    """The truth, an image of finite values and a whole number of times the size of a frame."""
    require(truth.ndim == 2, "truth of shape (s*H, s*W)", tuple(truth.shape), "correct `truth`")
    scale = Simulated(burst, truth).scale
    require(
        scale in SCALES,
        f"a truth of {', '.join(map(str, SCALES))} times the size of a frame",
        f"{scale} times",
        "correct `truth`",
    )
    require(bool(torch.isfinite(truth).all()), "a finite truth", "NaN or inf", "correct `truth`")
    return truth


def check_flow(flow_px: torch.Tensor, burst: Burst) -> None:
    """Flows are finite, of shape (N, 2) or (N, 2, H, W)."""
    spread = (burst.count, 2, *burst.shape)
    require(
        tuple(flow_px.shape) in (spread[:2], spread),
        f"flow_px of shape {spread[:2]} or {spread}",
        tuple(flow_px.shape),
        "correct `flow_px`",
    )
    require(
        bool(torch.isfinite(flow_px).all()), "finite flow_px", "NaN or inf", "correct `flow_px`"
    )
