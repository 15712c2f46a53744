"""The image of least energy for given motion, noise and prior: linear, exact, a few iterations.

`u` minimises `sum_t |v_t - D F_t u|^2 / var_t + |u - level|^2` under a stationary Gaussian
prior, on a canvas that reaches a little beyond the frames.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from .burst import Burst
from .forward import canvas_shape, forward_model
from .linear import conjugate_gradients
from .ops import splat
from .prior import radial_basis, spectrum_at
from .spectral import AliasBlocks, image_frequencies, to_folded, to_image, transfer

CANVAS_PAD_PX = 4  # low-res px: room for shifted frames; the kernel's tails end there


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean over frames and pixels of a batch, (B, 1, 1, 1)."""
    total = weight.sum((1, 2, 3), keepdim=True).clamp(min=1e-30)
    return (values * weight).sum((1, 2, 3), keepdim=True) / total


class GaussianProblem:
    """One linear problem a burst: the forward model, the pixels' precision, the prior.

    flow_px: (B, N, 2[, H, W]); precision: (B, N, H, W), zero leaves a pixel out; knots: log
    power of the prior, (B, KNOTS), see `prior`.
    """

    def __init__(self, flow_px: Tensor, precision: Tensor, knots: Tensor, scale: int) -> None:
        shape = (precision.shape[-2], precision.shape[-1])
        self.pad, self.scale = scale * CANVAS_PAD_PX, scale
        self.flow_px, self.knots = flow_px, knots
        self.canvas = canvas_shape(shape, scale, self.pad)
        self.model = forward_model(flow_px, shape, scale, self.pad)
        rows = torch.fft.fftfreq(self.canvas[0], device=knots.device)
        columns = torch.fft.rfftfreq(self.canvas[1], device=knots.device)
        self.prior = spectrum_at(knots, radial_basis(rows[:, None], columns))
        self.stiffness = 1 / self.prior
        lattice = (self.canvas[0] // scale, self.canvas[1] // scale)
        folded = radial_basis(*image_frequencies(lattice, scale, knots))
        self.folded_prior = spectrum_at(knots, folded)
        shift_px = flow_px if flow_px.ndim == 3 else flow_px.mean((-1, -2))
        self.see = transfer(shift_px, lattice, scale)
        self._weigh(precision)

    def _weigh(self, precision: Tensor) -> None:
        self.precision = precision * self.model.inside
        area = self.model.inside.expand(precision.shape).sum((-1, -2))
        typical = self.precision.sum((-1, -2)) / area.clamp(min=1)
        self.blocks = AliasBlocks(self.see, typical, self.folded_prior)

    def reweighted(self, precision: Tensor) -> GaussianProblem:
        """The same problem with another precision of its pixels."""
        other = copy.copy(self)
        other._weigh(precision)
        return other

    def part(self, index: Tensor) -> GaussianProblem:
        """The problem of some bursts of the batch."""
        return GaussianProblem(
            self.flow_px[index], self.precision[index], self.knots[index], self.scale
        )

    def solve(self, data: Tensor, start: Tensor | None = None, tolerance: float = 5e-4) -> Tensor:
        """The canvas (B, h, w) of least energy for data (B, N, H, W) counted from the level.

        start: a canvas to begin from; nothing by default.
        """
        right = self.model.adjoint(self.precision * data)
        return conjugate_gradients(self.normal, right, self.precondition, tolerance, start)

    def normal(self, image: Tensor) -> Tensor:
        """`(sum_t F_t' D' W D F_t + prior^-1) image`."""
        seen = self.model.adjoint(self.precision * self.model.forward(image))
        return seen + self.filter(image, self.stiffness)

    def precondition(self, image: Tensor) -> Tensor:
        """The periodic, uniformly weighted problem solved exactly, alias block by alias block."""
        solved = self.blocks.solve(to_folded(image, self.scale))
        return to_image(solved, self.scale, self.canvas[1] // self.scale)

    def filter(self, image: Tensor, spectrum: Tensor) -> Tensor:
        """`image` with each frequency multiplied, (B, h, w)."""
        return torch.fft.irfft2(torch.fft.rfft2(image) * spectrum, s=self.canvas)

    def sample_error(self, generator: torch.Generator) -> Tensor:
        """A draw of the posterior's error: the solution of a perturbed world less its truth."""
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


def far_from_samples(burst: Burst, flow_px: Tensor, scale: int) -> Tensor:
    """High-res pixels with no valid sample within s-1 of them, (B, s*H, s*W) bool."""
    valid = burst.valid.to(burst.frames)
    near = splat(valid, valid, flow_px, scale).weight
    return F.max_pool2d(near, 2 * scale - 1, stride=1, padding=scale - 1) <= 0
