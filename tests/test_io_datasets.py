"""Layouts of data that exist: SkySat deliveries, HDR-DSP sequences, PROBA-V scenes; exposures."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from earth import rpc_at, rpc_text, save_tiff

from pushframe.errors import BurstError, FileError, UsageError
from pushframe.io import is_burst, list_bursts, open_burst, read_burst

rasterio = pytest.importorskip("rasterio")
SKYSAT = "20191015_073816_ssc1d3_{:04d}_basic_l1a_panchromatic_dn.tif"


def raw(shape=(3, 20, 24), seed=0):
    return np.random.default_rng(seed).uniform(100, 3000, shape).astype(np.uint16)


def png(path, pixels):
    from rasterio.errors import NotGeoreferencedWarning

    height, width = pixels.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="PNG", count=1, height=height, width=width,
                           dtype=pixels.dtype) as sink:  # fmt: skip
            sink.write(pixels, 1)


# --- SkySat --------------------------------------------------------------------------------


@pytest.fixture
def skysat(tmp_path):
    """Three frames with their RPC in text files, among other files of a delivery."""
    dn = raw()
    for k, frame in zip((11, 9, 10), dn, strict=True):
        name = SKYSAT.format(k)
        save_tiff(tmp_path / name, frame)
        text = rpc_text(rpc_at((k, -k)))
        (tmp_path / name.replace(".tif", "_RPC.TXT")).write_text(text)
    save_tiff(tmp_path / "20191015_073816_ssc1d3_0009_basic_udm.tif", raw((30, 30))[:, :24])
    save_tiff(tmp_path / "20191015_073816_ssc1_u0001_preview.tif", raw((5, 5)))
    return tmp_path, dn


def test_a_skysat_delivery_is_a_burst(skysat):
    folder, dn = skysat
    assert is_burst(folder)
    opened = open_burst(folder)
    assert opened.names == tuple(SKYSAT.format(k) for k in (9, 10, 11))
    np.testing.assert_allclose(opened.read().raw_dn().numpy(), dn[[1, 2, 0]], rtol=1e-6)
    assert opened.georef.rpc["LINE_OFF"] == pytest.approx(2048.0 - 9)
    assert opened.georef.rpc["SAMP_OFF"] == pytest.approx(2048.0 + 9)
    assert opened.georef.transform is None


def udm2(shape):
    """Eight bands, all clear."""
    bands = np.zeros((8, *shape), np.uint8)
    bands[0], bands[6] = 1, 90  # clear, confidence
    return bands


def save_bands(path, bands):
    from rasterio.errors import NotGeoreferencedWarning

    count, height, width = bands.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="GTiff", count=count, height=height, width=width,
                           dtype="uint8", photometric="minisblack") as sink:  # fmt: skip
            sink.write(bands)


def test_masks_of_unusable_data_are_read(skysat):
    """UDM by bit, UDM2 by band; a mask of another size, and frames without one, change nothing."""
    folder, _ = skysat
    scene = "20191015_073816_ssc1d3_{:04d}_basic_panchromatic_{}.tif"
    bits = np.zeros((20, 24), np.uint8)
    bits[0, :3] = 1, 2, 128  # not imaged, cloud, suspect data
    save_tiff(folder / scene.format(10, "udm"), bits)
    bands = udm2((20, 24))
    bands[1, 5, 0] = bands[2, 5, 1] = bands[3, 5, 2] = 1  # snow, shadow, light haze: the ground
    bands[4, 6, 0] = bands[5, 6, 1] = 1  # heavy haze, cloud
    bands[7, 6, 2] = 1  # the UDM
    bands[0, 5:7, :3] = 0
    save_bands(folder / scene.format(11, "udm2"), bands)
    opened = open_burst(folder)
    invalid = ~opened.read().valid
    assert not invalid[0].any()
    assert invalid[1].nonzero().tolist() == [[0, 0], [0, 1], [0, 2]]
    assert invalid[2].nonzero().tolist() == [[6, 0], [6, 1], [6, 2]]
    said = " ".join(opened.notes)
    assert "Planet's masks are left out, in 2 of 3 frames" in said
    assert "ssc1d3_0009_basic_udm.tif is not of the size" in said
    save_bands(folder / scene.format(11, "udm2"), bands[:4])  # the first says what is clear
    assert not (~open_burst(folder).read().valid)[2].any()
    save_tiff(folder / "mine.tif", np.ones((20, 24), np.uint8))
    (folder / "burst.toml").write_text('valid = "mine.tif"\n')  # what the user says goes first
    assert bool(read_burst(folder).valid.all())


INDEX = "name,datetime,gsd,{column},geom\n{rows}"


@pytest.mark.parametrize("column", ["integration_time_ms", "exposure_time"])
@pytest.mark.parametrize("short", [True, False])
def test_exposures_come_from_the_frame_index(skysat, column, short):
    folder, _ = skysat
    names = [SKYSAT.format(k) for k in (10, 11, 9, 12)]
    if short:
        names = [name.split("_basic")[0] for name in names]
    rows = [f'{name},2019-10-15,0.7,{value},"POLYGON((1 2, 3 4))"\n'
            for name, value in zip(names, (2.0, 4.0, 1.0, 9.0), strict=True)]  # fmt: skip
    (folder / "x_frame_index.csv").write_text(INDEX.format(column=column, rows="".join(rows)))
    burst = read_burst(folder)
    assert burst.exposure.tolist() == [1.0, 2.0, 4.0]
    assert f"Exposures were read from {column} of x_frame_index.csv." in burst.notes
    (folder / "burst.toml").write_text("exposure = [3, 3, 3]\n")  # what the user says goes first
    assert read_burst(folder).exposure.tolist() == [3.0, 3.0, 3.0]


def test_a_frame_index_without_a_frame_is_no_statement(skysat):
    folder, _ = skysat
    rows = "".join(f"{SKYSAT.format(k)},t,0.7,2.0,g\n" for k in (9, 10))
    (folder / "frame_index.csv").write_text(INDEX.format(column="exposure_time", rows=rows))
    assert any("estimated" in note for note in read_burst(folder).notes)


def tagged(folder, texts, tag="exposure_time"):
    for k, (frame, text) in enumerate(zip(raw(), texts, strict=True)):
        save_tiff(folder / f"f{k}.tif", frame, tags={tag: text})


@pytest.mark.parametrize("tag", ["EXPOSURE_TIME", "Exposure", "integration_time"])
@pytest.mark.parametrize(
    "texts",
    [(".5", "1.", "(2e0)"), ("0.5 ms", "1ms", "( 2 MS )"), ("1/2 s", "(1/1 s)", "250 / 125 s")],
)
def test_exposures_come_from_the_frames_own_tags(tmp_path, tag, texts):
    tagged(tmp_path, texts, tag)
    burst = read_burst(tmp_path)
    assert burst.exposure.tolist() == [0.5, 1.0, 2.0]
    assert any(tag.lower() in note for note in burst.notes)
    save_tiff(tmp_path / "f1.tif", raw()[1])  # one that does not say: then all are estimated
    assert any("estimated" in note for note in read_burst(tmp_path).notes)


@pytest.mark.parametrize(
    "texts",
    [
        ("1", "2", "4 of 7"),
        ("1", "2", "4-5"),
        ("1", "2", "1/0"),
        ("1", "2", "0"),
        ("1", "2", "(4"),
        ("1", "2", "1.2.3"),
        ("1 ms", "2 ms", "0.004 s"),
    ],
)
def test_what_is_no_number_in_one_unit_states_no_exposure(tmp_path, texts):
    tagged(tmp_path, texts)
    assert any("estimated" in note for note in read_burst(tmp_path).notes)


@pytest.mark.parametrize("name", ["folder", "stack.tif", "b.npz"])
def test_exposures_are_estimated_where_nothing_states_them(tmp_path, name):
    dn = (raw((1, 20, 24)) * np.array([1.0, 0.5, 2.0])[:, None, None]).astype(np.float32)
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        for k, frame in enumerate(dn):
            save_tiff(path / f"f{k}.tif", frame)
    elif name == "b.npz":
        np.savez(path, frames=dn)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(path, "w", driver="GTiff", count=3, height=20, width=24,
                               dtype="float32") as sink:  # fmt: skip
                sink.write(dn)
    burst = read_burst(path)
    np.testing.assert_allclose(burst.exposure, [1.0, 0.5, 2.0], rtol=1e-5)
    assert "No exposures were given: they were estimated" in " ".join(burst.notes)


# --- HDR-DSP -------------------------------------------------------------------------------


@pytest.fixture
def hdr_dsp(tmp_path):
    """Two sequences; the names of the three folders agree only in their order."""
    data = {}
    for folder in ("crop", "ratios", "satmask"):
        (tmp_path / folder).mkdir()
    for k, count in ((2, 4), (10, 5)):
        frames = raw((count, 128, 128), seed=k)
        ratios = np.linspace(0.5, 2, count) * k
        mask = np.ones(frames.shape, np.uint8)
        mask[1, :9] = 0
        np.save(tmp_path / "crop" / f"seq_{k}.npy", frames)
        np.save(tmp_path / "ratios" / f"ratio{k}.npy", ratios)
        np.save(tmp_path / "satmask" / f"m_{k}.npy", mask)
        data[k] = frames, ratios, mask
    return tmp_path, data


def test_hdr_dsp_sequences_are_matched_by_their_order(hdr_dsp):
    folder, data = hdr_dsp
    sequences = list_bursts(folder)
    assert sequences == [folder / "crop" / "seq_2.npy", folder / "crop" / "seq_10.npy"]
    for path, (frames, ratios, mask) in zip(sequences, data.values(), strict=True):
        assert is_burst(path)
        burst = read_burst(path)
        np.testing.assert_allclose(burst.exposure, ratios, rtol=1e-6)
        assert np.array_equal(burst.valid.numpy(), mask > 0)
        np.testing.assert_allclose(burst.raw_dn().numpy()[mask > 0], frames[mask > 0], rtol=1e-5)
        assert float(burst.white_level) == 3400
        # dark at the shorter exposure, and the same radiance: raw over exposure
        assert torch.allclose(burst.frames[0, 50, 50] * ratios[0] * 3400,
                              torch.tensor(float(frames[0, 50, 50])))  # fmt: skip


def test_one_of_many_must_be_named(hdr_dsp):
    folder, _ = hdr_dsp
    with pytest.raises(UsageError, match=r"one burst.*2 sequences.*seq_2\.npy"):
        open_burst(folder)
    for name in ("crop/seq_10.npy", "ratios/ratio10.npy", "satmask/m_10.npy"):
        (folder / name).unlink()
    assert read_burst(folder).count == 4


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda f: (f / "ratios/ratio10.npy").unlink(), FileError, "ratios: expected 2 files"),
        (lambda f: np.save(f / "ratios/ratio2.npy", np.ones(3)), BurstError, "4 exposures, got 3"),
        (lambda f: np.save(f / "satmask/m_2.npy", np.ones((4, 2, 2))), BurstError, "masks of the"),
        (lambda f: np.save(f / "crop/seq_2.npy", np.ones((8, 8))), BurstError, "frames \\(N"),
        (lambda f: (f / "crop/seq_2.npy").write_bytes(b"no"), FileError, "npy array"),
        (lambda f: np.save(f / "crop/seq_2.npy", np.array([{}], object)), FileError, "seq_2"),
        (lambda f: np.save(f / "ratios/ratio2.npy", np.zeros(4)), BurstError, "positive"),
    ],
)
def test_spoilt_sequences(hdr_dsp, spoil, error, words):
    folder, _ = hdr_dsp
    spoil(folder)
    with pytest.raises(error, match=words) as caught:
        read_burst(folder / "crop" / "seq_2.npy")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- PROBA-V -------------------------------------------------------------------------------


@pytest.fixture
def probav(tmp_path):
    dn = raw((3, 16, 16))
    clear = np.ones((3, 16, 16), np.uint8) * 255
    clear[0, :8] = 0
    clear[2, 0] = 0
    for k in range(3):
        png(tmp_path / f"LR{k:03d}.png", dn[k])
        png(tmp_path / f"QM{k:03d}.png", clear[k])
    png(tmp_path / "HR.png", raw((48, 48))[:, :])
    png(tmp_path / "SM.png", np.ones((48, 48), np.uint8))
    return tmp_path, dn, clear


def test_a_probav_scene_has_its_clearest_frame_first(probav):
    folder, dn, clear = probav
    assert is_burst(folder)
    burst = read_burst(folder)
    assert burst.names == ("LR001.png", "LR000.png", "LR002.png")
    assert burst.exposure.tolist() == [1.0, 1.0, 1.0]
    order = [1, 0, 2]
    assert np.array_equal(burst.valid.numpy(), clear[order] > 0)
    seen = clear[order] > 0
    np.testing.assert_allclose(burst.raw_dn().numpy()[seen], dn[order][seen], rtol=1e-6)
    assert "LR001.png (100% clear), is the reference" in " ".join(burst.notes)
    assert not any("exposure" in note for note in burst.notes)


def test_spoilt_scenes(probav):
    folder, _, _ = probav
    (folder / "QM002.png").unlink()
    with pytest.raises(FileError, match=r"frame 2.*QM002\.png.*nothing there"):
        read_burst(folder)
    png(folder / "QM002.png", np.ones((15, 16), np.uint8))
    with pytest.raises(BurstError, match=r"one size.*QM002\.png"):
        read_burst(folder)


@pytest.mark.shared_data
def test_real_probav_scenes_are_aligned():
    from conftest import SHARED

    from pushframe.align import align

    home = SHARED / "probav"
    if not home.is_dir():
        pytest.skip("needs ../shared/data/probav")
    scenes = sorted(home.glob("*/*"))[:3]
    for scene in scenes:
        aligned = align(open_burst(scene))
        offsets = np.array([line.offset_px for line in aligned.table if line.used])
        assert np.abs(offsets).max() < 2  # the satellite's own products lie within a pixel or so
        assert len(offsets) >= 0.9 * len(aligned.table)
        assert aligned.source.read().valid.float().mean() > 0.5


def test_paths_are_told_apart(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"")
    with pytest.raises(UsageError, match=r"\.npy"):
        open_burst(tmp_path / "x.npy")
    assert not is_burst(Path(tmp_path / "x.npy"))
    assert not is_burst(tmp_path)
