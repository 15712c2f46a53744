"""Saturated and stuck pixels: found by their values, left out, said; and nothing else is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from pushframe.io import BurstSource, Placement, open_burst, read_burst
from pushframe.io.defects import levels_off, saturation_of, stuck_pixels
from pushframe.io.defiant import defiant_pixels
from pushframe.io.detector import Detector
from pushframe.io.frames import ArrayFrame
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, simulate_one


def exposures(count: int) -> np.ndarray:
    return 2.0 ** (np.arange(count) % 3 - 1)


def frames(count: int = 6, size: int = 64, noise_dn: float = 6.0, seed: int = 0) -> np.ndarray:
    """Whole DN of a smooth scene under noise and exposures that differ, (N, H, W)."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    scene = 1200 + 700 * np.sin(7 * x + 3 * y) * np.cos(5 * y)
    noise = noise_dn * random.standard_normal((count, size, size))
    return np.rint(exposures(count)[:, None, None] * scene + noise).astype(np.float32)


def saved(folder: Path, dn: np.ndarray, **more: object) -> Path:
    path = folder / "burst.npz"
    np.savez(path, frames=dn, exposure=exposures(len(dn)), white_level=3400.0, **more)
    return path


def test_pixels_at_the_largest_value_are_saturated(tmp_path: Path) -> None:
    dn = frames()
    assert saturation_of([dn]) is None
    clipped = np.minimum(dn, 2500)
    assert saturation_of([clipped[:, :32], clipped[:, 32:]]) == 2500
    burst = read_burst(saved(tmp_path, clipped))
    assert np.array_equal(burst.valid.numpy(), clipped < 2500)
    assert any("2500 DN" in note for note in burst.notes)
    tile = open_burst(tmp_path / "burst.npz").tile(slice(3, 40), slice(5, 60))
    assert np.array_equal(tile.valid[0].numpy(), clipped[:, 3:40, 5:60] < 2500)


def test_a_level_that_is_stated_counts_instead(tmp_path: Path) -> None:
    clipped = np.minimum(frames(), 2500)
    burst = read_burst(saved(tmp_path, clipped, saturation_level=2000.0))
    assert np.array_equal(burst.valid.numpy(), clipped < 2000)
    assert not any("pile up" in note for note in burst.notes)
    assert bool(read_burst(saved(tmp_path, clipped, saturation_level=2501.0)).valid.all())


def uneven(dn: np.ndarray, level: float = 2500.0, share: float = 0.03) -> np.ndarray:
    """Frames whose pixels clip each at a value of its own."""
    own = level * (1 + share * np.random.default_rng(9).standard_normal(dn.shape[1:]))
    return np.minimum(dn, np.rint(own))


def many(**options: float) -> np.ndarray:
    """Frames of exposures from 0.5 to 2.2, black at 40 DN."""
    times = np.geomspace(0.5, 2.2, 9)[np.random.default_rng(1).permutation(9)]
    scene = frames(1, noise_dn=0.0)[0] / exposures(1)[0]
    noise = options.get("noise_dn", 6.0) * np.random.default_rng(2).standard_normal((9, 64, 64))
    return np.rint(40 + times[:, None, None] * scene + noise).astype(np.float32)


def test_pixels_that_level_off_each_at_a_value_of_its_own_are_saturated(tmp_path: Path) -> None:
    dn = many()
    clipped = uneven(dn)
    assert saturation_of([clipped]) is None
    level = levels_off(clipped.reshape(9, -1))
    assert level == pytest.approx(2500 * (1 - 3 * 0.03), rel=0.04)
    assert levels_off(dn.reshape(9, -1)) is None
    source = open_burst(saved(tmp_path, clipped.astype(np.uint16), black_level=40.0))
    assert source.saturation_level == level
    assert any("level off" in note for note in source.notes)
    assert np.array_equal(source.read().valid.numpy(), clipped < level)
    wrong = dn - clipped > 50
    assert 0 < (wrong & (clipped < level)).sum() < 0.02 * wrong.sum()  # but for the lowest of all


