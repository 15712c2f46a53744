"""What remains unknown of each pixel: noise and prior, and the motion's own error."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..filters import gaussian_blur
from ..folding import image_frequencies, to_folded, to_image
from ..gaussian import GaussianProblem, node_blocks
from ..linear import leading_factor
from ..ops import spread
from ..spectral import AliasBlocks, transfer
from .borders import border_excess
from .detail import POWER_RANGE
from .image import Reconstruction

LEVELS = 9  # of detail, at which the variance is worked out
MODES = 12  # mixtures of shift and gain errors that are followed into the image


def posterior_variance(made: Reconstruction, covariance: Tensor) -> Tensor:
    """The variance of a reconstruction from translated frames, (B, s*H, s*W).

    covariance: (B, 3N, 3N) of each frame's (dy, dx, gain).
    """
    problem = made.problem
    scarce = scarcity(problem, border_excess(problem))
    return _variance_inside(problem) * scarce + alignment_variance(made, covariance)


def bent_variance(made: Reconstruction, misplaced: Tensor, scarcer: Tensor) -> Tensor:
    """The same for a fit in space; misplaced: (B, D, N, H, W), scarcer: see `draws.doubt`."""
    problem = made.problem
    answers = [problem.crop(problem.solve(draw, None, 5e-2)) for draw in misplaced.unbind(1)]
    alignment = sum(answer.square() for answer in answers) / max(len(answers), 1)
    return noise_variance(problem) * scarcer + alignment


def noise_variance(problem: GaussianProblem) -> Tensor:
    """The part of noise and prior, (B, s*H, s*W), as networks know it: borders by scarcity."""
    return _variance_inside(problem) * scarcity(problem)


def _variance_inside(problem: GaussianProblem) -> Tensor:
    """The same where there are samples all around."""
    if problem.local is not None:
        return detailed_variance(problem)
    if problem.nodes == 1:
        return stationary_variance(problem)
    usual = torch.ones(1, device=problem.knots.device)
    return local_variance(problem, usual)[:, 0]


def scarcity(problem: GaussianProblem, excess: Tensor | float = 1.0) -> Tensor:
    """How much less is known around each pixel than on average, (B, s*H, s*W), about 1 inside.

    The mean precision of a sample over the local one (bright pixels are noisier), times the
    usual number of samples over the local one, squared, where it is lower: borders and masks
    lose whole sub-grids, which hurts more than noise. Or times `excess` (B, s*H, s*W), if larger:
    what is known of borders.
    """
    weight = problem.precision
    seen = (weight > 0).to(weight)
    total, count = spread([weight, seen], problem.flow_px, problem.scale)
    precision = gaussian_blur(total[:, None], float(problem.scale))[:, 0].clamp(min=1e-30)
    samples = gaussian_blur(count[:, None], problem.scale / 2)[:, 0].clamp(min=1e-30)
    usual = samples.flatten(1).median(1).values[:, None, None]
    # the blocks were built with the mean precision of the samples that there are
    mean = total.sum((1, 2)) / count.sum((1, 2)).clamp(min=1e-30)
    noisier = mean[:, None, None] * samples / precision
    fewer = (usual / samples).clamp(1, 10) ** 2
    return noisier.clamp(0.1, 10) * fewer.clamp(min=excess)


def stationary_variance(problem: GaussianProblem) -> Tensor:
    """Variance left by noise and prior, one value for each sub-grid, (B, s*H, s*W)."""
    grid = problem.blocks.subgrid_variance()
    height, width = (size - 2 * problem.pad for size in problem.canvas)
    return grid.repeat(1, height // problem.scale, width // problem.scale)


def local_variance(problem: GaussianProblem, power: Tensor) -> Tensor:
    """The same where the flow, and with it the pattern of samples, changes over the frame.

    power: (L,) of the detail, against the scene's spectrum. Returns (B, L, s*H, s*W).
    """
    grid = node_blocks(problem, power).subgrid_variance()  # (B*M*L, s, s)
    side = math.isqrt(problem.nodes)
    nodes = grid.flatten(1).unflatten(0, (-1, side, side, len(power))).permute(0, 3, 4, 1, 2)
    shape = problem.precision.shape[-2:]
    smooth = F.interpolate(nodes.flatten(1, 2), size=shape, mode="bilinear", align_corners=False)
    return F.pixel_shuffle(smooth, problem.scale)


def detailed_variance(problem: GaussianProblem) -> Tensor:
    """The same under a local prior: that of a scene with everywhere as much detail as here.

    Worked out at a few levels of detail; between them its logarithm is linear in that of detail.
    """
    assert problem.local is not None
    low, high = (math.log(power) for power in POWER_RANGE)
    level = torch.arange(LEVELS, device=problem.knots.device)
    step = (high - low) / (LEVELS - 1)
    place = ((problem.crop(problem.local.power()).log() - low) / step).clamp(0, LEVELS - 1)
    near = (1 - (place[:, None] - level[:, None, None]).abs()).clamp(min=0)
    power = (low + step * level).exp().split(max(LEVELS // problem.nodes, 1))  # for memory's sake
    var = torch.cat([local_variance(problem, part) for part in power], 1)
    # a level far off may have no number
    return torch.where(near > 0, near * var.log(), 0).sum(1).exp()


def alignment_variance(made: Reconstruction, covariance: Tensor) -> Tensor:
    """Variance from errors of shifts and gains: the image's answer to each, (B, s*H, s*W)."""
    problem, image, level = made.problem, made.image, made.level[:, 0, 0, 0]
    scale, blocks = problem.scale, problem.blocks
    lattice = (problem.canvas[0] // scale, problem.canvas[1] // scale)
    if problem.nodes > 1:  # a flow's frames, where they are on the mean
        see = transfer(problem.flow_px.mean((-1, -2)), lattice, scale)
        blocks = AliasBlocks(see, problem.typical_precision(), problem.folded_prior)
    folded = to_folded(image, scale)
    fy, fx = image_frequencies(lattice, scale, image)
    whole = folded.clone()
    whole[:, 0, 0, 0] += level * math.sqrt(problem.canvas[0] * problem.canvas[1])
    turned = [2j * math.pi * scale * f * folded for f in (fy, fx)]
    changes = torch.stack([blocks.see.predict(part) for part in (*turned, whole)], 2)
    answers = torch.view_as_real(blocks.answers(changes)).flatten(1, 2).flatten(2)
    # (B, 3N, 2*K*a*c): what one unit of each unknown does to the image; the strongest mixtures
    # of them carry nearly all of the variance, and the rest is made up for
    unit = torch.linalg.vector_norm(answers, dim=2).clamp(min=1e-30)
    scaled = covariance * unit[:, :, None] * unit[:, None]
    root = leading_factor(scaled, MODES)
    missed = scaled.diagonal(dim1=-2, dim2=-1).sum(1) / root.square().sum((1, 2)).clamp(min=1e-30)
    root = root / unit[..., None]
    modes = (root.mT @ answers).unflatten(2, (*folded.shape[1:], 2))
    total = to_image(torch.view_as_complex(modes), scale, lattice[1]).square().sum(1)
    return problem.crop(total) * missed[:, None, None].clamp(min=1)
