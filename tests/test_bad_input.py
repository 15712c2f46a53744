"""Every bad input: the right error, on one line, with the file and the frame, nothing left."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest
from test_io_product import rpc

from pushframe.errors import BurstError, FileError, UsageError
from pushframe.io import (
    read_burst,
    read_image,
    read_product,
    read_simulated,
    write_product,
)
from pushframe.io.guard import decoding
from pushframe.product import Product

rasterio = pytest.importorskip("rasterio")
tifffile = pytest.importorskip("tifffile")

EXPOSURE = "exposure = [1.0, 1.0, 2.0]\n"
CLEAN = EXPOSURE + "clean = true\n"


def raw(shape=(3, 20, 24), seed=0):
    return np.random.default_rng(seed).uniform(100, 3000, shape).astype(np.float32)


def save(path, bands, dtype="float32", **profile):
    bands = np.asarray(bands if np.ndim(bands) == 3 else bands[None]).astype(dtype)
    count, height, width = bands.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="GTiff", count=count, height=height, width=width,
                           dtype=dtype, **profile) as sink:  # fmt: skip
            sink.write(bands)


def truncate(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def fails(error, call, path, *words):
    """`call(path)` raises exactly `error`, one line, naming the file and all `words`."""
    with pytest.raises(error) as caught:
        call(path)
    text = str(caught.value)
    assert type(caught.value) is error
    assert "\n" not in text
    assert str(path) in text
    for word in words:
        assert word in text, text
    assert len(text) < 600


# --- .npz ----------------------------------------------------------------------------------

GOOD = {"frames": raw(), "exposure": [1.0, 1.0, 2.0], "white_level": 3400.0}


def changed(index, value):
    frames = raw()
    frames[index] = value
    return {"frames": frames}


def georef(crs=None, transform=None, rpc=None):
    return {"georef": json.dumps({"crs": crs, "transform": transform, "rpc": rpc})}


NPZ = {
    "inf": (changed((1, 2, 3), np.inf), ["frame 1", "1 infinite"]),
    "constant": ({**changed(2, 7.0), "clean": True}, ["frame 2", "constant 7"]),
    "all NaN": (changed(1, np.nan), ["frame 1", "every pixel"]),
    "no frames": ({"frames": None}, ["`frames`"]),
    "empty": ({"frames": np.zeros((0, 4, 4))}, ["(0, 4, 4)"]),
    "two dimensions": ({"frames": raw((5, 6))}, ["(N, H, W)", "(5, 6)"]),
    "colour": ({"frames": raw((3, 5, 6, 3))}, ["(N, H, W)", "(3, 5, 6, 3)"]),
    "complex": ({"frames": raw().astype(complex)}, ["frames", "complex128"]),
    "text": ({"frames": np.full((3, 2, 2), "a")}, ["frames", "numbers"]),
    "exposure count": ({"exposure": [1.0, 2.0]}, ["3 exposures", "got 2"]),
    "exposure zero": ({"exposure": [1.0, 0.0, 2.0]}, ["frame 1", "positive", "got 0"]),
    "exposure negative": ({"exposure": [1.0, 1.0, -2.0]}, ["frame 2", "got -2"]),
    "exposure NaN": ({"exposure": [np.nan, 1.0, 2.0]}, ["frame 0", "got nan"]),
    "exposure infinite": ({"exposure": [1.0, np.inf, 2.0]}, ["frame 1", "got inf"]),
    "exposure text": ({"exposure": ["a", "b", "c"]}, ["exposure", "numbers"]),
    "white zero": ({"white_level": 0.0}, ["white_level"]),
    "white negative": ({"white_level": -3400.0}, ["white_level above zero", "-3400"]),
    "white infinite": ({"white_level": np.inf}, ["white_level", "finite"]),
    "white of each frame": ({"white_level": [1.0, 2.0, 3.0]}, ["one number", "got 3"]),
    "white not to be guessed": ({"white_level": None, "black_level": 9e3}, ["black_level"]),
    "black NaN": ({"black_level": np.nan}, ["black_level", "finite"]),
    "one of the noise law": ({"noise_a": 0.1}, ["noise_a and noise_b", "noise_a alone"]),
    "the other of it": ({"noise_b": 9.0}, ["noise_a and noise_b", "noise_b alone"]),
    "noise negative": ({"noise_a": -0.1, "noise_b": 9.0}, ["noise_a"]),
    "noise zero": ({"noise_a": 0.0, "noise_b": 0.0}, ["noise law above zero"]),
    "mask of another size": ({"valid": np.ones((3, 4, 4), bool)}, ["valid", "(3, 4, 4)"]),
    "mask of floats": ({"valid": np.ones((3, 20, 24))}, ["booleans", "0 and 1", "float64"]),
    "mask leaves nothing": ({"valid": np.zeros((20, 24), bool)}, ["frame 0", "masked"]),
    "reference beyond": ({"reference": 3}, ["reference", "0 to 2", "got 3"]),
    "reference negative": ({"reference": -1}, ["reference", "got -1"]),
    "reference fraction": ({"reference": 0.5}, ["reference", "integers"]),
    "unknown key": ({"exposures": [1.0]}, ["'exposures'", "did you mean 'exposure'"]),
    "unlike any key": ({"shift": [1.0]}, ["got 'shift': use one of black_level", ", exposure, "]),
    "another unknown key": ({"white": 3400.0}, ["'white'", "'white_level'"]),
    "georef": ({"georef": "not JSON"}, ["georef", "JSON"]),
    "georef of words": ({"georef": '{"crs": 1, "transform": 2, "rpc": 3}'}, ["georef"]),
    "CRS of no meaning": (georef(crs="nonsense"), ["CRS of `georef` as WKT", "'nonsense'"]),
    "CRS of an address": (georef(crs="http://localhost/x"), ["as WKT, or a code", "http:"]),
    "CRS of nothing": (georef(crs=""), ["CRS of `georef` as WKT", "''"]),
    "CRS of a number": (georef(crs=32631), ["CRS of `georef` as WKT", "got 32631"]),
    "transform NaN": (georef(transform=[1, 0, np.nan, 0, 1, 0]), ["transform of finite numbers"]),
    "transform to a line": (georef(transform=[.1, .2, 5, .3, .6, 5]), ["pixels that have an area"]),
    "RPC in part": (georef(rpc={"LINE_OFF": 1.0}), ["whole RPC", "no such LINE_SCALE, "]),
    "RPC of few terms": (georef(rpc=rpc() | {"SAMP_DEN_COEFF": [1.0]}), ["SAMP_DEN_COEFF", "20"]),
}  # fmt: skip


@pytest.mark.parametrize("case", NPZ)
def test_npz_contents(tmp_path, case):
    change, words = NPZ[case]
    arrays = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    np.savez(tmp_path / "b.npz", **arrays)
    fails(BurstError, read_burst, tmp_path / "b.npz", *words)


TRUTH = {
    "absent": ({}, ["truth", "`pushframe run`"]),
    "not a multiple": ({"truth": raw((41, 48))}, ["41x48", "20x24"]),
    "scale 1": ({"truth": raw((20, 24))}, ["2, 3, 4 times", "1 times"]),
    "three dimensions": ({"truth": raw((1, 40, 48))}, ["(1, 40, 48)"]),
    "flow": ({"truth": raw((40, 48)), "flow_px": np.zeros((2, 2))}, ["flow_px", "(2, 2)"]),
    "truth NaN": ({"truth": np.full((40, 48), np.nan)}, ["finite truth"]),
    "flow NaN": ({"truth": raw((40, 48)), "flow_px": np.full((3, 2), np.nan)}, ["finite flow_px"]),
}  # fmt: skip


@pytest.mark.parametrize("case", TRUTH)
def test_simulated_contents(tmp_path, case):
    change, words = TRUTH[case]
    np.savez(tmp_path / "b.npz", **GOOD, **change)
    fails(BurstError, read_simulated, tmp_path / "b.npz", *words)


def pickled(path):
    np.savez(path, frames=np.array([{}, []], dtype=object))


NPZ_BYTES = {
    "empty": (lambda path: path.write_bytes(b""), ["a burst", "damaged or truncated"]),
    "text": (lambda path: path.write_text("frames = 3"), ["another kind"]),
    "half": (lambda path: (np.savez(path, **GOOD), truncate(path, 0.5)), ["truncated"]),
    "an .npy": (lambda path: save_npy_as(path), ["another kind"]),
    "objects": (pickled, ["allow_pickle=False"]),
    "a zip of text": (lambda path: shutil.move(zip_of_text(path), path), ["'frames'"]),
}


def zip_of_text(path):
    (path.parent / "z").mkdir()
    (path.parent / "z" / "frames").write_text("hello")
    return shutil.make_archive(str(path.with_suffix("")), "zip", path.parent / "z")


def save_npy_as(path):
    with path.open("wb") as stream:
        np.save(stream, raw())


@pytest.mark.parametrize("case", NPZ_BYTES)
def test_npz_that_is_none(tmp_path, case):
    make, words = NPZ_BYTES[case]
    make(tmp_path / "b.npz")
    fails(FileError, read_burst, tmp_path / "b.npz", *words)


def test_a_flipped_pixel_in_an_npz_is_found(tmp_path):
    path = tmp_path / "b.npz"
    np.savez(path, **GOOD)
    data = bytearray(path.read_bytes())
    data[2000] ^= 255  # a pixel
    path.write_bytes(data)
    fails(FileError, read_burst, path, "CRC")


def test_causes_of_many_lines_are_told_on_one(tmp_path):
    def decoder(path):
        with decoding(path, "an image"):
            raise RuntimeError("first line\n  second line") from OSError(5, "I/O\nerror")

    fails(FileError, decoder, tmp_path / "x.tif", "expected an image", "I/O error")


# --- folders of TIFF frames ----------------------------------------------------------------


def put(name, *args, **kwargs):
    return lambda folder: save(folder / name, *args, **kwargs)


def cut(name, share):
    return lambda folder: truncate(folder / name, share)


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def toml(content):
    return text("burst.toml", content)


def also(content):
    return toml(EXPOSURE + content)


def placed(name, epsg=32631, size=10.0, turn=0.0):
    place = rasterio.transform.Affine(size, 0, 5e5, turn, -size, 5e6)
    return put(name, FRAME, crs=f"EPSG:{epsg}", transform=place)


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


FRAME = raw((20, 24), seed=9)
LINE = rasterio.transform.Affine(10, 10, 5, 20, 20, 6)
TILED = {"tiled": True, "blockxsize": 16, "blockysize": 16}
FOLDER = {
    "exposure count": (BurstError, [toml("exposure = [1, 1]")],
                       ["3 exposures", "got 2", "burst.toml"]),
    "exposure text": (BurstError, [toml('exposure = "1 ms"')], ["exposure", "1 ms"]),
    "exposure ragged": (BurstError, [toml("exposure = [1, [1, 2], 3]")], ["exposure"]),
    "exposure zero": (BurstError, [toml("exposure = [1, 0, 1]")],
                      ["frame 1", "b.tif", "got 0"]),
    "exposure true": (BurstError, [toml("exposure = [true, true, true]")],
                      ["exposure"]),
    "no frames": (FileError, [remove("a.tif", "b.tif", "c.tif")], ["TIFF frames", "got none"]),
    "empty list": (FileError, [also("frames = []")], ["got none"]),
    "frames not names": (BurstError, [also("frames = [1, 2, 3]")],
                         ["frames", "strings"]),
    "frame missing": (FileError, [also('frames = ["a.tif", "x.tif", "c.tif"]')],
                      ["frame 1", "x.tif", "nothing there"]),
    "frame a folder": (FileError, [remove("b.tif"), lambda folder: (folder / "b.tif").mkdir()],
                       ["frame 1", "b.tif", "a folder"]),
    "frame empty": (FileError, [text("b.tif", "")], ["frame 1", "b.tif"]),
    "frame of text": (FileError, [text("b.tif", "this is no image at all\n" * 9)],
                      ["frame 1", "b.tif", "not recognized"]),
    "frame cut in its header": (FileError, [cut("b.tif", 0.01)], ["frame 1", "b.tif"]),
    "frame cut in its pixels": (FileError, [cut("b.tif", 0.7)], ["frame 1", "b.tif"]),
    "frame cut, lzw": (FileError, [put("b.tif", FRAME, compress="lzw"), cut("b.tif", 0.7)],
                       ["frame 1", "b.tif"]),
    "frame cut, deflate": (FileError, [put("b.tif", FRAME, compress="deflate"), cut("b.tif", 0.9)],
                           ["frame 1", "b.tif"]),
    "frame cut, tiled": (FileError, [put("b.tif", raw((64, 64)), **TILED),
                                     cut("b.tif", 0.9)], ["frame 1", "b.tif"]),
    "size": (BurstError, [put("c.tif", raw((20, 25)))],
             ["frame 0", "a.tif", "20x24", "frame 2", "c.tif", "20x25"]),
    "dtype": (BurstError, [put("c.tif", FRAME, dtype="uint16")],
              ["frame 0", "a.tif", "float32", "frame 2", "c.tif", "uint16"]),
    "bands": (BurstError, [put("b.tif", raw())], ["frame 1", "b.tif", "got 3"]),
    "complex": (BurstError, [put("b.tif", FRAME, dtype="complex64")],
                ["frame 1", "b.tif", "complex64"]),
    "inf": (BurstError, [put("b.tif", np.where(FRAME > 2900, np.inf, FRAME))],
            ["frame 1", "b.tif", "infinite"]),
    "other CRS": (BurstError, [placed("a.tif"), placed("b.tif", 32632), placed("c.tif")],
                  ["one CRS", "zone 31N", "frame 1 (b.tif)", "zone 32N"]),
    "no CRS": (BurstError, [placed("a.tif"), placed("b.tif")], ["frame 2 (c.tif)", "no CRS"]),
    "other pixel size": (BurstError, [placed("a.tif"), placed("b.tif"), placed("c.tif", size=20)],
                         ["one pixel size", "10x10", "frame 2 (c.tif)", "20x20", "resampled"]),
    "turned": (BurstError, [placed("a.tif"), placed("b.tif", turn=3), placed("c.tif")],
               ["one pixel size", "frame 1 (b.tif)", "(10, 3)"]),
    "pixels without area": (BurstError, [put("b.tif", FRAME, transform=LINE)],
                            ["frame 1", "b.tif", "pixels that have an area", "10, 10, 5"]),
    "constant": (BurstError, [put("b.tif", FRAME * 0 + 7), also("clean = true")],
                 ["frame 1", "b.tif", "constant 7"]),
    "all NaN": (BurstError, [put("b.tif", FRAME * np.nan)], ["frame 1", "b.tif", "NaN"]),
    "all nodata": (BurstError, [put("b.tif", FRAME * 0 + 7, nodata=7)], ["frame 1", "b.tif"]),
    "unknown key": (BurstError, [also("whitelevel = 1")],
                    ["burst.toml", "'whitelevel'", "'white_level'"]),
    "no TOML": (FileError, [toml("exposure = [1, 1")], ["burst.toml", "TOML"]),
    "no UTF-8": (FileError, [lambda folder: (folder / "burst.toml").write_bytes(b"\xff\xfe")],
                 ["burst.toml"]),
    "white zero": (BurstError, [also("white_level = 0")], ["white_level above zero", "got 0"]),
    "white negative": (BurstError, [also("white_level = -1.0")], ["white_level above zero"]),
    "noise negative": (BurstError, [also("noise_a = 0.1\nnoise_b = -1.0")], ["noise_b"]),
    "reference name": (BurstError, [also('reference = "d.tif"')],
                       ["reference", "d.tif", "a.tif, b.tif"]),
    "reference index": (BurstError, [also("reference = 3")],
                        ["reference", "got 3"]),
    "mask missing": (FileError, [also('valid = "m.tif"')], ["m.tif"]),
    "mask size": (BurstError, [put("m.tif", raw((5, 6))), also('valid = "m.tif"')],
                  ["m.tif", "20x24", "5x6"]),
    "mask count": (BurstError, [put("m.tif", FRAME), also('valid = ["m.tif"]')],
                   ["3 masks", "got 1"]),
    "mask number": (BurstError, [also("valid = 1")], ["valid"]),
    "mask leaves nothing": (BurstError, [put("m.tif", FRAME * 0, dtype="uint8"),
                                         also('valid = "m.tif"')],
                            ["frame 0", "a.tif", "masked"]),
    "notes": (BurstError, [also("notes = 3")], ["notes"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDER)
def test_folder(tmp_path, case):
    error, changes, words = FOLDER[case]
    for name, frame in zip("abc", raw(), strict=True):
        save(tmp_path / f"{name}.tif", frame)
    (tmp_path / "burst.toml").write_text(EXPOSURE)
    assert read_burst(tmp_path).count == 3  # it is the change that spoils it
    for change in changes:
        change(tmp_path)
    before = sorted(tmp_path.iterdir())
    fails(error, read_burst, tmp_path, *words)
    assert sorted(tmp_path.iterdir()) == before


SIMULATED = {
    "truth missing": (FileError, 'truth = "t.tif"', ["t.tif", "nothing there"]),
    "truth a number": (BurstError, "truth = 3", ["truth", "TIFF"]),
    "truth of many bands": (BurstError, 'truth = "bands.tif"', ["bands.tif", "got 3"]),
    "no truth": (BurstError, "", ["truth"]),
    "flow missing": (FileError, 'truth = "good.tif"\nflow_px = "f.npy"', ["f.npy"]),
    "flow of text": (FileError, 'truth = "good.tif"\nflow_px = "burst.toml"', ["burst.toml"]),
    "flow count": (BurstError, 'truth = "good.tif"\nflow_px = [[1, 2]]', ["flow_px", "(1, 2)"]),
}


@pytest.mark.parametrize("case", SIMULATED)
def test_simulated_folder(tmp_path, case):
    error, toml, words = SIMULATED[case]
    for name, frame in zip("abc", raw(), strict=True):
        save(tmp_path / f"{name}.tif", frame)
    save(tmp_path / "bands.tif", raw())
    save(tmp_path / "good.tif", raw((40, 48)))
    names = 'frames = ["a.tif", "b.tif", "c.tif"]\n'
    (tmp_path / "burst.toml").write_text(names + EXPOSURE + toml)
    fails(error, read_simulated, tmp_path, *words)


# --- stacks in one TIFF --------------------------------------------------------------------


def pages(*frames):
    def make(path):
        with tifffile.TiffWriter(path) as sink:
            for frame in frames:
                sink.write(frame, photometric="rgb" if frame.ndim == 3 else "minisblack")

    return make  # fmt: skip


STACK = {
    "count": (BurstError, "exposure = [1, 1]", lambda path: save(path, raw()), ["3 exposures"]),
    "another file": (BurstError, 'frames = "t.tif"\n' + EXPOSURE, lambda path: save(path, raw()),
                     ["s.toml", "t.tif"]),
    "constant band": (BurstError, CLEAN, lambda path: save(path, changed(1, 5.0)["frames"]),
                      ["frame 1", "s.tif band 2", "constant 5"]),
    "constant page": (BurstError, CLEAN, pages(*changed(2, 5.0)["frames"]),
                      ["frame 2", "s.tif page 3", "constant 5"]),
    "page sizes": (BurstError, EXPOSURE, pages(FRAME, FRAME, FRAME[1:]),
                   ["frame 2", "page 3", "20x24", "19x24"]),
    "page dtypes": (BurstError, EXPOSURE, pages(FRAME, FRAME.astype(np.uint16), FRAME),
                    ["frame 1", "page 2", "float32", "uint16"]),
    "page of colours": (BurstError, EXPOSURE, pages(FRAME, raw((20, 24, 3)).astype("u1"), FRAME),
                        ["frame 1", "page 2", "got 3"]),
    "cut band": (FileError, EXPOSURE,
                 lambda path: (save(path, raw(), interleave="band"), truncate(path, 0.8)),
                 ["frame 2", "band 3"]),
    "cut page": (FileError, EXPOSURE,
                 lambda path: (pages(*raw())(path), truncate(path, 0.95)), ["frame 2"]),
}  # fmt: skip


@pytest.mark.parametrize("case", STACK)
def test_stack(tmp_path, case):
    error, toml, make, words = STACK[case]
    make(tmp_path / "s.tif")
    if toml is not None:
        (tmp_path / "s.toml").write_text(toml)
    fails(error, read_burst, tmp_path / "s.tif", *words)


def test_paths_that_are_no_burst(tmp_path):
    (tmp_path / "b.jpg").write_bytes(b"")
    (tmp_path / "alone.toml").write_text(EXPOSURE)
    for name in ("absent", "absent.npz", "absent.tif", "absent.toml"):
        fails(FileError, read_burst, tmp_path / name, "nothing there")
    fails(UsageError, read_burst, tmp_path / "b.jpg", ".jpg")
    fails(FileError, read_burst, tmp_path / "alone.toml", "alone.tif")
    (tmp_path / "empty").mkdir()
    fails(FileError, read_burst, tmp_path / "empty", f"{tmp_path / 'empty'}: expected TIFF frames")


# --- images and products -------------------------------------------------------------------

IMAGE = {
    "absent.tif": (FileError, None, ["nothing there"]),
    "a folder": (UsageError, lambda path: path.mkdir(), ["folder"]),
    "i.gif": (UsageError, lambda path: path.write_bytes(b"GIF89a"), [".gif"]),
    "empty.tif": (FileError, lambda path: path.write_bytes(b""), ["TIFF"]),
    "text.tif": (FileError, lambda path: path.write_text("hello" * 99), ["not recognized"]),
    "text.png": (FileError, lambda path: path.write_text("hello" * 99), ["not recognized"]),
    "cut.tif": (FileError, lambda path: (save(path, FRAME), truncate(path, 0.8)), []),
    "cut.png": (FileError, lambda path: (save_png(path), truncate(path, 0.6)), []),
    "empty.npy": (FileError, lambda path: path.write_bytes(b""), [".npy"]),
    "cut.npy": (FileError, lambda path: (np.save(path, FRAME), truncate(path, 0.6)), []),
    "archive.npy": (FileError, lambda path: archive(path), ["magic"]),
    "object.npy": (FileError, lambda path: np.save(path, np.array([{}], object)), ["pickle"]),
    "bands.tif": (BurstError, lambda path: save(path, raw()), ["3 bands", "extract"]),
    "pages.tif": (BurstError, lambda path: pages(*raw())(path), ["3 pages", "extract"]),
    "bands.npy": (BurstError, lambda path: np.save(path, raw()), ["3 bands"]),
    "line.npy": (BurstError, lambda path: np.save(path, FRAME[0]), ["(24,)"]),
    "text.npy": (BurstError, lambda path: np.save(path, np.array([["a"]])), ["numbers"]),
    "thin.tif": (BurstError, lambda path: save(path, FRAME[:1]), ["1x24"]),
    "constant.tif": (BurstError, lambda path: save(path, FRAME * 0 + 3), ["constant 3"]),
    "nothing.tif": (BurstError, lambda path: save(path, FRAME * np.nan), ["NaN"]),
    "inf.tif": (BurstError, lambda path: save(path, np.where(FRAME > 2900, np.inf, FRAME)),
                ["infinite"]),
}  # fmt: skip


def archive(path):
    with path.open("wb") as stream:
        np.savez(stream, image=FRAME)


def save_png(path):
    from rasterio.shutil import copy

    save(path.with_suffix(".tmp"), FRAME, dtype="uint16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        copy(path.with_suffix(".tmp"), path, driver="PNG")


@pytest.mark.parametrize("name", IMAGE)
def test_image(tmp_path, name):
    error, make, words = IMAGE[name]
    if make is not None:
        make(tmp_path / name)
    fails(error, read_image, tmp_path / name, *words)


def product():
    return Product(raw((300, 200)), raw((300, 200), 1), raw((300, 200), 2), 2)


def test_product_files(tmp_path):
    for name in ("absent.tif", "absent.npz", "absent"):
        fails(FileError, read_product, tmp_path / name)
    for name in ("p.tif", "p.npz"):
        write_product(product(), tmp_path / name)
        truncate(tmp_path / name, 0.8)
        fails(FileError, read_product, tmp_path / name)
        (tmp_path / name).write_text("hello")
        fails(FileError, read_product, tmp_path / name)