def test_a_stated_level_counts_instead_of_one_that_levels_off(tmp_path: Path) -> None:
    clipped = uneven(many()).astype(np.uint16)
    source = open_burst(saved(tmp_path, clipped, saturation_level=9999.0, black_level=40.0))
    assert source.saturation_level == 9999
    assert not any("level off" in note for note in source.notes)


def test_frames_that_differ_otherwise_do_not_level_off() -> None:
    dn = many()
    clouded = dn.copy()
    clouded[3:5] = 0.6 * dn[3:5] + 1500  # two frames of less contrast, at different levels
    curved = 4000 * (1 - np.exp(-dn / 4000))  # a response that bends has no one level
    few, noisy = dn[:3], many(noise_dn=60.0)
    for other in (clouded, curved, few, noisy, np.full_like(dn, np.nan), np.ones_like(dn)):
        assert levels_off(other.reshape(len(other), -1)) is None


@pytest.mark.parametrize("share", [0.7, 0.8, 0.9, 0.95])
def test_a_mask_of_bright_pixels_is_no_level(share: float) -> None:
    """Of a burst whose frames move by parts of a pixel, so that no mask fits another's."""
    setting = PRESETS["paper"]
    for seed in (1, 4, 12):
        scene = procedural_scene((setting.source_size,) * 2, seed) / setting.white_level
        burst = simulate_one(torch.from_numpy(scene), setting, seed).burst
        dn = np.rint(burst.raw_dn().numpy())
        bright = dn >= np.quantile(dn, share)
        assert levels_off(np.where(bright, np.nan, dn).reshape(len(dn), -1)) is None


def test_a_level_is_found_beside_masks_of_clouds() -> None:
    clipped = uneven(many())
    for seed in range(4):
        masked = clipped.copy()
        corners = np.random.default_rng(seed).integers(0, 44, (9, 2))
        for frame, (top, left) in zip(masked, corners, strict=True):
            frame[top : top + 20, left : left + 20] = np.nan
        masked[4] = np.nan  # all of it is cloud
        assert levels_off(masked.reshape(9, -1)) == pytest.approx(2500 * (1 - 3 * 0.03), rel=0.05)


