"""A product written while it is made: parts to a plain file, then one Cloud-Optimised GeoTIFF.

Memory does not depend on the size of the product. The plain file is reserved on disk before any
work is done, and the GeoTIFF is read back and compared with it: on a full disk GDAL may end
without an error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np

from ..burst import GeoRef
from ..checks import require
from ..errors import FileError, UsageError
from ..tally import Tally
from .atomic import atomic_path
from .georef import rpc_strings
from .guard import encoding
from .product import BANDS, COG, all_tags
from .raster import gdal

CHECKED_PX = 512  # side of a block of the GeoTIFF
ITEM = np.dtype("<f4").itemsize


class ProductSink:
    """Pixels of a product on their way to disk; `provenance` is set before the end.

    tallies: range and histogram of each band, of all pixels written.
    """

    def __init__(self, stream: BinaryIO, shape: tuple[int, int], scale: int) -> None:
        self.stream, self.path = stream, Path(stream.name)
        self.shape, self.scale = shape, scale
        self.next = (0, 0)  # where the part to come begins
        self.tallies = {name: Tally() for name in BANDS}
        self.provenance: Mapping[str, str] = {}
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.stream.fileno(), 0, len(BANDS) * self._plane)

    @property
    def _plane(self) -> int:
        return ITEM * self.shape[0] * self.shape[1]

    def _place(self, band: int, row: int, column: int) -> int:
        return band * self._plane + ITEM * (row * self.shape[1] + column)

    def write(self, row: int, column: int, *bands: np.ndarray) -> None:
        """A part from (row, column) on, (h, w) for each of mean, std and samples, row by row."""
        height, width = bands[0].shape
        bottom, right = row + height, column + width
        require(
            (row, column) == self.next and bottom <= self.shape[0] and right <= self.shape[1],
            f"pixels from line {self.next[0]}, column {self.next[1]} on, within {self.shape}",
            f"{height} x {width} from line {row}, column {column} on",
            "write parts in order",
            UsageError,
        )
        for index, (name, band) in enumerate(zip(BANDS, bands, strict=True)):
            for line, pixels in enumerate(np.ascontiguousarray(band, dtype="<f4"), start=row):
                self.stream.seek(self._place(index, line, column))
                self.stream.write(pixels)
            self.tallies[name].update(band)
        self.next = (row, right) if right < self.shape[1] else (bottom, 0)

    def check(self, rasterio: Any, path: Path) -> None:
        """FileError unless the file `path` holds every pixel that was written."""
        with rasterio.open(path) as written, self.path.open("rb") as kept:
            for row in range(0, self.shape[0], CHECKED_PX):
                for column in range(0, self.shape[1], CHECKED_PX):
                    stop = (
                        min(start + CHECKED_PX, size)
                        for start, size in zip((row, column), self.shape, strict=True)
                    )
                    window = tuple(zip((row, column), stop, strict=True))
                    part = self._read_part(kept, window)
                    if not np.array_equal(written.read(window=window), part, equal_nan=True):
                        raise OSError(f"line {row} was not written as it should be")

    def _read_part(self, stream: BinaryIO, window: Sequence[tuple[int, int]]) -> np.ndarray:
        """Pixels of all bands as they were written, (3, h, w).

        Read and not mapped: pages of a map count as memory of this process.
        """
        (top, bottom), (left, right) = window
        part = np.empty((len(BANDS), bottom - top, right - left), "<f4")
        for index, band in enumerate(part):
            for row, line in enumerate(band, start=top):
                stream.seek(self._place(index, row, left))
                stream.readinto(line)  # type: ignore[attr-defined]
        return part


@contextmanager
def new_product(
    path: str | Path, shape: tuple[int, int], scale: int, georef: GeoRef | None
) -> Iterator[ProductSink]:
    """A sink for the pixels of a product, which becomes the GeoTIFF `path` when the body ends well.

    shape: (s*H, s*W); georef: of the product. The file appears whole or not at all.
    """
    path = Path(path)
    with gdal() as rasterio, atomic_path(path) as draft:
        check_space(path, draft.parent, shape)
        with (draft.parent / "parts.raw").open("wb") as stream:
            sink = ProductSink(stream, shape, scale)
            yield sink
        require(
            sink.next == (shape[0], 0),
            f"{shape[0]} lines",
            f"those before line {sink.next[0]}, column {sink.next[1]}",
            "write every part of the product",
            UsageError,
        )
        plan = draft.parent / "parts.vrt"
        plan.write_text(virtual_raster(sink, georef), encoding="utf-8")
        with encoding(path):
            from rasterio.shutil import copy

            copy(plan, draft, **COG)
            sink.check(rasterio, draft)


def check_space(path: Path, room: Path, shape: tuple[int, int]) -> None:
    """FileError unless the disk has room for the parts and for a GeoTIFF that shrinks nothing."""
    parts = len(BANDS) * ITEM * shape[0] * shape[1]
    needed, free = round(parts * (1 + 4 / 3)), shutil.disk_usage(room).free
    if free < needed:
        raise FileError(
            f"{path}: expected {needed / 1e9:.2f} GB of free space for a product of "
            f"{shape[0]}x{shape[1]}, got {free / 1e9:.2f} GB: make room or choose another disk"
        )


def virtual_raster(sink: ProductSink, georef: GeoRef | None) -> str:
    """The parts as GDAL sees them: an XML file with bands, place and all tags of a product."""
    height, width = sink.shape
    root = ElementTree.Element("VRTDataset", rasterXSize=str(width), rasterYSize=str(height))
    domains: dict[str, Mapping[str, str]] = all_tags(sink.provenance, sink.scale)
    if georef is not None:
        if georef.crs is not None:
            # without an axis mapping GDAL takes x for the east, as transforms do
            ElementTree.SubElement(root, "SRS").text = georef.crs
        if georef.transform is not None:
            a, b, c, d, e, f = georef.transform
            text = ", ".join(repr(value) for value in (c, a, b, f, d, e))
            ElementTree.SubElement(root, "GeoTransform").text = text
        if georef.rpc is not None:
            domains["RPC"] = rpc_strings(georef.rpc)
    for domain, tags in domains.items():
        table = ElementTree.SubElement(root, "Metadata", {"domain": domain} if domain else {})
        for key, value in tags.items():
            ElementTree.SubElement(table, "MDI", key=key).text = value
    for index, (name, what) in enumerate(BANDS.items()):
        band = ElementTree.SubElement(
            root,
            "VRTRasterBand",
            dataType="Float32",
            band=str(index + 1),
            subClass="VRTRawRasterBand",
        )
        source = ElementTree.SubElement(band, "SourceFilename", relativetoVRT="1")
        source.text = sink.path.name
        texts = {
            "Description": name,
            "UnitType": what.unit,
            "NoDataValue": "nan",
            "ImageOffset": str(index * ITEM * height * width),
            "PixelOffset": str(ITEM),
            "LineOffset": str(ITEM * width),
            "ByteOrder": "LSB",
        }
        for tag, text in texts.items():
            ElementTree.SubElement(band, tag).text = text
    return ElementTree.tostring(root, encoding="unicode")
