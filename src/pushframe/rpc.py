"""Rational polynomial coefficients: from ground to image, and back at a given height.

Convention: positions are (y, x) = (line, sample); (0, 0) is the centre of the first pixel. Ground
is (longitude, latitude) in degrees and a height in metres above the ellipsoid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import require

Rpc = Mapping[str, Any]
NEWTON_STEPS = 10
TERMS = 20  # coefficients of a cubic
STEP = 1e-4  # of the normalised ground, for the derivative


def check_rpc(rpc: Rpc, where: str) -> None:
    """BurstError unless all numbers of an RPC are there, each cubic with its 20; `where`: whose."""
    ratio = ("LINE", "SAMP")
    single = [f"{axis}_{k}" for axis in (*ratio, "LAT", "LONG", "HEIGHT") for k in ("OFF", "SCALE")]
    cubic = [f"{axis}_{part}_COEFF" for axis in ratio for part in ("NUM", "DEN")]
    wrong = [key for key in single if np.size(rpc.get(key, ())) != 1]
    wrong += [key for key in cubic if np.size(rpc.get(key, ())) != TERMS]
    require(
        not wrong,
        f"whole RPC in {where}, each cubic with {TERMS} coefficients",
        f"no such {', '.join(wrong[:4])}{', ...' if len(wrong) > 4 else ''}",
        "restore them, or leave the RPC out",
    )


def to_image(rpc: Rpc, ground: np.ndarray, height_m: float) -> np.ndarray:
    """Image positions (P, 2) of ground points (P, 2) at one height: a ratio of two cubics."""
    return _project(rpc, (ground - _offset(rpc)) / _scale(rpc), height_m)


def to_ground(rpc: Rpc, position: np.ndarray, height_m: float) -> np.ndarray:
    """Ground points (P, 2) of image positions (P, 2) at one height, by Newton's method."""
    place = np.zeros_like(position, dtype=np.float64)
    for _ in range(NEWTON_STEPS):
        here = _project(rpc, place, height_m)
        slope = np.stack(
            [(_project(rpc, place + step, height_m) - here) / STEP for step in STEP * np.eye(2)], -1
        )
        place = place + np.linalg.solve(slope, (position - here)[..., None])[..., 0]
    return place * _scale(rpc) + _offset(rpc)


def _offset(rpc: Rpc) -> np.ndarray:
    return np.array([rpc["LONG_OFF"], rpc["LAT_OFF"]], dtype=np.float64)


def _scale(rpc: Rpc) -> np.ndarray:
    return np.array([rpc["LONG_SCALE"], rpc["LAT_SCALE"]], dtype=np.float64)


def _project(rpc: Rpc, place: np.ndarray, height_m: float) -> np.ndarray:
    """Image positions (P, 2) of normalised (longitude, latitude), (P, 2)."""
    up = (height_m - rpc["HEIGHT_OFF"]) / rpc["HEIGHT_SCALE"]
    terms = _terms(place[:, 0], place[:, 1], np.full(len(place), up))
    axes = []
    for axis in ("LINE", "SAMP"):
        above, below = (
            terms @ np.array(rpc[f"{axis}_{part}_COEFF"], dtype=np.float64)
            for part in ("NUM", "DEN")
        )
        axes.append(above / below * rpc[f"{axis}_SCALE"] + rpc[f"{axis}_OFF"])
    return np.stack(axes, -1)


def _terms(l: np.ndarray, p: np.ndarray, h: np.ndarray) -> np.ndarray:  # noqa: E741
    """The twenty monomials of (longitude, latitude, height) in the order of RPC00B, (P, 20)."""
    return np.stack(
        [
            *(np.ones_like(l), l, p, h, l * p, l * h, p * h, l * l, p * p, h * h),
            *(p * l * h, l**3, l * p * p, l * h * h, l * l * p, p**3, p * h * h),
            *(l * l * h, p * p * h, h**3),
        ],
        -1,
    )
