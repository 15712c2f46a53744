"""Bursts by the suffix of their path: .npz, TIFF stack, folder of TIFF frames, side-car."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..burst import Burst, Simulated
from ..errors import FileError, PushframeError, UsageError
from .contents import check_flow, check_truth, known_flow, simulated_of
from .datasets import (
    hdr_dsp_files,
    hdr_dsp_home,
    hdr_dsp_sequences,
    is_probav,
    open_hdr_dsp,
    open_probav,
)
from .exposure import INDEX_FILES
from .guard import naming
from .npz import open_npz, write_npz
from .opened import Opened
from .product import is_product
from .raster import has_pages
from .sidecar import NAME, TIFF, beside_tiff, find_sidecar, has_skysat, tiffs
from .source import BurstSource
from .stac import Companions
from .telling import with_telling
from .tiff import open_tiff, write_folder, write_stack
from .udm import KINDS


def open_burst(path: str | Path) -> BurstSource:
    """The burst of any layout, opened but not read; see docs/files.md for the layouts."""
    with naming(Path(path)):
        return _open(Path(path)).source


def read_burst(path: str | Path) -> Burst:
    """The burst of an .npz, a folder of frames, a TIFF stack, a side-car .toml or an .npy."""
    with naming(Path(path)):
        return _open(Path(path)).source.read()


def read_simulated(path: str | Path) -> Simulated:
    """The burst with its truth (required) and flow_px (where given), of the same files."""
    with naming(Path(path)):
        return simulated_of(_open(Path(path)))


def read_verified(path: str | Path) -> tuple[Burst, Simulated | None]:
    """The burst, and what goes with it where it has a truth; truth and flows are checked."""
    with naming(Path(path)):
        opened = _open(Path(path))
        if opened.verified().truth is not None:
            simulated = simulated_of(opened)
            return simulated.burst, simulated
        burst = opened.source.read()
        known_flow(opened, burst)
        return burst, None


def _open(path: Path) -> Opened:
    """A burst in any layout, without frames that tell nothing of their own."""
    return with_telling(_as_stored(path))


def _as_stored(path: Path) -> Opened:
    """A burst in any layout, with all its frames."""
    suffix = path.suffix.lower()
    if not path.exists():
        raise FileError(f"{path}: expected a burst, got nothing there: correct the path")
    if path.is_file() and is_product(path):
        raise UsageError(
            f"{path}: expected a burst, got a product of pushframe: name the frames that it was "
            "made of; `pushframe info` describes a product"
        )
    if is_probav(path):
        return Opened(open_probav(path))
    if hdr_dsp_home(path) is not None:
        return Opened(open_hdr_dsp(path))
    if path.is_dir() or suffix in (*TIFF, ".toml"):
        return open_tiff(path)
    if suffix == ".npz":
        return open_npz(path)
    raise UsageError(
        f"{path}: expected an .npz, a .tif, a .toml or a folder of frames, got '{suffix}': "
        "convert the burst to one of them"
    )


def write_burst(burst: Burst, path: str | Path, truth: Any = None, flow_px: Any = None) -> None:
    """Write a burst by suffix: .npz; .tif one stack with a side-car; none, a folder of frames.

    truth: (s*H, s*W) normalised radiance; flow_px: (N, 2) or (N, 2, H, W) low-res px. Frames
    are written as float32 raw DN, NaN where invalid.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    with naming(path):
        _write(burst, path, suffix, truth, flow_px)