@pytest.mark.parametrize(("seed", "size", "of"), [(13, 48, 13), (79, 128, 39), (559, 128, 39)])
def test_two_exposures_with_histograms_of_their_own_do_not_level_off(
    seed: int, size: int, of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenes of dark and bright halves, whose quantiles between them are those of few pixels."""
    random = np.random.default_rng(seed)
    scene = procedural_scene((280, 280), of)[::2, ::2]
    dn = []
    for exposure in random.choice([0.3, 1.0], int(random.integers(5, 16))):
        down, right = random.integers(0, 4, 2)
        part = exposure * scene[down : down + size, right : right + size]
        dn.append(part + np.sqrt(12 + 0.12 * part) * random.standard_normal(part.shape))
    pixels = np.rint(np.stack(dn)).clip(0).astype(np.float32).reshape(len(dn), -1)
    assert levels_off(pixels) is None
    monkeypatch.setattr("pushframe.io.defects.AS_FORETOLD", 1.0)
    assert levels_off(pixels) is not None  # twin


def test_bright_ends_that_fade_are_not_saturated() -> None:
    fading = np.repeat([28.0, 29.0, 30.0], [90, 60, 40]).reshape(2, 5, 19)  # few steps of DN
    assert saturation_of([fading]) is None
    assert saturation_of([fading, np.full((2, 5, 5), 30.0)]) == 30  # twin: 90 above 60
    assert saturation_of([np.full((3, 4, 4), np.nan)]) is None
    assert saturation_of([np.full((3, 64, 64), np.inf)]) is None  # an error, told elsewhere


@pytest.mark.parametrize("value", [0.0, 4095.0])
def test_columns_that_are_stuck_are_left_out(tmp_path: Path, value: float) -> None:
    dn = frames()
    assert not stuck_pixels(dn).any()
    dn[:, :, 20] = value
    dn[:, 5, 40] = 777
    dn[2, 30, 20] = np.nan
    wrong = np.zeros((64, 64), bool)
    wrong[:, 20] = wrong[5, 40] = True
    burst = read_burst(saved(tmp_path, dn))
    assert np.array_equal(~burst.valid.numpy(), np.broadcast_to(wrong, dn.shape))
    assert any("65 pixels of the detector" in note for note in burst.notes)


def test_what_is_still_among_its_like_is_not_stuck() -> None:
    """Calm water that agrees by chance, a shadow at 0, a roof at the largest value."""
    dn = frames()
    random = np.random.default_rng(1)
    dn[:, 40:, :30] = np.rint(300 + 0.5 * random.standard_normal((6, 24, 30)))
    dn[:, :12, 40:52] = 0
    dn[:, 20:32, 44:60] = 4095
    still = np.ptp(dn, 0) == 0
    assert still[40:, :30].sum() > 20
    assert not stuck_pixels(dn)[44:, :26].any()
    assert not stuck_pixels(dn)[3:9, 43:49].any()
    assert saturation_of([np.where(stuck_pixels(dn), np.nan, dn)]) == 4095
    few = frames(count=3)
    few[:, 5, 5] = 9
    assert not stuck_pixels(few).any()


@pytest.mark.parametrize("width", [1, 2, 4])
def test_tiles_leave_out_what_whole_bursts_do(tmp_path: Path, width: int) -> None:
    dn = frames()
    dn[:, :, 20 : 20 + width] = 0
    dn[:, 33, 7] = 123
    source = open_burst(saved(tmp_path, dn))
    whole = source.read().valid
    assert int((~whole[0]).sum()) == 64 * width + 1
    for start in (0, 9, 17):
        part = slice(start, start + 32), slice(start, start + 32)
        assert bool((source.tile(*part).valid[0] == whole[:, part[0], part[1]]).all())


def test_a_stuck_pixel_stays_on_the_detector_where_frames_are_moved() -> None:
    """It is at another place of each frame that is placed elsewhere."""
    dn = frames()
    dn[:, :, 40] = 0
    stored = tuple(ArrayFrame(frame, f"f{k}") for k, frame in enumerate(dn))
    places = tuple(Placement((0.0, 4.0 * k)) for k in range(len(dn)))
    law = {"white_level": 3400.0}
    still = BurstSource(stored, exposures(len(dn)), law)
    moved = BurstSource(stored, exposures(len(dn)), law, placements=places)
    part = slice(0, 64), slice(0, 44)
    right = np.ones((6, 64, 44), bool)
    right[:, :, 40] = False
    assert np.array_equal(still.tile(*part).valid[0].numpy(), right)
    right[:] = True
    for k in range(6):
        right[k, :, 40 - 4 * k] = False
    assert np.array_equal(moved.tile(*part).valid[0].numpy(), right)
    placed = np.stack([dn[k, :, 4 * k : 4 * k + 44] for k in range(6)])
    assert not stuck_pixels(placed).any()  # twin: looked for where the frames are placed


def test_frames_that_were_left_out_still_tell_of_the_detector() -> None:
    dn = frames()
    dn[:, :, 20] = 0
    stored = tuple(ArrayFrame(frame, f"f{k}") for k, frame in enumerate(dn))
    few = BurstSource(stored, exposures(len(dn)), {"white_level": 3400.0}).keep([0, 1])
    part = slice(0, 64), slice(0, 64)
    assert not bool(few.tile(*part).valid[0, :, :, 20].any())
    forgetful = dataclasses.replace(few, detector=None)  # twin: two frames are too few
    assert bool(forgetful.tile(*part).valid.all())


def moving(shift_px: float, seed: int = 0, count: int = 9) -> np.ndarray:
    """Whole DN of a built-up scene that moves, under noise, (N, 64, 64)."""
    margin = 2 * round(shift_px + 6)
    setting = dataclasses.replace(
        PRESETS["affine"], frames=count, shift_px=shift_px, margin_hpx=margin
    )
    scene = procedural_scene((setting.source_size,) * 2, seed) / setting.white_level
    burst = simulate_one(torch.from_numpy(scene), setting, seed).burst
    return np.rint(burst.raw_dn().numpy()).clip(0).astype(np.float32)


@pytest.mark.parametrize("shift_px", [1.5, 3.0, 10.0])
def test_defects_with_noise_of_their_own_are_found(
    shift_px: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead column, half a dead row, a hot pixel; beneath clouds of two frames, too."""
    dn = moving(shift_px)
    random = np.random.default_rng(1)
    dn[3:5] = 0.4 * dn[3:5] + 900
    dn[:, :, 20] = 20 + 4 * random.standard_normal((9, 64))
    dn[:, 45, 34:] = 6000 + 40 * random.standard_normal((9, 30))
    dn[:, 10, 40] = 9000 + 40 * random.standard_normal(9)
    assert not stuck_pixels(dn).any()
    wrong = np.zeros((64, 64), bool)
    wrong[:, 20] = wrong[45, 34:] = wrong[10, 40] = True
    found = defiant_pixels(dn)
    assert found[wrong].all()
    near = np.zeros_like(wrong)
    near[45, 26:] = True  # a line may seem longer by part of what it is judged by
    assert not (found & ~wrong & ~near).any()
    monkeypatch.setattr("pushframe.io.defiant.SHARE", 1.1)
    assert not defiant_pixels(dn).any()  # twin


def test_a_pixel_of_one_value_is_bright_in_short_exposures_and_dark_in_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(1)
    scene = moving(3.0, seed=1)
    scene *= (1000 / np.median(scene, axis=(1, 2)))[:, None, None]
    dn = np.tile([0.1, 10.0, 0.1], 3).astype(np.float32)[:, None, None] * scene
    dn[:, 30, 10] = 1000 + 10 * random.standard_normal(9)
    assert np.argwhere(defiant_pixels(dn)).tolist() == [[30, 10]]
    monkeypatch.setattr("pushframe.io.defiant._brightness", lambda stack: np.arange(len(stack)))
    assert not defiant_pixels(dn).any()  # twin: in the order of the files


def test_pixels_that_stand_out_are_left_out_and_said(tmp_path: Path) -> None:
    dn = moving(3.0)
    dn[:, 10, 40] = 9000 + 40 * np.random.default_rng(1).standard_normal(9)
    np.savez(tmp_path / "burst.npz", frames=dn, exposure=np.ones(9), white_level=3400.0)
    burst = read_burst(tmp_path / "burst.npz")
    assert np.argwhere(~burst.valid.numpy()).tolist() == [[k, 10, 40] for k in range(9)]
    assert any("1 pixel of the detector" in note for note in burst.notes)
    dn[:, 10, 40] = dn[:, 10, 41]
    np.savez(tmp_path / "burst.npz", frames=dn, exposure=np.ones(9), white_level=3400.0)
    sound = read_burst(tmp_path / "burst.npz")  # twin: nothing to leave out
    assert bool(sound.valid.all())
    assert not any("of the detector" in note for note in sound.notes)


def test_detail_of_the_scene_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    bursts = [
        moving(shift_px, seed, count)
        for seed in range(2)
        for shift_px in (0.3, 1.0, 3.0, 10.0)
        for count in (5, 9)
    ]
    assert not any(defiant_pixels(dn).any() for dn in bursts)
    monkeypatch.setattr("pushframe.io.defiant.CHANCE", 1.0)
    monkeypatch.setattr("pushframe.io.defiant.APART_PX", 0.0)
    assert any(defiant_pixels(dn).any() for dn in bursts)  # twin: all that stands out


def test_what_stands_out_in_frames_that_do_not_move_may_be_detail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bright house among fields, a straight road."""
    dn = np.repeat(moving(0.0, count=1), 9, axis=0)
    dn += 3 * np.random.default_rng(0).standard_normal(dn.shape)
    dn[:, 30, 30] += 2500
    dn[:, :, 12] += 2500
    assert not defiant_pixels(dn).any()
    monkeypatch.setattr("pushframe.io.defiant.APART_PX", 0.0)
    found = defiant_pixels(dn)  # twin: whether they move or not
    assert found[30, 30]
    assert found[:, 12].all()


@pytest.mark.parametrize("places", [[(5, 3)], [(5, 3), (-4, 6)], [(5, 3), (5, 3)]])
def test_detail_that_a_frame_or_two_show_elsewhere_is_no_defect(
    places: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many details some stand out by chance at the same pixel of those, too."""
    random = np.random.default_rng(0)
    ground = 800 + 60 * random.standard_normal((160, 160))
    houses = random.integers(8, 152, (2, 700))
    ground[houses[0], houses[1]] += 1500
    offsets = [(0, 0)] * 12 + places
    frames = [ground[8 + y : 152 + y, 8 + x : 152 + x] for y, x in offsets]
    dn = np.stack(frames) + 3 * random.standard_normal((len(frames), 144, 144))
    assert not defiant_pixels(dn.astype(np.float32)).any()
    monkeypatch.setattr("pushframe.io.defiant.MOVED_CHANCE", 1.0)  # twin
    assert defiant_pixels(dn.astype(np.float32)).any()


def test_stripes_that_fall_on_the_same_pixels_again_are_detail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Furrows 3 px apart in frames that lie 3 px apart, or twice that."""
    random = np.random.default_rng(0)
    ground = procedural_scene((64, 82), 3)
    furrows = 600 * (np.arange(82) % 3 == 0) * (0.7 + 0.6 * random.random((64, 82)))
    scene = 0.3 * ground + furrows
    dn = np.stack([scene[:, 3 * k : 3 * k + 64] for k in (0, 1, 3, 2, 6, 4)])
    dn = (dn + 3 * random.standard_normal(dn.shape)).astype(np.float32)
    assert not defiant_pixels(dn).any()
    for name in ("CHANCE", "MOVED_CHANCE"):
        monkeypatch.setattr(f"pushframe.io.defiant.{name}", 1.0)
    assert defiant_pixels(dn).sum() > 500  # twin: each line by itself


def test_a_detector_is_looked_at_in_blocks_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer does not depend on the window; a window reaches beyond the frames."""
    dn = moving(3.0)
    dn[:, :, 20] = 20 + 4 * np.random.default_rng(1).standard_normal((9, 64))
    dn[:, 40, 50] = 0
    monkeypatch.setattr("pushframe.io.detector.BLOCK_PX", 32)
    stored = [ArrayFrame(frame, f"f{k}") for k, frame in enumerate(dn)]
    whole = Detector(stored).stuck(slice(-3, 70), slice(-5, 66))
    right = np.zeros_like(whole)
    right[3:67, 25] = right[43, 55] = True
    assert np.array_equal(whole, right)
    detector = Detector(stored)
    part = detector.stuck(slice(2, 31), slice(10, 30))
    assert np.array_equal(part, whole[5:34, 15:35])
    assert list(detector._found) == [(0, 0)]
    assert not Detector(stored, days=True).stuck(slice(0, 64), slice(0, 40)).any()  # products


def test_blocks_of_zeros_are_noted(tmp_path: Path) -> None:
    dn = frames()

    def zeros_said(**more: object) -> list[str]:
        notes = open_burst(saved(tmp_path, dn, **more)).notes
        return [note[:4] for note in notes if "exactly 0, in blocks" in note]

    assert zeros_said() == []
    dn[:, ::2, ::2] = 0  # a quarter of all pixels, and no block
    assert zeros_said() == []
    dn[:, :20, :24] = 0
    assert zeros_said() == ["9.6%"]  # 18 x 22 of 64 x 64, less a corner that looks stuck
    mask = np.ones(dn.shape, bool)
    mask[:, :20, :24] = False
    assert zeros_said(valid=mask) == []
    assert zeros_said(clean=True) == []


def test_a_burst_that_is_clean_is_taken_as_it_is(tmp_path: Path) -> None:
    dn = np.minimum(frames(), 2500)
    dn[:, :, 20] = 0
    assert not bool(read_burst(saved(tmp_path, dn)).valid.all())
    assert bool(read_burst(saved(tmp_path, dn, clean=True)).valid.all())
