"""Where georeferences put the frames: transforms, or RPC at one height."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..burst import GeoRef
from ..checks import frame_label, require
from ..io import BurstSource, Placement
from ..rpc import Rpc, check_rpc, to_ground, to_image
from .agree import MAX_STRETCH, fit_affine, stretch


def predict(source: BurstSource) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Where the georeferences put the frames, and what was assumed, in sentences."""
    height, width = source.shape
    axes = [np.linspace(0, size - 1, 5) for size in (height, width)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    for index, frame in enumerate(source.frames):
        if frame.georef is not None and frame.georef.rpc is not None:
            check_rpc(frame.georef.rpc, frame_label(index, frame.name))
    reference = source.frames[source.reference].georef
    placements: list[Placement] = []
    said: tuple[str, ...] = ()
    for index, frame in enumerate(source.frames):
        if index == source.reference:
            placements.append(Placement())
            continue
        there = _seen_in(reference, frame.georef, points, frame_label(index, frame.name))
        if there is None:
            placements.append(Placement())
            continue
        place = fit_affine(points, there - points, (height / 2, width / 2))
        _check_pixels(place, frame_label(index, frame.name))
        placements.append(place)
        if reference is not None and reference.transform is None:
            said = (
                "Frames were placed by their RPC without a DEM, at the height "
                f"{_height(reference):g} m of the reference's RPC, and by their images.",
            )
    return tuple(placements), said


def _seen_in(
    one: GeoRef | None, other: GeoRef | None, points: np.ndarray, label: str
) -> np.ndarray | None:
    """Pixels (P, 2) of an image as pixels of another, by ground; None without georeferences.

    label: how messages name the other.
    """
    if one is None or other is None:
        return None
    if one.transform is not None and other.transform is not None:
        first, second = _matrix(one.transform), _matrix(other.transform)
        column_row = np.column_stack([points[:, ::-1] + 0.5, np.ones(len(points))])
        there = column_row @ (np.linalg.inv(second) @ first).T
        return there[:, 1::-1] - 0.5
    if one.rpc is not None and other.rpc is not None:
        return _by_rpc(one.rpc, other.rpc, points, _height(one), label)
    return None


def _by_rpc(one: Rpc, other: Rpc, points: np.ndarray, height_m: float, label: str) -> np.ndarray:
    """Pixels (P, 2) of an image as pixels of another, at one height; BurstError if there are none.

    Cubics that are constant, or divide by zero, lead nowhere.
    """
    try:
        with np.errstate(all="ignore"):
            there = to_image(other, to_ground(one, points, height_m), height_m)
    except np.linalg.LinAlgError:
        there = np.full_like(points, np.nan)
    require(
        bool(np.isfinite(there).all()),
        f"RPC that lead from the reference to {label}",
        "some that lead nowhere",
        "correct them, or leave them out",
    )
    return there


def _matrix(transform: Sequence[float]) -> np.ndarray:
    return np.array([transform[:3], transform[3:], (0.0, 0.0, 1.0)], dtype=np.float64)


def _height(georef: GeoRef) -> float:
    """The height above the ellipsoid that an RPC is centred on."""
    value = (georef.rpc or {})["HEIGHT_OFF"]
    assert isinstance(value, float)
    return value


def _check_pixels(place: Placement, label: str) -> None:
    """BurstError where a frame has other pixels than the reference by georeference."""
    require(
        stretch(place) <= MAX_STRETCH,
        f"frames of one pixel size and direction, within {MAX_STRETCH:.0%}",
        f"{stretch(place):.0%} of difference in {label}",
        "leave this frame out; frames are never resampled",
    )
