"""A burst in one .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..burst import Burst
from ..checks import require
from ..errors import FileError
from .atomic import atomic_path
from .contents import KEYS, SCALARS, check_keys, exposures, flag, number, numbers
from .frames import ArrayFrame, to_float32
from .georef import georef_from_json, georef_to_json
from .guard import decoding, need_file
from .opened import Opened, Verified
from .source import BurstSource

NPZ_KEYS = (*KEYS, "georef")
TRUTH_KEYS = ("truth", "flow_px")


def load_npz(
    path: Path, what: str, known: tuple[str, ...], skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The arrays of an .npz by key, each key among `known`, those of `skip` left unread.

    what: what the archive should hold, for messages.
    """
    need_file(path)
    arrays = {}
    # our own stream: np.load leaves its own open when the archive is damaged
    with decoding(path, f"{what} in an .npz archive of plain arrays"), path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise FileError(
                f"{path}: expected {what} in an .npz archive, got a damaged or truncated one, or a "
                "file of another kind: copy it again, or write it anew"
            )
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            check_keys(archive.files, known)
            for key in archive.files:
                if key not in skip:
                    arrays[key] = archive[key]
                    if not isinstance(arrays[key], np.ndarray):
                        raise ValueError(f"'{key}' is not an array")
    return arrays


def load_npy(path: Path) -> np.ndarray:
    """The array of an .npy file."""
    need_file(path)
    with decoding(path, "an .npy array"), path.open("rb") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def open_npz(path: Path) -> Opened:
    """The burst of an .npz, its arrays in memory; truth and flows are read when asked for."""
    table = load_npz(path, "a burst", NPZ_KEYS, skip=TRUTH_KEYS)
    require("frames" in table, "the key `frames`", sorted(table), "save frames (N, H, W) in it")
    frames = to_float32(numbers("frames", table["frames"]))
    require(
        frames.ndim == 3 and frames.size > 0,
        "frames of shape (N, H, W)",
        frames.shape,
        "stack single-band frames of one size",
    )
    count = len(frames)
    georef = georef_from_json(str(table["georef"])) if "georef" in table else None
    masks = _valid(table["valid"], frames.shape) if "valid" in table else ()
    source = BurstSource(
        frames=tuple(ArrayFrame(frame, f"frame {k}", georef) for k, frame in enumerate(frames)),
        stated_exposure=exposures(table.get("exposure"), count),
        scalars={key: number(key, table[key]) for key in SCALARS if key in table},
        masks=tuple(ArrayFrame(mask, f"mask {k}") for k, mask in enumerate(masks)),
        reference=int(number("reference", table.get("reference", 0), kinds="ui")),
        chosen="reference" in table,
        days=flag("days", table.get("days", False)),
        clean=flag("clean", table.get("clean", False)),
        said=tuple(map(str, np.atleast_1d(table.get("notes", ())))),
    )
    return Opened(source, lambda: _verified(path))


def _verified(path: Path) -> Verified:
    """Truth and flows of an .npz."""
    others = tuple(key for key in NPZ_KEYS if key not in TRUTH_KEYS)
    table = load_npz(path, "a burst", NPZ_KEYS, skip=others)
    return Verified(**{key: numbers(key, table[key]) for key in TRUTH_KEYS if key in table})


def _valid(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The mask (N, H, W), non-zero where valid; (H, W) holds for all frames."""
    require(
        mask.dtype.kind in "bui",
        "valid of booleans, or of integers 0 and 1",
        f"the dtype {mask.dtype.name}",
        "save `valid > 0` instead",
    )
    require(
        mask.shape in (shape, shape[1:]),
        f"valid of shape {shape} or {shape[1:]}",
        mask.shape,
        "correct `valid`",
    )
    return np.ascontiguousarray(np.broadcast_to(mask != 0, shape))


def burst_fields(burst: Burst) -> dict[str, Any]:
    """The keys of a burst besides its pixels, ready for an .npz or a side-car."""
    fields: dict[str, Any] = {
        "exposure": [float(value) for value in burst.exposure],
        "white_level": float(burst.white_level),
        "black_level": float(burst.black_level),
        "clean": True,  # what is not valid is marked
    }
    if burst.noise is not None:
        fields |= {"noise_a": float(burst.noise.a), "noise_b": float(burst.noise.b)}
    if burst.days:
        fields["days"] = True
    if burst.notes:
        fields["notes"] = list(burst.notes)
    return fields


def write_npz(
    burst: Burst, path: Path, truth_dn: np.ndarray | None, flow_px: np.ndarray | None
) -> None:
    """Write a burst as .npz: frames as float32 raw DN, NaN where invalid."""
    arrays: dict[str, Any] = {"frames": burst.raw_dn().cpu().numpy(), **burst_fields(burst)}
    if burst.georef is not None:
        arrays["georef"] = georef_to_json(burst.georef)
    if truth_dn is not None:
        arrays["truth"] = truth_dn
    if flow_px is not None:
        arrays["flow_px"] = flow_px
    save_npz(path, arrays)


def save_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by key to an .npz that appears whole or not at all."""
    # through a stream: given a name, numpy adds its own suffix to "x.NPZ"
    with atomic_path(path) as draft, draft.open("wb") as stream:
        np.savez(stream, **arrays)
