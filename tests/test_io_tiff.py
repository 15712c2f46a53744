"""Bursts in TIFF: folders, bands and pages, side-cars, masks, georeference."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pushframe.burst import Burst, GeoRef, NoiseLaw
from pushframe.errors import BurstError, MissingPackageError, PushframeError
from pushframe.geometry import upscale_georef
from pushframe.io import is_burst, open_burst, read_burst, read_image, read_simulated, write_burst

rasterio = pytest.importorskip("rasterio")
shutil = pytest.importorskip("rasterio.shutil")
tifffile = pytest.importorskip("tifffile")

EXPOSURE = [0.5, 1.0, 4.0]
UTM = (10.0, 0.5, 5e5, 0.25, -10.0, 5e6)


def raw(shape=(3, 7, 9), seed=0, dtype=np.uint16):
    return np.random.default_rng(seed).uniform(100, 3000, shape).astype(dtype)


@contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        yield


def save(path, bands, mask=None, **profile):
    bands = bands if bands.ndim == 3 else bands[None]
    count, height, width = bands.shape
    with (
        quiet(),
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(path, "w", driver="GTiff", count=count, height=height, width=width,
                      dtype=bands.dtype, **profile) as sink,
    ):  # fmt: skip
        sink.write(bands)
        if mask is not None:
            sink.write_mask(mask)
    return path


def folder(tmp_path, dn, toml="exposure = [0.5, 1.0, 4.0]\nwhite_level = 4096.0\n", **profile):
    for index, frame in enumerate(dn):
        save(tmp_path / f"f_{index}.tif", frame, **profile)
    (tmp_path / "burst.toml").write_text(toml)
    return tmp_path


def rpc():
    rng = np.random.default_rng(5)
    coefficients = {
        f"{axis}_{part}_COEFF": (1.0, *(rng.normal(size=19) * 1e-3).tolist())
        for axis in ("LINE", "SAMP")
        for part in ("NUM", "DEN")
    }
    scalars = {"LINE_OFF": 3.5, "SAMP_OFF": 4.25, "LINE_SCALE": 3.5, "SAMP_SCALE": 4.5}
    ground = {"LAT_OFF": 45.5, "LONG_OFF": 3.25, "HEIGHT_OFF": 100.0}
    spread = {"LAT_SCALE": 0.125, "LONG_SCALE": 0.125, "HEIGHT_SCALE": 500.0}
    return {**scalars, **ground, **spread, **coefficients}


@pytest.mark.parametrize("compress", [None, "lzw", "deflate", "zstd"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_folder_is_read_exactly(tmp_path, dtype, compress):
    dn = (raw() / 12 if dtype == np.uint8 else raw()).astype(dtype)
    burst = read_burst(folder(tmp_path, dn, compress=compress))
    assert np.array_equal(burst.raw_dn().numpy(), dn.astype(np.float32))
    assert burst.names == ("f_0.tif", "f_1.tif", "f_2.tif")
    assert burst.exposure.tolist() == EXPOSURE
    assert burst.georef is None


def test_frames_sort_by_number(tmp_path):
    dn = raw((3, 7, 9))
    for name, frame in zip(("frame_10.tif", "frame_2.TIF", "frame_1.tiff"), dn, strict=True):
        save(tmp_path / name, frame)
    (tmp_path / ".hidden.tif").write_bytes(b"left by another program")
    (tmp_path / "burst.toml").write_text("exposure = [1, 1, 1]\nwhite_level = 4096")
    burst = read_burst(tmp_path)
    assert burst.names == ("frame_1.tiff", "frame_2.TIF", "frame_10.tif")
    assert np.array_equal(burst.raw_dn().numpy(), dn[::-1])


def test_a_mark_of_byte_order_is_no_statement(tmp_path):
    """Windows editors write one."""
    path = folder(tmp_path, raw())
    side = path / "burst.toml"
    side.write_text(side.read_text(), encoding="utf-8-sig")
    assert side.read_bytes().startswith(b"\xef\xbb\xbf")
    assert read_burst(path).exposure.tolist() == EXPOSURE


@pytest.mark.parametrize("bands", [2, 3, 4])
def test_colours_are_no_frames_unless_a_side_car_says_so(tmp_path, bands):
    look = {"alpha": "yes"} if bands == 2 else {"photometric": "rgb"}
    save(tmp_path / "s.tif", raw((bands, 7, 9)), **look)
    with pytest.raises(BurstError, match=rf"got {bands} bands of one colour .*gdal_translate -b 1"):
        open_burst(tmp_path / "s.tif")
    (tmp_path / "s.toml").write_text('frames = "s.tif"')
    assert open_burst(tmp_path / "s.tif").count == bands
    save(tmp_path / "t.tif", raw((bands, 7, 9)), photometric="minisblack")
    assert open_burst(tmp_path / "t.tif").count == bands


def test_what_is_no_frame_gets_advice(tmp_path):
    path = folder(tmp_path, raw(), toml="")
    save(path / "preview.tif", raw((3, 5, 5)))
    with pytest.raises(BurstError, match=r"frame 3 .*list the frames with `frames` in burst.toml"):
        open_burst(path)
    save(path / "preview.tif", raw((5, 5)))
    with pytest.raises(BurstError, match=r"one size.*list the frames with `frames` in burst.toml"):
        open_burst(path)
    (path / "burst.toml").write_text('frames = ["f_0.tif", "f_1.tif", "f_2.tif"]')
    assert open_burst(path).count == 3


@pytest.mark.parametrize("reference", ["1", '"f_1.tif"'])
def test_the_side_car_in_full(tmp_path, reference):
    dn, truth = raw(), raw((14, 18), seed=1)
    save(tmp_path / "truth.tif", truth)
    mask = np.ones((3, 7, 9), np.uint8)
    mask[2, 4:] = 0
    for index in range(3):
        save(tmp_path / f"mask_{index}.tif", mask[index])
    folder(
        tmp_path, dn,
        "exposure = [0.5, 1.0, 4.0]\nwhite_level = 4096\nblack_level = 64\nnoise_a = 0.1187\n"
        f"noise_b = 12.05\nreference = {reference}\n"
        'valid = ["mask_0.tif", "mask_1.tif", "./mask_2.tif"]\ntruth = "./truth.tif"\n'
        "flow_px = [[1.5, 2], [0, 0], [3, -4]]\n",
    )  # fmt: skip
    simulated = read_simulated(tmp_path)
    burst, order = simulated.burst, [1, 0, 2]
    assert burst.names == ("f_1.tif", "f_0.tif", "f_2.tif")
    assert burst.exposure.tolist() == [1.0, 0.5, 4.0]
    seen = mask[order] > 0
    assert np.array_equal(burst.valid.numpy(), seen)
    assert np.array_equal(burst.raw_dn().numpy()[seen], dn[order][seen])
    assert (float(burst.black_level), burst.notes) == (64.0, ())
    assert float(burst.noise.a) == pytest.approx(0.1187)
    assert np.array_equal(simulated.truth.numpy(), truth.astype(np.float32) / 4096)
    assert simulated.flow_px.tolist() == [[0, 0], [1.5, 2], [3, -4]]
    assert torch.equal(read_burst(tmp_path / "burst.toml").frames, burst.frames)


def test_frames_named_in_order_may_leave_files_out(tmp_path):
    dn = raw()
    folder(tmp_path, dn, 'frames = ["f_2.tif", "f_0.tif"]\nexposure = [1, 1]\nwhite_level = 4096')
    assert np.array_equal(read_burst(tmp_path).raw_dn().numpy(), dn[[2, 0]])


@pytest.mark.parametrize("bands", [1, 3])
def test_one_mask_file_for_all_frames_or_a_band_for_each(tmp_path, bands):
    mask = np.random.default_rng(3).integers(0, 2, (bands, 7, 9)).astype(np.uint8) * 255
    mask[:, 0] = 255
    (tmp_path / "masks").mkdir()
    save(tmp_path / "masks" / "m.tif", mask)
    folder(tmp_path, raw(), 'exposure = [1, 1, 1]\nvalid = "masks/m.tif"')
    want = np.broadcast_to(mask > 0, (3, 7, 9))
    assert np.array_equal(read_burst(tmp_path).valid.numpy(), want)


def test_nodata_nan_and_internal_mask_are_invalid(tmp_path):
    dn = raw()
    dn[:, 2, 3] = 7
    save(tmp_path / "a.tif", dn[0], nodata=7)
    save(tmp_path / "b.tif", dn[1], mask=np.arange(63).reshape(7, 9) < 60)
    save(tmp_path / "c.tif", dn[2])
    (tmp_path / "burst.toml").write_text("exposure = [1, 1, 1]")
    valid = read_burst(tmp_path).valid.numpy()
    want = np.ones_like(valid)
    want[0, 2, 3] = False
    want[1].flat[60:] = False
    assert np.array_equal(valid, want)


@pytest.mark.parametrize("layout", ["bands", "pages", "tiled pages", "byte bands"])
@pytest.mark.parametrize("sidecar", ["stack.toml", "burst.toml"])
def test_a_stack_in_one_file(tmp_path, layout, sidecar):
    path, count = tmp_path / "stack.tif", 4
    dn = raw((count, 16, 32))
    if layout == "byte bands":  # GDAL takes the fourth for alpha; its zeros must mask nothing
        dn = (dn / 12).astype(np.uint8)
        dn[3, :5] = 0
    if "pages" in layout:
        tile = (16, 16) if "tiled" in layout else None
        tifffile.imwrite(path, dn, photometric="minisblack", tile=tile, compression="zlib")
    else:
        save(path, dn, compress="lzw")
    text = "exposure = [1, 1, 2, 1]\nwhite_level = 4096\nreference = 2\n"
    (tmp_path / sidecar).write_text(('frames = "stack.tif"\n' if "burst" in sidecar else "") + text)
    word = "page" if "pages" in layout else "band"
    for way in (path, tmp_path / sidecar, *([tmp_path] if "burst" in sidecar else [])):
        burst = read_burst(way)
        assert np.array_equal(burst.raw_dn().numpy(), dn[[2, 0, 1, 3]])
        assert bool(burst.valid.all())
        assert burst.names == tuple(f"stack.tif {word} {i}" for i in (3, 1, 2, 4))
        assert is_burst(way)


def test_pages_are_read_in_their_order(tmp_path):
    with tifffile.TiffWriter(tmp_path / "stack.tif") as sink:
        for number in range(1, 13):
            sink.write(np.full((8, 8), number, np.uint16), contiguous=False)
    source = open_burst(tmp_path / "stack.tif")
    assert source.names == tuple(f"stack.tif page {number}" for number in range(1, 13))
    assert [frame.read()[0, 0] for frame in source.frames] == list(range(1, 13))


def test_pages_with_mask_and_overviews_are_not_frames(tmp_path):
    dn = raw((2, 64, 64))
    save(tmp_path / "stack.tif", dn, mask=np.ones((64, 64), bool), tiled=True,
         blockxsize=16, blockysize=16)  # fmt: skip
    with quiet(), rasterio.open(tmp_path / "stack.tif", "r+") as source:
        source.build_overviews([2], rasterio.enums.Resampling.nearest)
    (tmp_path / "stack.toml").write_text("exposure = [1, 1]\nwhite_level = 4096")
    assert np.array_equal(read_burst(tmp_path / "stack.tif").raw_dn().numpy(), dn)


def test_georeference_is_that_of_the_reference(tmp_path):
    for index, frame in enumerate(raw()):
        a, b, c, d, e, f = UTM
        place = rasterio.transform.Affine(a, b, c + 10 * index, d, e, f)
        save(tmp_path / f"f_{index}.tif", frame, crs="EPSG:32631", transform=place)
    (tmp_path / "burst.toml").write_text("exposure = [1, 1, 1]\nreference = 2\n")
    georef = read_burst(tmp_path).georef
    assert georef.transform == (10.0, 0.5, 5e5 + 20, 0.25, -10.0, 5e6)
    assert rasterio.crs.CRS.from_wkt(georef.crs).to_epsg() == 32631
    assert georef.rpc is None


@pytest.mark.parametrize("name", ["b", "b.tif", "b.TIFF", "deep/er/b.tif"])
@pytest.mark.parametrize("flow", [None, (3, 2), (3, 2, 7, 9)])
def test_write_and_read_again(tmp_path, name, flow):
    dn = raw(dtype=np.float32)
    dn[1, 2, 3] = np.nan
    crs = rasterio.crs.CRS.from_epsg(32631).to_wkt()
    burst = Burst.from_dn(
        dn, EXPOSURE, 4096.0, noise=NoiseLaw(0.1187, 12.05),
        georef=GeoRef(crs, UTM, rpc()), notes=('A "quoted" note: é.',),
    )  # fmt: skip
    flow_px = (
        None if flow is None else torch.randn(flow, generator=torch.Generator().manual_seed(1))
    )
    truth = torch.rand(14, 18, generator=torch.Generator().manual_seed(2))
    for _ in range(2):  # the second replaces the first
        write_burst(burst, tmp_path / name, truth=truth, flow_px=flow_px)
    back = read_simulated(tmp_path / name)
    for field in ("frames", "valid", "exposure", "white_level", "black_level"):
        assert torch.equal(getattr(back.burst, field), getattr(burst, field)), field
    assert torch.equal(back.burst.noise.a, burst.noise.a)
    assert back.burst.notes == burst.notes
    assert torch.equal(back.truth, truth)
    assert back.flow_px is None if flow is None else torch.equal(back.flow_px, flow_px)
    assert_same_place(back.burst.georef, burst.georef)
    truth_file = next((tmp_path / name).parent.rglob("*truth.tif"))
    with rasterio.open(truth_file) as source:
        assert tuple(source.transform)[:6] == pytest.approx(
            upscale_georef(burst.georef, 2).transform
        )


def assert_same_place(got, want):
    assert got.transform == want.transform
    assert rasterio.crs.CRS.from_wkt(got.crs) == rasterio.crs.CRS.from_wkt(want.crs)
    assert set(got.rpc) == set(want.rpc)
    for key, value in want.rpc.items():  # GDAL writes 15 digits
        np.testing.assert_allclose(got.rpc[key], value, rtol=1e-13)
        assert isinstance(got.rpc[key], type(value))


def test_rpc_without_map_projection(tmp_path):
    burst = Burst.from_dn(raw(), EXPOSURE, 4096.0, georef=GeoRef(rpc=rpc()))
    write_burst(burst, tmp_path / "b")
    georef = read_burst(tmp_path / "b").georef
    assert (georef.crs, georef.transform) == (None, None)
    assert georef.rpc["SAMP_OFF"] == 4.25
    with rasterio.open(tmp_path / "b" / "frame_02.tif") as source:
        assert source.rpcs.samp_off == 4.25


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), cut=st.booleans())
def test_damaged_bytes_are_a_users_error_or_nothing(tmp_path, place, bits, cut):
    (tmp_path / "s.tif").unlink(missing_ok=True)  # GDAL looks at the file that it replaces
    path = save(tmp_path / "s.tif", raw((2, 5, 6)), compress="deflate")
    (tmp_path / "s.toml").write_text("exposure = [1, 1]")
    data = bytearray(path.read_bytes())
    where = int(place * len(data))
    data[where] ^= bits
    path.write_bytes(data[:where] if cut else data)
    message = str(path)
    try:
        read_burst(path)
    except PushframeError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message


# --- single images -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i.tif", "i.png", "i.npy"])
def test_read_image(tmp_path, name):
    dn = raw((7, 9))
    path = tmp_path / name
    if name == "i.npy":
        np.save(path, dn)
    elif name == "i.png":
        save(tmp_path / "i.tif", dn)
        with quiet():
            shutil.copy(tmp_path / "i.tif", path, driver="PNG")
    else:
        save(path, dn, nodata=dn[2, 3])
    image = read_image(path)
    assert image.dtype == np.float32
    want = dn.astype(np.float32)
    if name == "i.tif":
        want[dn == dn[2, 3]] = np.nan
    assert np.array_equal(image, want, equal_nan=True)


def test_without_rasterio_only_tiff_images_are_read(tmp_path, monkeypatch):
    dn = raw((7, 9))
    path = save(tmp_path / "i.tif", dn, nodata=dn[2, 3], compress="deflate")
    want = read_image(path)
    (tmp_path / "b").mkdir()
    folder(tmp_path / "b", raw())
    burst = read_burst(tmp_path / "b")
    (tmp_path / "i.png").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "rasterio", None)
    assert np.array_equal(read_image(path), want, equal_nan=True)
    for refused in (
        lambda: read_burst(tmp_path / "b"),
        lambda: read_image(tmp_path / "i.png"),
        lambda: write_burst(burst, tmp_path / "new"),
        lambda: write_burst(burst, tmp_path / "new.tif"),
    ):
        with pytest.raises(MissingPackageError, match=r"pip install 'pushframe\[files\]'"):
            refused()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "i.png", "i.tif"]
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(MissingPackageError):
        read_image(path)


def test_io_imports_without_optional_packages():
    code = (
        "import sys\nfor name in ('rasterio', 'tifffile', 'PIL', 'matplotlib'):\n"
        "    sys.modules[name] = None\nimport pushframe.io\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("compress", ["JPEG", "DEFLATE"])
def test_frames_in_jpeg_are_noted(tmp_path, compress):
    folder(tmp_path, raw((3, 16, 16)).astype(np.uint8), compress=compress)
    notes = " ".join(open_burst(tmp_path).notes)
    assert ("compressed with JPEG" in notes) == (compress == "JPEG")
