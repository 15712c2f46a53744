"""What a user has today: bicubic, shift-and-add, and MAP under a Gaussian prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .burst import Burst, Posterior
from .checks import require
from .errors import UsageError
from .forward import ForwardModel, canvas_shape, forward_model
from .geometry import pixel_grid, sample_at
from .linear import conjugate_gradients
from .noise import frame_noise_var
from .ops import Splat, splat

CANVAS_PAD_HPX = 16


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


@dataclass(frozen=True)
class GaussianProblem:
    """`sum_t |v_t - D F_t u|^2 / var_t + |u - level|^2 under the prior`, over a batch.

    model: the forward operator on a padded canvas. precision: (B, N, H, W), zero where invalid.
    prior: (B, h, w//2+1) spectrum of the stationary prior, per canvas frequency.
    """

    model: ForwardModel
    precision: Tensor
    prior: Tensor
    canvas: tuple[int, int]

    def solve(self, data: Tensor, tolerance: float = 2e-4) -> Tensor:
        """The image of least energy for data (B, N, H, W) counted from the prior's level."""
        average = self.precision.sum((1, 2, 3))[:, None, None] / (self.canvas[0] * self.canvas[1])
        damping = 1 / (1 / self.prior + average)
        return conjugate_gradients(
            lambda image: (
                self.model.adjoint(self.precision * self.model.forward(image))
                + self._filter(image, 1 / self.prior)
            ),
            self.model.adjoint(self.precision * data),
            lambda image: self._filter(image, damping),
            tolerance,
        )

    def sample_error(self, generator: torch.Generator) -> Tensor:
        """A draw of the posterior's error: MAP of a perturbed world less its truth (B, h, w)."""
        image = self._filter(
            _normal(self.prior.shape[:1] + self.canvas, self, generator), self.prior.sqrt()
        )
        noise_std = torch.where(self.precision > 0, self.precision, torch.inf).rsqrt()
        noise = noise_std * _normal(self.precision.shape, self, generator)
        # a variance needs fewer digits than an image
        return self.solve(self.model.forward(image) + noise, tolerance=5e-4) - image

    def _filter(self, image: Tensor, spectrum: Tensor) -> Tensor:
        return torch.fft.irfft2(torch.fft.rfft2(image) * spectrum, s=self.canvas)


def map_estimate(
    burst: Burst, flow_px: Tensor, scale: int, samples: int = 0, seed: int = 0
) -> Posterior:
    """The maximum a posteriori image under a stationary Gaussian prior (conjugate gradients).

    samples: perturb-and-MAP draws for the variance; 0 gives no error bar and is many times
    faster. Pixels farther than a low-res pixel from every valid sample are NaN.
    """
    require(samples >= 0, "a sample count of at least 0", samples, "raise it", UsageError)
    pad = CANVAS_PAD_HPX
    model = forward_model(flow_px, burst.shape, scale, pad)
    noise_var = frame_noise_var(burst)
    precision = burst.valid * model.inside / noise_var
    canvas = canvas_shape(burst.shape, scale, pad)
    level = _mean(burst.frames, precision)
    problem = GaussianProblem(model, precision, _prior(burst, noise_var, canvas), canvas)
    mean = problem.solve(burst.frames - level) + level[:, 0]
    var = None
    if samples:
        generator = torch.Generator(burst.frames.device).manual_seed(seed)
        draws = (problem.sample_error(generator) ** 2 for _ in range(samples))
        var = _crop(sum(draws, torch.zeros_like(mean)) / samples, pad)
    return Posterior(_crop(mean, pad), var).without(far_from_samples(burst, flow_px, scale))


def far_from_samples(burst: Burst, flow_px: Tensor, scale: int) -> Tensor:
    """High-res pixels with no valid sample within a low-res pixel, (B, s*H, s*W) bool."""
    valid = burst.valid.to(burst.frames)
    near = splat(valid, valid, flow_px, scale).weight
    return F.max_pool2d(near, 2 * scale + 1, stride=1, padding=scale) <= 0


def _prior(burst: Burst, noise_var: Tensor, canvas: tuple[int, int]) -> Tensor:
    """The spectrum `c / (f^2 + 1e-4)^1.25`, its variance that of the reference less its noise."""
    rows = torch.fft.fftfreq(canvas[0], device=burst.frames.device)
    columns = torch.fft.rfftfreq(canvas[1], device=burst.frames.device)
    both = torch.fft.fftfreq(canvas[1], device=burst.frames.device)
    mean_power = ((rows[:, None] ** 2 + both**2 + 1e-4) ** -1.25).mean()
    reference, seen = burst.frames[:, :1], burst.valid[:, :1].to(burst.frames)
    spread = _mean((reference - _mean(reference, seen)) ** 2, seen)
    noise = _mean(noise_var[:, :1], seen)
    signal = torch.maximum(spread - noise, 0.05 * spread)[:, 0]
    return signal / mean_power * (rows[:, None] ** 2 + columns**2 + 1e-4) ** -1.25


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean over frames and pixels, (B, 1, 1, 1)."""
    total = weight.sum((1, 2, 3), keepdim=True).clamp(min=1e-30)
    return (values * weight).sum((1, 2, 3), keepdim=True) / total


def _crop(image: Tensor, pad: int) -> Tensor:
    return image[..., pad:-pad, pad:-pad]


def _normal(
    shape: torch.Size | tuple[int, ...], problem: GaussianProblem, generator: torch.Generator
) -> Tensor:
    return torch.randn(shape, generator=generator, device=problem.precision.device)
