"""In and out of NumPy and xarray: the same pixels, in the same place."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from test_io_product import PROVENANCE, product
from test_io_product import georef as full_georef

from pushframe import Burst, GeoRef, NoiseLaw, super_resolve
from pushframe.arrays import burst_from_xarray, product_from_xarray, product_to_xarray
from pushframe.errors import BurstError, MissingPackageError
from pushframe.io import write_product
from pushframe.io.stac import Companions, stac_item
from pushframe.tally import Tally

rasterio = pytest.importorskip("rasterio")

# rioxarray multiplies transforms in a way that affine would rather not see
pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
UTM = (2.0, 0.0, 500_000.0, 0.0, -2.0, 4_800_000.0)
TILTED = (2.0, 0.3, 500_000.0, 0.1, -2.0, 4_800_000.0)


def raw(count: int = 4) -> np.ndarray:
    rng = np.random.default_rng(1)
    scene = 900 + 300 * np.sin(np.arange(40) / 4)[:, None] * np.cos(np.arange(36) / 5)
    return (scene + rng.normal(0, 10, (count, 40, 36))).astype(np.uint16)


def test_numpy_in_and_out() -> None:
    burst = Burst.from_dn(raw(), np.ones(4), 3400.0, noise=NoiseLaw(0.0, 100.0))
    made = super_resolve(burst, method="shift_and_add")
    assert isinstance(made.mean, np.ndarray)
    assert made.mean.shape == (80, 72)
    assert abs(np.nanmedian(made.mean) - np.median(raw())) < 10


@pytest.fixture
def xr():
    pytest.importorskip("rioxarray")
    return pytest.importorskip("xarray")


def stacked(xr, transform=UTM):
    from affine import Affine

    frames = xr.DataArray(
        raw(), dims=("frame", "y", "x"), coords={"frame": ["a", "b", "c", "d"]}
    ).assign_coords(exposure=("frame", np.array([1.0, 2.0, 1.0, 1.0])))
    return frames.rio.write_crs(32631).rio.write_transform(Affine(*transform))


def test_a_burst_from_xarray_is_that_from_numpy(xr) -> None:
    law = NoiseLaw(0.0, 100.0)
    burst = burst_from_xarray(stacked(xr), white_level=3400.0, noise=law, black_level=10.0)
    plain = Burst.from_dn(raw(), [1.0, 2.0, 1.0, 1.0], 3400.0, 10.0, noise=law)
    np.testing.assert_array_equal(burst.frames, plain.frames)
    assert burst.names == ("a", "b", "c", "d")
    assert burst.georef.transform == UTM
    assert "32631" in burst.georef.crs
    other = burst_from_xarray(stacked(xr), exposure=np.ones(4), white_level=3400.0)
    assert other.exposure.tolist() == [1.0] * 4


def test_nodata_and_nan_are_holes(xr) -> None:
    frames = stacked(xr)
    frames.values[1, 3, 4] = 7
    holes = burst_from_xarray(frames.rio.write_nodata(7), white_level=3400.0)
    assert np.argwhere(~holes.valid.numpy()).tolist() == [[1, 3, 4]]
    assert burst_from_xarray(frames, white_level=3400.0).valid.all()  # the twin: no nodata


def test_what_is_missing_is_asked_for(xr) -> None:
    with pytest.raises(BurstError, match="white_level"):
        burst_from_xarray(stacked(xr))
    with pytest.raises(BurstError, match="exposures"):
        burst_from_xarray(stacked(xr).drop_vars("exposure"), white_level=3400.0)
    with pytest.raises(BurstError, match="three axes"):
        burst_from_xarray(stacked(xr)[0], white_level=3400.0)
    with pytest.raises(BurstError, match="std"):
        product_from_xarray(product_to_xarray(product()).drop_vars("std"))
    for attributes in ({}, {"product_scale": "twice"}, {"product_scale": 2.5}):
        data = product_to_xarray(product())
        data.attrs = attributes
        with pytest.raises(BurstError, match=r"scale of the product.*product_scale"):
            product_from_xarray(data)


@pytest.mark.parametrize("transform", [UTM, TILTED, None])
@pytest.mark.usefixtures("xr")
def test_a_product_goes_there_and_back(transform) -> None:
    where = None if transform is None else GeoRef(full_georef().crs, transform)
    made = product(georef=where)
    data = product_to_xarray(made)
    back = product_from_xarray(data)
    for name in ("mean", "std", "samples"):
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))
        assert data[name].attrs["units"] == ("1" if name == "samples" else "DN")
    assert (dict(back.provenance), back.scale) == (PROVENANCE, made.scale)
    if transform is None:
        assert back.georef is None
    else:
        np.testing.assert_allclose(back.georef.transform, transform)
        assert data.rio.crs.to_epsg() == 32631


@pytest.mark.usefixtures("xr")
def test_coordinates_are_those_of_rioxarray_itself(tmp_path) -> None:
    """The dataset, and the GeoTIFF opened by rioxarray: the same y, x, CRS and pixels."""
    import rioxarray

    made = product(georef=GeoRef(full_georef().crs, UTM), provenance={})
    data = product_to_xarray(made)
    write_product(made, tmp_path / "p.tif")
    with rioxarray.open_rasterio(tmp_path / "p.tif", masked=True) as opened:
        np.testing.assert_allclose(data.x, opened.x)
        np.testing.assert_allclose(data.y, opened.y)
        np.testing.assert_array_equal(data["mean"], opened[0])
        assert data.rio.crs == opened.rio.crs
        assert data.rio.transform() == opened.rio.transform()
        assert data.rio.bounds() == opened.rio.bounds()


@pytest.mark.usefixtures("xr")
def test_bands_are_the_same_everywhere(tmp_path) -> None:
    """Names, units and meanings of GeoTIFF, STAC item and dataset."""
    made, tallies = product(), {name: Tally() for name in ("mean", "std", "samples")}
    data = product_to_xarray(made)
    write_product(made, tmp_path / "p.tif")
    with rasterio.open(tmp_path / "p.tif") as source:
        told = list(zip(source.descriptions, source.units, strict=True))
    assert told == [(name, data[name].attrs["units"]) for name in data]
    assert told == [("mean", "DN"), ("std", "DN"), ("samples", "1")]
    item = stac_item(Companions(tmp_path / "p.tif"), made.mean.shape, None, {}, tallies, False)
    asset = item["assets"]["product"]
    assert told == [
        (band["name"], raster["unit"])
        for band, raster in zip(asset["bands"], asset["raster:bands"], strict=True)
    ]
    meanings = [data[name].attrs["long_name"] for name in data]
    assert meanings == [band["description"] for band in asset["bands"]]


@pytest.mark.usefixtures("xr")
def test_scale_and_provenance_are_attributes() -> None:
    data = product_to_xarray(dataclasses.replace(product(), provenance={"method": "solver"}))
    assert data.attrs == {"method": "solver", "product_scale": 2}


def test_without_xarray_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "rioxarray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'pushframe\[xarray\]'"):
        product_to_xarray(product())
