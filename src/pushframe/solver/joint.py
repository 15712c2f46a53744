"""Flows of few coefficients, gains and image of a burst, fitted together, in space.

For translations of whole frames the likelihood falls apart frequency by frequency (`motion`). A
flow that changes over the frame, or a mask, mixes all of them, so here image and coefficients are
solved for together: Gauss-Newton steps whose normal equations conjugate gradients solve.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..burst import Burst
from ..forward import canvas_shape
from ..gaussian import CANVAS_PAD_PX, GaussianProblem, weighted_mean
from ..linear import conjugate_gradients
from ..noise import frame_noise_var
from ..prior import owed_to_spectrum, spectral_basis, spectrum_at
from .belief import Belief
from .bend import flow_of, image_slopes
from .coefficient_prior import CoefficientPrior
from .determinant import determinant_slope, log_determinant
from .mismatch import freedom_of
from .motion_prior import GAIN_STD
from .normal import NormalEquations, common_motion
from .outliers import cut_pixels, disagreeing_pixels, surprising_frames
from .search import LARGEST_STEP_PX
from .spectrum import first_knots, spectrum_of

LOOSE, FINE = 2e-3, 1e-4  # tolerances of images to work with, and of those compared closely
LOOSENESS = 10.0  # energies of the former may exceed the least so many times as the residual says
SAME_PX = 0.05  # within which flows lead to the same peak
ITERATIONS = 16  # of a step: its unknowns are then known to a few per cent, which is enough
STATE = ("theta", "gain", "image", "knots", "kept", "good")  # what is found of each burst


class Joint:
    """Image, coefficients and gains of a batch, and the posterior of all of them together.

    known_px: (B, N, 2, H, W), flows in place of those of the coefficients, where `moving` is False.
    common_gain: (B,), what all gains but the reference's are about; 1 if it is not given.
    """

    def __init__(
        self,
        burst: Burst,
        kept: Tensor,
        theta: Tensor,
        basis: Tensor,
        scale: int,
        moving: bool = True,
        belief: Belief | None = None,
        known_px: Tensor | None = None,
        common_gain: Tensor | None = None,
    ) -> None:
        self.burst, self.kept, self.basis, self.scale = burst, kept, basis, scale
        self.known_px = known_px
        self.good = burst.valid & kept[..., None, None]
        self.theta, self.moving = theta, moving
        self.gain = torch.ones_like(theta[..., 0, 0])
        common_gain = self.gain[:, 0].clone() if common_gain is None else common_gain
        self.coefficient_prior = CoefficientPrior(belief, theta, common_gain)
        self.gain[:, 1:] = common_gain[:, None]
        if belief is not None:
            self.gain = 1 + belief.mean[..., -1]
        self.noise_var = frame_noise_var(burst)
        self.jitter_px = torch.zeros_like(self.gain[:, 0])
        self.knots = first_knots(burst.frames, self.good, self.noise_var)
        canvas = canvas_shape(burst.shape, scale, scale * CANVAS_PAD_PX)
        self.image = theta.new_zeros(len(theta), *canvas)

    def part(self, index: Tensor) -> Joint:
        """That of some bursts of the batch, to be looked at anew."""
        other = copy.copy(self)
        other.burst = self.burst.part(index)
        other.coefficient_prior = self.coefficient_prior.part(index)
        for name in (*STATE, "noise_var", "jitter_px"):
            setattr(other, name, getattr(self, name)[index])
        other.known_px = None if self.known_px is None else self.known_px[index]
        return other

    def put_back(self, index: Tensor, part: Joint) -> None:
        """What was found for some bursts of the batch."""
        for name in STATE:
            setattr(self, name, getattr(self, name).index_copy(0, index, getattr(part, name)))
        self.coefficient_prior.put_back(index, part.coefficient_prior)

    def look(self, tolerance: float = LOOSE) -> None:
        """The image and how each frame answers to its coefficients and gain."""
        gain = self.gain[..., None, None]
        known = self.known_px
        self.flow_px = flow_of(self.theta, self.basis) if known is None else known
        budget = self.noise_var / gain**2 + self._jitter_var()[:, None, None, None]
        self.problem = GaussianProblem(self.flow_px, self.good / budget, self.knots, self.scale)
        frames = self.burst.frames / gain
        self.level = weighted_mean(frames, self.problem.precision)
        self.image = self.problem.solve(frames - self.level, self.image, tolerance)
        predicted = self.problem.model.forward(self.image)
        self.residual = frames - self.level - predicted
        self.surprise = self.residual / budget.sqrt()  # of pixels left out too
        down, right = self.problem.model.slopes(self.image)
        self.answers = (down, right, predicted + self.level)  # to its motion and gain
        bends = torch.stack([down, right], 2)[:, :, :, None] * self.basis
        whole = self.answers[2][:, :, None]
        self.tangent = torch.cat([bends.flatten(2, 3), whole], 2)  # (B, N, P, H, W)
        self.tangent[:, 0] = 0  # the reference defines grid and scale
        if not self.moving:
            self.tangent[:, :, :-1] = 0

    def _jitter_var(self) -> Tensor:
        """What misplaced frames add to their noise, (B,)."""
        fy, fx = (torch.fft.fftfreq(64, device=self.knots.device) for _ in range(2))
        power = spectrum_at(self.knots, spectral_basis(fy[:, None], fx))
        square = (2 * math.pi * self.scale) ** 2 * (fy[:, None] ** 2 + fx**2) / 2
        return self.jitter_px**2 * (power * square).mean((-1, -2))

    def state(self) -> Tensor:
        """The unknowns (B, N, P): coefficients along y and x, and the gain less one."""
        return torch.cat([self.theta.flatten(2), (self.gain - 1)[..., None]], 2)

    def normal(self) -> NormalEquations:
        """The joint normal equations for image and unknowns, at the image last looked at."""
        prior, level = self.coefficient_prior.precision(), self.level[:, 0]
        image = (*image_slopes(self.problem, self.image), self.image + level)
        common = common_motion(self.problem, image, self.answers, self.basis, self.free(), prior)
        return NormalEquations(self.problem, self.tangent, prior, common)

    def step(self, iterations: int = ITERATIONS) -> tuple[Tensor, Tensor]:
        """One Gauss-Newton step; returns the largest change of a flow, px, and of a gain, (B,)."""
        normal = self.normal()
        uphill = self.problem.model.adjoint(self.problem.precision * self.residual)
        uphill = uphill - self.problem.filter(self.image, self.problem.stiffness)
        free = self.free()
        pull = self.coefficient_prior.pull(self.state(), free)
        right = normal.pack(uphill, torch.where(free, self.slope(), 0) - pull)
        found = conjugate_gradients(normal, right, 1e-2, max_steps=iterations)
        image, change = normal.unpack(found)
        theta = change[..., :-1].unflatten(2, (2, -1))
        largest = flow_of(theta, self.basis).abs().flatten(2).amax(2)
        share = LARGEST_STEP_PX / largest.clamp(min=LARGEST_STEP_PX)
        self.theta = self.theta + theta * share[..., None, None]
        self.gain = self.gain * (1 + change[..., -1].clamp(-GAIN_STD, GAIN_STD))
        self.image = self.image + image
        return largest.amax(1), change[..., -1].abs().amax(1)

    def slope(self) -> Tensor:
        """Derivative of the log likelihood in coefficients and gain, (B, N, P).

        Less what a spectrum that is off adds to that of gains.
        """
        weighted = self.problem.precision * self.residual
        energy = torch.einsum("bnphw,bnhw->bnp", self.tangent, weighted)
        grown = determinant_slope(self.problem, self.basis)
        owed = owed_to_spectrum(self.problem.prior_energy(self.image), grown[..., -1])
        return energy - grown - F.pad(owed[..., None], [grown.shape[-1] - 1, 0])

    def used_frames(self) -> Tensor:
        """Those that have pixels to use, (B, N) bool."""
        return self.good.any(-1).any(-1)

    def free(self) -> Tensor:
        """Which unknowns the frames tell of, (B, N, P) bool."""
        free = self.used_frames()[..., None].repeat(1, 1, 2 * len(self.basis) + 1)
        free[:, 0] = False
        if not self.moving:
            free[..., :-1] = False
        return free

    def energy(self) -> Tensor:
        """Minus twice the log posterior of coefficients and gains, up to a constant, (B,)."""
        problem = self.problem
        misfit = (problem.precision * self.residual**2).sum((1, 2, 3))
        energy = misfit + problem.prior_energy(self.image) + log_determinant(problem)
        return energy + self.coefficient_prior.energy(self.state(), self.free())

    def keep_the_best(self, *others: Tensor) -> None:
        """Return to other coefficients, (B, N, 2, K) each, where they are more likely.

        Most are far from being so, and an image solved loosely shows it. Those nearly the same must
        be so as far as that shows.
        """
        thetas, image = torch.stack([self.theta, *others]), self.image
        same = torch.stack([torch.zeros_like(self.kept[:, 0]), *map(self._same, others)])
        energy, slack = self._energies(thetas, LOOSE)
        same &= energy + slack > energy[0]
        energy = energy.masked_fill(same, torch.inf)
        best, rivals = energy.argmin(0), (energy - slack < energy.amin(0)).sum(0) > 1
        near = rivals.nonzero()[:, 0]
        if len(near):
            closely, _ = self.part(near)._energies(thetas[:, near], FINE)
            closely = closely.masked_fill(same[:, near], torch.inf)
            best = best.index_copy(0, near, closely.argmin(0))
        self.theta = thetas[best, torch.arange(len(best), device=best.device)]
        self.image = image
        self.look()

    def _same(self, theta: Tensor) -> Tensor:
        """Bursts whose flow is nearly that of coefficients (B, N, 2, K), (B,) bool."""
        apart_px = flow_of(theta - self.theta, self.basis).abs().flatten(2).amax(2)
        return (apart_px * self.kept).amax(1) < SAME_PX

    def _energies(self, thetas: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """Those of coefficients (C, B, N, 2, K), and what the tolerance may add, (C, B) each."""
        image, energies, slacks = self.image, [], []
        for theta in thetas:
            self.theta, self.image = theta, image
            self.look(tolerance)
            energies.append(self.energy())
            data = self.residual + self.problem.model.forward(self.image)
            right = self.problem.model.adjoint(self.problem.precision * data)
            power = (right * self.problem.precondition(right)).sum((1, 2))
            slacks.append(LOOSENESS * tolerance**2 * power)
        # what is no number is never the least
        energy = torch.stack(energies).nan_to_num(nan=torch.inf, posinf=torch.inf)
        return energy, torch.stack(slacks)

    def learn_prior(self) -> None:
        """The spectrum of the image, and how large coefficients are in this burst."""
        self.knots = spectrum_of(self.problem, self.image, self.burst.days)
        self.coefficient_prior.learn(self.theta, self.gain, self.used_frames())

    def judge(self) -> None:
        """Leave out pixels that disagree with the other frames, and those that only luck kept."""
        gain = self.gain[..., None, None]
        frames, noise_std = self.burst.frames / gain, self.noise_var.sqrt() / gain
        seen = self.burst.valid & self.kept[..., None, None]
        # what the image did not take up is missed by more than what it did
        missed = freedom_of(self.problem).rsqrt()[..., None, None]
        surprise = self.surprise / torch.where(self.good, 1, missed)
        outlier = disagreeing_pixels(surprise, seen)
        cut = cut_pixels(frames, self.burst.valid, frames - self.residual, noise_std)
        self.good = seen & ~outlier & ~cut

    def expel(self) -> Tensor:
        """Leave frames out whose residuals surprise, against the usual frame's; who had some."""
        seen = self.good.sum((-1, -2))
        surprise = (self.surprise**2 * self.good).sum((-1, -2)) / seen.clamp(min=1)
        lost = self.kept & surprising_frames(surprise, seen > 0)
        self.kept = self.kept & ~lost
        self.good = self.good & self.kept[..., None, None]
        return lost.any(1)
