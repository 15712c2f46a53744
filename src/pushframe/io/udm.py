"""Planet's masks of unusable data beside SkySat frames: UDM, a byte of bits, or UDM2, eight bands.

UDM: any bit set is unusable (bit 0 not imaged, bit 1 cloud, the others missing or suspect data).
UDM2: band 5 is heavy haze, band 6 cloud, band 8 the UDM. Snow, shadow and light haze, its bands 2
to 4, show the ground and are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..burst import GeoRef
from .frames import ALL, ArrayFrame, Frame
from .raster import RasterFrame, open_layers

SCENE = re.compile(r"^\d{8}_\d{6}_ss\w+d[123]_\d{4}_")  # what the files of one frame share
KINDS = ("udm2", "udm")  # the better first
UDM2_BANDS = (4, 5, 7)  # from 0: heavy haze, cloud, UDM


@dataclass(frozen=True, eq=False)
class UsableFrame:
    """The mask of a frame: 1 where none of the layers of a UDM or UDM2 has anything to say."""

    layers: tuple[RasterFrame, ...]
    name: str
    dtype: str = "uint8"
    georef: GeoRef | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.layers[0].shape

    def read(self, rows: slice = ALL, columns: slice = ALL) -> np.ndarray:
        """1 where usable, else 0, float32 (h, w)."""
        # nodata of a mask says nothing
        said = [np.nan_to_num(layer.read(rows, columns)) for layer in self.layers]
        return (np.stack(said) == 0).all(0).astype(np.float32)


def udm_masks(
    folder: Path, frames: Sequence[RasterFrame]
) -> tuple[tuple[Frame, ...], tuple[str, ...]]:
    """The masks of SkySat frames, one each, and what was found, in sentences; none without any.

    A mask lies in the folder, begins like its frame (time, camera, number), ends in `_udm2.tif` or
    `_udm.tif`, and has the frame's size. A frame without one is all usable.
    """
    found: list[Frame | None] = []
    said: list[str] = []
    for frame in frames:
        scene = SCENE.match(Path(frame.name).name)
        paths = [
            path
            for kind in KINDS
            for path in (sorted(folder.glob(f"{scene.group()}*_{kind}.tif")) if scene else [])
        ]
        masks = [mask for path in paths if (mask := _mask(path)) is not None]
        fitting = [mask for mask in masks if mask.shape == frame.shape]
        found.append(fitting[0] if fitting else None)
        said += [
            f"{mask.name} is not of the size of {frame.name} and was not used."
            for mask in masks
            if mask.shape != frame.shape
        ]
    number = sum(mask is not None for mask in found)
    if not number:
        return (), tuple(said)
    said.append(
        f"Unusable pixels by Planet's masks are left out, in {number} of {len(found)} frames."
    )
    every = [
        ArrayFrame(np.broadcast_to(np.uint8(1), frame.shape), "all usable") for frame in frames
    ]
    return tuple(mask or whole for mask, whole in zip(found, every, strict=True)), tuple(said)


def _mask(path: Path) -> UsableFrame | None:
    """None for a UDM2 without its UDM: its first band says what is clear."""
    layers = open_layers(path)
    if not path.stem.endswith("_udm2"):
        return UsableFrame(tuple(layers[:1]), path.name)
    if len(layers) <= UDM2_BANDS[-1]:
        return None
    return UsableFrame(tuple(layers[k] for k in UDM2_BANDS), path.name)
