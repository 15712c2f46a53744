"""Bursts that are opened, not read: windows, placements, levels, and where they lie."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from earth import rpc_at

from pushframe.burst import Burst, GeoRef
from pushframe.errors import BurstError, FileError, UsageError
from pushframe.geometry import crop_georef
from pushframe.io import (
    BurstSource,
    Placement,
    list_bursts,
    open_burst,
    read_burst,
    write_burst,
    write_product,
)
from pushframe.io.frames import ArrayFrame, block_means, read_window, spread_windows
from pushframe.io.georef import profile_of
from pushframe.orders import find_inputs
from pushframe.product import Product

rasterio = pytest.importorskip("rasterio")
from rasterio.transform import Affine, RPCTransformer, xy  # noqa: E402


def raw(shape=(3, 30, 40), seed=0):
    return np.random.default_rng(seed).uniform(100, 3000, shape).astype(np.float32)


def source(dn, **rest):
    frames = tuple(ArrayFrame(frame, f"f{k}") for k, frame in enumerate(dn))
    stated = rest.pop("stated_exposure", np.ones(len(dn)))
    return BurstSource(frames, stated, {"white_level": 4096.0} | rest.pop("scalars", {}), **rest)


def test_a_tile_is_a_window_of_the_whole(tmp_path):
    dn = raw()
    dn[1, 4, 5] = np.nan
    place = GeoRef(rasterio.crs.CRS.from_epsg(32631).to_wkt(), (10.0, 0.5, 5e5, 0.25, -10.0, 5e6))
    whole = Burst.from_dn(dn, [1, 2, 4], 4096.0, 64.0, georef=place)
    for name in ("b", "b.tif", "b.npz"):
        write_burst(whole, tmp_path / name)
        opened = open_burst(tmp_path / name)
        assert (opened.shape, opened.count) == ((30, 40), 3)
        rows, columns = slice(3, 20), slice(5, 33)
        tile = opened.tile(rows, columns)
        assert torch.equal(tile.valid[0], whole.valid[:, rows, columns])
        assert torch.equal(tile.frames[0], whole.frames[:, rows, columns])
        assert tile.georef == crop_georef(opened.georef, 3, 5)
        part = opened.crop(rows, columns)
        assert part.shape == (17, 28)
        assert torch.equal(part.read().frames, tile.frames[0])
        assert torch.equal(part.crop(slice(2, 9), slice(1, 4)).read().frames,
                           whole.frames[:, 5:12, 6:9])  # fmt: skip
        again = pickle.loads(pickle.dumps(opened))
        assert torch.equal(again.read().frames, read_burst(tmp_path / name).frames)


def test_a_window_reads_no_more_than_itself():
    read = []

    class Watched(ArrayFrame):
        def read(self, rows=slice(None), columns=slice(None)):
            read.append((rows, columns))
            return super().read(rows, columns)

    frames = tuple(Watched(frame, f"f{k}") for k, frame in enumerate(raw()))
    source = BurstSource(frames, np.ones(3), {"white_level": 1.0})
    assert all((source.notes, source.step_dn))  # looked up once, in windows spread over frames
    read.clear()
    source.tile(slice(1, 3), slice(4, 9))
    assert read == [(slice(1, 3), slice(4, 9))] * 3


def test_a_placement_moves_the_window_by_whole_pixels():
    scene = raw((60, 80))
    offsets = [(0, 0), (12, -7), (-5, 9)]
    dn = [scene[10 + y : 40 + y, 20 + x : 60 + x] for y, x in offsets]
    # the frame that starts (12, -7) later shows a reference pixel (12, -7) earlier
    places = tuple(Placement((-y + 0.4, -x - 0.4)) for y, x in offsets)
    tile = source(dn, placements=places).tile(slice(12, 20), slice(10, 30))
    want = torch.from_numpy(scene[22:30, 30:50]) / 4096
    assert torch.equal(tile.frames[0], want.expand(3, -1, -1))
    wrong = tuple(Placement((y, x)) for y, x in offsets)
    assert not torch.equal(source(dn, placements=wrong).tile(slice(12, 20), slice(10, 30)).frames,
                           tile.frames)  # fmt: skip


def test_beyond_a_frame_is_nothing():
    dn = raw()
    tile = source(dn, placements=(Placement(), Placement((-6.2, 0)), Placement((0, 99)))).tile(
        slice(0, 8), slice(0, 8)
    )
    assert tile.valid[0, 0].all()
    assert tile.valid[0, 1].any(1).tolist() == [False] * 6 + [True] * 2
    assert not tile.valid[0, 2].any()
    # what is nearly still is not moved: the reconstruction finds it without losing a line
    near = source(dn, placements=(Placement(), Placement((1.4, -1.4)), Placement()))
    assert torch.equal(near.read().frames, source(dn).read().frames)


def test_an_affine_placement_moves_each_window_by_its_own_offset():
    place = Placement((3.0, -2.0), ((1.0, 0.01), (-0.01, 1.0)), (500.0, 500.0))
    assert place.offset_px(slice(450, 551), slice(450, 551)) == (3, -2)
    assert place.offset_px(slice(450, 551), slice(850, 951)) == (7, -2)
    assert place.offset_px(slice(850, 951), slice(450, 551)) == (3, -6)


def test_a_tile_says_by_how_much_its_frames_were_moved():
    """Frames in the order of the burst, windows in that of its grid."""
    turn = Placement((3.0, -2.0), ((1.0, 0.01), (-0.01, 1.0)), (500.0, 500.0))
    places = (turn, Placement((7.3, 0.0)), Placement())
    opened = source(raw((3, 1000, 1000)), placements=places, reference=2)
    window = (slice(450, 551), slice(850, 951))
    expected = torch.tensor([[0.0, 0.0], [7.0, -2.0], [7.0, 0.0]])
    assert torch.equal(opened.moved_px(*window), expected)
    part = opened.crop(slice(400, 1000), slice(800, 1000))
    inner = (slice(50, 151), slice(50, 151))
    assert torch.equal(part.moved_px(*inner), expected)
    assert not torch.equal(opened.moved_px(*inner), expected)  # twin: the crop's corner forgotten
    assert torch.equal(source(raw()).moved_px(slice(9), slice(9)), torch.zeros(3, 2))


def test_exposures_are_estimated_and_said():
    dn = raw((1, 30, 40)) * np.array([1.0, 0.5, 3.0])[:, None, None]
    dn[2, :15] = np.nan
    dn[1:] += 64 - 64 * np.array([0.5, 3.0])[:, None, None]  # black level 64 in all
    opened = source(dn, stated_exposure=None, scalars={"black_level": 64.0})
    np.testing.assert_allclose(opened.exposure, [1.0, 0.5, 3.0], rtol=1e-5)
    assert any("estimated" in note for note in opened.read().notes)
    assert not any("exposure" in note for note in source(dn).read().notes)
    biased = source(dn, stated_exposure=None).exposure
    assert abs(biased[2] - 3.0) > 0.02  # the black level matters


def test_the_reference_is_first_and_georeferenced():
    frames = tuple(
        ArrayFrame(frame, f"f{k}", GeoRef(None, (1.0, 0, 10.0 * k, 0, -1.0, 0)))
        for k, frame in enumerate(raw())
    )
    opened = BurstSource(frames, np.array([1.0, 2.0, 4.0]), reference=2)
    assert opened.names == opened.tile(slice(0, 5), slice(0, 5)).names == ("f2", "f0", "f1")
    assert opened.read().exposure.tolist() == [4.0, 1.0, 2.0]
    assert opened.georef.transform[2] == 20.0
    left = opened.keep([1, 2])
    assert left.names == ("f2", "f1")
    assert left.read().exposure.tolist() == [4.0, 2.0]


def test_a_window_lies_where_gdal_puts_it():
    whole = GeoRef(rpc=rpc_at((0, 0)))
    part = crop_georef(whole, 2, 3)

    def ground(georef, row, column):
        with RPCTransformer(profile_of(georef)["rpcs"], RPC_HEIGHT=100) as transformer:
            return transformer.xy(row, column)

    np.testing.assert_allclose(ground(part, 1, 2), ground(whole, 3, 5), atol=1e-9)
    assert np.abs(np.subtract(ground(part, 1, 2), ground(whole, 1, 2))).max() > 1e-5
    placed = GeoRef(None, (10.0, 0.5, 5e5, 0.25, -10.0, 5e6))
    moved, still = (Affine(*georef.transform) for georef in (crop_georef(placed, 2, 3), placed))
    assert xy(moved, 1, 2) == pytest.approx(xy(still, 3, 5))


def test_helpers_of_windows():
    frame = ArrayFrame(raw((5, 6)), "f")
    window = read_window(frame, slice(-1, 3), slice(4, 8))
    assert np.isnan(window[0]).all()
    assert np.isnan(window[:, 2:]).all()
    assert np.array_equal(window[1:, :2], frame.pixels[:3, 4:])
    assert np.isnan(read_window(frame, slice(9, 12), slice(0, 2))).all()
    assert spread_windows((100, 500), 128, 4) == [
        (slice(0, 100), slice(start, start + 128)) for start in (0, 186, 372)
    ]
    pixels = raw((6, 9))
    pixels[0, 0] = np.nan
    means = block_means(lambda rows, columns: pixels[rows, columns], (6, 9), 4)
    assert means.shape == (1, 2)
    assert means[0, 0] == pytest.approx(np.nanmean(pixels[:4, :4]))


def test_a_copy_cut_off_is_told_before_any_pixel_is_read(tmp_path):
    dn = raw((3, 400, 400))
    write_burst(Burst.from_dn(dn, [1, 1, 1], 4096.0), tmp_path / "b")
    path = tmp_path / "b" / "frame_01.tif"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FileError, match=r"frame 1 .*frame_01\.tif"):
        open_burst(tmp_path / "b")


def test_infinite_pixels_of_a_tile_are_named():
    dn = raw()
    dn[1, 3, 3] = np.inf
    with pytest.raises(BurstError, match=r"f1.*1 infinite"):
        source(dn).tile(slice(0, 9), slice(0, 9))
    source(dn).tile(slice(9, 19), slice(0, 9))


@pytest.mark.parametrize("rows", [slice(30, 40), slice(-90, -60), slice(9, 9)])
@pytest.mark.parametrize("what", ["tile", "crop", "raw", "moved_px"])
def test_a_window_outside_of_the_frame_is_called_one(rows, what):
    dn = raw()
    opened = source(dn)
    ask = {"raw": lambda *window: opened.raw(0, *window)}.get(what, getattr(opened, what))
    said = rf"within 30x40, got rows {rows.start}:{rows.stop} and columns :9, outside of the frame"
    with pytest.raises(UsageError, match=said):
        ask(rows, slice(None, 9))
    if what == "tile":
        with pytest.raises(UsageError, match=said):
            Burst.from_dn(dn, [1, 1, 1], 4096.0).tile(rows, slice(None, 9))
    ask(slice(-9, None), slice(None, 9))


def test_a_noise_law_of_nothing_is_refused_by_windows_too():
    opened = source(raw(), scalars={"noise_a": 0.0, "noise_b": 0.0})
    for ask in (opened.read, lambda: opened.tile(slice(0, 9), slice(0, 9)), lambda: opened.noise):
        with pytest.raises(BurstError, match="noise law above zero, got noise_a = noise_b = 0"):
            ask()


def test_bursts_behind_a_path(tmp_path):
    burst = Burst.from_dn(raw(), [1, 1, 1], 4096.0)
    for name in ("x/a", "x/b.tif", "x/c.npz"):
        write_burst(burst, tmp_path / name)
    assert [path.name for path in list_bursts(tmp_path / "x")] == ["a", "b.tif", "c.npz"]
    assert list_bursts(tmp_path / "x" / "a") == [tmp_path / "x" / "a"]
    (tmp_path / "x" / "a" / "burst.toml").unlink()
    assert list_bursts(tmp_path / "x" / "a") == [tmp_path / "x" / "a"]
    assert [path.name for path in list_bursts(tmp_path / "x")] == ["a", "b.tif", "c.npz"]
    assert list_bursts(tmp_path / "none") == []


def write_pages(path, pages=3):
    tifffile = pytest.importorskip("tifffile")
    path.parent.mkdir(exist_ok=True)
    tifffile.imwrite(path, raw((pages, 30, 40)), photometric="minisblack")


def test_tiffs_of_several_pages_are_bursts_with_and_without_a_side_car(tmp_path):
    x = tmp_path / "x"
    for name in ("a", "b"):
        write_pages(x / f"{name}.tif")
    assert list_bursts(x) == [x / "a.tif", x / "b.tif"]
    assert list_bursts(tmp_path) == [x / "a.tif", x / "b.tif"]  # folders inside, too
    assert find_inputs([f"{x}/*.tif"]) == [x / "a.tif", x / "b.tif"]
    (x / "a.toml").write_text("exposure = [1, 1, 1]\n")
    write_pages(x / "masks.tif")
    (x / "a.toml").write_text('exposure = [1, 1, 1]\nvalid = "masks.tif"\n')
    write_burst(read_burst(x / "b.tif"), x / "c.npz")
    for found in (list_bursts(x), find_inputs([str(x)]), find_inputs([f"{x}/*"])):
        assert [path.name for path in found] == ["a.tif", "b.tif", "c.npz"]
    assert all(read_burst(path).count == 3 for path in list_bursts(x))


def test_what_only_looks_like_several_pages_is_no_burst(tmp_path):
    made = np.full((1100, 1100), 9.0, np.float32)
    write_product(Product(made, made, made, 2), tmp_path / "x" / "p.tif")  # it has overviews
    write_burst(Burst.from_dn(raw(), [1, 1, 1], 4096.0), tmp_path / "x" / "bands.tif")
    (tmp_path / "x" / "bands.toml").unlink()
    (tmp_path / "x" / "cut.tif").write_bytes(b"no TIFF")
    assert find_inputs([f"{tmp_path}/x/*.tif"]) == []
    write_pages(tmp_path / "y" / "pages.tif")
    write_pages(tmp_path / "y" / "single.tif", 1)
    assert list_bursts(tmp_path / "y") == [tmp_path / "y"]  # which of both is meant, one must say
    with pytest.raises(BurstError, match=r"pages.tif.*expected one band, got 3"):
        read_burst(tmp_path / "y")


def test_folders_of_frames_are_bursts_and_those_of_products_are_not(tmp_path):
    burst = Burst.from_dn(raw(), [1, 1, 1], 4096.0)
    for name in ("p1", "p2", "p10", ".pushframe-host-1-0"):
        write_burst(burst, tmp_path / name)
        (tmp_path / name / "burst.toml").unlink()
    (tmp_path / "products").mkdir()
    for name in ("products/p1", "p2"):  # beside the bursts, or in a folder of their own
        (tmp_path / f"{name}.tif").write_bytes(b"a product")
        (tmp_path / f"{name}_std.qml").write_text("its style")
    assert [path.name for path in list_bursts(tmp_path)] == ["p1", "p10", "p2"]
    (tmp_path / "p1" / "products").symlink_to(tmp_path / "p2")
    assert list_bursts(tmp_path / "p1") == [tmp_path / "p1"]
    assert list_bursts(tmp_path / "products") == []
