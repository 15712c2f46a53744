"""Bursts by the suffix of their path: .npz, TIFF stack, folder of TIFF frames, side-car."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..burst import Burst, Simulated
from ..errors import FileError, PushframeError, UsageError
from .contents import Contents, burst_of, check_flow, check_truth, known_flow, simulated_of
from .guard import naming
from .npz import read_npz, write_npz
from .sidecar import NAME, TIFF, find_sidecar
from .tiff import read_tiff, write_folder, write_stack


def read_burst(path: str | Path) -> Burst:
    """The burst of an .npz, a folder of TIFF frames, a TIFF stack or a side-car .toml."""
    with naming(Path(path)):
        return burst_of(_read(Path(path), truth=False))


def read_simulated(path: str | Path) -> Simulated:
    """The burst with its truth (required) and flow_px (where given), of the same files."""
    with naming(Path(path)):
        return simulated_of(_read(Path(path), truth=True))


def read_verified(path: str | Path) -> tuple[Burst, Simulated | None]:
    """The burst, and what goes with it where it has a truth; truth and flows are checked."""
    with naming(Path(path)):
        contents = _read(Path(path), truth=True)
        if contents.truth is not None:
            simulated = simulated_of(contents)
            return simulated.burst, simulated
        burst = burst_of(contents)
        known_flow(contents, burst)
        return burst, None


def _read(path: Path, truth: bool) -> Contents:
    """The contents of a burst in any layout."""
    suffix = path.suffix.lower()
    if not path.exists():
        raise FileError(f"{path}: expected a burst, got nothing there: correct the path")
    if path.is_dir() or suffix in (*TIFF, ".toml"):
        return read_tiff(path, truth)
    if suffix == ".npz":
        return read_npz(path, truth)
    raise UsageError(
        f"{path}: expected an .npz, a .tif, a .toml or a folder of TIFF frames, got '{suffix}': "
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
    if path.is_dir():
        return (path / NAME).is_file()
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
