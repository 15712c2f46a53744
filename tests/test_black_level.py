"""The black level that frames of different exposures tell of themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pushframe.io import open_burst
from pushframe.io.black_level import estimated_black
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver import solve

SETTINGS = {
    "the paper's": {},
    "few frames": {"frames": 6},
    "inexact exposures": {"exposure_error": 0.02},
    "noise": {"noise_std_dn": (40.0, 40.0)},
    "drift": {"motion": "drift"},
    "far apart": {"shift_px": 4.0},
}


def raw_frames(black: float = 0.0, seed: int = 0, **options: object) -> np.ndarray:
    """Whole DN (N, 64, 64), a black level added."""
    setting = with_options(PRESETS["paper"], **options)
    side = setting.source_size
    scene = torch.from_numpy(procedural_scene((side, side), seed)) / setting.white_level
    burst = simulate(scene[None], setting, torch.Generator().manual_seed(seed)).burst
    return np.rint(burst.part(0).raw_dn().numpy() + black)


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("black", [-40.0, 60.0])
def test_a_pedestal_is_found(options: dict[str, object], black: float) -> None:
    assert estimated_black(raw_frames(black, **options)) == pytest.approx(black, abs=4)


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_none_is_found_where_there_is_none(options: dict[str, object]) -> None:
    assert [estimated_black(raw_frames(seed=seed, **options)) for seed in range(6)] == [0.0] * 6


def test_frames_of_one_exposure_do_not_tell() -> None:
    assert estimated_black(raw_frames(60.0, exposure_steps=0)) == 0.0


def test_nor_do_too_few_flat_or_hardly_valid_ones() -> None:
    dn = raw_frames(60.0)
    assert estimated_black(dn[:4]) == 0.0
    noise = np.random.default_rng(0).normal(size=dn.shape)
    exposure = np.geomspace(0.5, 2, len(dn))[:, None, None]
    assert estimated_black((1000 * exposure + 60 + 5 * noise).astype(np.float32)) == 0.0
    masked = dn.copy()
    masked[4:, ::2] = np.nan
    assert estimated_black(masked) == 0.0


def test_a_clouded_frame_and_masked_pixels_do_not_mislead() -> None:
    dn = raw_frames(60.0)
    dn[3] += 500
    dn[5, 20:26, 30:40] = np.nan
    assert estimated_black(dn) == pytest.approx(60, abs=4)


def test_the_unit_does_not_matter() -> None:
    dn = raw_frames(60.0)
    assert estimated_black(dn / 4096) == pytest.approx(estimated_black(dn) / 4096, rel=0.02)


def saved(folder: Path, dn: np.ndarray, **stated: object) -> Path:
    path = folder / "burst.npz"
    np.savez(path, frames=dn.astype(np.uint16), **stated)  # type: ignore[arg-type]
    return path


def test_a_burst_without_one_is_read_with_it_and_says_so(tmp_path: Path) -> None:
    source = open_burst(saved(tmp_path, raw_frames(60.0)))
    assert source.black_level == pytest.approx(60, abs=4)
    assert f"No black_level was given: {source.black_level:g} DN was taken" in str(source.notes)
    assert float(source.read().black_level) == pytest.approx(source.black_level)


@pytest.mark.parametrize("stated", [0.0, 60.0])
def test_a_stated_one_is_believed(tmp_path: Path, stated: float) -> None:
    source = open_burst(saved(tmp_path, raw_frames(60.0), black_level=stated))
    assert (source.black_level, "black_level" in str(source.notes)) == (stated, False)


def test_nothing_is_said_where_there_is_none(tmp_path: Path) -> None:
    source = open_burst(saved(tmp_path, raw_frames()))
    assert (source.black_level, "black_level" in str(source.notes)) == (0.0, False)


def test_the_image_is_as_good_as_with_the_level_stated(tmp_path: Path) -> None:
    dn = raw_frames(60.0, frames=8)
    told = {"noise_a": 0.0, "noise_b": 150.0, "white_level": 3400.0}
    images = {}
    for name, stated in {
        "told": {"black_level": 60.0},
        "found": {},
        "0": {"black_level": 0},
    }.items():
        burst = open_burst(saved(tmp_path, dn, **told, **stated)).read().batched()
        mean = solve(burst, 2).posterior.mean
        images[name] = mean * burst.gain[0, 0] + burst.black_level
    off = {name: float((image - images["told"]).std()) for name, image in images.items()}
    assert off["found"] < 2 < 10 < off["0"]
