"""What a user has today: bicubic, shift-and-add, and MAP under a Gaussian prior."""

from __future__ import annotations

import torch
from torch import Tensor

from .burst import Burst
from .checks import require
from .errors import UsageError
from .gaussian import GaussianProblem, far_from_samples, weighted_mean
from .geometry import pixel_grid, sample_at
from .noise import frame_noise_var
from .ops import Splat, splat
from .posterior import Posterior
from .prior import power_law


def bicubic(burst: Burst, scale: int) -> Posterior:
    """The reference enlarged by bicubic interpolation, pixel `s*l` on pixel `l`; no error bar.

    Invalid reference pixels, and what they would touch, are NaN.
    """
    height, width = burst.shape
    position = pixel_grid((scale * height, scale * width), burst.frames) / scale
    position = position.expand(len(burst.frames), -1, -1, -1)
    reference = burst.frames[:, 0]
    mean = sample_at(reference, position)
    unknown = (~burst.valid[:, 0]).to(reference)
    touched = sample_at(unknown, position, "bilinear") > 0
    return Posterior(mean.masked_fill(touched, torch.nan))


def weighted_splat(burst: Burst, flow_px: Tensor, scale: int) -> Splat:
    """All valid samples on the high-res grid, each with weight one over its noise variance."""
    return splat(burst.frames, burst.valid / frame_noise_var(burst), flow_px, scale)


def shift_and_add(burst: Burst, flow_px: Tensor, scale: int) -> Posterior:
    """The noise-weighted mean of the samples near each high-res pixel.

    The variance is the naive one, `sum k^2 w / (sum k w)^2`: noise alone, as if a bilinear
    neighbour were the pixel itself. Holes are NaN in both.
    """
    sums = weighted_splat(burst, flow_px, scale)
    hole = sums.weight <= 0
    weight = sums.weight.masked_fill(hole, 1)
    mean = (sums.value / weight).masked_fill(hole, torch.nan)
    var = (sums.square_over_weight / weight**2).masked_fill(hole, torch.nan)
    return Posterior(mean, var)


def map_estimate(
    burst: Burst, flow_px: Tensor, scale: int, samples: int = 0, seed: int = 0
) -> Posterior:
    """The maximum a posteriori image under a stationary Gaussian prior (conjugate gradients).

    samples: perturb-and-MAP draws for the variance; 0 gives no error bar and is many times
    faster. Pixels with no valid sample within s-1 high-res px are NaN.
    """
    require(samples >= 0, "a sample count of at least 0", samples, "raise it", UsageError)
    noise_var = frame_noise_var(burst)
    precision = burst.valid / noise_var
    level = weighted_mean(burst.frames, precision)
    problem = GaussianProblem(flow_px, precision, _prior(burst, noise_var), scale)
    mean = problem.crop(problem.solve(burst.frames - level)) + level[:, 0]
    var = None
    if samples:
        generator = torch.Generator(burst.frames.device).manual_seed(seed)
        draws = (problem.sample_error(generator) ** 2 for _ in range(samples))
        var = sum((problem.crop(draw) for draw in draws), torch.zeros_like(mean)) / samples
    return Posterior(mean, var).without(far_from_samples(burst.valid, flow_px, scale))


def _prior(burst: Burst, noise_var: Tensor) -> Tensor:
    """The power law `c / (f^2 + 1e-4)^1.25`, its variance that of the reference less its noise."""
    reference, seen = burst.frames[:, :1], burst.valid[:, :1].to(burst.frames)
    spread = weighted_mean((reference - weighted_mean(reference, seen)) ** 2, seen)
    noise = weighted_mean(noise_var[:, :1], seen)
    return power_law(torch.maximum(spread - noise, 0.05 * spread)[:, 0, 0, 0])
