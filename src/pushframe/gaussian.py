"""The image of least energy for given motion, noise and prior: linear, exact, a few iterations.

`u` minimises `sum_t |v_t - D F_t u|^2 / var_t + |u - level|^2` under a stationary Gaussian
prior, on a canvas that reaches a little beyond the frames.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .filters import highest_near, tukey
from .folding import half_weight, image_frequencies, to_image
from .forward import canvas_shape, forward_model
from .linear import conjugate_gradients
from .local_prior import LocalPrior
from .once import made_once
from .ops import spread
from .prior import scaled, spectral_basis, spectrum_at
from .spectral import AliasBlocks, transfer

CANVAS_PAD_PX = 4  # low-res px: room for shifted frames; the kernel's tails end there

NODES = 4  # along each axis, where a flow is looked at to stand for its surroundings
NODE_LATTICE = 16  # low-res frequencies along each axis that stand for all at a node


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean over frames and pixels of a batch, (B, 1, 1, 1)."""
    total = weight.sum((1, 2, 3), keepdim=True).clamp(min=1e-30)
    return (values * weight).sum((1, 2, 3), keepdim=True) / total


@made_once
def _canvas_basis(canvas: tuple[int, int], device: torch.device) -> Tensor:
    """The knots' weights at the frequencies of a canvas' half spectrum, (h, w // 2 + 1, TERMS)."""
    rows = torch.fft.fftfreq(canvas[0], device=device)[:, None]
    return spectral_basis(rows, torch.fft.rfftfreq(canvas[1], device=device))


@made_once
def folded_basis(lattice: tuple[int, int], scale: int, device: torch.device) -> Tensor:
    """The knots' weights at the aliases of a lattice's frequencies, (K, a, c, TERMS)."""
    like = torch.zeros((), device=device)
    return spectral_basis(*image_frequencies(lattice, scale, like))


