"""Motion joint over a scene: the field through its windows, and tiles that make use of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from conftest import sources

from pushframe.burst import Simulated, stack
from pushframe.geometry import pixel_grid
from pushframe.infer import Reconstruction, tiled_batch
from pushframe.scene_motion import (
    SceneMotion,
    Tile,
    _share_common_gain,
    design,
    fit_scene,
    register_scene,
    spread_windows,
)
from pushframe.simulate import PRESETS, simulate_one
from pushframe.solver import Belief, Evidence, locate, measure
from pushframe.solver.bend import flow_of, smooth_basis, smooth_functions
from pushframe.solver.motion import Task
from pushframe.solver.search import Search

SHAPE = (300, 260)
FRAMES, FUNCTIONS = 5, 8
UNKNOWNS = 2 * FUNCTIONS + 1
ERROR_PX = 0.01


def grid(count: int = 4, side: int = 64) -> list[Tile]:
    starts = [[round(k * (size - side) / (count - 1)) for k in range(count)] for size in SHAPE]
    return [(slice(y, y + side), slice(x, x + side)) for y in starts[0] for x in starts[1]]


def told(
    tiles: list[Tile], coefficients: torch.Tensor, noise_px: float = ERROR_PX, seed: int = 0
) -> Evidence:
    """What windows tell of translations alone, under a field (N, 3 K), with a known error."""
    onto = design(SHAPE, tiles)[:, None]
    mean = (onto @ coefficients[..., None])[..., 0]
    draw = torch.randn(mean.shape, generator=torch.Generator().manual_seed(seed))
    chosen = [0, FUNCTIONS, 2 * FUNCTIONS]
    seen = torch.zeros_like(mean)
    seen[..., chosen] = (mean + noise_px * draw)[..., chosen]
    var = torch.full((UNKNOWNS,), 1e6, dtype=torch.float64)
    var[chosen] = ERROR_PX**2
    return Evidence(seen, torch.diag(var).expand(*mean.shape, UNKNOWNS))


def translations() -> torch.Tensor:
    """Fields (N, 3 K) of frames that are translated, the reference at rest."""
    field = torch.zeros(FRAMES, 3 * FUNCTIONS, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    shift = 2 * torch.rand(FRAMES - 1, 2, generator=generator).double() - 1
    field[1:, [0, FUNCTIONS]] = shift
    return field


def nothing_moved(tiles: list[Tile]) -> torch.Tensor:
    return torch.zeros(len(tiles), FRAMES, 2)


def test_a_tile_s_coefficients_are_those_of_the_scene_s_field() -> None:
    tile = (slice(30, 94), slice(150, 214))
    field = torch.randn(2 * FUNCTIONS, generator=torch.Generator().manual_seed(2)).double()
    own = (design(SHAPE, [tile])[0, :-1, : 2 * FUNCTIONS] @ field).unflatten(0, (2, -1))
    basis = smooth_basis((64, 64), own)
    place = pixel_grid((64, 64), own) + torch.tensor([30, 150])[:, None, None]
    unit = 2 * (place + 0.5) / torch.tensor(SHAPE)[:, None, None] - 1
    expected = torch.einsum("ck,khw->chw", field.unflatten(0, (2, -1)), smooth_functions(unit))
    size = expected.square().mean().sqrt()
    assert (flow_of(own, basis) - expected).square().mean().sqrt() < 0.02 * size
    twisted = (
        design(SHAPE, [(tile[1], tile[0])])[0, :-1, : 2 * FUNCTIONS] @ field
    )  # twin: rows, columns
    wrong = flow_of(twisted.unflatten(0, (2, -1)), basis)
    assert (wrong - expected).square().mean().sqrt() > 0.2 * size


def test_translations_of_all_windows_are_averaged() -> None:
    tiles, field = grid(), translations()
    seen = told(tiles, field)
    scene = fit_scene(SHAPE, tiles, seen, nothing_moved(tiles))
    found = scene.belief(tiles, nothing_moved(tiles)).coefficients()[..., 0]
    mean = seen.mean[..., [0, FUNCTIONS]].mean(0)  # the oracle: windows are equally good
    assert (found - mean)[:, 1:].abs().max() < 0.5 * ERROR_PX
    error = (found - field[:, [0, FUNCTIONS]])[:, 1:].square().mean().sqrt()
    assert error < 0.5 * ERROR_PX
    bend_px, error_px = map(list, zip(*scene.summary(), strict=True))
    assert max(bend_px) < ERROR_PX  # functions that the scene does not need vanish
    assert 0 < max(error_px) < ERROR_PX
    assert not scene.bends(tiles, nothing_moved(tiles))


def test_a_window_that_disagrees_has_little_say() -> None:
    tiles, field = grid(), translations()
    seen = told(tiles, field)
    seen.mean[3, 2, 0] += 1.0
    scene = fit_scene(SHAPE, tiles, seen, nothing_moved(tiles))
    assert abs(float(scene.mean[2, 0] - field[2, 0])) < ERROR_PX
    plain = float(seen.mean[:, 2, 0].mean() - field[2, 0])
    assert abs(plain) > 3 * ERROR_PX  # twin: the mean


def told_gains(tiles: list[Tile], gain: torch.Tensor) -> Evidence:
    """What windows tell of gains (T, N), to a ten-thousandth."""
    seen = told(tiles, translations())
    seen.mean[..., -1] = gain - 1
    covariance = seen.covariance.clone()
    covariance[..., -1, -1] = 1e-8
    return Evidence(seen.mean, covariance)


def believed_gains(tiles: list[Tile], gain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gains and their errors, (T, N) each, that a scene gives back to its windows."""
    scene = fit_scene(SHAPE, tiles, told_gains(tiles, gain), nothing_moved(tiles))
    belief = scene.belief(tiles, nothing_moved(tiles))
    return 1 + belief.mean[..., -1], belief.covariance[..., -1, -1].sqrt()


