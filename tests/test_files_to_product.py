"""Files of each kind to a product with one command, where they belong on Earth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from earth import pushframe_frames, rpc_at, rpc_text, save_tiff, transform_at
from typer.testing import CliRunner

from pushframe.cli import app
from pushframe.io import read_product

rasterio = pytest.importorskip("rasterio")
from rasterio.transform import RPCTransformer, rowcol, xy  # noqa: E402
from rasterio.warp import transform as warp  # noqa: E402

SHIFTS = np.array(
    [[0, 0], [201.4, -10.6], [-96.3, 18.2], [120.7, 9.4], [40.5, -27.2], [-30.2, 20.7]]
)
SIZE = (272, 124)
KNOWN = "noise_a = 0.0\nnoise_b = 36.0\nwhite_level = 3400.0\n"


@pytest.fixture(scope="module")
def frames():
    return pushframe_frames(SIZE, SHIFTS, noise_dn=6)


def run(*words):
    done = CliRunner().invoke(app, ["run", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done


def write(folder, dn, kind):
    folder.mkdir()
    for k, (frame, shift) in enumerate(zip(dn, SHIFTS, strict=True)):
        path = folder / f"pass_{k}.tif"
        if kind == "crs":
            save_tiff(path, frame, crs="EPSG:32631", transform=transform_at(shift))
        elif kind == "rpc tag":
            save_tiff(path, frame, rpc=rpc_at(shift))
        else:
            save_tiff(path, frame)
            path.with_name(f"pass_{k}_RPC.TXT").write_text(rpc_text(rpc_at(shift)))
    (folder / "burst.toml").write_text(KNOWN)
    return folder


def inner_error(mean, truth, edge=40):
    """Rms difference in DN away from the edges, where the frames overlap."""
    return float(np.sqrt(np.nanmean((mean - truth)[edge:-edge, edge:-edge] ** 2)))


@pytest.mark.parametrize("kind", ["crs", "rpc tag", "rpc text"])
def test_frames_two_hundred_pixels_apart(tmp_path, frames, kind):
    dn, truth = frames
    folder = write(tmp_path / "burst", dn, kind)
    done = run(folder, "--out", tmp_path / "p.tif", "--method", "map", "--json")
    notes = json.loads(done.stdout[done.stdout.index("{") :])["notes"]
    assert ("without a DEM" in notes) == ("rpc" in kind)
    product = read_product(tmp_path / "p.tif")
    alone = np.repeat(np.repeat(dn[0].astype(np.float32), 2, 0), 2, 1)
    assert inner_error(product.mean, truth) < 0.5 * inner_error(alone, truth)
    assert product.samples.max() > 4 * product.samples.min()  # not all frames reach everywhere
    ground = map_ground if kind == "crs" else rpc_ground
    low = np.array([[0, 0], [10, 120], [271, 123], [100, 3]])
    here = ground(folder / "pass_0.tif", low)
    there = ground(tmp_path / "p.tif", 2 * low)
    pixel = np.abs(ground(folder / "pass_0.tif", low + 1) - here).max(0)
    assert (np.abs(there - here) / pixel).max() < 0.01
    assert (np.abs(ground(tmp_path / "p.tif", 2 * low + 0.5) - here) / pixel).max() > 0.2
    if kind == "crs":
        true = np.column_stack([5e5 + low[:, 1] + 0.5, 5e6 - low[:, 0] - 0.5])
        assert np.abs(there - true).max() < 0.01


def map_ground(path, pixels):
    """Ground of pixel centres (row, column) by GDAL's transform, there and back through WGS 84."""
    with rasterio.open(path) as source:
        x, y = xy(source.transform, pixels[:, 0], pixels[:, 1])
        longitude, latitude = warp(source.crs, "EPSG:4326", x, y)
        x, y = warp("EPSG:4326", source.crs, longitude, latitude)
        rows, columns = rowcol(source.transform, x, y, op=lambda value: value)
        np.testing.assert_allclose(np.column_stack([rows, columns]) - 0.5, pixels, atol=0.01)
    return np.column_stack([x, y])


def rpc_ground(path, pixels):
    """Ground of pixel centres by GDAL's RPC transformer at 300 m."""
    with rasterio.open(path) as source, RPCTransformer(
        source.rpcs, RPC_HEIGHT=300, RPC_PIXEL_ERROR_THRESHOLD=1e-5
    ) as transformer:  # fmt: skip
        return np.column_stack(transformer.xy(pixels[:, 0], pixels[:, 1], offset="center"))


def test_an_hdr_dsp_sequence(tmp_path):
    shifts = np.array([[0, 0], [0.3, -0.6], [-0.7, 0.2], [0.5, 0.5]])
    dn, truth = pushframe_frames((48, 48), shifts, noise_dn=4)
    ratios = np.array([1.0, 0.5, 2.0, 1.0])
    for name, value in (
        ("crop", np.rint(dn * ratios[:, None, None]).astype(np.uint16)),
        ("ratios", ratios),
        ("satmask", np.ones(dn.shape, np.uint8)),
    ):
        (tmp_path / "d" / name).mkdir(parents=True)
        np.save(tmp_path / "d" / name / "0.npy", value)
    run(tmp_path / "d" / "crop" / "0.npy", "--out", tmp_path / "p.tif", "--method", "map")
    run(tmp_path / "d", "--out", tmp_path / "b.tif", "--method", "bicubic")
    product, alone = (read_product(tmp_path / name) for name in ("p.tif", "b.tif"))
    assert product.mean.shape == alone.mean.shape == (96, 96)
    assert inner_error(product.mean, truth, 8) < 0.6 * inner_error(alone.mean, truth, 8)


@pytest.mark.shared_data
def test_a_probav_scene(tmp_path):
    from conftest import SHARED

    scene = SHARED / "probav" / "RED" / "imgset0425"
    if not scene.is_dir():
        pytest.skip("needs ../shared/data/probav")
    run(scene, "--out", tmp_path / "p.tif", "--scale", "3", "--method", "bicubic")
    assert read_product(tmp_path / "p.tif").mean.shape == (384, 384)


def test_a_truncated_frame_in_the_middle_leaves_nothing(tmp_path, frames):
    folder = write(tmp_path / "burst", frames[0], "crs")
    path = folder / "pass_3.tif"
    path.write_bytes(path.read_bytes()[:60000])
    done = CliRunner().invoke(app, ["run", str(folder), "--out", str(tmp_path / "p.tif")])
    assert isinstance(done.exception, Exception)
    assert "frame 3" in str(done.exception)
    assert "pass_3.tif" in str(done.exception)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["burst"]
