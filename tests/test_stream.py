"""Products written while they are made: the same pixels, place and tags, whole or not at all."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import torch
from test_io_atomic import everything_in, full_disk
from test_io_product import PROVENANCE, georef, product, rpc

from pushframe import Burst, GeoRef, NoiseLaw, super_resolve
from pushframe.errors import FileError, UsageError
from pushframe.geometry import crop_georef, upscale_georef
from pushframe.infer import Reconstruction
from pushframe.io import new_product, read_product, write_product
from pushframe.io import stream as stream_module
from pushframe.io.georef import rpc_strings
from pushframe.methods import Estimate
from pushframe.motion_table import MotionTable
from pushframe.posterior import Posterior
from pushframe.seams import Seams, tile_corners
from pushframe.tally import Tally

rasterio = pytest.importorskip("rasterio")


def stream(made, path, lines=7, columns=301):
    """Write a product in parts of a few lines and columns."""
    height, width = made.mean.shape
    with new_product(path, made.mean.shape, made.scale, made.georef) as sink:
        for row in range(0, height, lines):
            for column in range(0, width, columns):
                part = (slice(row, row + lines), slice(column, column + columns))
                sink.write(row, column, made.mean[part], made.std[part], made.samples[part])
        sink.provenance = made.provenance
    return sink


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("where", ["utm and rpc", "geographic", "rpc alone", "nowhere"])
@pytest.mark.parametrize("shape", [(4, 4), (1030, 520)])
def test_streamed_is_the_file_that_is_written_at_once(tmp_path, where, shape):
    places = {
        "utm and rpc": georef(),
        "geographic": GeoRef(
            rasterio.crs.CRS.from_epsg(4326).to_wkt(), (1e-4, 0.0, 3.0, 0.0, -1e-4, 45.0)
        ),
        "rpc alone": GeoRef(rpc=rpc()),
        "nowhere": None,
    }
    made = product(shape, georef=places[where])
    write_product(made, tmp_path / "once.tif")
    stream(made, tmp_path / "streamed.tif")
    assert sorted(os.listdir(tmp_path)) == ["once.tif", "streamed.tif"]
    back = read_product(tmp_path / "streamed.tif")
    for band in ("mean", "std", "samples"):
        assert np.array_equal(getattr(back, band), getattr(made, band), equal_nan=True), band
    assert dict(back.provenance) == PROVENANCE
    with (
        rasterio.open(tmp_path / "once.tif") as once,
        rasterio.open(tmp_path / "streamed.tif") as streamed,
    ):
        for name in ("profile", "descriptions", "units", "crs", "transform", "rpcs"):
            one, other = (getattr(source, name) for source in (once, streamed))
            assert repr(one) == repr(other), name
        for domain in (None, "PUSHFRAME", "IMAGE_STRUCTURE"):
            assert once.tags(ns=domain) == streamed.tags(ns=domain)
        assert once.overviews(1) == streamed.overviews(1)


def test_streamed_is_cloud_optimised(tmp_path):
    cogeo = pytest.importorskip("rio_cogeo")
    stream(product((1030, 1300)), tmp_path / "p.tif", lines=100)
    assert cogeo.cog_validate(tmp_path / "p.tif", strict=True) == (True, [], [])


@pytest.mark.parametrize("limit", [100, 9_000, "the parts alone fit"])
@pytest.mark.parametrize("there", [False, True])
def test_full_disk(tmp_path, limit, there, capfd):
    shape = (38, 54)
    if limit == "the parts alone fit":  # noise does not shrink, and overviews come on top
        shape = (700, 700)
        limit = 3 * 4 * shape[0] * shape[1]
    noise = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    made = product(shape, mean=noise[0], std=noise[1], samples=noise[2])
    target = tmp_path / "made" / "p.tif"
    if there:
        stream(made, target)
    before = everything_in(tmp_path)
    with capfd.disabled(), pytest.raises(FileError) as caught, full_disk(limit):
        stream(made, target)
    assert str(target) in str(caught.value)
    assert everything_in(tmp_path) == before


def test_a_geotiff_that_lost_pixels_is_no_product(tmp_path, monkeypatch):
    """GDAL may end without an error on a full disk: what it wrote is compared with the parts."""
    made = product((600, 54))
    real = __import__("rasterio.shutil", fromlist=["copy"]).copy

    def lossy(source, target, **options):
        real(source, target, **options)
        raw = source.parent / "parts.raw"
        with raw.open("r+b") as parts:
            parts.seek(4 * 54 * 590)
            parts.write(b"\x00\x00\x80\x3f")

    monkeypatch.setattr("rasterio.shutil.copy", lossy)
    with pytest.raises(FileError, match="line 512 was not written"):
        stream(made, tmp_path / "p.tif")
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_said_before_any_work(tmp_path, monkeypatch):
    usage = stream_module.shutil.disk_usage(tmp_path)._replace(free=10**6)
    monkeypatch.setattr(stream_module.shutil, "disk_usage", lambda _: usage)
    with (
        pytest.raises(FileError, match=r"expected 2.80 GB of free space .* got 0.00 GB"),
        new_product(tmp_path / "p.tif", (10_000, 10_000), 2, None),
    ):
        raise AssertionError("no work should begin")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("start", "shape", "said"),
    [
        ((5, 0), (5, 8), "from line 0, column 0 on"),
        ((0, 3), (5, 5), "from line 0, column 0 on"),
        ((0, 0), (5, 9), r"within \(10, 8\)"),
        ((0, 0), (5, 8), "expected 10 lines, got those before line 5, column 0"),
        ((0, 0), (10, 3), "got those before line 0, column 3"),
    ],
)
def test_parts_out_of_order_or_missing_are_refused(tmp_path, start, shape, said):
    part = np.ones(shape, np.float32)
    with (
        pytest.raises(UsageError, match=said),
        new_product(tmp_path / "p.tif", (10, 8), 2, None) as sink,
    ):
        sink.write(*start, part, part, part)
    assert list(tmp_path.iterdir()) == []


def held_px(seams):
    """Pixels that wait in pieces."""
    return sum(piece[0].numel() for cell in seams.waiting.values() for *_, piece in cell)


@pytest.mark.parametrize("shape", [(300, 170), (150, 400), (177, 177), (64, 64)])
def test_blocks_blend_as_one_canvas_would(shape):
    """Taken off block by block, against sums over the whole scene."""
    generator = torch.Generator().manual_seed(1)
    seams = Seams(shape, 2)
    canvas = np.zeros((3, 2 * shape[0], 2 * shape[1]))
    found = np.full((2, 2 * shape[0], 2 * shape[1]), -1.0)
    for rows, columns in tile_corners(shape):
        size = (2 * (rows.stop - rows.start), 2 * (columns.stop - columns.start))
        mean, var = torch.rand(2, *size, generator=generator)
        mean[3, 5], var = torch.nan, var + 0.1
        ones = torch.ones(1, *size)
        (block,) = seams.lay([(rows, columns)], mean[None], var[None], ones)
        weight = np.ones(size)
        for axis, (part, whole) in enumerate(zip((rows, columns), shape, strict=True)):
            place = np.arange(size[axis]) + 0.5
            ramp = np.ones(size[axis])
            if part.start:
                ramp = np.minimum(ramp, place / 32)
            if part.stop < whole:
                ramp = np.minimum(ramp, (size[axis] - place) / 32)
            weight = weight * (ramp[:, None] if axis == 0 else ramp)
        weight = weight * np.isfinite(mean.numpy()) / var.numpy()
        where = (slice(2 * rows.start, 2 * rows.stop), slice(2 * columns.start, 2 * columns.stop))
        for total, layer in zip(
            canvas, (mean.nan_to_num().numpy(), var.numpy(), np.ones(size)), strict=True
        ):
            total[where] += weight * layer
        assert (block.row, block.column) == (where[0].start, where[1].start)
        height, width = block.mean.shape
        place = (
            ...,
            slice(block.row, block.row + height),
            slice(block.column, block.column + width),
        )
        assert (found[place] == -1).all()  # each pixel once
        found[place] = torch.stack([block.mean, block.var])
    assert held_px(seams) == 0
    with np.errstate(invalid="ignore"):
        expected = canvas[:2] / canvas[2]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_what_a_tile_hardly_knows_is_no_seam():
    """The last row of a tile, beyond all samples: its neighbour knows it well."""
    shape = (176, 96)
    tiles = list(tile_corners(shape))
    mean, var = torch.rand(2, 192, 192), torch.ones(2, 192, 192)
    var[0, -1], mean[0, -1] = 1000.0, 30.0
    blocks = list(Seams(shape, 2).lay(tiles, mean, var, var))
    whole = torch.cat([block.var for block in blocks])
    image = torch.cat([block.mean for block in blocks])
    assert float(whole.max()) < 1.1
    assert float(image.max()) < 1.1


def test_what_waits_is_the_overlap_and_not_the_scene():
    """At 40 columns of tiles: the overlap with the row below, 2 * 16 lines, and a tile."""
    shape = (176, 3216)
    seams, most = Seams(shape, 2), 0
    for rows, columns in tile_corners(shape):
        tile = torch.rand(2 * (rows.stop - rows.start), 2 * (columns.stop - columns.start))
        list(seams.lay([(rows, columns)], tile[None], None, tile[None]))
        most = max(most, held_px(seams))
    overlap = 32 * 2 * shape[1]
    # the ends of tiles overlap along both axes, and are held for each of them
    assert overlap <= most <= 1.3 * overlap + 192**2


class Files:
    """A source that is read by windows and refuses to be read whole."""

    def __init__(self, burst: Burst) -> None:
        self.burst, self.largest = burst, 0
        self.shape, self.georef = burst.shape, burst.georef

    def tile(self, rows: slice, columns: slice) -> Burst:
        size = (rows.stop - rows.start) * (columns.stop - columns.start)
        self.largest = max(self.largest, size)
        return self.burst.tile(rows, columns)

    def moved_px(self, rows: slice, columns: slice) -> torch.Tensor:
        return self.burst.moved_px(rows, columns)


def large_burst(height=200, width=230, count=3):
    generator = torch.Generator().manual_seed(4)
    scene = torch.rand(height, width, generator=generator)
    frames = 0.3 + 0.1 * scene + 0.01 * torch.randn(count, height, width, generator=generator)
    frames[:, :110, :110] = torch.nan  # whole tiles without a pixel
    return Burst.from_dn(
        (frames * 3000).numpy(), torch.ones(count), 3000.0, georef=georef(),
        noise=NoiseLaw(0.0, 900.0),
    )  # fmt: skip


def test_a_source_is_read_by_tiles_and_gives_what_a_burst_gives():
    burst = large_burst()
    source = Files(burst)
    made = Reconstruction(source, method="shift_and_add").product()
    whole = super_resolve(burst, method="shift_and_add")
    for band in ("mean", "std", "samples"):
        np.testing.assert_array_equal(getattr(made, band), getattr(whole, band))
    assert source.largest <= 128 * 128
    assert np.isnan(made.mean[:180, :180]).all()
    assert made.georef == upscale_georef(burst.georef, 2)


def test_frames_are_accounted_for_over_all_tiles():
    making = Reconstruction(large_burst(), method="shift_and_add")
    making.product()
    rows = making.frames()
    assert [row.name for row in rows] == ["frame 0", "frame 1", "frame 2"]
    assert rows[0].shift_px == (0.0, 0.0)
    assert all(row.used == 1.0 for row in rows)
    plain = Reconstruction(large_burst(), method="bicubic")
    plain.product()
    assert [row.used for row in plain.frames()] == [1.0, 0.0, 0.0]
    assert plain.frames()[1].shift_px is None


def test_a_frame_has_no_say_where_it_does_not_reach():
    table = MotionTable(("a", "b"))
    valid = torch.ones(2, 2, 4, 4, dtype=torch.bool)
    valid[1, 1] = False
    burst = Burst(torch.rand(2, 2, 4, 4), torch.ones(2, 2), torch.ones(2), valid=valid)
    flow_px = torch.tensor([[[0.0, 0.0], [0.5, -0.25]], [[0.0, 0.0], [9.0, 9.0]]])
    moved_px = torch.zeros(2, 2, 2)
    moved_px[:, 1] = torch.tensor([-2.0, 3.0])  # read two rows further up, three columns on
    table.update(burst, Estimate(Posterior(torch.zeros(2, 8, 8)), flow_px), moved_px)
    row = table.rows()[1]
    assert row.shift_px == (2.5, -3.25)
    assert row.spread_px == 0
    assert row.used == 1


@pytest.mark.parametrize(
    ("flow_px", "said"),
    [
        ([1.01, -2.02], "within 0.02 px of whole rows and columns"),
        ([1.5, -2.02], "within 0.02 px of whole columns:"),
        ([0.5, 0.3], None),
    ],
)
def test_frames_on_one_grid_are_said(flow_px, said):
    table, still = MotionTable(("a", "b")), torch.zeros(1, 2, 2)
    burst = Burst(torch.rand(1, 2, 4, 4), torch.ones(1, 2), torch.ones(1))
    translations = torch.tensor([[[0.0, 0.0], flow_px]])
    for motion in (translations, translations[..., None, None].expand(1, 2, 2, 4, 4)):
        table.update(burst, Estimate(Posterior(torch.zeros(1, 8, 8)), motion), still)
    assert [said in note for note in table.notes()] == ([] if said is None else [True])
    bent = translations[..., None, None] + torch.linspace(-0.4, 0.4, 4)
    table.update(burst, Estimate(Posterior(torch.zeros(1, 8, 8)), bent), still)
    assert table.notes() == []


def test_tiles_that_show_nothing_say_nothing():
    table, still = MotionTable(("a", "b")), torch.zeros(1, 2, 2)
    seen = torch.ones(1, 2, 4, 4, dtype=torch.bool)
    for valid in (~seen, seen & torch.tensor([True, False])[None, :, None, None]):
        burst = Burst(torch.rand(1, 2, 4, 4), torch.ones(1, 2), torch.ones(1), valid=valid)
        table.update(burst, Estimate(Posterior(torch.zeros(1, 8, 8)), still), still)
    assert table.notes() == []
    burst = dataclasses.replace(burst, valid=seen)
    table.update(burst, Estimate(Posterior(torch.zeros(1, 8, 8)), still), still)
    assert len(table.notes()) == 1  # twin


def ground(where, row, column):
    """Where GDAL puts the centre of a pixel."""
    if where.rpc is None:
        affine = rasterio.transform.Affine(*where.transform)
        return np.array(rasterio.transform.xy(affine, row, column, offset="center"))
    camera = rasterio.rpc.RPC.from_gdal(rpc_strings(where.rpc))
    with rasterio.transform.RPCTransformer(camera, rpc_height=100.0) as transformer:
        return np.array(transformer.xy(row, column, offset="center"))


@pytest.mark.parametrize("kind", ["transform", "rpc"])
def test_a_window_stays_where_it_was(kind):
    """GDAL puts pixel (0, 0) of the window where pixel (11, 17) of the scene is."""
    whole = georef() if kind == "rpc" else dataclasses.replace(georef(), rpc=None)
    part = crop_georef(whole, 11, 17)
    step = np.abs(ground(whole, 12, 18) - ground(whole, 11, 17)).max()
    assert np.abs(ground(part, 0, 0) - ground(whole, 11, 17)).max() < 1e-4 * step
    twisted = crop_georef(whole, 17, 11)  # the twin: columns for rows
    assert np.abs(ground(twisted, 0, 0) - ground(whole, 11, 17)).max() > step


def test_a_tally_is_that_of_the_whole_image():
    values = np.random.default_rng(2).lognormal(3, 1, (50, 40))
    values[3, 4] = np.nan
    tally = Tally()
    for row in range(0, 50, 7):
        tally.update(values[row : row + 7])
    assert (tally.pixels, tally.known) == (2000, 1999)
    assert (tally.low, tally.high) == (np.nanmin(values), np.nanmax(values))
    assert tally.mean == pytest.approx(np.nanmean(values))
    assert tally.std == pytest.approx(np.nanstd(values))
    assert tally.counts.sum() == 1999
    for share in (0.02, 0.5, 0.98):
        true = np.nanquantile(values, share, method="inverted_cdf")
        assert tally.quantile(share) == pytest.approx(true, rel=0.0024)  # in the same bin
    edges, counts = tally.histogram
    np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])
    empty = Tally()
    empty.update(np.full((3, 3), np.nan))
    assert np.isnan([empty.mean, empty.std, empty.quantile(0.5)]).all()