def _write(burst: Burst, path: Path, suffix: str, truth: Any, flow_px: Any) -> None:
    """Check what goes with the burst and hand it to the writer of the suffix."""
    if burst.frames.ndim != 3:
        raise UsageError("expected one burst to write, got a batch: write its bursts one by one")
    flow = None if flow_px is None else torch.as_tensor(flow_px).detach().cpu().float()
    truth_dn = None
    if flow is not None:
        check_flow(flow, burst)
    if truth is not None:
        image = torch.as_tensor(truth).detach().cpu().float()
        check_truth(image, burst)
        truth_dn = (image * burst.white_level.cpu()).numpy()
    write = {".npz": write_npz, ".tif": write_stack, ".tiff": write_stack, "": write_folder}
    if suffix not in write and not path.is_dir():
        raise UsageError(
            f"{path}: expected .npz, .tif or a folder without suffix, got '{suffix}': rename it"
        )
    flow_array: np.ndarray | None = None if flow is None else flow.numpy()
    write.get(suffix, write_folder)(burst, path, truth_dn, flow_array)


def is_burst(path: str | Path) -> bool:
    """Whether a path is a burst rather than an image, by names alone: no pixel is read."""
    path = Path(path)
    suffix = path.suffix.lower()
    if is_probav(path) or (path.is_file() and hdr_dsp_home(path) is not None):
        return True
    if path.is_dir():
        return (path / NAME).is_file() or has_skysat(path)
    if not path.is_file():
        return False
    if suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return "frames.npy" in archive.namelist()
        except (OSError, zipfile.BadZipFile):
            return False
    if suffix in TIFF:
        try:
            return bool(find_sidecar(path).table)
        except PushframeError:  # a broken side-car beside it: reading will say what is wrong
            return path.with_suffix(".toml").is_file()
    return suffix == ".toml"


def burst_parts(path: Path) -> list[Path]:
    """What a burst is made of, as far as names tell: files, and the folder whose frames it is."""
    parts = [path]
    with suppress(PushframeError):  # reading will say what is wrong
        if hdr_dsp_home(path) is not None:
            parts += hdr_dsp_files(path)
        elif path.is_dir() or path.suffix.lower() in (*TIFF, ".toml"):
            side = find_sidecar(path)
            parts += side.files
            parts += [file for frame in side.files for file in beside_tiff(frame)]
            for pattern in (INDEX_FILES, *(f"*_{kind}.tif" for kind in KINDS)):
                parts += sorted(side.home.parent.glob(pattern))
            if side.frames and "frames" not in side.table:
                parts.append(side.home.parent)
    return parts


def list_bursts(path: str | Path) -> list[Path]:
    """The bursts behind one path: itself, the sequences of an HDR-DSP folder, or those inside it.

    Bursts inside it are what a side-car, a suffix or names tell, TIFFs of several pages, and
    folders of TIFF frames. A folder that holds a TIFF of one page, and nothing that is told, is a
    burst itself, of frames. Headers are read, no pixel. Empty where there is none.
    """
    path = Path(path)
    if is_burst(path) or not path.is_dir():
        return [path] if path.exists() else []
    if hdr_dsp_home(path) is not None:
        return hdr_dsp_sequences(path)
    entries = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    told = {entry for entry in entries if is_burst(entry)}
    frames = _frames(path)
    if not told and not all(map(is_stack, frames)):
        return [path]
    told |= {frame for frame in frames if frame not in told and is_stack(frame)}
    found = []
    for entry in entries:
        if entry in told:
            found.append(entry)
        elif len(inside := _frames(entry)) > 1:  # one TIFF alone is rather a mask, or a truth
            found += inside if all(map(is_stack, inside)) else [entry]
    stems = {entry.with_suffix("") for entry in found if entry.suffix.lower() in TIFF}
    return [
        entry
        for entry in found
        if not (entry.suffix.lower() == ".toml" and entry.with_suffix("") in stems)
    ]


def is_stack(path: Path) -> bool:
    """Whether a file is a TIFF of several pages that no side-car beside it names as its mask."""
    if path.suffix.lower() not in TIFF or not has_pages(path):
        return False
    return not any(path in burst_parts(side)[1:] for side in path.parent.glob("*.toml"))


def _frames(path: Path) -> list[Path]:
    """The TIFFs of a folder that are frames, or stacks of them, not products."""
    if not path.is_dir():
        return []
    files = [path / name for name in tiffs(path, {})]
    return [file for file in files if not Companions(file).style.is_file()]
