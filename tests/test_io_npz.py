"""Bursts in .npz: what is read is what was written, and the rules for what is missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from earth import rpc_at
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pushframe.burst import Burst, GeoRef, NoiseLaw
from pushframe.errors import BurstError, PushframeError, UsageError
from pushframe.io import is_burst, read_burst, read_simulated, write_burst

EXACT = {"exposure": [0.5, 1.0, 4.0], "white_level": 4096.0}  # powers of two: no rounding


def raw(shape=(3, 7, 9), seed=0, dtype=np.float32):
    return np.random.default_rng(seed).uniform(100, 3000, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32, np.float64, ">u2", ">f4"])
def test_raw_pixels_come_back_exactly(tmp_path, dtype):
    dn = raw(dtype=dtype)
    np.savez(tmp_path / "b.npz", frames=dn, **EXACT)
    burst = read_burst(tmp_path / "b.npz")
    assert np.array_equal(burst.raw_dn().numpy(), dn.astype(np.float32))
    assert burst.frames.dtype == torch.float32
    assert bool(burst.valid.all())


def test_uint16_is_normalised_once_in_float32(tmp_path):
    dn = raw(dtype=np.uint16)
    exposure = np.array([0.3, 1.1, 2.7], np.float32)
    np.savez(tmp_path / "b.npz", frames=dn, exposure=exposure, white_level=3400, black_level=63)
    burst = read_burst(tmp_path / "b.npz")
    want = (dn.astype(np.float32) - 63) / (exposure * np.float32(3400))[:, None, None]
    assert np.array_equal(burst.frames.numpy(), want)
    assert np.array_equal(np.rint(burst.raw_dn().numpy()), dn)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.tuples(*(st.integers(low, 11) for low in (1, 2, 2))),
    seed=st.integers(0, 2**16),
    power=st.integers(-3, 3),
    black=st.sampled_from([0.0, 64.0]),
)  # fmt: skip
def test_round_trip_any_size(tmp_path, shape, seed, power, black):
    rng = np.random.default_rng(seed)
    dn = np.rint(rng.uniform(100, 4000, shape)).astype(np.float32)
    dn[:, 0, 0], dn[:, 1, 1] = 100, 4000  # never constant
    hole = rng.random(shape) < 0.2
    hole[:, 0, 0] = hole[:, 1, 1] = False
    dn[hole] = np.nan
    exposure = 2.0 ** rng.integers(-3, 4, shape[0])
    law = NoiseLaw(torch.tensor(0.1187), torch.tensor(12.05))
    burst = Burst.from_dn(dn, exposure, 4096.0 * 2.0**power, black, noise=law)
    write_burst(burst, tmp_path / "r.npz")
    back = read_burst(tmp_path / "r.npz")
    for name in ("frames", "valid", "exposure", "white_level", "black_level"):
        assert torch.equal(getattr(back, name), getattr(burst, name)), name
    assert torch.equal(back.noise.a, law.a)
    assert torch.equal(back.noise.b, law.b)
    assert np.array_equal(back.raw_dn().numpy(), dn, equal_nan=True)


def test_the_file_holds_raw_dn_bit_for_bit_for_any_gain(tmp_path):
    burst = Burst.from_dn(raw(), [0.37, 1.0, 2.9], 3401.3, 57.3)
    write_burst(burst, tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as archive:
        assert archive["frames"].dtype == np.float32
        assert np.array_equal(archive["frames"], burst.raw_dn().numpy())
    back = read_burst(tmp_path / "b.npz")
    assert torch.allclose(back.frames, burst.frames, rtol=4e-7, atol=0)


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_reference_comes_first_with_all_that_is_its_own(tmp_path, reference):
    dn = raw()
    valid = np.random.default_rng(1).random(dn.shape) < 0.8
    flow = np.arange(6.0).reshape(3, 2)
    np.savez(
        tmp_path / "b.npz",
        frames=dn, valid=valid, flow_px=flow, reference=reference, truth=raw((14, 18)), **EXACT,
    )  # fmt: skip
    simulated = read_simulated(tmp_path / "b.npz")
    order = [reference, *(i for i in range(3) if i != reference)]
    burst = simulated.burst
    assert np.array_equal(burst.raw_dn().numpy()[valid[order]], dn[order][valid[order]])
    assert np.array_equal(burst.valid.numpy(), valid[order])
    assert burst.exposure.tolist() == [EXACT["exposure"][i] for i in order]
    assert burst.names == tuple(f"frame {i}" for i in order)
    assert np.array_equal(simulated.flow_px.numpy(), flow[order])


def test_one_mask_holds_for_all_frames_and_nan_is_invalid(tmp_path):
    dn = raw()
    dn[1, 2, 3] = np.nan
    mask = np.ones(dn.shape[1:], bool)
    mask[0] = False
    np.savez(tmp_path / "b.npz", frames=dn, valid=mask, **EXACT)
    want = np.broadcast_to(mask, dn.shape).copy()
    want[1, 2, 3] = False
    assert np.array_equal(read_burst(tmp_path / "b.npz").valid.numpy(), want)


@pytest.mark.parametrize("black", [0.0, 50.0])
def test_white_level_rule_against_numpy(tmp_path, black):
    dn, exposure = raw(), np.array([0.5, 1.7, 2.0])
    valid = np.random.default_rng(2).random(dn.shape) < 0.5
    np.savez(
        tmp_path / "b.npz",
        frames=dn, exposure=exposure, valid=valid, reference=1, black_level=black,
    )  # fmt: skip
    burst = read_burst(tmp_path / "b.npz")
    want = np.percentile((dn[1].astype(float) - black)[valid[1]] / 1.7, 99.5) * 3400 / 2400
    assert float(burst.white_level) == pytest.approx(want, rel=1e-6)
    (note,) = [note for note in burst.notes if "white_level" in note]
    assert f"{want:.6g}" in note
    assert note.endswith(".")


def test_what_is_missing_is_noted_and_the_notes_survive_a_rewrite(tmp_path):
    np.savez(tmp_path / "b.npz", frames=raw(), exposure=[1, 1, 1])
    burst = read_burst(tmp_path / "b.npz")
    assert burst.noise is None
    assert len(burst.notes) == 2
    write_burst(burst, tmp_path / "again.npz")
    again = read_burst(tmp_path / "again.npz")
    assert sorted(again.notes) == sorted(burst.notes)
    assert torch.equal(again.white_level, burst.white_level)
    np.savez(tmp_path / "c.npz", frames=raw(), noise_a=0.1, noise_b=0, **EXACT)
    assert read_burst(tmp_path / "c.npz").notes == ()


def test_truth_is_dn_at_exposure_one(tmp_path):
    truth = raw((14, 18), seed=3)
    np.savez(tmp_path / "b.npz", frames=raw(), truth=truth, **EXACT)
    simulated = read_simulated(tmp_path / "b.npz")
    assert np.array_equal(simulated.truth.numpy(), truth / 4096)
    assert simulated.scale == 2
    assert simulated.flow_px is None
    field = torch.randn(3, 2, 7, 9, generator=torch.Generator().manual_seed(0))
    write_burst(simulated.burst, tmp_path / "w.npz", truth=simulated.truth, flow_px=field)
    back = read_simulated(tmp_path / "w.npz")
    assert torch.equal(back.truth, simulated.truth)
    assert torch.equal(back.flow_px, field)
    with np.load(tmp_path / "w.npz") as archive:
        assert np.array_equal(archive["truth"], truth)


def test_georeference_survives(tmp_path):
    site = 'LOCAL_CS["site grid",UNIT["metre",1]]'
    georef = GeoRef(site, (10.0, 0.1, 5e5, 0.1, -10.0, 5e6), rpc_at((3.25, 1e-7)))
    write_burst(Burst.from_dn(raw(), [1, 1, 1], 3400.0, georef=georef), tmp_path / "b.npz")
    assert read_burst(tmp_path / "b.npz").georef == georef


def test_a_crs_is_not_looked_for_in_files(tmp_path):
    """GDAL would read one from a file that is named."""
    rasterio = pytest.importorskip("rasterio")
    (tmp_path / "x.prj").write_text(rasterio.crs.CRS.from_epsg(32631).to_wkt())
    georef = GeoRef(str(tmp_path / "x.prj"), (10.0, 0.0, 5e5, 0.0, -10.0, 5e6))
    write_burst(Burst.from_dn(raw(), [1, 1, 1], 3400.0, georef=georef), tmp_path / "b.npz")
    with pytest.raises(BurstError, match="as WKT, or a code"):
        read_burst(tmp_path / "b.npz")


def test_is_burst(tmp_path):
    np.savez(tmp_path / "b.npz", frames=raw(), **EXACT)
    np.savez(tmp_path / "image.npz", image=raw())
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "burst.toml").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.tif").write_bytes(b"")
    assert [name for name in ("b.npz", "burst.toml", "") if not is_burst(tmp_path / name)] == []
    others = ("image.npz", "text.npz", "absent.npz", "empty", "a.tif")
    assert [name for name in others if is_burst(tmp_path / name)] == []


def test_write_refuses_what_it_cannot_say(tmp_path):
    burst = Burst.from_dn(raw(), [1, 1, 1], 3400.0)
    with pytest.raises(UsageError, match="batch"):
        write_burst(burst.batched(), tmp_path / "b.npz")
    with pytest.raises(UsageError, match="suffix"):
        write_burst(burst, tmp_path / "b.jpg")
    with pytest.raises(BurstError, match="flow_px"):
        write_burst(burst, tmp_path / "b.npz", flow_px=torch.zeros(2, 2))
    with pytest.raises(BurstError, match="truth"):
        write_burst(burst, tmp_path / "b.npz", truth=torch.zeros(14, 17))
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255), cut=st.booleans())
@example(place=0.98046875, bits=102, cut=False)  # a line break in the name of a key
def test_damaged_bytes_are_a_users_error_or_nothing(tmp_path, place, bits, cut):
    path = tmp_path / "b.npz"
    np.savez(path, frames=raw(), **EXACT)
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
