"""The error bars against dense algebra: noise and prior, motion and gains, both together.

The oracle inverts the joint normal equations of image, shifts and gains of a small burst in
float64. Its derivatives are differences of the forward model; of the solver's own algebra (alias
blocks, windows, modes, draws) it uses nothing.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from conftest import sources
from torch import Tensor

from pushframe.burst import Simulated
from pushframe.forward import forward_model
from pushframe.gaussian import GaussianProblem
from pushframe.simulate import PRESETS, simulate
from pushframe.solver import borders, draws, variance
from pushframe.solver.belief import Belief
from pushframe.solver.borders import border_excess
from pushframe.solver.image import Reconstruction, reconstruct
from pushframe.solver.motion import Task, spectrum_of_translations
from pushframe.solver.normal import NormalEquations
from pushframe.solver.space import Bent, fit_in_space
from pushframe.solver.variance import (
    bent_variance,
    noise_variance,
    posterior_variance,
    scarcity,
    stationary_variance,
)

SIZE, BORDER_HPX = 16, 5  # bars are compared within the border
STEP_PX = 1e-4  # of the differences


class Case(NamedTuple):
    """A burst, and how sure its gains are beforehand."""

    frames: int
    gain_std: float
    seed: int


MANY, FEW, SURE = Case(10, 0.01, 1), Case(6, 0.01, 0), Case(8, 0.003, 1)


class Parts(NamedTuple):
    """Variance over the reference's field, (s*H, s*W): motion known, and what its errors add."""

    known: Tensor
    alignment: Tensor


def burst_of(case: Case) -> Simulated:
    setting = dataclasses.replace(PRESETS["paper"], size=SIZE, frames=case.frames)
    generator = torch.Generator().manual_seed(case.seed)
    return simulate(sources(setting, 1, case.seed + 3), setting, generator)


def belief_of(case: Case) -> Belief:
    """Of gains; shifts may be any. A prior that is stated can be given to the oracle too."""
    covariance = torch.diag(torch.tensor([1e4, 1e4, case.gain_std**2]))
    mean = torch.zeros(1, case.frames, 3)
    return Belief(mean, covariance.expand(1, case.frames, 3, 3))


def tangents(made: Reconstruction) -> tuple[Tensor, Tensor]:
    """The forward model as a matrix (N*H*W, h*w), and what each frame's shift and gain do,
    (3N, N*H*W); float64. The gain of the reference is no unknown."""
    problem, image = made.problem, made.image.double()
    flow_px, shape = problem.flow_px.double(), made.residual.shape[-2:]

    def model(off_px: Tensor | float):
        return forward_model(flow_px + off_px, (shape[0], shape[1]), problem.scale, problem.pad)

    here = model(0.0)
    matrix = here.rows[0, :, :, None, :, None] * here.columns[0, :, None, :, None, :]
    steps = STEP_PX * torch.eye(2, dtype=torch.float64)
    shifts = [(model(d).forward(image) - model(-d).forward(image)) / (2 * STEP_PX) for d in steps]
    brighter = here.forward(image) + made.level
    brighter[:, 0] = 0
    answers = torch.stack([*shifts, brighter], 2)[0]  # (N, 3, H, W)
    own = torch.eye(len(answers), dtype=torch.float64)[:, None, :, None, None]
    change = (own * answers[:, :, None]).flatten(3).flatten(2).flatten(0, 1)
    return matrix.flatten(3).flatten(0, 2).flatten(1), change


def dense(made: Reconstruction, gain_std: float, held: bool) -> Parts:
    """The joint posterior, linearised at an image.

    held: the scene stays where it is, as the normal equations at one image have it. Otherwise all
    frames may move together with the scene, which changes nothing that can be seen.
    """
    problem, count = made.problem, made.residual.shape[1]
    matrix, change = tangents(made)
    weight = problem.precision[0].double().flatten()
    pixels = torch.eye(matrix.shape[1], dtype=torch.float64).unflatten(1, problem.canvas)
    stiff = torch.fft.rfft2(pixels) * problem.stiffness[0].double()
    prior = torch.fft.irfft2(stiff, s=problem.canvas).flatten(1)
    known = torch.linalg.inv(matrix.mT @ (weight[:, None] * matrix) + prior)
    cross = (change * weight) @ matrix
    information = (change * weight) @ change.mT - cross @ known @ cross.mT
    if not held:
        together = torch.eye(3, 2, dtype=torch.float64).repeat(count, 1)
        seen = information @ together
        information = information - seen @ torch.linalg.solve(together.mT @ seen, seen.mT)
    gains = torch.tensor([0, 0, gain_std**-2], dtype=torch.float64).repeat(count)
    covariance = torch.linalg.inv((information + torch.diag(gains))[3:, 3:])  # reference at rest
    answers = known @ cross[3:].mT
    alignment = ((answers @ covariance) * answers).sum(1)
    fields = (part.unflatten(0, problem.canvas) for part in (known.diagonal(), alignment))
    return Parts(*(problem.crop(field) for field in fields))