def test_a_gain_is_one_number_a_scene() -> None:
    """Windows that are wrong about gains in one way look like gains that slope."""
    tiles = grid()
    gain = torch.ones(len(tiles), FRAMES)
    gain[:, 2] += 0.02 + torch.linspace(-0.004, 0.004, len(tiles))
    found, error = believed_gains(tiles, gain)
    assert float((found[:, 2] - 1.02).abs().max()) < 1e-3
    assert 1.5e-3 < float(error[:, 2].min()) < 5e-3  # as windows differ
    assert float(error[:, 1].max()) < 1e-3  # each frame's is its own


def test_exposures_that_agree_with_each_other_agree_with_the_reference_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each window is wrong about all gains together, by what it does not know of the reference."""
    tiles = grid()
    wrong = 0.004 * torch.randn(len(tiles), 1, generator=torch.Generator().manual_seed(0))
    gain = (1 + wrong).expand(-1, FRAMES).clone()
    gain[:, 3] *= 1.6  # a frame of its own
    ours = [0, 1, 2, 4]
    found, error = believed_gains(tiles, gain)
    assert float((found - 1)[:, ours[1:]].abs().max()) < 4e-4
    assert float(error[:, ours[1:]].max()) < 1e-3
    assert float((found[:, 3] - 1.6).abs().max()) < 4e-3
    off, _ = believed_gains(tiles, gain - 0.01)  # the reference is brighter than it was stated
    assert float((off - 0.99)[:, ours[1:]].abs().max()) < 1.5e-3
    monkeypatch.setattr("pushframe.scene_motion._share_common_gain", lambda *_: None)  # twin
    found, error = believed_gains(tiles, gain)
    assert float(error[:, ours[1:]].min()) > 2e-3


def test_a_single_gain_has_no_spread_to_judge_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two frames the common factor is what the windows say on average."""

    def off(own: bool) -> float:
        draw, square = torch.Generator().manual_seed(0), 0.0
        for _ in range(50):
            gain = 0.01 + 0.006 * torch.randn(4, 1, generator=draw)
            if not own:
                _share_common_gain(gain, torch.full_like(gain, 0.006**2))
            square += float(gain.mean() - 0.01) ** 2
        return square

    assert off(own=False) == pytest.approx(off(own=True), rel=1e-3)
    monkeypatch.setattr("pushframe.scene_motion.LEAST_SPREAD", 0)  # twin
    assert off(own=False) > 1.02 * off(own=True)


