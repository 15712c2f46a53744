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
from ..filters import gaussian_blur
from ..forward import canvas_shape
from ..gaussian import (
    CANVAS_PAD_PX,
    GaussianProblem,
    node_blocks,
    spread_nodes,
    weighted_mean,
)
from ..linear import conjugate_gradients
from ..noise import frame_noise_var
from ..prior import owed_to_spectrum, spectral_basis, spectrum_at
from ..spectral import AliasBlocks, axis_frequencies, half_weight, image_frequencies, transfer
from .belief import Belief, Evidence, evidence_of, on_diagonal, unheld
from .bend import COEFFICIENT_PX, flow_of, image_slopes, slopes_of
from .mismatch import freedom_of
from .motion_prior import GAIN_STD, LEAST_GAIN_STD
from .normal import NormalEquations, common_motion
from .outliers import cut_pixels, disagreeing_pixels, surprising_frames
from .search import LARGEST_STEP_PX
from .spectrum import first_knots, spectrum_of
from .variance import noise_variance

LEAST_COEFFICIENT_PX = 0.01
LOOSE, FINE = 2e-3, 1e-4  # tolerances of images to work with, and of those compared closely
LOOSENESS = 10.0  # energies of the former may exceed the least so many times as the residual says
ITERATIONS = 16  # of a step: its unknowns are then known to a few per cent, which is enough
DRAWS = 6
RATIO_SMOOTHING_PX = 1.5
# what is found of each burst
STATE = ("theta", "gain", "image", "knots", "kept", "good", "coefficient_px", "gain_std")


