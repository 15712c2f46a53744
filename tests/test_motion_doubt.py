"""How far off motion and gains may be: from the fits to what a network is handed."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Burst, stack
from pushframe.geometry import flow_field
from pushframe.model import Motion, estimate_motion
from pushframe.model.on_solver import evidence
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver import locate, locate_translations, solve
from pushframe.solver.bend import smooth_basis
from pushframe.solver.image import reconstruct
from pushframe.solver.search import Search
from pushframe.solver.space import fit_in_space
from pushframe.solver.spectrum import spectrum_of_burst
from pushframe.solver.variance import alignment_variance

FRAMES, SIZE = 8, 32


def simulated(preset: str = "paper", **change: object) -> Burst:
    setting = with_options(PRESETS[preset], size=SIZE, frames=FRAMES)
    setting = dataclasses.replace(setting, **change)
    return simulate(sources(setting, 1), setting, torch.Generator().manual_seed(1)).burst


@pytest.fixture(scope="module")
def several() -> Burst:
    """One whole, one with holes, one that bends: three ways to a covariance."""
    whole, bent = simulated(), simulated(motion="drift", bend_px=0.4)
    valid = whole.valid.clone()
    valid[:, 1::2, 10:15, 10:15] = False
    return stack([whole, dataclasses.replace(whole, valid=valid), bent])


def test_each_burst_has_its_own_covariance(several: Burst) -> None:
    together = locate(several, 2).covariance
    for k in range(3):
        alone = locate(several.part(torch.tensor([k])), 2).covariance[0]
        torch.testing.assert_close(together[k], alone, rtol=0.02, atol=1e-9)
        assert not alone[:3].any()  # the reference is where it is
        torch.testing.assert_close(alone, alone.mT, rtol=1e-3, atol=1e-9)
        assert float(torch.linalg.eigvalsh(alone.double()).min()) > -1e-8


def test_bars_of_masked_bursts_do_not_depend_on_their_batch(several: Burst) -> None:
    holed = several.part(torch.tensor([1]))
    other = dataclasses.replace(holed, frames=holed.frames.flip(-1), valid=holed.valid.flip(-1))
    together, alone = solve(stack([other, holed]), 2), solve(holed, 2)
    assert float((together.flow_px[1] - alone.flow_px[0]).abs().max()) < 1e-3
    # rounding may end conjugate gradients a step later, which single pixels show
    ratio = (together.posterior.var[1] / alone.posterior.var[0]).log().abs()
    assert float(ratio.median()) < 0.02


def test_translations_come_with_their_covariance(several: Burst) -> None:
    whole = several.part(torch.tensor([0]))
    rough, fast, slow = (
        found.covariance.diagonal(dim1=1, dim2=2)[:, 3:]
        for found in (
            locate_translations(whole, 2, unbiased=False),
            locate_translations(whole, 2),
            locate(whole, 2),
        )
    )
    assert float(slow.min()) > 0
    assert torch.equal(fast, slow)
    ratio = (rough / slow).log()  # what windows do to the frames is left in them, as noise
    assert 0 < float(ratio.mean()) < 0.8


def test_a_frame_that_was_left_out_has_none(several: Burst) -> None:
    holed = several.part(torch.tensor([1]))
    other = simulated("affine").frames
    frames = holed.frames.clone()
    frames[:, 4] = other[:, 4].flip(-1)
    found = locate(dataclasses.replace(holed, frames=frames), 2)
    assert not found.used[:, 4].any()
    assert not found.covariance[:, 12:15].any()
    assert found.covariance[:, 15:, 15:].diagonal(dim1=1, dim2=2).all()


def test_motion_that_is_known_has_none_but_for_gains(several: Burst) -> None:
    holed = several.part(torch.tensor([1]))
    start = locate_translations(several.part(torch.tensor([0])), 2).flow_px
    basis = smooth_basis((SIZE, SIZE), holed.frames)[:1]
    kept = torch.ones(1, FRAMES, dtype=torch.bool)
    var = fit_in_space(holed, kept, start, 2, basis, moving=False).covariance
    var = var.diagonal(dim1=1, dim2=2).unflatten(1, (-1, 3))
    assert not var[..., :2].any()
    assert (var[:, 1:, 2] > 0).all()


def test_the_axis_that_the_scene_shows_is_the_one_that_is_known() -> None:
    """Furrows along y tell of shifts along x and little of those along y, also in a bent fit."""
    setting = with_options(PRESETS["paper"], size=SIZE, frames=FRAMES)
    side = setting.source_size
    faint = torch.rand(side, side, generator=torch.Generator().manual_seed(1))
    scene = (0.3 + 0.1 * torch.sin(torch.arange(side) / 2) + 0.02 * faint)[None]
    burst = simulate(scene, setting, torch.Generator().manual_seed(1)).burst
    start, kept = locate(burst, 2).flow_px, torch.ones(1, FRAMES, dtype=torch.bool)
    start = start if start.ndim == 3 else start.mean((-1, -2))
    basis = smooth_basis((SIZE, SIZE), burst.frames)
    for functions in (1, len(basis)):
        var = fit_in_space(burst, kept, start, 2, basis[:functions]).covariance
        down, right, _ = var.diagonal(dim1=1, dim2=2).unflatten(1, (-1, 3))[0, 1:].mean(0)
        assert float(right) < 0.2 * float(down)


def test_a_flow_that_is_everywhere_the_same_is_a_translation(several: Burst) -> None:
    """Its errors do the same to the image; those of frames all in one place do something else."""
    whole = several.part(torch.tensor([0]))
    used, motion = estimate_motion(whole, 2)
    assert motion.covariance is not None

    def answers(flow_px: torch.Tensor) -> torch.Tensor:
        knots = spectrum_of_burst(used, used.valid, flow_px, motion.gain, 2)
        made = reconstruct(used, used.valid, flow_px, motion.gain, knots, 2)
        return alignment_variance(made, motion.covariance)[:, 8:-8, 8:-8].mean()

    moved, field = answers(motion.flow_px), answers(flow_field(motion.flow_px, (SIZE, SIZE)))
    still = answers(flow_field(0 * motion.flow_px, (SIZE, SIZE)))
    assert abs(float((field / moved).log())) < 0.1
    assert abs(float((still / moved).log())) > 0.3


def test_the_reference_leaves_with_its_rows() -> None:
    square = torch.arange(144.0).view(1, 12, 12)
    motion = Motion(torch.rand(1, 4, 2), torch.rand(1, 4), square)
    rest = motion.without_reference()
    assert torch.equal(rest.covariance, square[:, 3:, 3:])
    assert torch.equal(rest.flow_px, motion.flow_px[:, 1:])


def test_bursts_on_a_finer_grid_keep_their_covariance() -> None:
    """One of two bursts is solved on a finer grid; each is handed what it has alone."""
    sharp = simulated("continuous", psf_hpx=0.45)
    batch = stack([simulated(), sharp])
    used, motion = estimate_motion(batch, 2)
    assert motion.covariance is not None
    given = evidence(used, motion, 2)
    for k in (0, 1):
        row = torch.tensor([k])
        one = Motion(motion.flow_px[row], motion.gain[row], motion.covariance[row])
        alone = evidence(used.part(row), one, 2)
        assert float((alone.var / given.var[row]).log().abs().max()) < 0.05


def test_the_level_is_that_of_frames_without_their_gains(several: Burst) -> None:
    whole = several.part(torch.tensor([0]))
    gain = 1 + 0.02 * torch.arange(FRAMES)[None] / FRAMES
    kept = torch.ones(1, FRAMES, dtype=torch.bool)
    brighter = dataclasses.replace(whole, frames=whole.frames * gain[..., None, None])
    flow_px = torch.zeros(1, FRAMES, 2)
    told = Search(brighter, flow_px, kept, 2, gain=gain).level
    plain = Search(whole, flow_px, kept, 2).level
    torch.testing.assert_close(told, plain, rtol=1e-3, atol=0)
    assert float((Search(brighter, flow_px, kept, 2).level / plain - 1).abs()) > 5e-3
