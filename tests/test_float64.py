"""Slopes, determinants and normal equations in float64, where tolerances can be tight."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from pushframe.folding import axis_frequencies, half_weight, image_frequencies, to_folded
from pushframe.forward import forward_model
from pushframe.gaussian import GaussianProblem
from pushframe.prior import owed_to_spectrum, power_law
from pushframe.solver import motion_prior
from pushframe.solver.determinant import determinant_slope, log_determinant
from pushframe.solver.lattice import Lattice
from pushframe.solver.normal import NormalEquations, common_motion
from pushframe.solver.search import Search
from pushframe.solver.whole_frames import WholeFrames
from pushframe.spectral import AliasBlocks, Transfer, transfer

SHAPE, SCALE, FRAMES, STEP = (9, 10), 2, 5, 1e-5
ALIASES, LATTICE = SCALE**2, (9, 6)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rand(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=generator(seed))


def ideal(flow_px: Tensor, gain: Tensor) -> Transfer:
    """Shifts as the search differentiates them: of every frequency, by its whole phase."""
    rows, columns = axis_frequencies(SHAPE, SCALE, flow_px)
    down, right = (2j * math.pi * SCALE * f for f in (rows, columns))
    y, x = flow_px.unbind(-1)
    seen = gain[..., None, None] * torch.exp(down * y[..., None, None]) / SCALE
    return Transfer(seen, torch.exp(right * x[..., None, None]), SHAPE[1])


class Likelihood:
    """Spectra of frames that need not be those of any image, their noise, the image's spectrum."""

    def __init__(self) -> None:
        self.flow_px = 0.7 * rand(1, FRAMES, 2, seed=0)
        self.gain = 1 + 0.02 * rand(1, FRAMES, seed=1)
        self.data = rand(1, FRAMES, *LATTICE, seed=2, dtype=torch.complex128)
        self.precision = 1 + rand(1, FRAMES, seed=3).square()
        self.prior = 0.5 + rand(1, ALIASES, *LATTICE, seed=4).square()
        self.lattice = Lattice(SHAPE, SCALE, self.flow_px)

    def at(self, flow_px: Tensor, gain: Tensor) -> SimpleNamespace:
        """What a search looks at there."""
        see = ideal(flow_px, gain)
        blocks = AliasBlocks(see, self.precision, self.prior)
        image = blocks.mean(self.data)
        nowhere = [torch.zeros(1, FRAMES, *size) for size in ((LATTICE[0], 1), (1, LATTICE[1]))]
        return SimpleNamespace(
            data=self.data,
            image=image,
            blocks=blocks,
            predicted=see.predict(image),
            precision=self.precision,
            prior=self.prior,
            lattice=self.lattice,
            level=torch.zeros(1, 1, 1, 1, dtype=torch.float64),
            placed=SimpleNamespace(see=see, waves=nowhere),
            whole=WholeFrames(),
            motion_prior=motion_prior.MotionPrior(None, gain),
        )

    def measured(self, worth) -> Tensor:
        """Differences of `worth(place)` over shifts and the logarithms of gains, (B, N, 3)."""
        found = torch.zeros(1, FRAMES, 3, dtype=torch.float64)
        for frame in range(FRAMES):
            for kind in range(3):
                sides = []
                for sign in (1, -1):
                    off = torch.zeros_like(found)
                    off[:, frame, kind] = sign * STEP
                    place = self.flow_px + off[..., :2], self.gain * off[..., 2].exp()
                    sides.append(float(worth(self.at(*place))))
                found[:, frame, kind] = (sides[0] - sides[1]) / (2 * STEP)
        return found


def test_the_slope_of_the_likelihood_to_many_digits() -> None:
    """Under ideal shifts, whose derivative the search takes: see `solver.lattice`."""
    likelihood = Likelihood()
    here = likelihood.at(likelihood.flow_px, likelihood.gain)
    changes = Search.changes(here, whole=False)
    slope = Search.slope(here, changes)
    assert slope.dtype == torch.float64
    shifted = here.lattice.shifted(here.placed.see)
    grown = here.blocks.determinant_slope(here.lattice.count, shifted)
    power = (here.image.abs().square() / here.prior * here.lattice.count).sum((1, 2, 3))
    slope[..., 2] += owed_to_spectrum(power, grown[..., 2])  # what only a wrong spectrum adds
    measured = -likelihood.measured(lambda place: Search.energy(place).sum()) / 2
    torch.testing.assert_close(slope, measured, rtol=1e-6, atol=1e-5)
    for wrong in (slope + grown, slope + 0.01 * grown):  # twins: the energy alone, or nearly all
        assert not torch.allclose(wrong, measured, rtol=1e-4, atol=1e-3)


