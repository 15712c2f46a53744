"""Pixels and georeference of raster files, through rasterio; the one place that opens them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..burst import GeoRef
from ..checks import frame_label
from ..errors import BurstError, MissingPackageError
from .contents import to_float32
from .georef import georef_of, profile_of
from .guard import decoding, encoding, need_file

TIFF_STACK = {
    "driver": "GTiff",
    "compress": "deflate",
    "predictor": 3,
    "interleave": "band",
    "photometric": "minisblack",
}


@dataclass(frozen=True, eq=False)
class Layer:
    """One band or page: pixels (H, W) float32, NaN where invalid, and how it was stored."""

    pixels: np.ndarray
    dtype: str
    name: str
    georef: GeoRef | None


@contextmanager
def gdal() -> Iterator[ModuleType]:
    """rasterio, its warning about missing georeferences silenced within the body."""
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning
    except ImportError as error:
        raise MissingPackageError(
            "expected the package rasterio for raster files, got none: "
            "pip install 'pushframe[files]'"
        ) from error
    with warnings.catch_warnings(), rasterio.Env():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield rasterio


def read_layers(path: Path, frame: int | None = None, driver: str = "GTiff") -> list[Layer]:
    """All pages of a multi-page file, else all bands, fully read; `frame` is for messages."""
    where = str(path) if frame is None else frame_label(frame, str(path))
    what = "a PNG image" if driver == "PNG" else "a TIFF image"
    need_file(path, where)
    with gdal() as rasterio:
        with decoding(where, what), rasterio.open(path, driver=driver) as source:
            pages = list(source.subdatasets)
            if not pages:
                return [_read_band(source, path, band, frame, what) for band in source.indexes]
        return [
            _read_page(rasterio, page, path, number, what)
            for number, page in enumerate(pages, start=1)
        ]


def _read_band(source: Any, path: Path, band: int, frame: int | None, what: str) -> Layer:
    """Band `band` (from 1) of an open dataset; a lone band goes by the name of its file."""
    label = path.name if source.count == 1 else f"{path.name} band {band}"
    if frame is not None:
        where = frame_label(frame, str(path))
    elif source.count == 1:
        where = str(path)
    else:
        where = frame_label(band - 1, f"{path} band {band}")
    with decoding(where, what):
        return Layer(
            _pixels(source, band, where), source.dtypes[band - 1], label, georef_of(source)
        )


def _read_page(rasterio: Any, page: str, path: Path, number: int, what: str) -> Layer:
    """Page `number` (from 1) of a multi-page file, which must be single-band."""
    label = f"{path.name} page {number}"
    where = frame_label(number - 1, f"{path} page {number}")
    with decoding(where, what), rasterio.open(page, driver="GTiff") as source:
        if source.count != 1:
            raise BurstError(
                f"{where}: expected one band, got {source.count}: extract the band to use"
            )
        return Layer(_pixels(source, 1, where), source.dtypes[0], label, georef_of(source))


def _pixels(source: Any, band: int, where: str) -> np.ndarray:
    """A band as float32, NaN at nodata and where the internal mask says so, (H, W)."""
    from rasterio.enums import MaskFlags

    raw = source.read(band)
    if raw.dtype.kind not in "uif":
        raise BurstError(f"{where}: expected real pixels, got {raw.dtype}: export one real band")
    pixels = to_float32(raw)
    flags = source.mask_flag_enums[band - 1]
    # GDAL takes the fourth byte band of any file for alpha; in a burst it is a frame.
    if MaskFlags.all_valid not in flags and MaskFlags.alpha not in flags:
        pixels[source.read_masks(band) == 0] = np.nan
    return pixels


@contextmanager
def new_raster(
    path: Path,
    target: Path,
    shape: tuple[int, ...],
    count: int,
    georef: GeoRef | None,
    options: Mapping[str, Any],
) -> Iterator[Any]:
    """A rasterio dataset of `count` float32 bands (H, W) to fill, NaN for nodata.

    It is encoded in memory and then written to `path`: on a full disk GDAL's own writer ends
    without an error, or crashes. target: the name for messages, where `path` is a draft.
    """
    with gdal(), encoding(target):
        from rasterio.io import MemoryFile

        profile = {"height": shape[0], "width": shape[1], "count": count, "dtype": "float32"}
        rest = {"nodata": np.nan, "bigtiff": "IF_SAFER"}
        with MemoryFile(ext=".tif") as memory:
            with memory.open(**profile, **rest, **options, **profile_of(georef)) as sink:
                yield sink
            memory.seek(0)
            with path.open("wb") as stream:
                shutil.copyfileobj(memory, stream, 2**24)


def write_layers(
    path: Path, layers: Sequence[np.ndarray], georef: GeoRef | None, target: Path
) -> None:
    """Write images (H, W) as the float32 bands of one TIFF, NaN where nothing is known.

    target: the name for messages, where `path` is a draft.
    """
    with new_raster(path, target, layers[0].shape, len(layers), georef, TIFF_STACK) as sink:
        for band, layer in enumerate(layers, start=1):
            sink.write(layer, band)