class Joint:
    """Image, coefficients and gains of a batch, and the posterior of all of them together."""

    def __init__(
        self,
        burst: Burst,
        kept: Tensor,
        theta: Tensor,
        basis: Tensor,
        scale: int,
        moving: bool = True,
        belief: Belief | None = None,
    ) -> None:
        self.burst, self.kept, self.basis, self.scale = burst, kept, basis, scale
        self.good = burst.valid & kept[..., None, None]
        self.theta, self.moving, self.belief = theta, moving, belief
        self.gain = torch.ones_like(theta[..., 0, 0])
        if belief is not None:
            self.gain = 1 + belief.mean[..., -1]
        self.noise_var = frame_noise_var(burst)
        self.jitter_px = torch.zeros_like(self.gain[:, 0])
        self.knots = first_knots(burst.frames, self.good, self.noise_var)
        self.coefficient_px = torch.full_like(theta[:, 0, 0], COEFFICIENT_PX)
        self.gain_std = torch.full_like(self.gain[:, 0], GAIN_STD)
        canvas = canvas_shape(burst.shape, scale, scale * CANVAS_PAD_PX)
        self.image = theta.new_zeros(len(theta), *canvas)

    def part(self, index: Tensor) -> Joint:
        """That of some bursts of the batch, to be looked at anew."""
        other = copy.copy(self)
        other.burst = self.burst.part(index)
        other.belief = None if self.belief is None else self.belief.part(index)
        for name in (*STATE, "noise_var", "jitter_px"):
            setattr(other, name, getattr(self, name)[index])
        return other

    def put_back(self, index: Tensor, part: Joint) -> None:
        """What was found for some bursts of the batch."""
        for name in STATE:
            setattr(self, name, getattr(self, name).index_copy(0, index, getattr(part, name)))

    def look(self, tolerance: float = LOOSE) -> None:
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
        self.surprise = self.residual / budget.sqrt()  # of pixels left out too
        down, right = slopes_of(self.problem, self.image)
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

    def _prior_precision(self) -> Tensor:
        """Of what is believed of each frame's unknowns, (B, N, P, P)."""
        if self.belief is not None:
            return self.belief.precision()
        doubt = self.coefficient_px**-2
        doubt = torch.cat([doubt, doubt, self.gain_std[:, None] ** -2], 1)
        doubt[:, [0, len(self.basis)]] = 1e-4
        return torch.diag_embed(doubt)[:, None].expand(-1, self.burst.count, -1, -1)

    def _centre(self) -> Tensor:
        """What the unknowns are believed to be, (B, N, P)."""
        return torch.zeros_like(self.state()) if self.belief is None else self.belief.mean

    def _pull(self) -> Tensor:
        """How the prior holds the unknowns, (B, N, P); those of frames left out are none."""
        pull = (self._prior_precision() @ (self.state() - self._centre())[..., None])[..., 0]
        return torch.where(self._free(), pull, 0)

    def state(self) -> Tensor:
        """The unknowns (B, N, P): coefficients along y and x, and the gain less one."""
        return torch.cat([self.theta.flatten(2), (self.gain - 1)[..., None]], 2)

    def normal(self) -> NormalEquations:
        """The joint normal equations for image and unknowns, at the image last looked at."""
        prior, level = self._prior_precision(), self.level[:, 0]
        image = (*image_slopes(self.problem, self.image), self.image + level)
        common = common_motion(self.problem, image, self.answers, self.basis, self._free(), prior)
        return NormalEquations(self.problem, self.tangent, prior, common)

    def step(self, iterations: int = ITERATIONS) -> tuple[Tensor, Tensor]:
        """One Gauss-Newton step; returns the largest change of a flow, px, and of a gain, (B,)."""
        normal = self.normal()
        uphill = self.problem.model.adjoint(self.problem.precision * self.residual)
        uphill = uphill - self.problem.filter(self.image, self.problem.stiffness)
        slope = torch.where(self._free(), self._slope(), 0) - self._pull()
        right = normal.pack(uphill, slope)
        found = conjugate_gradients(normal, right, 1e-2, max_steps=iterations)
        image, change = normal.unpack(found)
        theta = change[..., :-1].unflatten(2, (2, -1))
        largest = flow_of(theta, self.basis).abs().flatten(2).amax(2)
        share = LARGEST_STEP_PX / largest.clamp(min=LARGEST_STEP_PX)
        self.theta = self.theta + theta * share[..., None, None]
        self.gain = self.gain * (1 + change[..., -1].clamp(-GAIN_STD, GAIN_STD))
        self.image = self.image + image
        return largest.amax(1), change[..., -1].abs().amax(1)

    def _slope(self) -> Tensor:
        """Derivative of the log likelihood in coefficients and gain, (B, N, P).

        Less what a spectrum that is off adds to that of gains.
        """
        weighted = self.problem.precision * self.residual
        energy = torch.einsum("bnphw,bnhw->bnp", self.tangent, weighted)
        grown = self._determinant_slope()
        owed = owed_to_spectrum(self._smoothness(), grown[..., -1])
        return energy - grown - F.pad(owed[..., None], [grown.shape[-1] - 1, 0])

    def _smoothness(self) -> Tensor:
        """The energy of the image under the prior, `u' S^-1 u`, (B,)."""
        stiff = self.problem.filter(self.image, self.problem.stiffness)
        return (self.image * stiff).sum((1, 2))

    def evidence(self) -> Evidence:
        """What the frames tell of their unknowns, whatever was believed of them beforehand."""
        free = self._free().any(-1)
        return evidence_of(self.state(), self._information(), self._slope(), free, len(self.basis))

    def covariance(self) -> Tensor:
        """Covariance of each frame's (dy, dx, gain), (B, 3N, 3N): of its mean displacement.

        Zero where nothing was estimated.
        """
        place = [0, len(self.basis), 2 * len(self.basis)]
        free = self._free().flatten(1)
        both = free[:, :, None] & free[:, None]
        system = self._information() + on_diagonal(self._prior_precision().double())
        system = torch.where(both, system, 0) + torch.diag_embed((~free).double())
        inverse = torch.where(both, torch.linalg.inv_ex(system).inverse, 0).to(self.gain)
        count = self.burst.count
        chosen = inverse.unflatten(2, (count, -1)).unflatten(1, (count, -1))
        return chosen[:, :, place][..., place].flatten(3).flatten(1, 2)

    def _free(self) -> Tensor:
        """Which unknowns the frames tell of, (B, N, P) bool."""
        free = self.good.any(-1).any(-1)[..., None].repeat(1, 1, 2 * len(self.basis) + 1)
        free[:, 0] = False
        if not self.moving:
            free[..., :-1] = False
        return free

    def _information(self) -> Tensor:
        """Of all unknowns, (B, N*P, N*P): of tangents seen through the blocks of the frames' mean
        shifts."""
        problem, shape = self.problem, self.burst.shape
        shift_px = self.flow_px if self.flow_px.ndim == 3 else self.flow_px.mean((-1, -2))
        prior = spectrum_at(
            self.knots, spectral_basis(*image_frequencies(shape, self.scale, self.knots))
        )
        weight = problem.typical_precision()
        blocks = AliasBlocks(transfer(shift_px, shape, self.scale), weight, prior)
        share = (problem.precision / weight.clamp(min=1e-30)[..., None, None]).sqrt()
        places = [0, len(self.basis)]  # of the constants, along y and x
        tangent = self.tangent.clone()
        if self.moving:  # the reference tells where all of them are together
            tangent[:, 0, places] = torch.stack([part[:, 0] for part in self.answers[:2]], 1)
        change = torch.fft.rfft2(tangent * share[:, :, None], norm="ortho")
        information = blocks.information(change, half_weight(shape[1], self.knots)).double()
        if not self.moving:
            return information
        axes = torch.zeros_like(information[0, : tangent.shape[2], :2])
        axes[places, [0, 1]] = 1
        seen = self.good.any(-1).any(-1).repeat_interleave(tangent.shape[2], 1)
        return unheld(information, axes.repeat(tangent.shape[1], 1) * seen[..., None])

    def _determinant_slope(self) -> Tensor:
        """Slope of half the log determinant in coefficients and gain, (B, N, P).

        That of local translations, at the nodes of a flow; a pixel adds to it by its weight.
        """
        problem = self.problem
        bent = problem.nodes > 1
        blocks = node_blocks(problem) if bent else problem.blocks
        lattice = (blocks.covariance.shape[-2], blocks.width)
        rows, columns = axis_frequencies(lattice, self.scale, self.theta)
        turn = (2j * math.pi * self.scale * rows, 2j * math.pi * self.scale * columns)
        slope = blocks.determinant_slope(half_weight(lattice[1], self.theta), turn)
        slope = slope.unflatten(0, (len(self.theta), -1)).permute(0, 2, 3, 1)  # (B, N, 3, M)
        field = spread_nodes(slope, self.burst.shape) if bent else slope[..., None]
        usual = problem.typical_precision().clamp(min=1e-30)[..., None, None]
        field = field / math.prod(lattice) * (problem.precision / usual)[:, :, None]
        bends = torch.einsum("bnchw,khw->bnck", field[:, :, :2], self.basis).flatten(2)
        return torch.cat([bends, field[:, :, 2:].sum((-1, -2))], 2)

    def energy(self) -> Tensor:
        """Minus twice the log posterior of coefficients and gains, up to a constant, (B,).

        As in `motion`, with the determinant of the local translations at the nodes of a flow.
        """
        problem = self.problem
        misfit = (problem.precision * self.residual**2).sum((1, 2, 3))
        blocks = node_blocks(problem) if problem.nodes > 1 else problem.blocks
        count = half_weight(blocks.width, self.theta)
        freedom = (blocks.log_det * count).sum((-1, -2)) / (count.sum() * blocks.log_det.shape[-2])
        freedom = freedom.unflatten(0, (len(self.theta), -1)).mean(1)
        held = ((self.state() - self._centre()) * self._pull()).sum((1, 2))
        return misfit + self._smoothness() + math.prod(self.burst.shape) * freedom + held

    def keep_the_best(self, *others: Tensor) -> None:
        """Return to other coefficients, (B, N, 2, K) each, where they are more likely.

        Most are far from being so, and an image solved loosely shows it.
        """
        thetas, image = torch.stack([self.theta, *others]), self.image
        energy, slack = self._energies(thetas, LOOSE)
        best, rivals = energy.argmin(0), (energy - slack < energy.amin(0)).sum(0) > 1
        near = rivals.nonzero()[:, 0]
        if len(near):
            closely, _ = self.part(near)._energies(thetas[:, near], FINE)
            best = best.index_copy(0, near, closely.argmin(0))
        self.theta = thetas[best, torch.arange(len(best), device=best.device)]
        self.image = image
        self.look()

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
        if self.belief is not None:
            return
        used = self.good.any(-1).any(-1).to(self.gain)  # (B, N)
        count = used.sum(1, keepdim=True)
        size = (self.theta.square().mean(2) * used[..., None]).sum(1) / (count - 1).clamp(min=1)
        self.coefficient_px = (size + LEAST_COEFFICIENT_PX**2).sqrt()
        # about their mean: a factor common to all frames but a masked reference is no evidence
        mean = (self.gain * used).sum(1, keepdim=True) / count.clamp(min=1)
        spread = ((self.gain - mean) ** 2 * used).sum(1, keepdim=True) / count.clamp(min=1)
        self.gain_std = spread[:, 0].sqrt().clamp(LEAST_GAIN_STD, GAIN_STD)

    def doubt(self) -> tuple[Tensor, Tensor]:
        """Draws of what errors of motion and gain do to the frames, (B, D, N, H, W), and how much
        more of the image noise and prior leave unknown than `noise_variance` says, (B, s*H, s*W).

        From draws of the joint posterior: solutions for a right side whose covariance is that of
        the normal equations. Less its answer to the frames' displacement, the image of a draw is
        one for known motion; a few of those tell a smooth ratio on each sub-grid.
        """
        problem, normal = self.problem, self.normal()
        root = torch.linalg.cholesky(self._prior_precision())
        generator = torch.Generator(self.knots.device).manual_seed(0)
        stated = noise_variance(problem)
        misplaced, ratio = [], torch.zeros_like(stated)
        for _ in range(DRAWS):
            # the same for each burst: none must depend on the others of its batch
            noise, scene, other = (
                torch.randn(shape[1:], generator=generator, device=stated.device).expand(shape)
                for shape in (self.residual.shape, self.image.shape, self.tangent.shape[:3])
            )
            told = normal.seen(problem.precision.sqrt() * noise)
            known = problem.filter(scene, problem.prior.rsqrt())
            believed = torch.where(self._free(), (root @ other[..., None])[..., 0], 0)
            right = told + normal.pack(known, believed)
            image, error = normal.unpack(conjugate_gradients(normal, right, 5e-2, max_steps=100))
            misplaced.append(normal.moved(error))
            alone = problem.crop(image + problem.solve(misplaced[-1], None, 5e-2))
            ratio += alone**2 / (DRAWS * stated)
        grids = F.pixel_unshuffle(ratio[:, None], self.scale)
        smooth = F.pixel_shuffle(gaussian_blur(grids, RATIO_SMOOTHING_PX), self.scale)
        return torch.stack(misplaced, 1), smooth[:, 0]

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
