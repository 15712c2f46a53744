"""Frames placed on the reference: georeference, RPC, image; what is left out, and why."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from earth import pushframe_frames, rpc_at, transform_at

from pushframe.align import align, common
from pushframe.align.search import masked_correlation, search
from pushframe.burst import GeoRef
from pushframe.errors import BurstError
from pushframe.io import BurstSource
from pushframe.io.frames import ArrayFrame

SHIFTS = np.array([[0, 0], [121.3, -31.6], [-90.2, 44.1], [56.7, 5.3], [-48.1, -20.9]])
SIZE = (300, 320)


@pytest.fixture(scope="module")
def frames():
    return pushframe_frames(SIZE, SHIFTS, noise_dn=8)[0].astype(np.float32)


def placed(kind, shift, error=0.0):
    if kind == "transform":
        return GeoRef("here", tuple(transform_at(np.asarray(shift) + error))[:6])
    return GeoRef(rpc=rpc_at(np.asarray(shift) + error)) if kind == "rpc" else None


def source(frames, kind=None, shifts=SHIFTS, errors=None, **rest):
    errors = np.zeros((len(frames), 2)) if errors is None else errors
    made = tuple(
        ArrayFrame(frame, f"f{k}", placed(kind, shift, error))
        for k, (frame, shift, error) in enumerate(zip(frames, shifts, errors, strict=True))
    )
    return BurstSource(made, np.ones(len(made)), {"white_level": 3400.0}, **rest)


def offsets(table):
    return np.array([line.offset_px for line in table])


@pytest.mark.parametrize("kind", [None, "transform", "rpc"])
def test_frames_a_hundred_pixels_apart_are_placed(frames, kind):
    aligned = align(source(frames, kind))
    # the ground of a reference pixel lies earlier in a frame that begins later
    assert np.abs(offsets(aligned.table) + SHIFTS).max() < 0.05
    assert np.abs(offsets(aligned.table) - SHIFTS).max() > 50  # the other reading of the sign
    for line, shift in zip(aligned.table[1:], SHIFTS[1:], strict=True):
        assert line.used
        assert line.residual_px < 0.05
        assert line.correlation > 0.95
        assert line.windows[0] == line.windows[1] > 0
        if kind is None:
            assert line.predicted_px is None
        else:
            assert line.predicted_px == pytest.approx(tuple(-shift), abs=0.01)
    said = any("without a DEM, at the height 240 m" in note for note in aligned.source.notes)
    assert said == (kind == "rpc")


def test_what_is_left_is_below_a_pixel(frames):
    aligned = align(source(frames)).source
    tile = aligned.tile(slice(130, 190), slice(100, 200))
    assert tile.valid.float().mean() > 0.99
    from pushframe.registration import register

    left = register(tile)[0].numpy()
    assert np.abs(left).max() <= 0.55
    want = SHIFTS + np.rint(-SHIFTS)
    np.testing.assert_allclose(left, want, atol=0.08)
    # raw pixels, never resampled
    rows, columns = 130 + round(-121.3), 100 + round(31.6)
    window = frames[1, rows : rows + 60, columns : columns + 100]
    assert torch.equal(tile.frames[0, 1], torch.from_numpy(window) / 3400)


def test_a_georeference_that_is_off_is_mended_by_the_image(frames):
    errors = np.array([[0, 0], [20, -14], [-25, 9], [4, 27], [-11, -18]])
    table = align(source(frames, "transform", errors=errors)).table
    assert np.abs(offsets(table) + SHIFTS).max() < 0.05
    predicted = np.array([line.predicted_px for line in table[1:]])
    np.testing.assert_allclose(predicted, -(SHIFTS + errors)[1:], atol=1e-6)


def test_the_reference_may_be_any_frame(frames):
    opened = dataclasses.replace(source(frames, "transform"), reference=2)
    aligned = align(opened)
    assert [line.frame for line in aligned.table] == ["f2", "f0", "f1", "f3", "f4"]
    relative = SHIFTS[[2, 0, 1, 3, 4]] - SHIFTS[2]
    assert np.abs(offsets(aligned.table) + relative).max() < 0.05
    assert aligned.source.georef == opened.georef


def test_an_affine_frame_is_followed_across_the_image():
    wide, _ = pushframe_frames((400, 420), np.array([[0, 0], [9, -6]]), seed=2)
    turn = np.array([[1.0, 0.012], [-0.012, 1.0]])
    grid = np.stack(np.meshgrid(np.arange(400.0), np.arange(420.0), indexing="ij"))
    centre = np.array([199.5, 209.5])[:, None, None]
    from pushframe.geometry import sample_at

    # frame(x) = reference(turn (x - centre) + centre)
    moved = np.einsum("ij,jyx->iyx", turn, grid - centre) + centre
    reference = torch.from_numpy(wide[0].astype(np.float32))
    turned = sample_at(reference[None], torch.from_numpy(moved).float()[None])[0].numpy()
    aligned = align(source([wide[0], turned], shifts=SHIFTS[:2]))
    place = aligned.source.placements[1]
    np.testing.assert_allclose(place.matrix, np.linalg.inv(turn), atol=1e-3)
    assert place.offset_px(slice(20, 60), slice(190, 230)) == (0, -2)
    assert place.offset_px(slice(340, 380), slice(190, 230)) == (0, 2)


def test_clouds_and_other_places_are_left_out_and_said(frames):
    cloud = frames[1].copy()
    cloud[:, 60:] = 3000 + np.random.default_rng(0).normal(0, 8, cloud[:, 60:].shape)
    other = pushframe_frames(SIZE, SHIFTS[:1], seed=9)[0][0]
    burst = [frames[0], cloud, frames[2], other, frames[4]]
    shifts = SHIFTS[[0, 1, 2, 0, 4]]
    aligned = align(source(burst, "transform", shifts=shifts))
    assert [line.used for line in aligned.table] == [True, False, True, False, True]
    assert aligned.source.names == ("f0", "f2", "f4")
    for name in ("f1", "f3"):
        said = [note for note in aligned.source.notes if note.startswith(f"{name} was left out")]
        assert len(said) == 1
        assert "clouded, or of another place" in said[0]
    # some cloud is no reason: most of the frame agrees
    partly = frames[2].copy()
    partly[:90, :90] = 3000
    assert align(source([frames[0], partly], shifts=SHIFTS[[0, 2]])).table[1].used


def clouded(frames, index, rows=200):
    """A bright bank of cloud over the first rows of a frame."""
    harmed = frames.copy()
    cloud = np.random.default_rng(1).normal(2800, 40, frames.shape[1:])
    harmed[index, :rows] = cloud[:rows]
    return harmed


@pytest.mark.parametrize("rows", [200, 300])
def test_a_clouded_reference_gives_way(frames, rows):
    aligned = align(source(clouded(frames, 0, rows)))
    assert aligned.source.names[0] == aligned.table[0].frame != "f0"
    said = [note for note in aligned.source.notes if "is the reference instead" in note]
    assert len(said) == 1
    assert said[0].startswith("The reference f0 disagrees with the other frames")
    assert aligned.table[0].frame in said[0]
    assert all(line.used for line in aligned.table if line.frame != "f0")


def test_a_clouded_reference_that_was_chosen_is_refused(frames):
    with pytest.raises(BurstError, match=r"got f0, which is clouded .* such as f[1-4]"):
        align(source(clouded(frames, 0), chosen=True))


@pytest.mark.parametrize("frame", [None, 2])
def test_a_good_reference_stays(frames, frame):
    harmed = frames if frame is None else clouded(frames, frame)
    assert align(source(harmed)).source.names[0] == "f0"


def test_frames_that_all_disagree_blame_no_reference(frames):
    turns = [np.s_[:, :], np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-1]]
    alien = np.stack([frame[turn] for frame, turn in zip(frames, turns, strict=False)])
    with pytest.raises(BurstError, match="show the ground of the reference"):
        align(source(alien, shifts=SHIFTS[:4]))


def test_brightness_over_what_exposures_say(frames):
    harmed = frames.copy()
    harmed[3] *= 1.4
    gains = [line.gain for line in align(source(harmed)).table]
    assert gains[0] is None
    np.testing.assert_allclose(gains[1:], [1, 1, 1.4, 1], atol=0.02)


def test_faint_windows_have_no_say_in_what_is_clouded(frames):
    sea = frames.copy()
    rng = np.random.default_rng(1)
    for frame, shift in zip(sea, SHIFTS, strict=True):
        edge = int(max(0, 170 - shift[1]))
        frame[:, edge:] = 600 + rng.normal(0, 8, frame[:, edge:].shape)
    aligned = align(source(sea, "transform"))
    assert all(line.used for line in aligned.table)


def test_no_overlap(frames):
    apart = SHIFTS + np.array([[0, 0], [0, 900], [0, 0], [0, 0], [0, 0]])
    aligned = align(source(frames, "transform", shifts=apart))
    assert [line.used for line in aligned.table] == [True, False, True, True, True]
    assert aligned.table[1].why == "no overlap with the reference"
    everywhere = SHIFTS + 2000 * np.arange(5)[:, None]
    with pytest.raises(BurstError, match=r"ground of the reference, got f1: no overlap.*choose"):
        align(source(frames, "transform", shifts=everywhere))


def test_other_pixels_by_rpc_are_refused(frames):
    opened = source(frames[:2], "rpc", shifts=SHIFTS[:2])
    coarse = dict(opened.frames[1].georef.rpc)
    coarse |= {"LINE_SCALE": 1024.0, "SAMP_SCALE": 1024.0}
    wrong = dataclasses.replace(opened.frames[1], georef=GeoRef(rpc=coarse))
    with pytest.raises(BurstError, match=r"one pixel size.*frame 1 \(f1\).*never resampled"):
        align(dataclasses.replace(opened, frames=(opened.frames[0], wrong)))


@pytest.mark.parametrize(
    ("index", "change", "said"),
    [
        (0, {"HEIGHT_OFF": None}, r"whole RPC in frame 0 \(f0\).*HEIGHT_OFF"),
        (1, {"LINE_OFF": None}, r"whole RPC in frame 1 \(f1\).*LINE_OFF"),
        (1, {"SAMP_NUM_COEFF": (1.0,)}, r"whole RPC in frame 1 \(f1\).*SAMP_NUM_COEFF"),
        (0, {"LINE_NUM_COEFF": (0.0,) * 20}, r"lead from the reference to frame 1 \(f1\)"),
        (1, {"LINE_DEN_COEFF": (0.0,) * 20}, r"lead from the reference to frame 1 \(f1\)"),
    ],
)
def test_rpc_that_cannot_be_followed_are_named_with_their_frame(frames, index, change, said):
    opened = source(frames[:2], "rpc", shifts=SHIFTS[:2])
    spoilt = dict(opened.frames[index].georef.rpc) | change
    spoilt = {key: value for key, value in spoilt.items() if value is not None}
    made = list(opened.frames)
    made[index] = dataclasses.replace(made[index], georef=GeoRef(rpc=spoilt))
    with pytest.raises(BurstError, match=said):
        align(dataclasses.replace(opened, frames=tuple(made)))


def test_the_common_area_is_covered_by_all(frames):
    aligned = align(source(frames, "transform")).source
    part = common(aligned)
    assert bool(part.read().valid.all())
    height, width = part.shape
    assert height >= 300 - 122 - 91
    assert width >= 320 - 32 - 45
    # one line more would not be covered
    (rows, columns) = part.window
    wider = aligned.tile(slice(rows.start - 3, rows.stop), columns)
    assert not bool(wider.valid.all())
    alone = align(source(frames[:1], shifts=SHIFTS[:1])).source
    assert common(alone).shape == SIZE


def test_a_window_of_a_burst_stays_where_it_was(frames):
    part = source(frames, "transform").crop(slice(120, 200), slice(40, 200))
    aligned = align(part).source
    assert aligned.shape == (80, 160)
    assert torch.equal(
        aligned.read().frames,
        align(source(frames, "transform")).source.tile(slice(120, 200), slice(40, 200)).frames[0],
    )


def test_correlation_of_every_offset_is_that_of_the_definition():
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=(9, 11)), rng.normal(size=(9, 11))
    one[2:4, 3] = np.nan
    other[5, 5:8] = np.nan
    correlation, count = masked_correlation(one, other)
    for down, right in [(0, 0), (2, -3), (-4, 1), (5, 6)]:
        rows = slice(max(0, down), 9 + min(0, down)), slice(max(0, -down), 9 + min(0, -down))
        cols = slice(max(0, right), 11 + min(0, right)), slice(max(0, -right), 11 + min(0, -right))
        a, b = one[rows[0], cols[0]], other[rows[1], cols[1]]
        both = ~np.isnan(a) & ~np.isnan(b)
        assert count[down, right] == both.sum()
        assert correlation[down, right] == pytest.approx(np.corrcoef(a[both], b[both])[0, 1])


def test_a_search_without_a_clue(frames):
    (found,) = search(source(frames), [1])
    assert np.abs(np.array(found.shift_px) + SHIFTS[1]).max() <= 1.0
    masks = tuple(ArrayFrame(np.ones(SIZE, np.uint8), f"m{k}") for k in range(5))
    hidden = np.ones(SIZE, np.uint8)
    hidden[:, 200:] = 0
    masked = source(frames, masks=(masks[0], ArrayFrame(hidden, "m1"), *masks[2:]))
    assert np.abs(np.array(search(masked, [1])[0].shift_px) + SHIFTS[1]).max() <= 1.0
