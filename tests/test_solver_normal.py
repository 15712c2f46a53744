"""The joint normal equations of image and unknowns, and what makes them quick to solve."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Simulated
from pushframe.linear import conjugate_gradients
from pushframe.simulate import PRESETS, simulate
from pushframe.solver import locate, solve
from pushframe.solver.bend import smooth_basis
from pushframe.solver.joint import ITERATIONS, Joint
from pushframe.solver.normal import CommonMotion, NormalEquations
from pushframe.solver.space import SETTLED, STEPS


def made(count: int = 1, **change) -> Simulated:
    change = {"size": 16, "frames": 6, "motion": "drift", "bend_px": 0.4} | change
    setting = dataclasses.replace(PRESETS["paper"], **change)
    return simulate(sources(setting, count), setting, torch.Generator().manual_seed(0))


def looked_at(batch: Simulated) -> Joint:
    """Begun a little off the truth, each frame elsewhere, and all of them together."""
    burst, basis = batch.burst, smooth_basis(batch.burst.shape, batch.burst.frames)
    kept = torch.ones(burst.frames.shape[:2], dtype=torch.bool)
    theta = batch.flow_px.flatten(3) @ basis.flatten(1).mT / basis[0].numel()
    off = torch.randn(theta[:1].shape, generator=torch.Generator().manual_seed(1))
    off = 0.01 * off + 0.05 * torch.eye(theta.shape[-1])[0]
    off[:, 0] = 0
    joint = Joint(burst, kept, theta + off, basis, 2)
    joint.look()
    joint.learn_prior()
    joint.look()
    return joint


def right_side(joint: Joint, normal: NormalEquations) -> torch.Tensor:
    told = normal.seen(joint.problem.precision * joint.residual)
    smooth = joint.problem.filter(joint.image, joint.problem.stiffness)
    return told - normal.pack(smooth, torch.zeros_like(joint.state()))


def error_px(normal: NormalEquations, found: torch.Tensor, true: torch.Tensor) -> float:
    return float(normal.unpack(found - true)[1][:, 1:, :-1].square().sum(-1).mean().sqrt())


def test_the_equations_against_a_dense_solution() -> None:
    joint = looked_at(made(size=8, frames=4))
    normal = joint.normal()
    right = right_side(joint, normal)
    one = torch.eye(right.shape[-1])
    columns, inverse = (
        torch.cat([work(column[None, None])[:, 0] for column in one]).double()
        for work in (normal.normal, normal.precondition)
    )
    for matrix in (columns, inverse):
        assert float((matrix - matrix.mT).abs().max()) < 1e-4 * float(matrix.abs().max())
        assert float(torch.linalg.eigvalsh((matrix + matrix.mT) / 2).min()) > 0
    dense = torch.linalg.solve(columns, right[0, 0].double())[None, None]
    found = conjugate_gradients(normal, right, 1e-6)
    assert error_px(normal, found, dense) < 2e-2 * error_px(normal, torch.zeros(1), dense)


def test_motion_in_common_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    joint = looked_at(made(size=32, frames=10))
    normal = joint.normal()
    right = right_side(joint, normal)
    true = conjugate_gradients(normal, right, 1e-6)
    size = error_px(normal, torch.zeros(1), true)
    few = conjugate_gradients(normal, right, 0.0, max_steps=ITERATIONS)
    assert error_px(normal, few, true) < 0.25 * size

    def nothing(_: CommonMotion, *both: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.zeros_like(part) for part in both)

    monkeypatch.setattr(CommonMotion, "solve", nothing)  # twin: image and frames each by itself
    apart = conjugate_gradients(normal, right, 0.0, max_steps=ITERATIONS)
    assert error_px(normal, apart, true) > 1.5 * error_px(normal, few, true)


def test_equations_of_some_bursts_are_those_of_each() -> None:
    joint = looked_at(made(count=3))
    normal = joint.normal()
    both = right_side(joint, normal)
    chosen = torch.tensor([2, 0])
    part = normal.part(chosen)
    for work in ("normal", "precondition"):
        whole = getattr(normal, work)(both)[chosen]
        torch.testing.assert_close(getattr(part, work)(both[chosen]), whole, rtol=1e-4, atol=1e-6)
    with pytest.raises(AssertionError):  # twin: the bursts of other places
        torch.testing.assert_close(part.normal(both[chosen]), normal.normal(both)[:2])


def test_bursts_that_converge_early_are_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    both = made(count=2).burst
    step, sizes = Joint.step, []

    def last_never_ends(joint: Joint, iterations: int) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(len(joint.theta))
        moved_px, scaled = step(joint, iterations)
        return 0 * moved_px + torch.arange(2.0)[-len(joint.theta) :], 0 * scaled

    monkeypatch.setattr(Joint, "step", last_never_ends)
    monkeypatch.setattr(Joint, "keep_the_best", lambda *_: None)
    together = locate(both, 2)
    assert sizes == [2] * (SETTLED + 2) + [1] * (STEPS - SETTLED - 2)
    monkeypatch.setattr("pushframe.solver.space.STEPS", SETTLED + 2)
    alone = [locate(both.part(torch.tensor([k])), 2).flow_px for k in range(2)]
    torch.testing.assert_close(together.flow_px[:1], alone[0], atol=5e-4, rtol=0)
    assert float((together.flow_px[1:] - alone[1]).abs().max()) > 1e-3  # twin: it went on


def test_where_frames_are_needs_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    burst = made().burst

    def asked(_: Joint) -> None:
        raise AssertionError("draws were asked for")

    monkeypatch.setattr("pushframe.solver.space.doubt", asked)
    assert locate(burst, 2).flow_px.ndim == 5
    with pytest.raises(AssertionError, match="draws"):  # twin: bars do
        solve(burst, 2)
