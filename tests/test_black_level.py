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


def simulated(
    black: float = 0.0, seed: int = 0, light: float = 1.0, **options: object
) -> tuple[np.ndarray, np.ndarray]:
    """Whole DN (N, 64, 64), a black level added, and the stated exposures (N,)."""
    setting = with_options(PRESETS["paper"], **options)
    side = setting.source_size
    scene = light * torch.from_numpy(procedural_scene((side, side), seed)) / setting.white_level
    burst = simulate(scene[None], setting, torch.Generator().manual_seed(seed)).burst.part(0)
    return np.rint(burst.raw_dn().numpy() + black), burst.exposure.double().numpy()


def raw_frames(black: float = 0.0, seed: int = 0, **options: object) -> np.ndarray:
    return simulated(black, seed, **options)[0]


def of_two_exposures(black: float, seed: int) -> np.ndarray:
    """Eight long frames and two of a fifth, (10, 96, 96), of a still scene moved by whole px."""
    random = np.random.default_rng(seed)
    scene = procedural_scene((280, 280), seed % 40)[::2, ::2]
    frames = []
    for exposure in [1.0] * 8 + [0.2] * 2:
        down, right = random.integers(0, 4, 2)
        part = scene[down : down + 96, right : right + 96]
        frames.append(exposure * part + black + 6 * random.standard_normal(part.shape))
    return np.rint(np.stack(frames)).astype(np.float32)


def veiled(dn: np.ndarray, dn_of_veil: float) -> np.ndarray:
    """Frames of one exposure, four of ten under haze or smoke that lets 60 to 90 % through."""
    through = np.array([1.0] * 6 + [0.9, 0.8, 0.7, 0.6])[:, None, None]
    return np.asarray(np.rint(through * dn + (1 - through) * dn_of_veil), np.float32)


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("black", [-40.0, 60.0])
def test_a_pedestal_is_found(options: dict[str, object], black: float) -> None:
    dn, exposure = simulated(black, **options)
    for stated in (None, exposure):
        assert estimated_black(dn, stated) == pytest.approx(black, abs=4)


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_none_is_found_where_there_is_none(options: dict[str, object]) -> None:
    assert [estimated_black(raw_frames(seed=seed, **options)) for seed in range(6)] == [0.0] * 6


def test_frames_of_one_exposure_do_not_tell() -> None:
    assert estimated_black(raw_frames(60.0, exposure_steps=0)) == 0.0


def test_long_frames_alone_do_not_tell_where_short_ones_are_off_their_line() -> None:
    for seed in (0, 117):
        assert estimated_black(of_two_exposures(0.0, seed)) == 0.0
    for seed in range(1, 6):  # twin: two exposures do tell
        assert estimated_black(of_two_exposures(60.0, seed)) == pytest.approx(60, abs=4)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_frames_on_one_line_that_are_of_one_exposure_do_not_tell(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contrasts of a line through 100 DN, but for those of the short frames; twin: of them, too."""

    def contrasts(still: torch.Tensor) -> torch.Tensor:
        mean = still.mean(1)
        off = 1 + 0.02 * (-1) ** torch.arange(len(mean))  # by which short ones differ
        return torch.where(mean < share * mean.max(), off * mean, mean - 100)

    monkeypatch.setattr("pushframe.io.black_level._contrasts", contrasts)
    found = estimated_black(of_two_exposures(0.0, 1))
    assert found == (pytest.approx(100) if share < 0.2 else 0.0)


def test_haze_and_smoke_are_no_pedestal(monkeypatch: pytest.MonkeyPatch) -> None:
    dn, exposure = simulated(exposure_steps=0, frames=10)
    assert estimated_black(veiled(dn, 2500.0)) == 0.0  # brighter than the darkest frame
    smoky = veiled(dn, 300.0)
    assert estimated_black(smoky) == pytest.approx(300, rel=0.05)  # the frames alone cannot tell
    assert estimated_black(smoky, exposure) == 0.0
    monkeypatch.setattr("pushframe.io.black_level._as_exposed", lambda *_: True)
    assert estimated_black(smoky, exposure) != 0  # twin


def test_a_clouded_frame_or_a_wrong_exposure_hides_no_pedestal() -> None:
    dn, exposure = simulated(60.0)
    clouded, wrong = dn.copy(), exposure.copy()
    clouded[3] += 500
    wrong[5] *= 1.5
    assert estimated_black(clouded, exposure) == pytest.approx(60, abs=4)
    assert estimated_black(dn, wrong) == pytest.approx(60, abs=4)
    assert estimated_black(dn - 60, wrong) == 0.0
    assert estimated_black(dn, exposure[::-1].copy()) == 0.0  # twin: all are wrong


def test_dark_ground_that_is_cut_off_at_0_is_no_pedestal() -> None:
    for seed in (0, 2, 4, 5, 8):
        dn, exposure = simulated(0.0, seed, light=0.05)
        for stated in (None, exposure):
            assert estimated_black(dn.clip(0), stated) == 0.0
        lifted = (dn + 60).clip(0)  # twin: noise is not cut off above a pedestal
        assert estimated_black(lifted) == pytest.approx(60, abs=4)


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
