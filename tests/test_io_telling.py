"""Copies of frames and constant ones: found, left out, said; and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pushframe.errors import BurstError
from pushframe.io import open_burst, read_burst, read_simulated
from pushframe.io.frames import ArrayFrame
from pushframe.io.telling import find_idle
from pushframe.noise_law import estimate_noise_law


def frames(count: int = 5, shape: tuple[int, int] = (20, 24)) -> np.ndarray:
    return np.random.default_rng(0).integers(100, 3000, (count, *shape)).astype(np.uint16)


def saved(folder: Path, dn: np.ndarray, **more: object) -> Path:
    path = folder / "burst.npz"
    exposure = 1 + 0.1 * np.arange(len(dn))
    np.savez(path, frames=dn, **{"exposure": exposure, "white_level": 3400.0, **more})
    return path


def said(path: Path) -> str:
    return " ".join(open_burst(path).notes)


def test_frames_that_differ_all_stay(tmp_path: Path) -> None:
    dn = frames()
    dn[3] = dn[1]
    dn[3, 19, 23] += 1
    assert open_burst(saved(tmp_path, dn)).count == 5
    assert "left out" not in said(tmp_path / "burst.npz")


def test_the_first_of_copies_stays(tmp_path: Path) -> None:
    dn = frames()
    dn[3], dn[4] = dn[1], dn[2]
    path = saved(tmp_path, dn)
    burst = read_burst(path)
    assert burst.names == ("frame 0", "frame 1", "frame 2")
    assert burst.exposure.tolist() == pytest.approx([1.0, 1.1, 1.2])
    assert "frame 3 was left out: it is an exact copy of frame 1." in burst.notes
    assert "frame 4 was left out: it is an exact copy of frame 2." in burst.notes
    assert read_burst(saved(tmp_path, dn, clean=True)).count == 5


def test_of_copies_of_the_reference_it_stays_itself(tmp_path: Path) -> None:
    dn = frames()
    dn[4] = dn[1]
    burst = read_burst(saved(tmp_path, dn, reference=4))
    assert burst.names == ("frame 4", "frame 0", "frame 2", "frame 3")
    assert "frame 1 was left out: it is an exact copy of frame 4." in burst.notes


def test_truth_and_flows_stay_with_their_frames(tmp_path: Path) -> None:
    dn = frames()
    dn[1] = dn[0]
    flow_px = np.arange(10.0).reshape(5, 2)
    truth = np.kron(dn[0], np.ones((2, 2)))
    made = read_simulated(saved(tmp_path, dn, flow_px=flow_px, truth=truth, reference=2))
    assert made.flow_px is not None
    assert made.flow_px.tolist() == flow_px[[2, 0, 3, 4]].tolist()


def test_copies_alone_are_a_burst_of_one_frame(tmp_path: Path) -> None:
    dn = np.repeat(frames(1), 4, 0)
    burst = read_burst(saved(tmp_path, dn))
    assert burst.count == 1
    assert "frame 0 alone is left: this is a burst of one frame." in burst.notes
    with pytest.raises(BurstError, match=r"got 1 \(frame 1 was left out: .*, and 2 more\)"):
        estimate_noise_law(burst)


@pytest.mark.parametrize("value", [0, 4095])
def test_constant_frames_are_left_out(tmp_path: Path, value: int) -> None:
    dn = frames()
    dn[2] = dn[3] = value
    burst = read_burst(saved(tmp_path, dn))
    assert burst.names == ("frame 0", "frame 1", "frame 4")
    assert f"frame 3 was left out: all its pixels are {value}." in burst.notes


def test_a_constant_reference_gives_way_unless_it_was_chosen(tmp_path: Path) -> None:
    dn = frames()
    dn[0] = 0
    burst = read_burst(saved(tmp_path, dn))
    assert burst.names == ("frame 1", "frame 2", "frame 3", "frame 4")
    assert "all its pixels are 0; frame 1 is the reference instead." in " ".join(burst.notes)
    with pytest.raises(BurstError, match="an image in frame 0, the reference, got the constant 0"):
        read_burst(saved(tmp_path, dn, reference=0))


@pytest.mark.parametrize("known", ["truth", "flow_px"])
def test_truth_and_flows_are_on_the_grid_of_the_reference(tmp_path: Path, known: str) -> None:
    """They belong to no other frame that would take its place."""
    dn = frames()
    values = {"truth": np.kron(dn[0], np.ones((2, 2))), "flow_px": np.zeros((5, 2))}
    path = saved(tmp_path, dn, **{known: values[known]})
    assert open_burst(path).count == 5
    dn[0] = 0
    path = saved(tmp_path, dn, **{known: values[known]})
    assert read_burst(path).count == 4
    with pytest.raises(BurstError, match="on whose grid truth and flows are"):
        read_simulated(path)


def test_of_copies_the_clearest_stays(tmp_path: Path) -> None:
    dn = frames()
    dn[3] = dn[1]
    valid = np.ones(dn.shape, bool)
    valid[1, :15] = False
    burst = read_burst(saved(tmp_path, dn, valid=valid))
    assert burst.names == ("frame 0", "frame 2", "frame 3", "frame 4")
    assert bool(burst.valid.all())


def test_large_frames_are_compared_whole_before_they_are_copies() -> None:
    """Between the windows that are looked at first, too."""
    one = frames(1, (1300, 1030))[0]
    other, flat = one.copy(), np.zeros_like(one)
    other[700, 515] += 1
    flat[600, 515] = 1
    stored = [ArrayFrame(image, "f") for image in (one, other, one, flat, flat * 0)]
    assert find_idle(stored) == ({4: 0.0}, [[0, 2]])


def test_frames_without_a_valid_pixel_are_no_copies(tmp_path: Path) -> None:
    dn = frames().astype(np.float32)
    dn[1] = dn[2] = np.nan
    with pytest.raises(BurstError, match="valid pixels in frame 1"):
        read_burst(saved(tmp_path, dn))