def test_a_window_that_is_wrong_about_a_gain_has_little_say() -> None:
    tiles = grid()
    gain = torch.ones(len(tiles), FRAMES)
    gain[3, 2] = 0.7
    found, _ = believed_gains(tiles, gain)
    assert float((found - 1)[:, 1:].abs().max()) < 2e-3


def test_a_scene_is_never_less_sure_of_a_gain_than_to_a_percent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiles = grid()
    gain = torch.ones(len(tiles), FRAMES)
    gain[:, 2] += 0.05 * (-1) ** torch.arange(len(tiles))
    assert float(believed_gains(tiles, gain)[1][:, 2].max()) < 0.02
    monkeypatch.setattr("pushframe.scene_motion.MOST_LOCAL", (100.0, 100.0))  # twin
    assert float(believed_gains(tiles, gain)[1][:, 2].min()) > 0.04


@pytest.mark.parametrize("function", [1, 4])
def test_a_bend_is_followed_and_its_error_stated(function: int) -> None:
    tiles, field = grid(), translations()
    field[1:, function] = torch.linspace(-0.3, 0.3, FRAMES - 1).double()
    scene = fit_scene(SHAPE, tiles, told(tiles, field), nothing_moved(tiles))
    onto = design(SHAPE, tiles)[:, None]
    true = (onto @ field[..., None])[..., 0]
    belief = scene.belief(tiles, nothing_moved(tiles))
    off = (belief.mean - true)[:, 1:, [0, FUNCTIONS]]
    assert off.square().mean().sqrt() < ERROR_PX
    stated = belief.error_px()[:, 1:].square().mean().sqrt()
    assert 0.3 < off.square().mean().sqrt() / stated < 1.5
    assert scene.bends(tiles, nothing_moved(tiles))


def test_where_motion_is_not_smooth_tiles_are_left_to_themselves() -> None:
    tiles, field = grid(), translations()
    rough = fit_scene(SHAPE, tiles, told(tiles, field, noise_px=0.3), nothing_moved(tiles))
    belief = rough.belief(tiles, nothing_moved(tiles))
    assert belief.error_px()[:, 1:].min() > 0.15
    assert not bool(belief.sure()[:, 1:].any())
    smooth = fit_scene(SHAPE, tiles, told(tiles, field), nothing_moved(tiles))  # twin
    assert bool(smooth.belief(tiles, nothing_moved(tiles)).sure().all())


def test_whole_pixels_by_which_tiles_were_moved_come_and_go() -> None:
    tiles, field = grid(), translations()
    plain = fit_scene(SHAPE, tiles, told(tiles, field), nothing_moved(tiles))
    moved_px = torch.randint(-3, 4, (16, FRAMES, 2), generator=torch.Generator().manual_seed(3))
    moved_px = moved_px.float()
    moved_px[:, 0] = 0
    seen = told(tiles, field)
    seen.mean[..., [0, FUNCTIONS]] += moved_px
    scene = fit_scene(SHAPE, tiles, seen, moved_px)
    torch.testing.assert_close(scene.mean, plain.mean)
    here = scene.belief(tiles, moved_px).coefficients()[..., 0]
    assert (here - seen.mean[..., [0, FUNCTIONS]])[:, 1:].abs().max() < 5 * ERROR_PX
    reversed_ = fit_scene(SHAPE, tiles, seen, -moved_px)  # twin: the other sign
    assert (reversed_.mean - plain.mean).abs().max() > 0.5


