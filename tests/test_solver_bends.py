"""The solver where Fourier space does not serve: motion that bends, known flows, masks."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from conftest import sources

from pushframe import Burst
from pushframe.burst import Simulated, stack
from pushframe.geometry import flow_field
from pushframe.posterior import Posterior
from pushframe.registration import masked_match, phase_correlation, register
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, Simulation, simulate
from pushframe.solver import joint as joint_module
from pushframe.solver import locate, lost, pieces, solve
from pushframe.solver.begin import begin
from pushframe.solver.belief import Belief
from pushframe.solver.bend import (
    all_bending,
    bending,
    flow_of,
    lucas_kanade_bent,
    smooth_basis,
)
from pushframe.solver.image import Reconstruction, reconstruct
from pushframe.solver.joint import FINE, LOOSE, Joint
from pushframe.solver.motion import Task
from pushframe.solver.outliers import cut_pixels
from pushframe.solver.peaks import fit_motion
from pushframe.solver.piece import merged
from pushframe.solver.space import fit_in_space
from pushframe.solver.spectrum import spectrum_of_burst
from pushframe.solver.variance import bent_variance

PAPER = PRESETS["paper"]
SHAPE = (32, 32)


def made(setting: Simulation = PAPER, count: int = 1, seed: int = 0, **change) -> Simulated:
    change = {"size": SHAPE[0], "frames": 10, "bend_px": 0.4} | change
    setting = dataclasses.replace(setting, **change)
    return simulate(sources(setting, count), setting, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def drift() -> Simulated:
    return made(motion="drift")


@pytest.fixture(scope="module")
def drift_solved(drift: Simulated):
    return solve(drift.burst, 2)


def rmse(flow: torch.Tensor, true: torch.Tensor) -> float:
    wide = [x if x.ndim == 5 else x[..., None, None] for x in (flow, true)]
    return float((wide[0] - wide[1])[:, 1:].square().mean().sqrt())


def mean_z2(posterior, truth: torch.Tensor) -> float:
    z2 = (posterior.mean - truth) ** 2 / posterior.var
    return float(z2[:, 8:-8, 8:-8].mean())


def psnr(mean: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * torch.log10((mean - truth)[..., 8:-8, 8:-8].square().mean((-1, -2))).mean())


def as_translations(burst: Burst) -> Reconstruction:
    """The reconstruction that `bending` judges."""
    burst, kept, start_px, _ = begin(burst)
    fit = fit_motion(burst, start_px, kept, 2)
    good = burst.valid & ~fit.outlier & fit.kept[..., None, None]
    return reconstruct(burst, good, fit.flow_px, fit.gain, fit.knots, 2)


def holes(burst: Burst, share: float = 0.1, seed: int = 0) -> Burst:
    """A square hole elsewhere in each frame, of some share of it."""
    side = round((share * burst.shape[0] * burst.shape[1]) ** 0.5)
    valid = burst.valid.clone()
    corner = torch.randint(
        0, burst.shape[0] - side, (burst.count, 2), generator=torch.Generator().manual_seed(seed)
    )
    for frame, (y, x) in enumerate(corner.tolist()):
        valid[:, frame, y : y + side, x : x + side] = False
    return dataclasses.replace(burst, valid=valid, frames=burst.frames.masked_fill(~valid, 0.0))


# what flows are made of


def test_the_basis_is_orthogonal_and_begins_with_the_constant() -> None:
    basis = smooth_basis((24, 36), torch.zeros(1))
    gram = basis.flatten(1) @ basis.flatten(1).mT / (24 * 36)
    torch.testing.assert_close(gram, torch.eye(len(basis)), atol=1e-5, rtol=0)
    torch.testing.assert_close(basis[0], torch.ones(24, 36))


@pytest.mark.parametrize("motion", ["affine", "drift"])
def test_the_basis_holds_the_motions_that_are_simulated(motion: str) -> None:
    flow = made(motion=motion).flow_px
    basis = smooth_basis(SHAPE, flow)
    theta = torch.einsum("bnchw,khw->bnck", flow, basis) / (SHAPE[0] * SHAPE[1])
    assert (flow_of(theta, basis) - flow).abs().max() < 0.02
    alone = flow_of(theta[..., :1], basis[:1])[..., None, None]
    assert (alone - flow).abs().max() > 0.2  # twin: translations do not hold them


# whether a burst needs them


@pytest.mark.parametrize(
    ("setting", "change", "expected"),
    [
        ("paper", {"motion": "drift", "bend_px": 0.5}, True),
        ("paper", {"motion": "drift", "bend_px": 0.1, "size": 48}, True),
        ("paper", {"motion": "affine", "bend_px": 0.3}, True),
        ("paper", {"frames": 15}, False),
        ("paper", {"frames": 5}, False),
        ("continuous", {"psf_hpx": 0.5}, False),
        ("affine", {}, False),
    ],
)
def test_bends_are_told_from_translations(setting: str, change: dict, expected: bool) -> None:
    batch = made(PRESETS[setting], count=2, seed=1, **change)
    assert bending(as_translations(batch.burst)).tolist() == [expected, expected]


# flows estimated


def test_one_frame_that_is_off_is_no_bend() -> None:
    flat = as_translations(made(frames=10).burst)
    basis = smooth_basis(SHAPE, flat.residual)
    bent = flat.residual + 0.5 * flat.problem.model.slopes(flat.image)[0] * basis[1]
    one, most = (
        flat._replace(residual=torch.where(off[:, None, None], bent, flat.residual))
        for off in (torch.arange(10) == 3, torch.arange(10) > 2)
    )
    shifted = flat._replace(residual=flat.residual + 0.5 * flat.problem.model.slopes(flat.image)[0])
    assert not bool(bending(shifted))  # off, and not bent
    assert [bool(bending(image)) for image in (flat, one, most)] == [False, True, True]
    assert [bool(all_bending(image)) for image in (flat, one, most)] == [False, False, True]


def test_where_motion_bends_no_other_translations_are_looked_for(
    drift: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    monkeypatch.setattr(
        lost, "highest_peak", lambda task, fit: looked.append(len(task.kept)) or fit
    )
    burst, kept, start_px, _ = begin(drift.burst)
    monkeypatch.setattr(lost, "held_down", lambda _, fit: torch.ones_like(fit.kept[:, 0]))
    assert bool(lost.fit_translations(burst, start_px, kept, 2).bent)
    assert not looked
    monkeypatch.setattr(lost, "all_bending", lambda _: torch.zeros(1, dtype=torch.bool))
    lost.fit_translations(burst, start_px, kept, 2)
    assert looked  # twin


def test_few_bent_frames_do_not_hide_on_a_finer_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for anything there."""
    setting = dataclasses.replace(PAPER, frames=8, size=48, motion="drift")
    side = setting.source_size
    scenes = torch.stack([torch.from_numpy(procedural_scene((side, side), k)) for k in range(3)])
    batch = simulate(scenes / setting.white_level, setting, torch.Generator().manual_seed(1))
    burst, truth = batch.burst.part(torch.tensor([1])), batch.truth[1:2]
    found = solve(burst, 2)
    assert found.flow_px.ndim == 5
    assert psnr(found.posterior.mean, truth) > 56
    monkeypatch.setattr(lost, "all_bending", lambda _: torch.zeros(1, dtype=torch.bool))
    assert psnr(solve(burst, 2).posterior.mean, truth) < 40  # twin


