"""Products: what is delivered, where it lies on Earth, and that GDAL agrees."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest

from pushframe.burst import GeoRef
from pushframe.errors import BurstError, MissingPackageError, UsageError
from pushframe.geometry import upscale_georef
from pushframe.io import read_product, write_product
from pushframe.product import Product

rasterio = pytest.importorskip("rasterio")
transform_module = pytest.importorskip("rasterio.transform")

UTM = (10.0, 0.5, 500003.0, 0.25, -10.0, 5000007.0)
PROVENANCE = {
    "weights": "pushframe-1",
    "note": "a: b = c, é ☃ <&>",
    "scale": "2",
    "empty": "",
    "lines": " a\n b ",
}


def rpc():
    """A plausible camera: ground to image nearly affine, a touch of every other term."""
    rng = np.random.default_rng(7)
    line = [0.0, 0.1, -1.0, 0.05, *(rng.normal(size=16) * 1e-4)]
    samp = [0.0, 1.0, 0.1, -0.05, *(rng.normal(size=16) * 1e-4)]
    flat = [1.0, *(rng.normal(size=19) * 1e-5)]
    return {
        "LINE_OFF": 31.5, "SAMP_OFF": 40.25, "LAT_OFF": 45.5, "LONG_OFF": 3.25, "HEIGHT_OFF": 100.0,
        "LINE_SCALE": 32.0, "SAMP_SCALE": 41.0, "LAT_SCALE": 0.01, "LONG_SCALE": 0.01,
        "HEIGHT_SCALE": 500.0, "LINE_NUM_COEFF": tuple(line), "LINE_DEN_COEFF": tuple(flat),
        "SAMP_NUM_COEFF": tuple(samp), "SAMP_DEN_COEFF": tuple(flat),
    }  # fmt: skip


def georef():
    return GeoRef(rasterio.crs.CRS.from_epsg(32631).to_wkt(), UTM, rpc())


def product(shape=(38, 54), **changes):
    rng = np.random.default_rng(0)
    mean, std, samples = rng.uniform(1, 3000, (3, *shape)).astype(np.float32)
    mean[2, 3] = std[2, 3] = np.nan
    made = Product(mean, std, samples, 2, georef(), PROVENANCE)
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize("name", ["p.tif", "p.NPZ", "new/folder/p.TIFF"])
@pytest.mark.parametrize("shape", [(4, 4), (38, 54), (1030, 520)])
def test_round_trip_is_exact(tmp_path, name, shape):
    made = product(shape)
    for _ in range(2):  # the second replaces the first
        write_product(made, tmp_path / name)
    back = read_product(tmp_path / name)
    for band in ("mean", "std", "samples"):
        assert np.array_equal(getattr(back, band), getattr(made, band), equal_nan=True), band
        assert getattr(back, band).dtype == np.float32
    assert (back.scale, dict(back.provenance)) == (2, PROVENANCE)
    assert back.georef.transform == made.georef.transform
    for key, value in made.georef.rpc.items():
        np.testing.assert_allclose(back.georef.rpc[key], value, rtol=1e-13)
    assert [entry.name for entry in (tmp_path / name).parent.iterdir()] == [(tmp_path / name).name]


def test_viewers_show_the_provenance_at_once(tmp_path):
    """In the TIFF's own tags and in GDAL's default metadata, not in our namespace alone."""
    tifffile = pytest.importorskip("tifffile")
    facts = {**PROVENANCE, "software": "pushframe 9.9", "method": "solver"}
    write_product(product(provenance=facts), tmp_path / "p.tif")
    with tifffile.TiffFile(tmp_path / "p.tif") as source:
        tags = source.pages.first.tags
        assert tags["Software"].value == "pushframe 9.9"
        assert tags["ImageDescription"].value.startswith("Image super-resolved 2 times by solver")
    with rasterio.open(tmp_path / "p.tif") as source:
        shown = source.tags()
        assert shown["TIFFTAG_SOFTWARE"] == "pushframe 9.9"
        assert shown["PUSHFRAME_METHOD"] == "solver"
        assert shown["PUSHFRAME_NOTE"] == PROVENANCE["note"]
        assert "method" not in shown  # what is read back is elsewhere
    assert dict(read_product(tmp_path / "p.tif").provenance) == facts


def test_nothing_is_invented_without_georeference(tmp_path):
    for name in ("p.tif", "p.npz"):
        write_product(product(georef=None, provenance={}), tmp_path / name)
        back = read_product(tmp_path / name)
        assert (back.georef, dict(back.provenance)) == (None, {})


def test_the_geotiff_says_what_it_holds(tmp_path):
    write_product(product((1030, 520)), tmp_path / "p.tif")
    with rasterio.open(tmp_path / "p.tif") as source:
        assert source.descriptions == ("mean", "std", "samples")
        assert source.units == ("DN", "DN", "1")
        assert source.dtypes == ("float32",) * 3
        assert np.isnan(source.nodata)
        structure = source.tags(ns="IMAGE_STRUCTURE")
        assert (structure["LAYOUT"], structure["COMPRESSION"]) == ("COG", "ZSTD")
        assert structure["PREDICTOR"] == "3"
        assert source.overviews(1) == [2, 4]
        assert source.tags(ns="PUSHFRAME")["weights"] == "pushframe-1"
        assert source.read_masks(1)[2, 3] == 0


@pytest.mark.parametrize("shape", [(38, 54), (1030, 1300)])
def test_cloud_optimised(tmp_path, shape):
    cogeo = pytest.importorskip("rio_cogeo")
    write_product(product(shape), tmp_path / "p.tif")
    assert cogeo.cog_validate(tmp_path / "p.tif", strict=True) == (True, [], [])


def ground_of(path, rows, cols, rpcs):
    """Ground positions of pixel centres, through GDAL alone."""
    with rasterio.open(path) as source:
        if not rpcs:
            return np.array(transform_module.xy(source.transform, rows, cols, offset="center"))
        with transform_module.RPCTransformer(source.rpcs, rpc_height=120.0) as camera:
            return np.array(camera.xy(rows, cols, offset="center"))


def place(tmp_path, name, where, shape):
    path = tmp_path / name
    write_product(product(shape, georef=where), path)
    return path


def misplaced_px(tmp_path, high_georef, scale, rpcs):
    """Distance between HR pixel s*l and LR pixel l on the ground, in LR px, the largest."""
    low = place(tmp_path, "low.tif", georef(), (64, 82))
    high = place(tmp_path, "high.tif", high_georef, (64 * scale, 82 * scale))
    rows, cols = np.mgrid[3:60:9, 2:80:13].reshape(2, -1)
    there = ground_of(low, rows, cols, rpcs)
    here = ground_of(high, scale * rows, scale * cols, rpcs)
    step = ground_of(low, rows, cols + 1, rpcs) - there
    return float((np.hypot(*(here - there)) / np.hypot(*step)).max())


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("rpcs", [False, True])
def test_gdal_puts_both_grids_on_one_ground(tmp_path, scale, rpcs):
    assert misplaced_px(tmp_path, upscale_georef(georef(), scale), scale, rpcs) < 1e-6


def test_halving_the_pixel_alone_is_a_quarter_pixel_off(tmp_path):
    a, b, c, d, e, f = UTM
    halved = dataclasses.replace(georef(), transform=(a / 2, b / 2, c, d / 2, e / 2, f))
    diagonal = 0.25 * np.hypot(a + b, d + e) / np.hypot(a, d)
    assert misplaced_px(tmp_path, halved, 2, rpcs=False) == pytest.approx(diagonal, rel=1e-6)


def test_a_half_pixel_term_in_the_rpc_is_seen(tmp_path):
    good = upscale_georef(georef(), 2)
    shifted = {**good.rpc, "SAMP_OFF": good.rpc["SAMP_OFF"] + 0.5}
    off = misplaced_px(tmp_path, dataclasses.replace(good, rpc=shifted), 2, rpcs=True)
    assert off == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize(
    "provenance", [{"a=b": "1"}, {"a:b": "1"}, {"Key": "1", "key": "2"}, {"ns": "1"}, {"n": 3},
                   {"product_scale": "3"}, {"": "x"}]
)  # fmt: skip
def test_provenance_that_tags_cannot_hold_is_refused(tmp_path, provenance):
    with pytest.raises(UsageError, match="provenance"):
        write_product(product(provenance=provenance), tmp_path / "p.tif")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_no_products(tmp_path):
    write_product(product(), tmp_path / "p.tif")
    with rasterio.open(tmp_path / "p.tif") as source, rasterio.open(
        tmp_path / "q.tif", "w", driver="GTiff", count=3, height=4, width=4, dtype="float32",
        crs=source.crs, transform=source.transform,
    ) as sink:  # fmt: skip
        sink.write(source.read(window=((0, 4), (0, 4))))
    np.savez(tmp_path / "q.npz", mean=np.ones((4, 4)))
    for name in ("q.tif", "q.npz"):
        with pytest.raises(BurstError, match=name):
            read_product(tmp_path / name)
    with pytest.raises(UsageError, match="suffix"):
        write_product(product(), tmp_path / "p.jpg")


def test_without_rasterio_products_are_npz(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rasterio", None)
    made = product(georef=GeoRef("LOCAL_CS[]", UTM))
    with pytest.raises(MissingPackageError, match=r"pip install 'pushframe\[files\]'"):
        write_product(made, tmp_path / "p.tif")
    assert list(tmp_path.iterdir()) == []
    write_product(made, tmp_path / "p.npz")
    assert read_product(tmp_path / "p.npz").georef == made.georef


def test_npz_is_plain(tmp_path):
    write_product(product(), tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as archive:
        assert json.loads(str(archive["provenance"])) == PROVENANCE
        assert set(archive.files) == {"mean", "std", "samples", "scale", "georef", "provenance"}
