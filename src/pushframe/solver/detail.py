"""Where the detail of a scene is, learnt from its first image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..filters import gaussian_blur
from ..folding import half_weight
from ..gaussian import GaussianProblem, node_blocks, node_prior
from ..local_prior import LocalPrior, analyse
from ..ops import spread

SMOOTHING_HPX = 2.0  # over which detail is counted
SCATTER = 2 / (4 * math.pi * SMOOTHING_HPX**2)  # variance of white noise's power, so smoothed
POWER_RANGE = (0.15, 100.0)  # of detail, against the spectrum's


def local_prior(problem: GaussianProblem, image: Tensor) -> LocalPrior:
    """The prior of a scene whose detail lies where a canvas (B, h, w) shows it.

    image: the solution under the stationary prior. With k how far the data determine a frequency
    (`1 - posterior / prior variance`), a true power `a^2` shows in it as `k^2 a^2 + k (1 - k)`,
    signal and noise. The mean over frequencies is solved for `a^2`, by regression towards 1.
    """
    root = problem.stiffness.sqrt()
    known, known2 = _known(problem)
    trust = _density(problem).square()  # of places with half the samples little is known

    def smoothed(product: Tensor) -> Tensor:
        return gaussian_blur(problem.crop(product)[:, None], SMOOTHING_HPX)[:, 0]

    def true_power(shown: Tensor) -> Tensor:
        return (1 + trust * (shown - known) / (known2 + SCATTER)).clamp(*POWER_RANGE)

    w, down, right = analyse(image, root).unbind(1)
    plain = true_power(smoothed(w * w))
    yy, yx, xx = (2 * smoothed(product) for product in (down * down, down * right, right * right))
    # the same along the matrix' own axes
    middle, half = (yy + xx) / 2, (yy - xx) / 2
    radius = torch.hypot(half, yx).clamp(min=1e-9)
    larger, smaller = true_power(middle + radius), true_power(middle - radius)
    middle, stretch = (larger + smaller) / 2, (larger - smaller) / (2 * radius)
    maps = [plain, middle + stretch * half, stretch * yx, middle - stretch * half]
    wide = F.pad(torch.stack(maps, 1), [problem.pad] * 4, mode="replicate")
    return LocalPrior.of_power(root, wide[:, 0], wide[:, 1:])


def _known(problem: GaussianProblem) -> tuple[Tensor, Tensor]:
    """Means over frequencies of k and its square, (B, 1, 1)."""
    blocks = node_blocks(problem)
    spread = blocks.covariance.diagonal(dim1=1, dim2=2).real.movedim(-1, 1)
    share = (1 - spread / node_prior(problem)).clamp(0, 1)
    count = half_weight(blocks.width, share)
    total = count.sum() * share.shape[1] * share.shape[2]
    first, second = (
        ((power * count).sum((1, 2, 3)) / total).unflatten(0, (len(problem.knots), -1)).mean(1)
        for power in (share, share.square())
    )
    return first[:, None, None], second[:, None, None]


def _density(problem: GaussianProblem) -> Tensor:
    """Samples around each pixel over their usual number, at most 1, (B, s*H, s*W)."""
    seen = (problem.precision > 0).to(problem.precision)
    (samples,) = spread([seen], problem.flow_px, problem.scale)
    samples = gaussian_blur(samples[:, None], problem.scale / 2)[:, 0]
    usual = samples.flatten(1).median(1).values[:, None, None].clamp(min=1e-30)
    return (samples / usual).clamp(max=1)
