"""Bursts and products from and to xarray, with the coordinates that rioxarray knows.

NumPy needs no more than `Burst.from_dn` and the arrays of a `Product`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .burst import Burst, GeoRef, NoiseLaw
from .checks import require
from .errors import MissingPackageError
from .io.georef import georef_of
from .io.product import BANDS, SCALE_TAG
from .product import Product

if TYPE_CHECKING:
    import xarray

SPATIAL_REF = "spatial_ref"  # the coordinate in which CF and rioxarray keep the CRS


def burst_from_xarray(
    frames: xarray.DataArray,
    exposure: Any = None,
    white_level: float | None = None,
    noise: NoiseLaw | None = None,
    **rest: Any,
) -> Burst:
    """A burst from raw pixels (N, H, W), DN, the reference first.

    The first axis is the frames; its coordinate, where it has one, names them. Exposures are taken
    from a coordinate `exposure` along it unless given; white_level, noise and the rest as in
    `Burst.from_dn`. CRS and transform are those that `frames.rio` finds.
    """
    _need_rioxarray()
    require(frames.ndim == 3, "frames of three axes (N, H, W)", frames.dims, "stack the frames")
    axis = frames.dims[0]
    if exposure is None and "exposure" in frames.coords:
        exposure = frames.coords["exposure"].values
    require(
        exposure is not None,
        "exposures, one for each frame",
        "none",
        "give `exposure`, or a coordinate of that name",
    )
    require(
        white_level is not None,
        "a white_level, the raw DN of radiance 1 at exposure 1",
        "none",
        "give `white_level`",
    )
    named = frames.coords[axis].values if axis in frames.coords else ()
    values = np.array(frames.values, dtype=np.float32)
    nodata = frames.rio.nodata
    if nodata is not None and not np.isnan(nodata):
        values[frames.values == nodata] = np.nan
    return Burst.from_dn(
        values, exposure, float(white_level or 0), noise=noise,
        names=tuple(map(str, named)),
        georef=_georef(frames), **rest,
    )  # fmt: skip


def product_to_xarray(product: Product) -> xarray.Dataset:
    """A product as a dataset of mean, std and samples on (y, x), with its CRS and provenance.

    y and x are the centres of pixels on the map, where the product has an upright transform;
    otherwise pixel numbers, and `rio.transform()` tells the place.
    """
    _need_rioxarray()
    import xarray
    from rasterio.transform import Affine

    height, width = product.mean.shape
    georef = product.georef or GeoRef()
    transform = georef.transform
    coords = {"y": np.arange(height) + 0.5, "x": np.arange(width) + 0.5}
    if transform is not None and transform[1] == transform[3] == 0:
        coords["y"] = transform[5] + transform[4] * coords["y"]
        coords["x"] = transform[2] + transform[0] * coords["x"]
    data = xarray.Dataset(
        {
            name: (("y", "x"), getattr(product, name), {"units": unit, "long_name": meaning})
            for name, (unit, meaning) in BANDS.items()
        },
        coords,
        {**product.provenance, SCALE_TAG: product.scale},
    )
    for name in BANDS:
        data[name].rio.write_nodata(np.nan, inplace=True)
    if transform is not None:
        data = data.rio.write_transform(Affine(*transform), grid_mapping_name=SPATIAL_REF)
    if georef.crs is not None:
        data = data.rio.write_crs(georef.crs, grid_mapping_name=SPATIAL_REF)
    return data


def product_from_xarray(data: xarray.Dataset) -> Product:
    """The product again, the inverse of `product_to_xarray`, but for RPC, which it cannot hold."""
    _need_rioxarray()
    missing = [name for name in BANDS if name not in data]
    require(not missing, f"the variables {', '.join(BANDS)}", f"no {missing}", "keep all of them")
    facts = {str(key): str(value) for key, value in data.attrs.items() if key != SCALE_TAG}
    mean, std, samples = (data[name].values for name in BANDS)
    require(
        str(data.attrs.get(SCALE_TAG, "")).isdigit(),
        f"the scale of the product in the attribute {SCALE_TAG}",
        repr(data.attrs.get(SCALE_TAG))[:60],
        "keep the attributes of the dataset, or set it",
    )
    scale = int(data.attrs[SCALE_TAG])
    return Product(mean, std, samples, scale, _georef(data["mean"]), facts)


def _georef(data: xarray.DataArray) -> GeoRef | None:
    """CRS and transform as rioxarray finds them, None without any."""
    if SPATIAL_REF not in data.coords and data.rio.crs is None:
        return None  # plain pixel numbers: rioxarray would make a transform of them
    place = SimpleNamespace(crs=data.rio.crs, transform=data.rio.transform(), rpcs=None)
    return georef_of(place)


def _need_rioxarray() -> None:
    try:
        import rioxarray  # noqa: F401  # it adds `.rio` to arrays
    except ImportError as error:
        raise MissingPackageError(
            "expected the packages xarray and rioxarray, got none: pip install 'pushframe[xarray]'"
        ) from error
