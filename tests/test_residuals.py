"""Residuals: noise where the model holds, the spot where one was added, on the right tile."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import sources
from test_validate import one, with_blob

from pushframe import Burst, write_burst
from pushframe.deliver import Order, deliver
from pushframe.infer import Reconstruction
from pushframe.residuals import BORDER_PX, ResidualMap, residual_maps
from pushframe.simulate import PRESETS, simulate_one
from pushframe.solver.exposure import at_true_exposure


def maps_of(burst: Burst, most: int = 9, method: str = "solver") -> list[ResidualMap]:
    making = Reconstruction(burst, method=method)
    making.product()
    return residual_maps(making.witness, most)


@pytest.mark.parametrize("method", ["solver", "base"])
@pytest.mark.parametrize("preset", ["paper", "affine"])
def test_residuals_of_a_clean_burst_are_noise(preset: str, method: str) -> None:
    setting = dataclasses.replace(PRESETS[preset], size=48, frames=8)
    burst = simulate_one(sources(setting, 1)[0], setting, 3).burst
    maps = maps_of(burst, method=method)
    assert len(maps) == 8
    assert all(m.rms < 1.15 for m in maps)
    shortest = maps[int(burst.exposure.argmin())]  # the image follows the others
    assert shortest.rms == pytest.approx(0.95, abs=0.06)
    assert not any(m.left.any() for m in maps)
    for m in maps:  # near the border of the reference nothing is said
        assert np.isnan(m.z[: BORDER_PX - 4]).all()
        assert np.isfinite(m.z).mean() > 0.5


@pytest.mark.parametrize("frame", [0, 3])
def test_residuals_are_of_exposures_as_they_were(frame: int) -> None:
    """Were gains left out, a frame half as bright again would differ by all of its light."""
    burst = one()
    excess = torch.ones_like(burst.exposure)
    excess[frame] = 1 / 1.5
    maps = maps_of(at_true_exposure(burst, excess))
    assert len(maps) == burst.count
    assert all(m.rms < 1.2 and not m.left.any() for m in maps)


def test_a_spot_is_seen_and_marked() -> None:
    maps = maps_of(with_blob(one(), 3, 2), most=4)
    assert len(maps) == 4
    assert maps[0].index == 0  # the reference
    (spoilt,) = [m for m in maps if m.index == 3]
    centre = spoilt.z[19:22, 19:22]
    assert spoilt.left[19:22, 19:22].all()
    assert (centre > 20).all()
    assert spoilt.rms < 1.2  # what was left out does not count
    assert not any(m.left.any() for m in maps if m.index != 3)


def test_the_tile_with_the_spot_is_shown_or_the_middle() -> None:
    setting = dataclasses.replace(PRESETS["paper"], size=200, frames=4)
    burst = simulate_one(sources(setting, 1)[0], setting, 3).burst
    frames = burst.frames.clone()
    frames[2, 170:180, 20:30] += 0.5
    for images, corner in ((burst.frames, (52, 52)), (frames, (104, 0))):
        making = Reconstruction(dataclasses.replace(burst, frames=images), method="solver")
        making.product()
        assert making.witness is not None
        assert tuple(part.start for part in making.witness.tile) == corner
        assert making.witness.burst.frames.shape == (1, 4, 96, 96)


def test_frames_left_out_as_a_whole_are_marked() -> None:
    burst, other = one(), one(9)
    frames = burst.frames.clone()
    frames[2] = 0.5 * frames[2] + 0.5 * other.frames[2]
    (lost,) = [m for m in maps_of(dataclasses.replace(burst, frames=frames)) if m.index == 2]
    assert lost.share == 1


def test_nothing_is_shown_without_motion() -> None:
    assert maps_of(one(), method="bicubic") == []


def test_the_report_shows_them_small(tmp_path: Path) -> None:
    for package in ("jinja2", "matplotlib", "rasterio"):
        pytest.importorskip(package)
    image = pytest.importorskip("PIL.Image")
    write_burst(with_blob(one(), 3, 2), tmp_path / "b.npz")
    deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", method="solver"))
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert ">Residuals</h2>" in text
    found = re.findall(r'class="holes residual" src="data:image/png;base64,([^"]+)"', text)
    assert len(found) == 4
    assert sum(map(len, found)) < 60_000
    at = re.findall(r'alt="Residuals of ([^"]+)"', text).index("frame 3")
    colours = np.array(image.open(io.BytesIO(base64.b64decode(found[at]))).convert("RGB"))
    red, _, blue = (int(value) for value in colours[20, 20])
    assert red > blue + 60  # orange
    assert len(set(colours[30, 30].tolist())) == 1  # grey
    deliver(Order(tmp_path / "b.npz", tmp_path / "q.tif", method="bicubic"))
    assert ">Residuals</h2>" not in (tmp_path / "q.html").read_text(encoding="utf-8")