class GaussianProblem:
    """One linear problem a burst: the forward model, the pixels' precision, the prior.

    flow_px: (B, N, 2[, H, W]); precision: (B, N, H, W), zero leaves a pixel out; knots: log
    power of the prior, (B, TERMS), see `prior`. `with_detail` makes that prior a local one.
    """

    local: LocalPrior | None = None

    def __init__(self, flow_px: Tensor, precision: Tensor, knots: Tensor, scale: int) -> None:
        shape = (precision.shape[-2], precision.shape[-1])
        self.pad, self.scale = scale * CANVAS_PAD_PX, scale
        self.flow_px, self.knots = flow_px, knots
        self.canvas = canvas_shape(shape, scale, self.pad)
        self.model = forward_model(flow_px, shape, scale, self.pad)
        self.prior = spectrum_at(knots, _canvas_basis(self.canvas, knots.device).to(knots))
        self.stiffness = 1 / self.prior
        lattice = (self.canvas[0] // scale, self.canvas[1] // scale)
        folded = folded_basis(lattice, scale, knots.device).to(knots)
        self.folded_prior = spectrum_at(knots, folded)
        # a flow is represented by its nodes, each a frame of its own with a share of the weight
        nodes = flow_px[:, :, None] if flow_px.ndim == 3 else _at_nodes(flow_px)
        self.nodes = nodes.shape[2]
        self.see = transfer(nodes.flatten(1, 2), lattice, scale)
        self._weigh(precision)

    def _weigh(self, precision: Tensor) -> None:
        self.precision = precision * self.model.inside
        typical = (self.typical_precision() / self.nodes).repeat_interleave(self.nodes, 1)
        self.blocks = AliasBlocks(self.see, typical, self.folded_prior)

    def typical_precision(self) -> Tensor:
        """The mean precision of each frame's pixels on the canvas, (B, N)."""
        area = self.model.inside.expand(self.precision.shape).sum((-1, -2))
        return self.precision.sum((-1, -2)) / area.clamp(min=1)

    def leverage(self) -> Tensor:
        """Share of each frame's noise that the image takes up, (B, N)."""
        if self.nodes == 1:
            return _mean_leverage(self.blocks)
        local = _mean_leverage(node_blocks(self))
        return local.unflatten(0, (-1, self.nodes)).mean(1)

    def reweighted(self, precision: Tensor) -> GaussianProblem:
        """The same problem with another precision of its pixels."""
        other = copy.copy(self)
        other._weigh(precision)
        return other

    def tightened(self, factor: float) -> GaussianProblem:
        """The same problem with a prior of so many times the precision."""
        other = copy.copy(self)
        other.knots = scaled(self.knots, 1 / factor)
        other.prior, other.folded_prior = self.prior / factor, self.folded_prior / factor
        other.stiffness = self.stiffness * factor
        other._weigh(self.precision)
        return other

    def with_detail(self, local: LocalPrior) -> GaussianProblem:
        """The same problem under a local prior; its blocks are those of the typical place."""
        other = copy.copy(self)
        other.local = local
        typical = local.power().log().mean((1, 2)).exp()
        other.folded_prior = self.folded_prior * typical[:, None, None, None]
        other._weigh(self.precision)
        return other

    def part(self, index: Tensor) -> GaussianProblem:
        """The problem of some bursts of the batch."""
        other = copy.copy(self)
        other.flow_px, other.precision, other.knots, other.prior = (
            part[index] for part in (self.flow_px, self.precision, self.knots, self.prior)
        )
        other.stiffness, other.folded_prior = self.stiffness[index], self.folded_prior[index]
        other.model, other.blocks = self.model.part(index), self.blocks.part(index)
        other.see = other.blocks.see
        other.local = None if self.local is None else self.local.part(index)
        return other

    def solve(
        self,
        data: Tensor,
        start: Tensor | None = None,
        tolerance: Tensor | float = 5e-4,
        error_std: Tensor | float = 0.0,
    ) -> Tensor:
        """The canvas (B, h, w) of least energy for data (B, N, H, W) counted from the level.

        start: a canvas to begin from, `periodic_mean` by default. Solved to a relative residual of
        `tolerance`, or to an error of so many posterior standard deviations, rms over the canvas,
        as the preconditioner counts them: inside frames it is right, at their borders and holes
        too small. Both one number, or (B, 1, 1).
        """
        right = torch.fft.rfft2(self.model.adjoint(self.precision * data))
        if start is None and self.nodes == 1:
            start = self.periodic_mean(data)
        enough = error_std**2 * self.canvas[0] * self.canvas[1]
        begin = None if start is None else torch.fft.rfft2(start)
        spectrum = conjugate_gradients(Spectra(self), right, tolerance, begin, enough)
        return torch.fft.irfft2(spectrum, s=self.canvas)

    def periodic_mean(self, data: Tensor) -> Tensor:
        """The blocks' own answer (B, h, w), to frames that fade out over the canvas' margin.

        A frame that ended at its border would be an edge, and much of what is left to solve.
        """
        margin = CANVAS_PAD_PX
        wide = F.pad(data * (self.precision > 0), [margin] * 4, mode="replicate")
        tall, fade = (
            tukey(torch.arange(size, device=data.device), size, margin / size)
            for size in wide.shape[-2:]
        )
        solved = self.blocks.mean(torch.fft.rfft2(wide * (tall[:, None] * fade), norm="ortho"))
        return to_image(solved, self.scale, self.canvas[1] // self.scale)

    def normal(self, image: Tensor) -> Tensor:
        """`(sum_t F_t' D' W D F_t + prior^-1) image`."""
        return torch.fft.irfft2(Spectra(self).normal(torch.fft.rfft2(image)), s=self.canvas)

    def precondition(self, image: Tensor) -> Tensor:
        """The periodic, uniformly weighted problem solved exactly, alias block by alias block."""
        return torch.fft.irfft2(self.blocks.solve_image(torch.fft.rfft2(image)), s=self.canvas)

    def filter(self, image: Tensor, spectrum: Tensor) -> Tensor:
        """`image` with each frequency multiplied, (B, h, w)."""
        return torch.fft.irfft2(torch.fft.rfft2(image) * spectrum, s=self.canvas)

    def prior_energy(self, image: Tensor) -> Tensor:
        """Minus twice the log prior of an image (B, h, w), `u' S^-1 u`, up to a constant, (B,).

        Under the stationary prior.
        """
        return (image * self.filter(image, self.stiffness)).sum((1, 2))

    def sample_error(self, generator: torch.Generator) -> Tensor:
        """A draw of the posterior's error: the solution of a perturbed world less its truth.

        Under the stationary prior.
        """
        image = self.filter(
            self._normal(generator, self.prior.shape[:1] + self.canvas), self.prior.sqrt()
        )
        noise_std = torch.where(self.precision > 0, self.precision, torch.inf).rsqrt()
        noise = noise_std * self._normal(generator, self.precision.shape)
        return self.solve(self.model.forward(image) + noise) - image

    def crop(self, canvas: Tensor) -> Tensor:
        """The part of a canvas that the reference covers, (..., s*H, s*W)."""
        return canvas[..., self.pad : -self.pad, self.pad : -self.pad]

    def _normal(self, generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, device=self.precision.device)


class Spectra:
    """The normal equations of a problem in the spectra of its images, (B, h, w // 2 + 1).

    There the prior is a product, and the preconditioner needs no transform: two of them a step are
    left of four.
    """

    def __init__(self, problem: GaussianProblem) -> None:
        self.problem = problem
        pixels = math.prod(problem.canvas)
        self.weight = problem.precision / pixels  # of images not divided by it
        self.count = half_weight(problem.canvas[1], problem.precision) / pixels

    def normal(self, spectrum: Tensor) -> Tensor:
        """As `GaussianProblem.normal`."""
        problem, model = self.problem, self.problem.model
        image = torch.fft.irfft2(spectrum, s=problem.canvas, norm="forward")
        seen = torch.fft.rfft2(model.adjoint(self.weight * model.forward(image)))
        if problem.local is not None:
            return seen + problem.local.apply_to_spectrum(spectrum)
        return torch.addcmul(seen, spectrum, problem.stiffness)

    def precondition(self, spectrum: Tensor) -> Tensor:
        """As `GaussianProblem.precondition`."""
        return self.problem.blocks.solve_image(spectrum)

    def dot(self, one: Tensor, other: Tensor) -> Tensor:
        """The product of the images, (B, 1, 1)."""
        product = torch.view_as_real(one) * torch.view_as_real(other)
        # no matrix product: its rounding would depend on the other bursts of the batch
        return (product.sum((1, 3)) * self.count).sum(1)[:, None, None]

    def part(self, index: Tensor) -> Spectra:
        """Those of some bursts of the batch."""
        return Spectra(self.problem.part(index))


def _at_nodes(flow_px: Tensor) -> Tensor:
    """Flows (B, N, 2, H, W) at the middles of NODES x NODES equal regions, (B, N, M, 2)."""
    index = [((torch.arange(NODES) + 0.5) / NODES * size).long() for size in flow_px.shape[-2:]]
    return flow_px[..., index[0][:, None], index[1]].flatten(3).transpose(2, 3)


def spread_nodes(values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Values at the nodes (..., M) for every pixel of a frame, (..., H, W): the nearest node's."""
    rows, columns = (torch.arange(size) * NODES // size for size in shape)
    return values.unflatten(-1, (NODES, NODES))[..., rows[:, None], columns]


def _mean_leverage(blocks: AliasBlocks) -> Tensor:
    """Mean over frequencies of what the image takes up of each frame, (B, N)."""
    count = half_weight(blocks.width, blocks.precision)
    return blocks.leverage(count) / (count.sum() * blocks.covariance.shape[-2])


def node_prior(problem: GaussianProblem) -> Tensor:
    """The spectrum of the scene at the frequencies of `node_blocks`, (B * M, K, a, c)."""
    lattice = (NODE_LATTICE, NODE_LATTICE)
    folded = folded_basis(lattice, problem.scale, problem.knots.device).to(problem.knots)
    return spectrum_at(problem.knots, folded).repeat_interleave(problem.nodes, 0)


def node_flows(problem: GaussianProblem) -> Tensor:
    """The local translations at the nodes of a flow, (B * M, N, 2); of translations, these."""
    nodes = problem.flow_px[:, :, None] if problem.nodes == 1 else _at_nodes(problem.flow_px)
    return nodes.transpose(1, 2).flatten(0, 1)


def node_blocks(problem: GaussianProblem, power: Tensor | None = None) -> AliasBlocks:
    """The blocks of the local translations at the nodes of a flow, a batch of B * M bursts.

    power: (L,) of the scene's detail, against its spectrum; then a batch of B * M * L. Translations
    are a flow of one node.
    """
    lattice = (NODE_LATTICE, NODE_LATTICE)
    see = transfer(node_flows(problem), lattice, problem.scale)
    typical = problem.typical_precision().repeat_interleave(problem.nodes, 0)
    prior = node_prior(problem)
    if power is not None:
        prior = (prior[:, None] * power[:, None, None, None]).flatten(0, 1)
        entry = torch.arange(len(typical), device=typical.device).repeat_interleave(len(power))
        see, typical = see.part(entry), typical[entry]
    return AliasBlocks(see, typical, prior)


def far_from_samples(valid: Tensor, flow_px: Tensor, scale: int) -> Tensor:
    """High-res pixels with no valid sample within s-1 of them, (B, s*H, s*W) bool."""
    (near,) = spread([valid.to(flow_px)], flow_px, scale)
    return highest_near(near[:, None], scale - 1)[:, 0] <= 0
