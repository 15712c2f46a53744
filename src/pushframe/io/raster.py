"""Pixels and georeference of raster files, through rasterio; the one place that opens them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..burst import GeoRef
from ..checks import frame_label
from ..errors import BurstError, FileError, MissingPackageError
from .frames import ALL, to_float32
from .georef import georef_of, profile_of
from .guard import decoding, encoding, naming, need_file

WHAT = {"GTiff": "a TIFF image", "PNG": "a PNG image"}
REAL = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
        "float32", "float64")  # fmt: skip
COLOURS = ("red", "green", "blue", "alpha")
EXTRACT = "extract the one to use, the same of every frame (gdal_translate -b 1 in.tif out.tif)"
TIFF_STACK = {
    "driver": "GTiff",
    "compress": "deflate",
    "predictor": 3,
    "interleave": "band",
    "photometric": "minisblack",
}
CACHE_BYTES = 128 * 2**20  # a row of blocks of 8 frames of 20,000 px takes 80 MiB


@contextmanager
def gdal() -> Iterator[ModuleType]:
    """rasterio, its warning about missing georeferences silenced within the body.

    GDAL keeps the blocks that it has read, up to a twentieth of the machine's memory; here less.
    """
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning
    except ImportError as error:
        raise MissingPackageError(
            "expected the package rasterio for raster files, got none: "
            "pip install 'pushframe[files]'"
        ) from error
    with warnings.catch_warnings(), rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield rasterio


class RasterFrame:
    """One band of a raster file, or one page; opened once and read window by window.

    dataset: what GDAL opens; where: how messages name it; name: how the user does. is_colour:
    whether the file says that the band is a colour, or alpha. is_jpeg: whether it is compressed so.
    """

    def __init__(self, dataset: str, band: int, where: str, name: str, driver: str) -> None:
        self._dataset, self._band, self._where, self._driver = dataset, band, where, driver
        self._source: Any = None
        self.name = name
        with self._open() as source:
            self.shape = (source.height, source.width)
            self.dtype: str = source.dtypes[band - 1]
            with naming(where):
                self.georef = georef_of(source)
            self.is_colour = source.colorinterp[band - 1].name in COLOURS
            self.is_jpeg = source.tags(ns="IMAGE_STRUCTURE").get("COMPRESSION", "").endswith("JPEG")
            self.metadata = dict(source.tags()) | source.tags(ns="EXIF")
            if self.dtype not in REAL:
                raise BurstError(
                    f"{where}: expected real pixels, got {self.dtype}: export one real band"
                )

    def read(self, rows: slice = ALL, columns: slice = ALL) -> np.ndarray:
        """The window as float32, NaN at nodata and where the internal mask says so, (h, w)."""
        from rasterio.enums import MaskFlags

        height, width = self.shape
        window = tuple(part.indices(size)[:2] for part, size in ((rows, height), (columns, width)))
        with self._open() as source:
            pixels = to_float32(source.read(self._band, window=window))
            flags = source.mask_flag_enums[self._band - 1]
            # GDAL takes the fourth byte band of any file for alpha; in a burst it is a frame.
            if MaskFlags.all_valid not in flags and MaskFlags.alpha not in flags:
                pixels[source.read_masks(self._band, window=window) == 0] = np.nan
            return pixels

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The open dataset; it stays open, so that GDAL's cache of blocks outlives a window."""
        with gdal() as rasterio, decoding(self._where, WHAT[self._driver]):
            if self._source is None:
                self._source = rasterio.open(self._dataset, driver=self._driver)
            yield self._source

    def __getstate__(self) -> dict[str, Any]:
        """Without the open file, which another process cannot use."""
        return {**self.__dict__, "_source": None}


def open_layers(path: Path, frame: int | None = None, driver: str = "GTiff") -> list[RasterFrame]:
    """All pages of a multi-page file, else all bands; `frame` is for messages."""
    where = str(path) if frame is None else frame_label(frame, str(path))
    need_file(path, where)
    with gdal() as rasterio:
        with decoding(where, WHAT[driver]), rasterio.open(path, driver=driver) as source:
            # rasterio gives GTIFF_DIR:1, GTIFF_DIR:10, GTIFF_DIR:2, ...: sorted as text
            pages = sorted(source.subdatasets, key=lambda page: int(page.split(":")[1]))
            bands = source.count
            if driver == "GTiff":
                _check_whole(source, path, where)
        if pages:
            return [_page(rasterio, page, path, k, driver) for k, page in enumerate(pages, start=1)]
        if bands == 1:
            return [RasterFrame(str(path), 1, where, path.name, driver)]
        return [
            RasterFrame(
                str(path),
                band,
                frame_label(band - 1, f"{path} band {band}") if frame is None else where,
                f"{path.name} band {band}",
                driver,
            )
            for band in range(1, bands + 1)
        ]


def has_pages(path: Path) -> bool:
    """Whether a file is a TIFF of several pages, overviews and masks not counted; by its header."""
    with (
        suppress(FileError, MissingPackageError),  # reading will say what is wrong
        gdal() as rasterio,
        decoding(path, WHAT["GTiff"]),
        rasterio.open(path, driver="GTiff") as source,
    ):
        return len(source.subdatasets) > 1
    return False


def _page(rasterio: Any, page: str, path: Path, number: int, driver: str) -> RasterFrame:
    """Page `number` (from 1) of a multi-page file, which must be single-band."""
    where = frame_label(number - 1, f"{path} page {number}")
    with decoding(where, WHAT[driver]), rasterio.open(page, driver=driver) as source:
        if source.count != 1:
            raise BurstError(f"{where}: expected one band, got {source.count}: {EXTRACT}")
        _check_whole(source, path, where)
    return RasterFrame(page, 1, where, f"{path.name} page {number}", driver)


def _check_whole(source: Any, path: Path, where: str) -> None:
    """FileError where blocks of a TIFF lie beyond the end of its file.

    A copy that was cut off is told at once, not hours later when its last tile is read.
    """
    size = path.stat().st_size
    for band in source.indexes:
        rows, columns = source.block_shapes[band - 1]
        last = (-(-source.height // rows) - 1, -(-source.width // columns) - 1)
        for down, right in {(0, 0), (last[0], 0), (0, last[1]), last}:
            start, length = (
                source.get_tag_item(f"BLOCK_{what}_{right}_{down}", dm="TIFF", bidx=band)
                for what in ("OFFSET", "SIZE")
            )
            end = int(start or 0) + int(length or 0)
            if end > size:
                label = where if source.count == 1 else frame_label(band - 1, f"{path} band {band}")
                raise FileError(
                    f"{label}: expected a TIFF image of {end} bytes or more, got {size}: "
                    "the file is truncated; copy it again"
                )


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