def test_what_is_believed_to_bend_begins_in_space(
    drift: Simulated, drift_solved, monkeypatch: pytest.MonkeyPatch
) -> None:
    basis = smooth_basis(SHAPE, drift.flow_px)
    theta = (drift.flow_px[..., None, :, :] * basis).mean((-1, -2))
    mean = torch.cat([theta.flatten(2), torch.zeros(1, 10, 1)], 2)
    count = mean.shape[-1]
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(0))
    mean[:, 1:, :-1] += 0.01 * noise[:, 1:, :-1]
    sure, unsure = (
        Belief(mean, var * torch.eye(count).expand(1, 10, count, count)) for var in (1e-4, 1.0)
    )
    asked = []
    fit = pieces.fit_translations
    monkeypatch.setattr(pieces, "fit_translations", lambda *given: asked.append(1) or fit(*given))
    solved = solve(drift.burst, 2, sure)
    assert not asked
    assert rmse(solved.flow_px, drift.flow_px) < 0.01  # believed to 0.03
    ends = [psnr(one.posterior.mean, drift.truth) for one in (solved, drift_solved)]
    assert ends[0] > ends[1] - 0.1
    solve(drift.burst, 2, unsure)
    assert asked  # twin


def test_flows_nearly_the_same_are_not_compared_closely(
    drift: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    basis = smooth_basis(SHAPE, drift.flow_px)
    theta = (drift.flow_px[..., None, :, :] * basis).mean((-1, -2))
    joint = Joint(drift.burst, torch.ones(1, 10, dtype=torch.bool), theta, basis, 2)
    joint.look()
    joint.learn_prior()
    tolerances = []
    energies = Joint._energies

    def seen(self: Joint, thetas: torch.Tensor, tolerance: float):
        tolerances.append(tolerance)
        return energies(self, thetas, tolerance)

    monkeypatch.setattr(Joint, "_energies", seen)
    joint.theta = nearly = theta + 0.002 * (torch.arange(10) > 0)[:, None, None]
    joint.keep_the_best(theta)
    assert tolerances == [LOOSE]
    assert torch.equal(joint.theta, nearly)
    monkeypatch.setattr(joint_module, "SAME_PX", 0.0)
    joint.keep_the_best(theta)
    assert tolerances == [LOOSE, LOOSE, FINE]  # twin
    assert torch.equal(joint.theta, theta)


def test_drift_is_registered_and_reconstructed(drift: Simulated, drift_solved) -> None:
    found = rmse(drift_solved.flow_px, drift.flow_px)
    basis = smooth_basis(SHAPE, drift.flow_px)
    start = flow_of(lucas_kanade_bent(drift.burst, register(drift.burst), basis), basis)
    assert found < 0.02
    assert found < 0.5 * rmse(start, drift.flow_px)
    assert rmse(register(drift.burst), drift.flow_px) > 0.1  # twin: translations alone
    assert bool((drift_solved.flow_px[:, 0] == 0).all())
    known = psnr(solve(drift.burst, 2, drift.flow_px).posterior.mean, drift.truth)
    assert psnr(drift_solved.posterior.mean, drift.truth) > known - 2.5


def test_the_error_bars_of_drift_are_honest(drift: Simulated, drift_solved) -> None:
    assert 0.6 < mean_z2(drift_solved.posterior, drift.truth) < 1.6


def test_affine_motion_is_registered() -> None:
    batch = made(motion="affine", bend_px=0.3, frames=8, size=24)
    assert rmse(locate(batch.burst, 2).flow_px, batch.flow_px) < 0.03
    assert rmse(register(batch.burst), batch.flow_px) > 0.1  # twin: translations alone


def test_a_batch_of_several_kinds_is_solved_as_each_alone(drift: Simulated, drift_solved) -> None:
    """Bending, plain and masked bursts in one batch; and `locate` finds what `solve` does."""
    plain, masked = made(seed=3).burst, holes(made(seed=4).burst)
    batch = stack([masked, drift.burst, plain])
    mixed, located = solve(batch, 2), locate(batch, 2)
    torch.testing.assert_close(located.flow_px, mixed.flow_px)
    torch.testing.assert_close(located.gain, mixed.gain)
    assert torch.equal(located.used, mixed.used)
    alone = [solve(masked, 2), drift_solved, solve(plain, 2)]
    for k, one in enumerate(alone):
        flow = flow_field(one.flow_px, SHAPE)[0]
        torch.testing.assert_close(mixed.flow_px[k], flow, atol=3e-3, rtol=0)
        torch.testing.assert_close(mixed.gain[k], one.gain[0], atol=1e-3, rtol=0)
        assert torch.equal(mixed.kept[k], one.kept[0])
        assert psnr(mixed.posterior.mean[k], one.posterior.mean[0]) > 55
        other = flow_field(alone[k - 1].flow_px, SHAPE)[0]
        assert (mixed.flow_px[k] - other).abs().max() > 0.1  # twin: another burst of the batch


# flows known


def test_known_flows_give_calibrated_bars(drift: Simulated) -> None:
    solution = solve(drift.burst, 2, drift.flow_px)
    assert torch.equal(solution.flow_px, drift.flow_px)
    assert 0.7 < mean_z2(solution.posterior, drift.truth) < 1.3
    wrong = solve(drift.burst, 2, -drift.flow_px)
    assert psnr(wrong.posterior.mean, drift.truth) < 35  # twin: flow the other way
    assert psnr(solution.posterior.mean, drift.truth) > 42


def test_the_spectrum_in_space_is_that_of_fourier_space() -> None:
    plain = made(size=48, seed=2)
    kept = torch.ones(1, 10, dtype=torch.bool)
    fit = Task(plain.burst, plain.flow_px, kept, 2, moving=False).settled()
    knots = spectrum_of_burst(plain.burst, plain.burst.valid, plain.flow_px, fit.gain, 2)
    middle = slice(8, 18)  # few frequencies lie around the outer knots
    assert (knots - fit.knots)[:, middle].abs().max() < 0.7
    assert (knots - fit.knots)[:, middle].abs().mean() < 0.3


# masks


def test_masked_frames_keep_their_motion_and_gains() -> None:
    whole = made(exposure_error=0.01, seed=5, size=40)
    masked = holes(whole.burst, 0.05)
    solution = solve(masked, 2)
    assert solution.flow_px.ndim == 3  # holes are no bends
    assert rmse(solution.flow_px, whole.flow_px) < 0.01
    torch.testing.assert_close(solution.gain, solve(whole.burst, 2).gain, atol=4e-3, rtol=0)
    assert float((solution.gain - 1).abs().max()) > 0.01  # twin: exposures taken at their word
    held = solve(masked, 2, whole.flow_px)
    assert torch.equal(held.flow_px, whole.flow_px)
    torch.testing.assert_close(held.gain, solution.gain, atol=4e-3, rtol=0)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_few_masked_frames_are_solved(frames: int) -> None:
    few = made(frames=frames, size=24)
    posterior = solve(holes(few.burst, 0.05), 2).posterior
    known = torch.isfinite(posterior.mean)
    assert float(known.float().mean()) > 0.9
    assert bool((posterior.var[known] > 0).all())


def test_bars_know_where_masks_took_a_whole_sub_grid() -> None:
    """Three frames of ten are masked where they alone show a sub-grid."""
    whole = made(exposure_error=0.01, seed=5, size=40)
    masked = holes(whole.burst, 0.15)
    solution = solve(masked, 2)
    assert psnr(solution.posterior.mean, whole.truth) < 50  # 57 unmasked
    assert mean_z2(solution.posterior, whole.truth) < 2
    kept = torch.ones(1, 10, dtype=torch.bool)
    basis = smooth_basis(masked.shape, masked.frames)[:1]
    fit = fit_in_space(masked, kept, whole.flow_px, 2, basis, moving=False)
    made_by = reconstruct(masked, fit.good, fit.flow_px, fit.gain, fit.knots, 2)
    blind = Posterior(made_by.mean, bent_variance(made_by, fit.doubt()[0], torch.ones(1)))
    assert mean_z2(blind, whole.truth) > 5  # twin: by the number of samples alone


def test_a_much_masked_reference_is_found_through_the_others() -> None:
    batch = made(size=48, seed=6)
    valid = batch.burst.valid.clone()
    valid[:, 0, :, 16:] = False
    valid[:, 3, 20:] = False
    burst = dataclasses.replace(batch.burst, valid=valid)
    assert rmse(register(burst), batch.flow_px) < 0.2
    order = [1, 0, *range(2, 10)]
    moved = burst.select(order)
    true = batch.flow_px[:, order] - batch.flow_px[:, 1:2]
    whole = masked_match(moved)
    assert (whole - true).abs().max() < 1
    naive = phase_correlation(moved)
    assert (naive - true).abs().max() > 1  # twin: masks are edges


def test_pixels_that_only_dark_noise_kept_are_cut_by_what_is_expected_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    clean = torch.linspace(0, 1, 4096).view(1, 1, 64, 64)
    noisy = clean + 0.02 * torch.randn(clean.shape, generator=generator)
    valid = noisy < 0.7
    std = torch.full_like(clean, 0.02)
    good = valid & ~cut_pixels(noisy, valid, clean, std)
    bright = clean > 0.6
    bias = float((noisy - clean)[good & bright].mean())
    assert abs(bias) < 0.002
    by_value = valid & (noisy < 0.7 - 3 * 0.02)
    near = clean > 0.62
    assert float((noisy - clean)[valid & near].mean()) < -0.002  # twin: all that is valid
    assert float((noisy - clean)[by_value & near].mean()) < -0.01  # twin: chosen by their values
    assert not bool(cut_pixels(noisy, torch.ones_like(valid), clean, std).any())


def test_pieces_are_put_back_in_the_order_of_the_batch() -> None:
    """A cycle of three, which is not its own inverse."""
    pieces = [SimpleNamespace(index=torch.tensor(index)) for index in ([2, 0], [1])]
    values = [torch.tensor([20, 0]), torch.tensor([10])]
    assert merged(pieces, values).tolist() == [0, 10, 20]


def test_exposures_may_be_off_where_flows_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image is as good as with exact ones, whose noise the gains do not take up."""
    rms = []
    for error in (0.0, 0.03):
        given = made(motion="drift", exposure_error=error)
        mean = solve(given.burst, 2, given.flow_px).posterior.mean
        rms.append(float((mean - given.truth)[:, 8:-8, 8:-8].square().mean().sqrt()))
    monkeypatch.setattr("pushframe.solver.space.GAIN_STEPS", 0)
    monkeypatch.setattr(
        "pushframe.solver.space.brightness", lambda burst, _: torch.ones_like(burst.exposure)
    )
    mean = solve(given.burst, 2, given.flow_px).posterior.mean
    twin = float((mean - given.truth)[:, 8:-8, 8:-8].square().mean().sqrt())
    assert rms[1] < 1.1 * rms[0] < 0.5 * twin


def test_few_frames_that_are_explained_do_not_bend(monkeypatch: pytest.MonkeyPatch) -> None:
    """However well bends would explain what noise left of them."""
    sure = torch.full((1, 9), 100.0)
    monkeypatch.setattr("pushframe.solver.bend._projected", lambda _: (sure, sure))
    for frames, explained in ((6, False), (10, True)):
        still = as_translations(made(frames=frames, size=16).burst)
        nothing = still._replace(mismatch=torch.zeros(1))
        much = still._replace(mismatch=still.noise_var.mean()[None])
        assert bool(bending(nothing)) is explained
        assert bool(bending(much))  # twin
