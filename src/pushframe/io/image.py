"""One single-band image, for the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..checks import require
from ..errors import BurstError, FileError, MissingPackageError, UsageError
from .contents import numbers
from .frames import to_float32
from .guard import decoding, naming, need_file
from .npz import load_npy
from .raster import open_layers
from .sidecar import TIFF

IMAGE_SUFFIXES = (*TIFF, ".png", ".npy")
GDAL_NODATA_TAG = 42113


def read_image(path: str | Path) -> np.ndarray:
    """A single-band image as float32 DN, NaN where nodata, (H, W); from TIFF, PNG or .npy."""
    path = Path(path)
    suffix = path.suffix.lower()
    if path.is_dir():
        raise UsageError(f"{path}: expected an image, got a folder: name one file in it")
    if not path.exists():
        raise FileError(f"{path}: expected an image, got nothing there: correct the path")
    if suffix not in IMAGE_SUFFIXES:
        raise UsageError(f"{path}: expected .tif, .png or .npy, got '{suffix}': convert the image")
    with naming(path):
        if suffix == ".npy":
            image = to_float32(numbers("pixels", load_npy(path)))
        else:
            image = _raster(path, suffix)
        _check_image(image)
    return image


def _check_image(image: np.ndarray) -> None:
    """At least 2x2 pixels, finite or NaN, not all alike."""
    require(
        image.ndim == 2,
        "a single-band image (H, W)",
        f"{min(image.shape)} bands" if image.ndim == 3 else f"an array of shape {image.shape}",
        "extract one band",
    )
    require(
        min(image.shape) >= 2,
        "an image of at least 2x2 pixels",
        f"{image.shape[0]}x{image.shape[1]}",
        "use a larger one",
    )
    infinite = int(np.isinf(image).sum())
    require(infinite == 0, "finite pixels", f"{infinite} infinite", "mark bad pixels as NaN")
    seen = image[~np.isnan(image)]
    require(seen.size > 0, "valid pixels", "none: all are NaN or nodata", "use another image")
    require(bool(seen.max() > seen.min()), "an image", f"the constant {seen[0]:g}", "use another")


def _raster(path: Path, suffix: str) -> np.ndarray:
    """The single band of a TIFF or PNG; without rasterio TIFF is read by tifffile."""
    try:
        layers = open_layers(path, driver="PNG" if suffix == ".png" else "GTiff")
    except MissingPackageError:
        if suffix == ".png":
            raise
        return _tifffile_pixels(path)
    if len(layers) != 1:
        word = layers[0].name.split()[-2]
        raise BurstError(f"expected one band, got {len(layers)} {word}s: extract the one to use")
    return layers[0].read()


def _tifffile_pixels(path: Path) -> np.ndarray:
    """The pixels of a TIFF through tifffile, NaN at GDAL's nodata value; no georeference."""
    try:
        import tifffile
    except ImportError as error:
        raise MissingPackageError(
            "expected rasterio or tifffile to read a TIFF, got neither: "
            "pip install 'pushframe[files]'"
        ) from error
    need_file(path)
    with decoding(path, "a TIFF image"), tifffile.TiffFile(path) as source:
        raw: Any = source.asarray()
        tag = source.pages.first.tags.get(GDAL_NODATA_TAG)
        nodata = None if tag is None else float(str(tag.value).strip("\x00 "))
    if raw.ndim == 3:
        bands = min(raw.shape)
        raise BurstError(f"expected one band, got {bands} bands: extract the one to use")
    pixels = to_float32(numbers("pixels", raw)).copy()
    if nodata is not None:
        pixels[raw == nodata] = np.nan
    return pixels