def test_windows_are_few_and_reach_the_edges() -> None:
    assert len(spread_windows((120, 128))) == 1  # one tile: nothing to share
    for shape in [(129, 129), (256, 300), (100, 700), (9000, 20000)]:
        windows = spread_windows(shape)
        assert 2 <= len(windows) <= 36
        for axis, size in enumerate(shape):
            parts = {(window[axis].start, window[axis].stop) for window in windows}
            if len(parts) > 1:
                assert min(parts)[0] == 0
                assert max(parts)[1] == size


# with images


def scene_of(flat: bool, **change) -> Simulated:
    setting = dataclasses.replace(PRESETS["paper"], **({"size": 136, "frames": 6} | change))
    source = sources(setting, 1, seed=5)[0]
    if flat:  # water, but for a trace of waves
        side = source.shape[0]
        source[: side // 2, : side // 2] = 0.1 + 0.01 * source[: side // 2, : side // 2]
    return simulate_one(source, setting, 4)


def error_px(flow_px: torch.Tensor, made: Simulated) -> float:
    assert made.flow_px is not None
    return float((flow_px - made.flow_px)[:, 1:].square().mean().sqrt())


@pytest.fixture(scope="module")
def lake() -> tuple[Simulated, SceneMotion]:
    made = scene_of(flat=True)
    facts = made.burst.batched()
    tiles = [(slice(y, y + 48), slice(x, x + 48)) for y in (0, 44, 88) for x in (0, 44, 88)]
    batch = tiled_batch(made.burst, tiles, facts)
    moved_px = torch.zeros(len(tiles), made.burst.count, 2)
    return made, fit_scene(made.burst.shape, tiles, measure(batch, 2), moved_px)


def test_water_borrows_its_motion_from_the_land(lake) -> None:
    made, scene = lake
    tile = (slice(2, 50), slice(2, 50))
    water = made.burst.tile(*tile)
    belief = scene.belief([tile], torch.zeros(1, made.burst.count, 2))
    alone, shared = (locate(water, 2, motion).flow_px for motion in (None, belief))
    assert error_px(shared, made) < 0.01
    assert error_px(alone, made) > 3 * error_px(shared, made)  # twin: the tile by itself


def test_a_wrong_belief_that_is_unsure_does_no_harm(lake) -> None:
    made, scene = lake
    tile = (slice(80, 128), slice(80, 128))
    land = made.burst.tile(*tile)
    belief = scene.belief([tile], torch.zeros(1, made.burst.count, 2))
    off = belief.mean.clone()
    off[:, 1:, [0, FUNCTIONS]] += 0.4
    unsure = Belief(off, belief.covariance + torch.eye(UNKNOWNS))
    assert error_px(locate(land, 2, unsure).flow_px, made) < 0.02
    sure = Belief(off, belief.covariance)
    wrong = locate(land, 2, sure).flow_px
    wrong = wrong if wrong.ndim == 3 else wrong.mean((-1, -2))
    assert error_px(wrong, made) > 0.05  # twin: believed for sure


def test_a_scene_in_tiles_shares_its_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LARGEST_TILE_PX", 64), ("TILE_PX", 64)):
        monkeypatch.setattr(f"pushframe.seams.{name}", value)
    made = scene_of(flat=False, size=100, frames=9)
    making = Reconstruction(made.burst)
    product = making.product()
    truth = made.truth.numpy() * float(made.burst.gain[0])
    inner = (slice(8, -8), slice(8, -8))
    assert np.median(np.abs(product.mean - truth)[inner] / product.std[inner]) < 0.9
    assert isinstance(making.scene, SceneMotion)
    for row, true in zip(making.frames(), made.flow_px.tolist(), strict=True):
        assert row.shift_px == pytest.approx(true, abs=0.02)
        assert row.bend_px is not None
        assert row.bend_px < 0.02
    assert Reconstruction(made.burst, method="map").scene is None


def test_one_tile_has_no_scene() -> None:
    def cut(_: object) -> tuple:
        raise AssertionError("nothing to look at")

    assert register_scene((100, 120), cut, 2) is None


def test_windows_of_few_frames_or_of_hidden_ones_do_not_claim_to_know() -> None:
    """With fewer frames than aliases the likelihood is off by more than it states."""
    setting = dataclasses.replace(PRESETS["paper"], frames=8, size=32)
    burst = simulate_one(sources(setting, 1)[0], setting, 0).burst.batched()
    hidden = burst.valid.clone()
    hidden[:, 3, :, 8:] = False
    errors = []
    for part in (burst, burst.select(range(3)), dataclasses.replace(burst, valid=hidden)):
        var = measure(part, 2).covariance.diagonal(dim1=-2, dim2=-1)
        errors.append(var[0, :, [0, var.shape[-1] // 2]].amax(1).sqrt().tolist())
    many, few, masked = errors
    assert max(many[1:]) < 0.02
    assert min(few[1:]) > 0.09
    assert masked[3] > 0.03
    assert max(masked[1:3]) < 0.02


def test_little_is_left_to_do_where_motion_is_believed_for_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = scene_of(flat=False, size=48, frames=10)
    step, taken = Search.step, []
    monkeypatch.setattr(Search, "step", lambda self, moving: (taken.append(1), step(self, moving)))

    def located(frames: int, unsure_px: float) -> tuple[int, float]:
        burst, true_px = made.burst.select(range(frames)).batched(), made.flow_px[None, :frames]
        mean = torch.zeros(1, frames, UNKNOWNS)
        off_px = 0.005 * torch.randn(true_px.shape, generator=torch.Generator().manual_seed(0))
        off_px[:, 0] = 0
        mean[..., [0, FUNCTIONS]] = true_px + off_px
        std = torch.full((UNKNOWNS,), 1e-4)
        std[[0, FUNCTIONS]] = unsure_px
        covariance = torch.diag(std**2).expand(1, frames, -1, -1)
        taken.clear()
        flow_px = locate(burst, 2, Belief(mean, covariance)).flow_px
        started_px.append(float(off_px[:, 1:].square().mean().sqrt()))
        return len(taken), float((flow_px - true_px)[:, 1:].square().mean().sqrt())

    started_px: list[float] = []
    hurried, usual = located(10, 0.005), located(10, 0.05)
    assert hurried[0] == 4
    assert usual[0] >= 8
    assert hurried[1] < 0.6 * started_px[0]
    assert hurried[1] < 1.3 * usual[1]
    assert located(5, 0.005)[0] >= 12  # few frames take all their steps


def test_bursts_certain_and_not_are_fitted_apart() -> None:
    made = scene_of(flat=False, size=40, frames=10)
    burst, mean = stack([made.burst, made.burst, made.burst]), torch.zeros(3, 10, 3)
    mean[..., :2] = made.flow_px
    std = torch.tensor([0.005, 0.05, 0.005])
    covariance = torch.diag_embed(torch.stack([std, std, 0.01 * std], -1)[:, None] ** 2)
    belief = Belief(mean, covariance.expand(3, 10, 3, 3))
    task = Task(burst, mean[..., :2], torch.ones(3, 10, dtype=torch.bool), 2, belief=belief)
    assert task.certain().tolist() == [True, False, True]
    together = task.settled()
    for k in range(3):
        alone = task.part(torch.tensor([k])).settled()
        torch.testing.assert_close(together.flow_px[k], alone.flow_px[0], atol=1e-4, rtol=0)
    assert not torch.equal(together.flow_px[0], together.flow_px[1])