def test_the_determinants_slope_to_many_digits() -> None:
    likelihood = Likelihood()
    here = likelihood.at(likelihood.flow_px, likelihood.gain)
    count = here.lattice.count
    found = here.blocks.determinant_slope(count, here.lattice.shifted(here.placed.see))
    measured = likelihood.measured(lambda place: (place.blocks.log_det * count).sum()) / 2
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, measured, rtol=1e-7, atol=1e-6)
    torch.testing.assert_close(here.blocks.leverage(count), found[..., 2], rtol=1e-12, atol=0)


def test_transfer_is_the_forward_model_to_many_digits() -> None:
    """Of an image that ends in nothing, so that no border tells the two apart."""
    size = 40
    image = torch.zeros(1, SCALE * size, SCALE * size, dtype=torch.float64)
    image[:, 26:54, 26:54] = rand(28, 28, seed=5)
    flow_px = torch.tensor([[[0.0, 0.0], [0.3, -0.7], [-1.2, 0.45]]], dtype=torch.float64)
    frames = forward_model(flow_px, (size, size), SCALE, 0).forward(image)
    expected = torch.fft.rfft2(frames, norm="ortho")
    seen = transfer(flow_px, (size, size), SCALE).predict(to_folded(image, SCALE))
    torch.testing.assert_close(seen, expected, rtol=0, atol=1e-13)
    single = transfer(flow_px.float(), (size, size), SCALE).predict(to_folded(image, SCALE))
    assert float((single - expected).abs().max()) > 1e-9  # twin: half of the digits


def test_where_scenes_end_before_the_nyquist_frequency_shifts_are_ideal() -> None:
    """There the kernel's answer to a shift is that of an ideal one, which the search follows."""
    flow_px = 0.7 * rand(1, FRAMES, 2, seed=0)
    near = transfer(flow_px + torch.tensor([STEP, 0.0]), SHAPE, SCALE).whole
    far = transfer(flow_px - torch.tensor([STEP, 0.0]), SHAPE, SCALE).whole
    fy, fx = image_frequencies(SHAPE, SCALE, flow_px)
    turned = 2j * math.pi * SCALE * fy * transfer(flow_px, SHAPE, SCALE).whole
    off = ((near - far) / (2 * STEP) - turned).abs()[0].amax(0)
    slow = torch.maximum(fy.abs(), fx.abs())
    assert float(off[slow <= 0.4].max()) < 2e-3
    assert float(off[slow > 0.45].max()) > 0.3  # why: beyond, they are not


def dense_blocks(blocks: AliasBlocks, prior: Tensor, y: int, x: int) -> tuple[Tensor, Tensor]:
    """h (N, K) at a frequency, and the normal matrix (K, K) there."""
    h = blocks.see.whole[0, :, :, y, x]
    weighted = h.mH @ (blocks.precision[0].to(h)[:, None] * h)
    return h, weighted + torch.diag(1 / prior[0, :, y, x]).to(h)


@pytest.mark.parametrize("scale", [2, 3])
def test_blocks_and_information_to_many_digits(scale: int) -> None:
    flow_px, precision = rand(1, FRAMES, 2, seed=0), 1 + rand(1, FRAMES, seed=3).square()
    prior = 0.5 + rand(1, scale**2, *LATTICE, seed=4).square()
    blocks = AliasBlocks(transfer(flow_px, SHAPE, scale), precision, prior)
    data = rand(1, FRAMES, *LATTICE, seed=2, dtype=torch.complex128)
    change = rand(1, FRAMES, 3, *LATTICE, seed=6, dtype=torch.complex128)
    count = half_weight(SHAPE[1], precision)
    mean, total = blocks.mean(data), torch.zeros(15, 15, dtype=torch.float64)
    for y in range(LATTICE[0]):
        for x in range(LATTICE[1]):
            h, normal = dense_blocks(blocks, prior, y, x)
            inverse = torch.linalg.inv(normal)
            close = {"rtol": 1e-10, "atol": 1e-12}
            torch.testing.assert_close(blocks.covariance[0, :, :, y, x], inverse, **close)
            log_det = torch.linalg.slogdet(normal)[1]
            torch.testing.assert_close(blocks.log_det[0, y, x], log_det, **close)
            told = h.mH @ (precision[0] * data[0, :, y, x])
            torch.testing.assert_close(mean[0, :, y, x], inverse @ told, **close)
            marginal = (h * prior[0, :, y, x]) @ h.mH + torch.diag(1 / precision[0])
            columns = torch.block_diag(*change[0, :, :, y, x][:, None])  # (N, 3N)
            total += count[x] * (columns.mH @ torch.linalg.solve(marginal, columns)).real
    found = blocks.information(change, count)[0]
    torch.testing.assert_close(found, total, rtol=1e-10, atol=1e-10)
    own = found.diagonal() - blocks.information(change, count, roughly=True)[0].diagonal()
    assert float(own.abs().max()) > 0.1  # twin: not all of the rows


