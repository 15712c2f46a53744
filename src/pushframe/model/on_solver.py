"""Our network: it begins where the solver ends, and learns what a Gaussian prior cannot know.

The solver hands over its image, its error bar, and what its residuals and weights are on the
high-res grid. A first trunk proposes what the scene may look like; the proposal enters as the mean
of the solver's prior, so that the data overrule it wherever they know better. A second trunk
corrects the outcome, in units of the solver's error bar, and says how good it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..burst import Burst
from ..checks import check_scale, require
from ..errors import UsageError
from ..filters import gaussian_blur
from ..folding import to_folded, to_image
from ..gaussian import GaussianProblem
from ..linear import sum_of_products
from ..ops import Splat, splat
from ..posterior import Posterior
from ..solver.finer import finer
from ..solver.image import Reconstruction, detailed, reconstruct
from ..solver.spectrum import spectrum_of_burst
from ..solver.variance import alignment_variance, noise_variance
from .blocks import Trunk, conv, set_bias
from .network import Motion, Network

FINER = 2  # grid of single residuals against the high-res grid: where within a pixel they lie
CHANNELS = 6 + 2 * FINER**2  # of what the solver hands over
LOG_VAR_RANGE = (-4.0, 8.0)  # against the solver's variance
DETAIL_SIGMA_PX = 1.0
TRUST = 16.0


@dataclass(frozen=True)
class OnSolverConfig:
    """scale: zoom, 2 to 4. features: channels at low resolution. proposal_blocks, verdict_blocks:
    residual blocks of the two trunks."""

    scale: int = 2
    features: int = 128
    proposal_blocks: int = 10
    verdict_blocks: int = 5

    def __post_init__(self) -> None:
        check_scale(self.scale)
        for name in ("features", "proposal_blocks", "verdict_blocks"):
            value = getattr(self, name)
            require(value >= 1, f"model.{name} of at least 1", value, "raise it", UsageError)


@dataclass(frozen=True)
class Gate:
    """What becomes of an image proposed as the mean of the prior: `M^-1 P m`, block by block.

    P is the prior's precision, TRUST times that of the solver's: a proposal knows more than a
    spectrum. M is that of the posterior under it. covariance: (B, K, K, a, c) of `AliasBlocks`;
    precision: (B, h, w // 2 + 1), P at each frequency of the canvas.
    """

    covariance: Tensor
    precision: Tensor
    scale: int
    pad: int
    canvas: tuple[int, int]

    @classmethod
    def of(cls, problem: GaussianProblem) -> Gate:
        """The gate of a solved problem."""
        tight = problem.tightened(TRUST)
        covariance, precision = tight.blocks.covariance, 1 / tight.prior
        return cls(covariance, precision, tight.scale, tight.pad, tight.canvas)

    def part(self, rows: Tensor) -> Gate:
        """The gate of some bursts of the batch."""
        covariance, precision = self.covariance[rows], self.precision[rows]
        return dataclasses.replace(self, covariance=covariance, precision=precision)

    @classmethod
    def joined(cls, gates: Sequence[Gate]) -> Gate:
        """The gates of several batches as one."""
        covariance = torch.cat([gate.covariance for gate in gates])
        precision = torch.cat([gate.precision for gate in gates])
        return dataclasses.replace(gates[0], covariance=covariance, precision=precision)

    def weigh(self, canvas: Tensor) -> Tensor:
        """`P m`."""
        return torch.fft.irfft2(torch.fft.rfft2(canvas) * self.precision, s=self.canvas)

    def solve(self, canvas: Tensor) -> Tensor:
        """`M^-1 m`."""
        folded = to_folded(canvas, self.scale)
        solved = sum_of_products(self.covariance, folded[:, None], 2)
        return to_image(solved, self.scale, self.canvas[1] // self.scale)

    def accept(self, proposal: Tensor) -> Tensor:
        """What the data leave of a proposed image, (B, s*H, s*W): nothing where they know all."""
        canvas = F.pad(proposal[:, None], [self.pad] * 4, mode="replicate")[:, 0]
        accepted: Tensor = _Accept.apply(canvas, self)
        return accepted[:, self.pad : -self.pad, self.pad : -self.pad]


class _Accept(torch.autograd.Function):
    """`M^-1 P m`; the transpose is `P M^-1`."""

    @staticmethod
    def forward(ctx: Any, canvas: Tensor, gate: Gate) -> Tensor:
        ctx.gate = gate
        return gate.solve(gate.weigh(canvas))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return ctx.gate.weigh(ctx.gate.solve(slope)), None


class Evidence(NamedTuple):
    """What the solver knows of a batch: images (B, s*H, s*W), and how open it is to proposals.

    maps: (B, CHANNELS, s*H, s*W) for the network, in units of the scene's detail `unit` (B, 1, 1).
    """

    gate: Gate
    mean: Tensor
    var: Tensor
    maps: Tensor
    unit: Tensor

    def part(self, rows: Tensor) -> Evidence:
        """The same of some bursts of the batch."""
        gate, *images = self
        return Evidence(gate.part(rows), *(image[rows] for image in images))

    @classmethod
    def joined(cls, several: Sequence[Evidence]) -> Evidence:
        """The evidence of several batches as one."""
        gates, *images = zip(*several, strict=True)
        return cls(Gate.joined(gates), *(torch.cat(parts) for parts in images))


class OnSolver(Network):
    """The solver's image, corrected; any number of frames from 1, any order, masks, any flow."""

    Config = OnSolverConfig
    mixes_counts = True  # what the solver hands over are images
    fast_on_cpu = True  # it corrects an image that is solved in float32

    def __init__(self, config: OnSolverConfig) -> None:
        super().__init__(config)
        features, fold = config.features, config.scale**2
        self.proposal = Trunk(fold * CHANNELS, features, config.proposal_blocks)
        self.propose = conv(features, fold)
        self.verdict = Trunk(features + 2 * fold, features, config.verdict_blocks)
        self.judge = conv(features, 2 * fold)
        with torch.no_grad():  # to begin with, the solver's own answer
            self.propose.weight.mul_(0.1)
            self.judge.weight.mul_(0.01)
        set_bias(self.judge, torch.zeros(2 * fold))

    def heavy_parts(self) -> Sequence[nn.Module]:
        return self.proposal, self.verdict

    def prepare(self, burst: Burst, motion: Motion) -> Evidence:
        return evidence(burst, motion, self.scale)

    def conclude(self, given: Evidence) -> Posterior:
        fold = self.scale
        maps = F.pixel_unshuffle(given.maps, fold).contiguous(memory_format=torch.channels_last)
        with self.fast(maps):
            features = self.proposal(maps)
        proposal = F.pixel_shuffle(_float(self.propose, features), fold)[:, 0] * given.unit
        accepted = given.gate.accept(proposal)
        both = torch.stack([proposal, accepted], 1) / given.unit[:, None]
        inputs = torch.cat([features, F.pixel_unshuffle(both, fold).to(features)], 1)
        with self.fast(inputs):
            features = self.verdict(inputs.contiguous(memory_format=torch.channels_last))
        shift, log_ratio = F.pixel_shuffle(_float(self.judge, features), fold).unbind(1)
        mean = given.mean + accepted + shift * given.var.sqrt()
        return Posterior(mean, given.var * log_ratio.clamp(*LOG_VAR_RANGE).exp())


def _float(layer: nn.Module, features: Tensor) -> Tensor:
    """A last layer in full precision: what it adds is small against the image."""
    out: Tensor = layer(features.float())
    return out


@torch.no_grad()
def evidence(burst: Burst, motion: Motion, scale: int) -> Evidence:
    """The solver's image of a batch with known motion, and what it knows besides."""
    good, flow_px = burst.valid, motion.flow_px
    knots = spectrum_of_burst(burst, good, flow_px, motion.gain, scale)
    made = reconstruct(burst, good, flow_px, motion.gain, knots, scale)
    found = _handed_over(made, good, motion.covariance, 1)
    if more := finer(burst, good, motion.gain, made):
        index, fine = more
        covariance = None if motion.covariance is None else motion.covariance[index]
        better = _handed_over(fine, good[index], covariance, fine.problem.scale // scale)
        found = [x.index_copy(0, index, y) for x, y in zip(found, better, strict=True)]
    mean, var, residual, weight = found
    var = var.clamp(min=1e-14)
    detail = mean - gaussian_blur(mean[:, None], scale * DETAIL_SIGMA_PX)[:, 0]
    unit = (detail.square().mean((1, 2)) + var.mean((1, 2))).sqrt()[:, None, None]
    sums = splat(residual, weight, flow_px, scale)
    between = splat(residual, weight, flow_px, FINER * scale)
    surprise = splat(weight * residual.square(), (weight > 0).to(weight), flow_px, scale)
    maps = [
        detail / unit,
        (mean - made.level[:, 0]) / (10 * unit),  # radiance varies some ten times as much
        (var.sqrt() / unit).log(),
        (surprise.value / surprise.weight.clamp(min=1e-3)).sqrt() - 1,
        *_residuals(sums, unit, 1),
        # what repeats beyond the frequencies of the grid shows between its pixels
        *_residuals(between, unit, FINER),
    ]
    known = Evidence(Gate.of(made.problem), mean, var, torch.stack(maps, 1).clamp(-30, 30), unit)
    return _without_lost(known, made.level[:, 0])


def _handed_over(
    made: Reconstruction, good: Tensor, covariance: Tensor | None, step: int
) -> list[Tensor]:
    """Mean and variance on each step-th pixel, residual and precision, under the local prior.

    The variance is the solver's own, but for what its draws add near holes of frames.
    """
    made = detailed(made, good)
    var = noise_variance(made.problem)
    if covariance is not None:
        var = var + alignment_variance(made, covariance)
    images = (made.mean[:, ::step, ::step], var[:, ::step, ::step])
    return [*images, made.residual, made.problem.precision]


def _residuals(sums: Splat, unit: Tensor, finer: int) -> list[Tensor]:
    """Mean residual and weight on a grid that is finer, for each of its places in a pixel."""
    mean = sums.value / sums.weight.clamp(min=1e-20) / unit
    weight = (sums.weight * unit**2 + 1e-3).log() / 4
    both = F.pixel_unshuffle(torch.stack([mean, weight], 1), finer)
    return list(both.unbind(1))


def _without_lost(found: Evidence, level: Tensor) -> Evidence:
    """Nothing known of bursts that the solver could not solve: their level, and no more."""
    gate, mean, var, maps, unit = found
    numbers = (gate.covariance.real, gate.precision, mean, var, maps, unit)
    sound = torch.stack([torch.isfinite(x).flatten(1).all(1) for x in numbers]).all(0)

    def kept(values: Tensor, other: Tensor | float) -> Tensor:
        return torch.where(sound.view(-1, *[1] * (values.ndim - 1)), values, other)

    gate = dataclasses.replace(
        gate, covariance=kept(gate.covariance, 0), precision=kept(gate.precision, 1)
    )
    level = level.nan_to_num(0)
    return Evidence(gate, kept(mean, level), kept(var, 1), kept(maps, 0), kept(unit, 1))
