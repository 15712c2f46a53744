"""Our network: the solver's image, corrected."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources
from torch import Tensor

from pushframe.burst import Burst
from pushframe.methods import run_network
from pushframe.model import Motion, OnSolver, OnSolverConfig, estimate_motion
from pushframe.model.on_solver import FINER, Gate, evidence
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver import solve
from pushframe.weights import load_weights

SETTING = with_options(PRESETS["paper"], size=24, frames=5)


@pytest.fixture(scope="module")
def made() -> tuple[Burst, Motion, Tensor]:
    batch = simulate(sources(SETTING, 2), SETTING, torch.Generator().manual_seed(0))
    return batch.burst, Motion(batch.flow_px, torch.ones_like(batch.burst.exposure)), batch.truth


def network(scale: int = 2) -> OnSolver:
    torch.manual_seed(0)
    built = OnSolver(OnSolverConfig(scale, features=8, proposal_blocks=1, verdict_blocks=1))
    with torch.no_grad():  # beyond its first, quiet state
        for parameter in (built.propose.weight, built.judge.weight):
            parameter.mul_(10)
    return built.eval()


def test_it_begins_with_the_solvers_answer(made) -> None:
    burst, motion, _ = made
    torch.manual_seed(0)
    fresh = OnSolver(OnSolverConfig(features=8, proposal_blocks=1, verdict_blocks=1))
    given = evidence(burst, motion, 2)
    posterior = fresh(burst, motion)
    apart = (posterior.mean - given.mean).abs() / given.var.sqrt()
    assert float(apart.detach().median()) < 0.5
    assert float((posterior.var / given.var).log().abs().detach().max()) < 0.5


@pytest.mark.parametrize("frames", [3, 5, 12])
def test_what_is_handed_over_is_the_solvers_own_answer(frames: int) -> None:
    """A prior fitted anew, from known motion, is the prior that the motion was found with; the
    error bar knows that the motion was estimated, and is too short where it does not."""
    setting = with_options(PRESETS["paper"], size=48, frames=frames)
    burst = simulate(sources(setting, 4), setting, torch.Generator().manual_seed(1)).burst
    solved = solve(burst, 2)
    used, motion = estimate_motion(burst, 2)
    given = evidence(used, motion, 2)
    middle = (slice(None), slice(8, -8), slice(8, -8))
    apart = (given.mean - solved.posterior.mean) / solved.posterior.var.sqrt()
    assert float(apart[middle].square().mean((1, 2)).max()) < 0.05
    ratio = (given.var / solved.posterior.var)[middle].log().mean((1, 2))
    assert float(ratio.abs().max()) < 0.08
    exact = evidence(used, motion._replace(covariance=None), 2)
    assert float((exact.var / solved.posterior.var)[middle].log().mean()) < -0.01


def test_flows_that_are_known_leave_gains_to_be_found() -> None:
    """So do frames held out: a check under exposures that are off would judge another product."""
    setting = with_options(PRESETS["paper"], size=32, frames=10, exposure_error=0.02)
    made = simulate(sources(setting, 4), setting, torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    fresh = OnSolver(OnSolverConfig(features=8, proposal_blocks=1, verdict_blocks=1)).eval()
    estimate = run_network(fresh, made.burst, 2, made.flow_px)
    assert torch.equal(estimate.flow_px, made.flow_px)
    found = estimate.posterior
    stated = Motion(made.flow_px, torch.ones_like(made.burst.exposure))
    with torch.no_grad():
        wrong = fresh(made.burst, stated)  # twin: exposures as they are stated
    middle = (slice(None), slice(8, -8), slice(8, -8))
    off, far_off = ((one.mean - made.truth)[middle].square().mean() for one in (found, wrong))
    assert 4 * float(off) < float(far_off)


def test_masked_frames_tell_how_well_they_are_placed() -> None:
    """The covariance of a fit in space is that of a fit in Fourier space, as far as draws tell."""
    setting = with_options(PRESETS["paper"], size=32, frames=10)
    burst = simulate(sources(setting, 4), setting, torch.Generator().manual_seed(1)).burst
    holed = burst.valid.clone()
    holed[:, 1::2, 10:14, 10:14] = False
    _, whole = estimate_motion(burst, 2)
    _, masked = estimate_motion(dataclasses.replace(burst, valid=holed), 2)
    assert whole.covariance is not None
    assert masked.covariance is not None
    var = [m.covariance.diagonal(dim1=1, dim2=2).unflatten(1, (-1, 3)) for m in (whole, masked)]
    ratio = (var[1][:, 1:].mean((0, 1)) / var[0][:, 1:].mean((0, 1))).sqrt()
    assert ((ratio > 0.5) & (ratio < 1.5)).all()


def test_residuals_between_the_pixels_are_told_apart(made) -> None:
    """A sample half a high-res px from the grid appears in the maps of that place alone."""
    burst, _, _ = made
    one = burst.select([0])
    weights = []
    for half in (0.0, 0.25):  # low-res px: on the grid, and half a high-res px to the right
        flow_px = torch.tensor([[[0.0, half]]]).expand(2, 1, 2)
        maps = evidence(one, Motion(flow_px, torch.ones(2, 1)), 2).maps
        weights.append(maps[:, -(FINER**2) :].amax((0, 2, 3)).tolist())
    assert int(torch.tensor(weights[0]).argmax()) == 0
    assert int(torch.tensor(weights[1]).argmax()) == 1
    assert weights[0][1:] == pytest.approx([weights[0][1]] * 3)  # nothing else was seen


def test_frames_count_in_any_order_and_number(made) -> None:
    burst, motion, _ = made
    net = network()
    net.mixed_precision = False
    order = [0, 3, 1, 4, 2]
    moved = Motion(motion.flow_px[:, order], motion.gain[:, order])
    with torch.no_grad():
        one, other = net(burst, motion), net(burst.select(order), moved)
        mixed = net(burst.select(order), motion)  # flows of other frames
        alone = net(burst.select([0]), Motion(motion.flow_px[:, :1], motion.gain[:, :1]))
    std = one.var.sqrt()
    assert float(((one.mean - other.mean) / std).abs().max()) < 0.05
    assert float(((one.mean - mixed.mean) / std).abs().max()) > 1
    assert bool(torch.isfinite(alone.mean).all())
    assert bool((alone.var > 0).all())


def test_a_masked_frame_is_no_frame(made) -> None:
    burst, motion, _ = made
    net = network()
    net.mixed_precision = False
    valid = burst.valid.clone()
    valid[:, 3] = False
    spoilt = burst.frames.clone()
    spoilt[:, 3] = 7.0
    left = [0, 1, 2, 4]
    with torch.no_grad():
        masked = net(dataclasses.replace(burst, frames=spoilt, valid=valid), motion)
        without = net(burst.select(left), Motion(motion.flow_px[:, left], motion.gain[:, left]))
        seen = net(dataclasses.replace(burst, frames=spoilt), motion)  # twin
    apart, twin = ((x.mean - without.mean) / without.var.sqrt() for x in (masked, seen))
    assert float(apart.square().mean().sqrt()) < 0.03  # images are solved to 0.02, rms
    assert float(twin.square().mean().sqrt()) > 1


@pytest.mark.parametrize("frames", [1, 30])
def test_one_frame_and_many_run(frames: int) -> None:
    setting = with_options(PRESETS["paper"], size=24, frames=frames)
    made = simulate(sources(setting, 2), setting, torch.Generator().manual_seed(0))
    exact = Motion(made.flow_px, torch.ones_like(made.burst.exposure))
    with torch.no_grad():
        posterior = network()(made.burst, exact)
    assert posterior.mean.shape == (2, 48, 48)
    assert bool(torch.isfinite(posterior.mean).all())
    assert bool(torch.isfinite(posterior.var).all())
    assert bool((posterior.var > 0).all())
    middle = (..., slice(8, -8), slice(8, -8))  # an image, not the level of a burst that is lost
    error = (posterior.mean - made.truth)[middle].var()
    assert float(error) < 0.7 * float(made.truth[middle].var())


@pytest.mark.parametrize("value", [-1e4, 7.0])
def test_what_lies_under_a_mask_changes_nothing(value: float, made) -> None:
    burst, motion, _ = made
    valid = burst.valid.clone()
    valid[:, 0, 3:9, 4:7] = False
    valid[:, 2, 10:13, 8:20] = False
    spoilt = torch.where(valid, burst.frames, value)
    net = network()
    with torch.no_grad():
        one, other, seen = (
            net(dataclasses.replace(burst, frames=frames, valid=mask), motion)
            for frames, mask in (
                (burst.frames, valid),
                (spoilt, valid),
                (spoilt, burst.valid),  # twin: the mask forgotten
            )
        )
    assert bool(torch.isfinite(one.mean).all())
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.var, other.var)
    assert not torch.equal(one.mean, seen.mean)


def test_scale_three_and_flows_at_every_pixel_run(made) -> None:
    burst, motion, _ = made
    with torch.no_grad():
        assert network(3)(burst, motion).mean.shape == (2, 72, 72)
        field = motion.flow_px[..., None, None].expand(*motion.flow_px.shape, 24, 24)
        bent, still = network()(burst, Motion(field, motion.gain)), network()(burst, motion)
    assert float(((bent.mean - still.mean) / still.var.sqrt()).abs().median()) < 0.6


def test_the_gate_and_its_slope(made) -> None:
    burst, motion, truth = made
    gate = evidence(burst, motion, 2).gate
    image = torch.randn_like(truth, requires_grad=True)
    other, step = torch.randn_like(truth), torch.randn_like(truth)
    (slope,) = torch.autograd.grad((gate.accept(image) * other).sum(), image)
    change = ((gate.accept(image + step) - gate.accept(image)) * other).sum()
    torch.testing.assert_close((slope * step).sum(), change, rtol=1e-3, atol=1e-3)
    turned = gate.solve(gate.weigh(torch.nn.functional.pad(other, [gate.pad] * 4)))
    wrong = turned[
        :, gate.pad : -gate.pad, gate.pad : -gate.pad
    ]  # M^-1 P is no transpose of itself
    assert float(((wrong - slope) ** 2).mean()) > 0.01 * float((slope**2).mean())


def test_data_overrule_a_proposal_where_they_know(made) -> None:
    burst, motion, truth = made
    many = evidence(burst, motion, 2).gate
    few = evidence(burst.select([0]), Motion(motion.flow_px[:, :1], motion.gain[:, :1]), 2).gate
    detail = torch.randn_like(truth)
    taken = [float(gate.accept(detail).square().mean()) for gate in (many, few)]
    assert taken[0] < 0.5 * taken[1] < 0.6  # aliases mix: what is taken may grow a little


def test_a_good_proposal_helps(made) -> None:
    burst, motion, truth = made
    given = evidence(burst, motion, 2)
    inner = (..., slice(8, -8), slice(8, -8))

    def error(mean: Tensor) -> float:
        return float((mean - truth)[inner].square().mean())

    better = given.mean + given.gate.accept(truth - given.mean)
    worse = given.mean - given.gate.accept(truth - given.mean)
    assert error(better) < 0.7 * error(given.mean) < error(worse)


def test_parts_of_the_evidence_are_those_of_the_parts(made) -> None:
    burst, motion, _ = made
    net, rows = network(), torch.tensor([1])
    with torch.no_grad():
        whole = net(burst, motion)
        part = net.conclude(net.prepare(burst, motion).part(rows))
    torch.testing.assert_close(part.mean[0], whole.mean[1], atol=1e-5, rtol=0)


def test_a_burst_that_cannot_be_solved_leaves_its_neighbours(made) -> None:
    burst, motion, _ = made
    lost = motion.gain.clone()
    lost[0] = torch.nan
    net = network()
    net.mixed_precision = False  # its rounding is not what is asked about
    with torch.no_grad():
        posterior, sound = net(burst, Motion(motion.flow_px, lost)), net(burst, motion)
    assert bool(torch.isfinite(posterior.mean).all())
    assert bool((posterior.var > 0).all())
    off = (posterior.mean[1] - sound.mean[1]) / sound.var[1].sqrt()
    assert float(off.abs().max()) < 0.05  # images are solved to 0.05 bars rms


def test_the_shipped_weights_fit_and_correct(made) -> None:
    burst, motion, truth = made
    net, card = load_weights("base", 2)
    assert card["network"] == "on_solver"
    assert card["trained_on"]["licences"]
    inner = (..., slice(8, -8), slice(8, -8))
    with torch.no_grad():
        posterior = net(burst, motion)
    given = evidence(burst, motion, 2)
    error = (posterior.mean - truth)[inner].square().mean()
    assert float(error) < 1.1 * float((given.mean - truth)[inner].square().mean())
    assert isinstance(given.gate, Gate)


def test_shipped_weights_round_by_next_to_nothing(made, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, as where the device is made for it, and in float32."""
    monkeypatch.setattr("pushframe.model.network.cpu_has_bfloat16", lambda: True)
    burst, motion, _ = made
    net, _ = load_weights("base")
    with torch.no_grad():
        fast = net(burst, motion)
        net.mixed_precision = False
        full = net(burst, motion)
        solved = solve(burst, 2, motion.flow_px).posterior
    std = full.var.sqrt()
    assert not torch.equal(fast.mean, full.mean)
    assert float(((fast.mean - full.mean) / std).square().mean().sqrt()) < 0.02
    assert float((fast.var / full.var).log().abs().mean()) < 0.02
    assert float(((solved.mean - full.mean) / std).square().mean().sqrt()) > 0.1  # what they add
