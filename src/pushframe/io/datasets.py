"""Bursts in the layouts of public datasets: PROBA-V scenes and HDR-DSP's SkySat sequences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..checks import require
from ..errors import FileError, UsageError
from .contents import numbers
from .frames import ArrayFrame
from .guard import decoding, need_file
from .raster import RasterFrame, open_layers
from .sidecar import natural
from .source import BurstSource

PROBAV_FRAMES = "LR[0-9]*.png"
HDR_DSP = ("crop", "ratios", "satmask")
HDR_DSP_WHITE_DN = 3400.0  # by which its authors normalise


def is_probav(path: Path) -> bool:
    """Whether a path is a PROBA-V scene: a folder of LRkkk.png."""
    return path.is_dir() and next(path.glob(PROBAV_FRAMES), None) is not None


def open_probav(path: Path) -> BurstSource:
    """A PROBA-V scene: LRkkk.png, clear where QMkkk.png is not zero; equal exposures.

    The reference is the clearest frame. HR.png and SM.png are not looked at.
    """
    frames = [_png(file, index) for index, file in enumerate(_sorted(path, PROBAV_FRAMES))]
    files = [path / frame.name.replace("LR", "QM") for frame in frames]
    masks = [_png(file, index) for index, file in enumerate(files)]
    for frame, mask in zip(frames, masks, strict=True):
        require(
            frame.shape == mask.shape == frames[0].shape,
            f"frames and masks of one size, {frames[0].shape}",
            f"{frame.shape} in {frame.name} and {mask.shape} in {mask.name}",
            "restore the scene",
        )
    clear = [int((mask.read() > 0).sum()) for mask in masks]
    reference = int(np.argmax(clear))
    share = clear[reference] / np.prod(frames[0].shape)
    return BurstSource(
        frames=tuple(frames),
        stated_exposure=np.ones(len(frames)),
        masks=tuple(masks),
        reference=reference,
        chosen=True,
        days=True,
        said=(
            f"The clearest frame, {frames[reference].name} ({share:.0%} clear), is the reference.",
        ),
    )


def _png(path: Path, index: int) -> RasterFrame:
    """The single band of a PNG."""
    layers = open_layers(path, index, driver="PNG")
    require(len(layers) == 1, f"one band in {path.name}", len(layers), "restore the scene")
    return layers[0]


def hdr_dsp_home(path: Path) -> Path | None:
    """The folder of crop/, ratios/, satmask/ that a path is, or has its sequence in; None else."""
    home = path if path.is_dir() else path.parent.parent
    if not path.is_dir() and (path.suffix != ".npy" or path.parent.name != HDR_DSP[0]):
        return None
    return home if (home / HDR_DSP[0]).is_dir() and (home / HDR_DSP[1]).is_dir() else None


def hdr_dsp_sequences(home: Path) -> list[Path]:
    """The sequences of an HDR-DSP folder, one .npy each."""
    return _sorted(home / HDR_DSP[0], "*.npy")


def open_hdr_dsp(path: Path) -> BurstSource:
    """One sequence of HDR-DSP's SkySat data: crop/x.npy with its exposures and masks."""
    sequence, exposures, *mask = hdr_dsp_files(path)
    frames = _mapped(sequence, 3, "frames (N, H, W)")
    ratios = _mapped(exposures, 1, "exposures (N,)")
    masks: np.ndarray | tuple[()] = ()
    if mask:
        masks = _mapped(mask[0], 3, "masks (N, H, W)")
        require(
            masks.shape == frames.shape,
            f"masks of the shape of {sequence.name}, {frames.shape}",
            masks.shape,
            "restore the data",
        )
    count = len(frames)
    require(ratios.shape == (count,), f"{count} exposures", f"{ratios.size}", "restore ratios/")
    return BurstSource(
        frames=tuple(ArrayFrame(frame, f"frame {k}") for k, frame in enumerate(frames)),
        stated_exposure=np.asarray(ratios, np.float64),
        scalars={"white_level": HDR_DSP_WHITE_DN},
        masks=tuple(ArrayFrame(mask, f"mask {k}") for k, mask in enumerate(masks)),
    )


def hdr_dsp_files(path: Path) -> list[Path]:
    """The files of one sequence: frames, exposures and, where there are any, masks.

    Files of the three folders belong together by their place in the order of names.
    """
    home = hdr_dsp_home(path)
    assert home is not None
    sequences = hdr_dsp_sequences(home)
    if path.is_dir():
        require(
            len(sequences) == 1,
            "one burst",
            f"a folder of {len(sequences)} sequences",
            f"name one of them, such as {sequences[0] if sequences else home / 'crop/x.npy'}",
            UsageError,
        )
        path = sequences[0]
    place = [file.name for file in sequences].index(path.name)
    folders = [home / name for name in HDR_DSP[1:]]
    others = folders if folders[1].is_dir() else folders[:1]
    return [path, *(_matching(folder, place, len(sequences)) for folder in others)]


def _mapped(path: Path, dimensions: int, what: str) -> np.ndarray:
    """The array of an .npy, mapped rather than read; nothing but numbers is ever unpacked."""
    need_file(path)
    with decoding(path, "an .npy array"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    array = numbers(path.name, array, kinds="buif")
    array = array.reshape(-1) if dimensions == 1 else array
    require(
        array.ndim == dimensions and array.size > 0,
        f"{what} in {path.name}",
        f"the shape {array.shape}",
        "restore the data",
    )
    return array


def _matching(folder: Path, place: int, count: int) -> Path:
    """The file of a folder that has the same place in the order of names."""
    files: Sequence[Path] = _sorted(folder, "*.npy")
    if len(files) != count:
        raise FileError(
            f"{folder}: expected {count} files, one for each of crop/, got {len(files)}: "
            "restore what is missing"
        )
    return files[place]


def _sorted(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern), key=lambda file: natural(file.name))