def joint_equations() -> NormalEquations:
    """Of three shifted frames, the second one masked in part, each with its (dy, dx, gain)."""
    shape, count = (8, 8), 3
    flow_px = 0.5 * rand(1, count, 2, seed=0)
    flow_px[:, 0] = 0
    precision = 1 + rand(1, count, *shape, seed=1).square()
    precision[:, 1, :3] = 0
    knots = power_law(torch.tensor([0.5])).double()
    problem = GaussianProblem(flow_px, precision, knots, SCALE)
    image = rand(1, *problem.canvas, seed=2)
    slopes, predicted = problem.model.slopes(image), problem.model.forward(image)
    frames = (*slopes, predicted)
    tangent = torch.stack(frames, 2)
    tangent[:, 0] = 0
    free = torch.ones(1, count, 3, dtype=torch.bool)
    free[:, 0] = False
    prior = torch.diag(torch.tensor([2.0, 3.0, 5.0], dtype=torch.float64)).expand(1, count, 3, 3)
    steep = torch.gradient(image, dim=(1, 2))
    basis = torch.ones(1, *shape, dtype=torch.float64)
    along = (*(SCALE * part for part in steep), image)
    common = common_motion(problem, along, frames, basis, free, prior)
    return NormalEquations(problem, tangent, prior, common)


def test_the_joint_equations_are_the_model_and_its_prior() -> None:
    """J'WJ and the priors, J the forward model applied to unit images beside the tangents."""
    normal = joint_equations()
    problem, tangent = normal.problem, normal.tangent[0]
    pixels = math.prod(problem.canvas)
    units = torch.eye(pixels, dtype=torch.float64).unflatten(1, problem.canvas)
    seen = torch.stack([problem.model.forward(unit[None])[0].flatten() for unit in units], 1)
    own = torch.block_diag(*tangent.flatten(2).mT)  # (N*H*W, 3N)
    model = torch.cat([seen, own], 1)
    frequency = torch.fft.ifft2(torch.fft.fft2(units) * full(problem)).real.flatten(1)
    held = torch.block_diag(frequency, *normal.prior[0])
    dense = model.mT @ (problem.precision[0].flatten()[:, None] * model) + held
    vectors = torch.eye(len(dense), dtype=torch.float64)[:, None, None]
    found, inverse = (
        torch.stack([work(vector)[0, 0] for vector in vectors])
        for work in (normal.normal, normal.precondition)
    )
    size = float(dense.abs().max())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, dense, rtol=0, atol=1e-12 * size)
    torch.testing.assert_close(found, found.mT, rtol=0, atol=1e-12 * size)
    torch.testing.assert_close(inverse, inverse.mT, rtol=0, atol=1e-9 * float(inverse.abs().max()))
    assert float(torch.linalg.eigvalsh((inverse + inverse.mT) / 2).min()) > 0
    unweighted = model.mT @ model + held  # twin
    assert float((found - unweighted).abs().max()) > 1e-3 * size


def full(problem: GaussianProblem) -> Tensor:
    """The prior's precision at all frequencies, (h, w), of those of half of them."""
    half, (tall, wide) = problem.stiffness[0], problem.canvas
    rows = -torch.arange(tall) % tall
    opposite = half[rows][:, 1 : (wide + 1) // 2].flip(1)
    return torch.cat([half, opposite], 1)


def test_the_determinant_of_a_problem_grows_as_its_slope_says() -> None:
    """Of a scene with power up to the Nyquist frequency, where the kernel is no ideal shift."""
    knots = power_law(torch.tensor([1.0])).double()
    flow_px = 0.7 * rand(1, FRAMES, 2, seed=0)
    precision = 1e4 * (1 + rand(1, FRAMES, 1, 1, seed=3).square()).expand(1, FRAMES, 10, 12)

    def problem(flow_px: Tensor) -> GaussianProblem:
        return GaussianProblem(flow_px, precision, knots, SCALE)

    basis = torch.ones(1, 10, 12, dtype=torch.float64)
    found = determinant_slope(problem(flow_px), basis)[..., :2]
    measured = torch.zeros_like(found)
    for frame in range(FRAMES):
        for axis in (0, 1):
            off = torch.zeros_like(flow_px)
            off[:, frame, axis] = STEP
            sides = [log_determinant(problem(flow_px + sign * off)) for sign in (1, -1)]
            measured[:, frame, axis] = (sides[0] - sides[1]) / (4 * STEP)
    assert found.dtype == torch.float64
    size = float(measured.abs().max())
    torch.testing.assert_close(found, measured, rtol=0, atol=1e-6 * size)
    assert float((1.0001 * found - measured).abs().max()) > 1e-5 * size  # twin