def ratios(found: Tensor, true: Tensor) -> Tensor:
    """Mean variances within the border, found over true: of each sub-grid, and of all, (5,)."""
    inside = slice(BORDER_HPX, -BORDER_HPX)
    means = [
        torch.stack([part[y::2, x::2].mean() for y in (0, 1) for x in (0, 1)] + [part.mean()])
        for part in (found.double()[inside, inside], true[inside, inside])
    ]
    return means[0] / means[1]


def agree(found: Tensor, true: Tensor, sub_grid: float, whole: float) -> bool:
    off = (ratios(found, true) - 1).abs()
    return bool((off[:4] < sub_grid).all()) and float(off[4]) < whole


@pytest.mark.parametrize("case", [MANY, FEW, SURE])
def test_bars_reach_as_far_as_samples(case: Case) -> None:
    """Next to each border, away from corners: how many times the variance inside it is."""
    batch = burst_of(case)
    kept = torch.ones(1, case.frames, dtype=torch.bool)
    fit = Task(batch.burst, batch.flow_px, kept, 2, moving=False).settled()
    made = reconstruct(batch.burst, batch.burst.valid, batch.flow_px, fit.gain, fit.knots, 2)
    inside = stationary_variance(made.problem)[0].double()
    true = dense(made, case.gain_std, held=False).known / inside

    def at_borders(excess: Tensor) -> Tensor:
        """Means over the two outermost rows of each border, logarithms."""
        middle = slice(2 * BORDER_HPX, -2 * BORDER_HPX)
        rows = [excess[[0, 1, -2, -1], middle], excess[middle][:, [0, 1, -2, -1]].mT]
        return torch.cat(rows).mean(1).log()

    off = at_borders(border_excess(made.problem)[0].double()) - at_borders(true)
    assert float(off.abs().max()) < 0.2
    assert float(at_borders(true).max()) > 1.5
    twin = at_borders(scarcity(made.problem)[0].double()) - at_borders(true)
    assert float(twin.abs().max()) > 0.7


def test_bars_are_short_where_noise_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the dark, say: the left half has a quarter of the noise of the right one."""
    batch = burst_of(MANY)
    gain = torch.ones_like(batch.burst.exposure)
    knots = spectrum_of_translations(batch.burst, batch.flow_px, gain, 2)
    made = reconstruct(batch.burst, batch.burst.valid, batch.flow_px, gain, knots, 2)
    quarter = torch.where(torch.arange(SIZE) < SIZE / 2, 4.0, 1.0)
    made = made._replace(problem=made.problem.reweighted(made.problem.precision * quarter))
    still = torch.zeros(1, 3 * MANY.frames, 3 * MANY.frames)

    def ratio() -> float:
        var = posterior_variance(made, still)[0, 12:-12]
        return float(var[:, 6:10].mean() / var[:, -10:-6].mean())

    assert ratio() == pytest.approx(0.25, abs=0.03)
    monkeypatch.setattr(variance, "scarcity", lambda _, excess: excess)  # twin
    assert ratio() > 0.8


def test_corners_are_known_no_worse_than_by_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each of two borders knows next to nothing, both together know what the prior does."""
    batch, weight = burst_of(MANY), 1e6
    gain = torch.ones_like(batch.burst.exposure)
    knots = spectrum_of_translations(batch.burst, batch.flow_px, gain, 2)
    problem = GaussianProblem(batch.flow_px, weight * batch.burst.valid, knots, 2)
    nothing = torch.full((1, 2, 6, 2), 1e4, dtype=torch.float64)
    monkeypatch.setattr(borders, "_excess", lambda *_: nothing)
    var = stationary_variance(problem) * border_excess(problem)
    assert float(var.max() / problem.prior.mean()) == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize("case", [MANY, FEW, SURE])
