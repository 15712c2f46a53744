"""Motion that bends: a smooth flow for each frame, of few coefficients, fitted with the image.

For translations the likelihood falls apart frequency by frequency (`motion`). A flow that changes
over the frame mixes all of them, so here image and coefficients are solved for together, in space:
Gauss-Newton steps whose normal equations conjugate gradients solve.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..filters import gaussian_blur, masked_blur
from ..forward import forward_model
from ..gaussian import GaussianProblem, at_nodes, weighted_mean
from ..geometry import pixel_grid
from ..linear import conjugate_gradients_pair
from ..noise import frame_noise_var
from ..prior import fit_spectrum, power_law, radial_basis, spectrum_at
from ..spectral import AliasBlocks, half_weight, image_frequencies, to_folded, transfer
from .outliers import disagreeing_pixels

STEPS = 6
FIRST_JITTER_PX = 0.05  # what the start may be off; halved at each step
LARGEST_STEP_PX = 0.25
CONVERGED_PX = 0.01
COEFFICIENT_PX = 0.5  # what a coefficient may be, before the burst has told
LEAST_COEFFICIENT_PX = 0.01
GAIN_STD = 0.03
LEAST_GAIN_STD = 3e-4
SMOOTHING_PX = 1.0
LATTICE = (16, 16)  # low-res frequencies that stand for all in the determinant at a node


class Bent(NamedTuple):
    """What is known of a batch of bending bursts besides their images.

    flow_px: (B, N, 2, H, W); gain: (B, N); knots: (B, KNOTS); good: (B, N, H, W) pixels to use.
    """

    flow_px: Tensor
    gain: Tensor
    knots: Tensor
    good: Tensor


def smooth_basis(shape: tuple[int, int], like: Tensor) -> Tensor:
    """Functions of the pixel that smooth motion is made of, (K, H, W), orthogonal, of rms 1.

    A constant, the two slopes of an affine motion, and cosines of up to one period.
    """
    size = torch.tensor(shape, device=like.device)[:, None, None]
    unit = 2 * (pixel_grid(shape, like) + 0.5) / size - 1  # (y, x) from -1 to 1
    angle = math.pi * (unit + 1) / 2
    orders = [(j, k) for j in range(3) for k in range(3) if 0 < j + k <= 2]
    waves = [torch.cos(j * angle[0]) * torch.cos(k * angle[1]) for j, k in orders]
    functions = torch.stack([torch.ones_like(unit[0]), unit[0], unit[1], *waves])
    rows = torch.linalg.qr(functions.flatten(1).double().mT).Q.mT
    rows = rows * rows[:, :1].sign() * math.sqrt(shape[0] * shape[1])
    return rows.to(like).unflatten(1, shape)


def flow_of(theta: Tensor, basis: Tensor) -> Tensor:
    """The flow (..., 2, H, W) of coefficients (..., 2, K), px."""
    return torch.einsum("...k,khw->...hw", theta, basis)


def lucas_kanade_bent(burst: Burst, start_px: Tensor, basis: Tensor, steps: int = 8) -> Tensor:
    """Coefficients (B, N, 2, K) by Gauss-Newton on `frame(x) = gain reference(x + flow)`.

    start_px: (B, N, 2) translations. Both images are low-passed, since aliases do not move.
    """
    batch, count = burst.frames.shape[:2]
    smooth = masked_blur(burst.frames, burst.valid, SMOOTHING_PX)
    seen = gaussian_blur(burst.valid.to(smooth), SMOOTHING_PX) > 0.95
    reference = torch.stack([smooth[:, 0], *torch.gradient(smooth[:, 0], dim=(-2, -1))], 1)
    reference = reference.repeat_interleave(count, 0)
    there = seen[:, 0].to(smooth).repeat_interleave(count, 0)
    frame, seen = smooth.flatten(0, 1), seen.flatten(0, 1)
    theta = torch.zeros(batch * count, 2, len(basis)).to(frame)
    theta[..., 0] = start_px.flatten(0, 1)
    unknown = torch.cat([theta.flatten(1), torch.ones_like(theta[:, 0, :1])], 1)  # and the gain
    trust = torch.full_like(unknown[0], COEFFICIENT_PX**-2)
    trust[[0, len(basis), -1]] = 0  # nothing is known of the constants beforehand
    noise = frame_noise_var(burst)
    noise = (noise + noise[:, :1]).flatten(0, 1) / (4 * math.pi * SMOOTHING_PX**2)
    for _ in range(steps):
        theta, gain = unknown[:, :-1].unflatten(1, (2, -1)), unknown[:, -1:, None]
        moved = forward_model(flow_of(theta, basis)[:, None], burst.shape, 1, 0)
        value, *slopes = (moved.forward(part)[:, 0] for part in reference.unbind(1))
        usable = (moved.forward(there) > 0.99)[:, 0] & moved.inside[:, 0] & seen
        weight = (usable / noise).flatten(1)[:, None]
        columns = torch.stack(slopes, 1)[:, :, None] * basis * gain[..., None, None]
        columns = torch.cat([columns.flatten(1, 2), value[:, None]], 1).flatten(2)
        weighted = columns * weight
        normal = (weighted @ columns.mT).double()
        misfit = (frame - gain * value).flatten(1)[..., None]
        slope = (weighted @ misfit)[..., 0].double() - trust * unknown
        ridge = 1e-9 * normal.diagonal(dim1=-2, dim2=-1) + 1e-12
        change = torch.linalg.solve(normal + torch.diag_embed(ridge + trust), slope)
        unknown = unknown + change.to(unknown).clamp(-0.5, 0.5)
    theta = unknown[:, :-1].unflatten(1, (2, -1)).unflatten(0, (batch, count))
    moving = torch.arange(count, device=theta.device).clamp(max=1).to(theta)
    return theta * moving[:, None, None]


class Joint:
    """Image, coefficients and gains of a batch, and the posterior of all of them together."""

    def __init__(self, burst: Burst, good: Tensor, theta: Tensor, basis: Tensor, scale: int):
        self.burst, self.good, self.basis, self.scale = burst, good, basis, scale
        self.theta = theta
        self.gain = torch.ones_like(theta[..., 0, 0])
        self.noise_var = frame_noise_var(burst)
        self.jitter_px = FIRST_JITTER_PX
        spread = burst.frames.var((-1, -2)) - self.noise_var.mean((-1, -2))
        self.knots = power_law(spread.clamp(min=1e-10).median(1).values)
        self.coefficient_px = torch.full_like(theta[:, 0, 0], COEFFICIENT_PX)
        self.gain_std = torch.full_like(self.gain[:, 0], GAIN_STD)
        self.image: Tensor | None = None

    def look(self, tolerance: float = 2e-3) -> None:
        """The image and how each frame answers to its coefficients and gain."""
        gain = self.gain[..., None, None]
        self.flow_px = flow_of(self.theta, self.basis)
        budget = self.noise_var / gain**2 + self._jitter_var()[:, None, None, None]
        self.problem = GaussianProblem(self.flow_px, self.good / budget, self.knots, self.scale)
        frames = self.burst.frames / gain
        self.level = weighted_mean(frames, self.problem.precision)
        self.image = self.problem.solve(frames - self.level, self.image, tolerance)
        predicted = self.problem.model.forward(self.image)
        self.residual = frames - self.level - predicted
        rows, columns = (
            torch.fft.fftfreq(self.problem.canvas[0]),
            torch.fft.rfftfreq(self.problem.canvas[1]),
        )
        turn = [2j * math.pi * self.scale * f.to(predicted) for f in (rows[:, None], columns)]
        slopes = [self.problem.model.forward(self.problem.filter(self.image, t)) for t in turn]
        bends = torch.stack(slopes, 2)[:, :, :, None] * self.basis
        whole = (predicted + self.level)[:, :, None]
        self.tangent = torch.cat([bends.flatten(2, 3), whole], 2)  # (B, N, P, H, W)
        self.tangent[:, 0] = 0  # the reference defines grid and scale

    def _jitter_var(self) -> Tensor:
        """What misplaced frames add to their noise, (B,)."""
        fy, fx = (torch.fft.fftfreq(64, device=self.knots.device) for _ in range(2))
        power = spectrum_at(self.knots, radial_basis(fy[:, None], fx))
        square = (2 * math.pi * self.scale) ** 2 * (fy[:, None] ** 2 + fx**2) / 2
        return self.jitter_px**2 * (power * square).mean((-1, -2))

    def _doubt(self) -> Tensor:
        """One over the prior variance of each frame's unknowns, (B, 1, P)."""
        doubt = self.coefficient_px**-2
        doubt = torch.cat([doubt, doubt, self.gain_std[:, None] ** -2], 1)
        doubt[:, [0, len(self.basis)]] = 1e-4
        return doubt[:, None]

    def state(self) -> Tensor:
        """The unknowns (B, N, P): coefficients along y and x, and the gain less one."""
        return torch.cat([self.theta.flatten(2), (self.gain - 1)[..., None]], 2)

    def solve(self, right: tuple[Tensor, Tensor], tolerance: float) -> tuple[Tensor, Tensor]:
        """The joint normal equations for image and unknowns, (B, h, w) and (B, N, P)."""
        problem, tangent, doubt = self.problem, self.tangent, self._doubt()
        weight, model = problem.precision, problem.model
        columns = tangent.flatten(3)
        own = (columns * weight.flatten(2)[:, :, None]) @ columns.mT + torch.diag_embed(
            doubt.expand(*tangent.shape[:3])
        )
        root = torch.linalg.cholesky(own.double())

        def apply(image: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
            moved = model.forward(image) + torch.einsum("bnphw,bnp->bnhw", tangent, unknown)
            weighted = weight * moved
            return (
                model.adjoint(weighted) + problem.filter(image, 1 / problem.prior),
                torch.einsum("bnphw,bnhw->bnp", tangent, weighted) + doubt * unknown,
            )

        def precondition(image: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
            solved = torch.cholesky_solve(unknown.double()[..., None], root)[..., 0]
            return problem.precondition(image), solved.to(unknown)

        return conjugate_gradients_pair(apply, right, precondition, tolerance)

    def step(self) -> float:
        """One Gauss-Newton step; returns the largest change of a flow, px."""
        weighted = self.problem.precision * self.residual
        right = (
            self.problem.model.adjoint(weighted)
            - self.problem.filter(self.image, 1 / self.problem.prior),
            torch.einsum("bnphw,bnhw->bnp", self.tangent, weighted) - self._doubt() * self.state(),
        )
        right[1][..., :-1] -= self._determinant_slope()
        right[1][:, 0] = 0
        image, change = self.solve(right, 1e-2)
        theta = change[..., :-1].unflatten(2, (2, -1))
        largest = flow_of(theta, self.basis).abs().amax((2, 3, 4))
        share = LARGEST_STEP_PX / largest.clamp(min=LARGEST_STEP_PX)
        self.theta = self.theta + theta * share[..., None, None]
        self.gain = self.gain * (1 + change[..., -1].clamp(-GAIN_STD, GAIN_STD))
        self.image = self.image + image
        return float(largest.max())

    def _determinant_slope(self) -> Tensor:
        """Slope of half the log determinant in the coefficients, (B, N, 2K).

        That of the local translations at the nodes; each stands for the pixels around it.
        """
        nodes = at_nodes(self.flow_px)  # (B, N, 2, M)
        count = nodes.shape[-1]
        weight = self.problem.precision
        typical = weight.sum((-1, -2)) / (weight > 0).sum((-1, -2)).clamp(min=1)
        fy, fx = image_frequencies(LATTICE, self.scale, weight)
        prior = spectrum_at(self.knots, radial_basis(fy, fx)).repeat_interleave(count, 0)
        see = transfer(nodes.permute(0, 3, 1, 2).flatten(0, 1), LATTICE, self.scale)
        blocks = AliasBlocks(see, typical.repeat_interleave(count, 0)[:, None, None], prior)
        turn = torch.stack([2j * math.pi * self.scale * f for f in (fy, fx)], -1)
        share = half_weight(LATTICE[1], weight)[:, None, None] / (LATTICE[0] * LATTICE[1])
        slope = (((blocks.reach() * see) @ turn).real * share).sum((1, 2))  # (B*M, N, 2), a pixel
        slope = slope.unflatten(0, (-1, count)).permute(0, 2, 3, 1)
        side = math.isqrt(count)
        rows, columns = (torch.arange(size) * side // size for size in self.burst.shape)
        field = slope.unflatten(3, (side, side))[..., rows[:, None], columns]
        field = field * self.good[:, :, None]
        return torch.einsum("bnchw,khw->bnck", field, self.basis).flatten(2)

    def learn_prior(self) -> None:
        """The spectrum of the image, and how large coefficients are in this burst."""
        problem = self.problem
        window = _tukey(problem.canvas, problem.pad, self.knots)
        folded = to_folded(self.image * window, self.scale)
        lattice = (problem.canvas[0] // self.scale, problem.canvas[1] // self.scale)
        basis = radial_basis(*image_frequencies(lattice, self.scale, self.knots))
        prior = spectrum_at(self.knots, basis)
        spread = problem.blocks.covariance.diagonal(dim1=-2, dim2=-1).real
        known = (1 - spread / prior).clamp(min=0)
        count = half_weight(lattice[1], self.knots)[:, None].expand(basis.shape[:-1])
        self.knots = fit_spectrum(
            (folded.abs() ** 2).flatten(1), known.flatten(1), basis.flatten(0, -2), count.flatten()
        )
        size = self.theta[:, 1:].square().mean((1, 2))
        self.coefficient_px = (size + LEAST_COEFFICIENT_PX**2).sqrt()
        spread = (self.gain[:, 1:] - 1).square().mean(1).sqrt()
        self.gain_std = spread.clamp(LEAST_GAIN_STD, GAIN_STD)

    def budget(self) -> None:
        """Pixels that disagree with the other frames are left out."""
        std = self.problem.precision.clamp(min=1e-30).rsqrt()
        self.good = self.good & ~disagreeing_pixels(self.residual / std, self.good)


def _tukey(canvas: tuple[int, int], pad: int, like: Tensor) -> Tensor:
    """A window of unit power that is zero over the canvas's margin."""
    axes = []
    for size in canvas:
        place = torch.arange(size, device=like.device) + 0.5 - pad
        inner = size - 2 * pad
        edge = torch.minimum(place, inner - place) / (inner / 8)
        axes.append(0.5 - 0.5 * torch.cos(math.pi * edge.clamp(0, 1)))
    window = axes[0][:, None] * axes[1]
    return window / window.square().mean().sqrt()


def fit_bend(
    burst: Burst, good: Tensor, start_px: Tensor, scale: int, watch=lambda *_: None
) -> Bent:
    """Flows, gains and spectrum of bursts whose motion bends; good: (B, N, H, W) pixels to use."""
    basis = smooth_basis(burst.shape, burst.frames)
    joint = Joint(burst, good, lucas_kanade_bent(burst, start_px, basis), basis, scale)
    for count in range(STEPS):
        joint.jitter_px = FIRST_JITTER_PX / 2**count
        joint.look()
        if count >= 1:
            joint.learn_prior()
        watch(joint)
        if joint.step() < CONVERGED_PX:
            break
    joint.jitter_px = 0.0
    joint.look()
    joint.budget()
    joint.look()
    watch(joint)
    return Bent(joint.flow_px, joint.gain, joint.knots, joint.good)