def test_bars_are_those_of_image_motion_and_gains_together(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tolerances are those of the approximations: the bars know no borders, and frames of 16
    px are mostly window."""
    burst, true_px = (batch := burst_of(case)).burst, batch.flow_px
    kept = torch.ones(1, case.frames, dtype=torch.bool)
    fit = Task(burst, true_px, kept, 2, belief=belief_of(case)).settled()
    made = reconstruct(burst, fit.good(burst), fit.flow_px, fit.gain, fit.knots, 2)
    true = dense(made, case.gain_std, held=False)
    assert float(ratios(true.known + true.alignment, true.known)[4]) > 1.1  # enough to be noticed

    def stated() -> tuple[Tensor, Tensor]:
        total = posterior_variance(made, fit.covariance)
        return total[0], (total - noise_variance(made.problem))[0]

    total, alignment = stated()
    assert agree(total, true.known + true.alignment, 0.15, 0.1)
    assert agree(alignment, true.alignment, 0.3, 0.2)
    usual = variance.alignment_variance
    for factor in (0, 4):  # twins: motion that is known, and one worse known than it is
        monkeypatch.setattr(variance, "alignment_variance", lambda *a, f=factor: f * usual(*a))
        total, alignment = stated()
        assert not agree(alignment, true.alignment, 0.3, 0.2)
    assert not agree(total, true.known + true.alignment, 0.15, 0.1)


def in_space(case: Case) -> tuple[Bent, Reconstruction]:
    batch = burst_of(case)
    kept, basis = torch.ones(1, case.frames, dtype=torch.bool), torch.ones(1, SIZE, SIZE)
    bent = fit_in_space(batch.burst, kept, batch.flow_px, 2, basis, belief=belief_of(case))
    return bent, reconstruct(batch.burst, bent.good, bent.flow_px, bent.gain, bent.knots, 2)


def stated_in_space(bent: Bent, made: Reconstruction) -> tuple[Tensor, Tensor]:
    misplaced, scarcer = bent.doubt()
    total = bent_variance(made, misplaced, scarcer)
    return total[0], (total - noise_variance(made.problem) * scarcer)[0]


def test_draws_are_those_of_image_motion_and_gains_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So many that they tell variances, each solved exactly. Draws of a few independent mixtures
    of errors: their mean over pixels is still some 5 % off, that of a sub-grid more."""
    roots: list[Tensor] = []

    def exactly(system: NormalEquations, right: Tensor, *_, **__) -> Tensor:
        if not roots:
            columns = [system.normal(unit[None, None])[0] for unit in torch.eye(right.shape[-1])]
            matrix = torch.cat(columns).double()
            roots.append(torch.linalg.cholesky((matrix + matrix.mT) / 2))
        return torch.cholesky_solve(right[0].double().mT, roots[0]).mT[None].to(right)

    monkeypatch.setattr(draws, "conjugate_gradients", exactly)
    monkeypatch.setattr(draws, "DRAWS", 200)
    bent, made = in_space(MANY)
    true = dense(made, MANY.gain_std, held=True)
    total, alignment = stated_in_space(bent, made)
    assert agree(total, true.known + true.alignment, 0.15, 0.1)
    assert agree(alignment, true.alignment, 0.3, 0.2)
    for factor in (0, 4):  # twins
        assert not agree(factor * alignment, true.alignment, 0.3, 0.2)
    assert not agree(total + 3 * alignment, true.known + true.alignment, 0.15, 0.1)


def test_draws_solved_loosely_do_not_mislead_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved no more closely than bars are made from, the part of motion is up to twice what it
    should be in so small a burst; the whole, of which it is an eighth, some percent."""
    monkeypatch.setattr(draws, "DRAWS", 48)
    bent, made = in_space(FEW)
    true = dense(made, FEW.gain_std, held=False)
    total, alignment = stated_in_space(bent, made)
    assert 0.5 < float(ratios(alignment, true.alignment)[4]) < 2
    assert 0.85 < float(ratios(total, true.known + true.alignment)[4]) < 1.15
    worse = total + 3 * alignment  # twin
    assert not float(ratios(worse, true.known + true.alignment)[4]) < 1.15
