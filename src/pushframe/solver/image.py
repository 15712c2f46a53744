"""The image of a burst whose motion and gains are known, with what the model leaves of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..gaussian import GaussianProblem, weighted_mean
from ..noise import frame_noise_var, normalised_noise_var
from ..prior import FEW
from .detail import local_prior
from .mismatch import unexplained
from .outliers import hidden_share

MAX_REWEIGHTINGS = 3
ERROR_STD = 0.05  # posterior standard deviations by which an image may miss its least energy
FEW_ERROR_STD = 0.02  # of few frames, whose image must be nearer
TOLERANCE = 2e-5  # of the image, where noise is so low that ERROR_STD is next to nothing
HOLED_TOLERANCE = 5e-5  # where frames have holes; there no preconditioner tells an error
MANY_HOLES = 1e-3  # share of pixels, beyond single outliers


class Reconstruction(NamedTuple):
    """The solved image of a batch.

    image: (B, h, w) the canvas, less its level (B, 1, 1, 1). residual: (B, N, H, W) of the frames,
    gains taken out. noise_var: (B, N, H, W) of the same. mismatch: (B,) variance beyond noise.
    """

    problem: GaussianProblem
    image: Tensor
    level: Tensor
    residual: Tensor
    noise_var: Tensor
    mismatch: Tensor

    @property
    def mean(self) -> Tensor:
        """The image over the reference's field, (B, s*H, s*W)."""
        return self.problem.crop(self.image) + self.level[:, 0]

    def part(self, index: Tensor) -> Reconstruction:
        """That of some bursts of the batch."""
        return Reconstruction(self.problem.part(index), *(part[index] for part in self[1:]))


def reconstruct(
    burst: Burst,
    good: Tensor,
    flow_px: Tensor,
    gain: Tensor,
    knots: Tensor,
    scale: int,
    start: Tensor | None = None,
) -> Reconstruction:
    """The image of least energy; noise by the law at what it shows, mismatch by its residuals.

    good: (B, N, H, W) pixels to use; flow_px: (B, N, 2[, H, W]); gain: (B, N). start: the canvas to
    begin from, if one is known.
    """
    gain = gain[..., None, None]
    frames = burst.frames / gain
    noise_var = frame_noise_var(burst) / gain**2
    problem = GaussianProblem(flow_px, good / noise_var, knots, scale)
    level = weighted_mean(frames, problem.precision)
    data = frames - level
    tolerance, error_std = _accuracy(good, scale)
    image = problem.solve(data, start, tolerance, error_std)
    mismatch = torch.zeros_like(level[:, 0, 0, 0])
    unsettled = torch.ones_like(mismatch, dtype=torch.bool)
    varying = burst.noise.a > 0 if burst.noise is not None else ~unsettled
    for _ in range(MAX_REWEIGHTINGS):
        # noise and mismatch are now known better than from single frames, or under a window
        signal = problem.model.forward(image) + level
        if burst.noise is not None:
            noise_var = normalised_noise_var(burst.noise, signal * gain, burst.gain) / gain**2
            noise_var = noise_var.clamp(min=1e-14)
        found = unexplained(problem, frames - signal, noise_var)
        grown = found > 1.2 * mismatch
        mismatch = torch.where(unsettled, found, mismatch)
        again = (unsettled & (grown | varying)).nonzero()[:, 0]
        if not len(again):
            break
        precision = problem.precision.index_copy(
            0, again, (good / (noise_var + mismatch[:, None, None, None]))[again]
        )
        problem = problem.reweighted(precision)
        solved = problem.part(again).solve(
            data[again], image[again], tolerance=tolerance[again], error_std=error_std[again]
        )
        image = image.index_copy(0, again, solved)
        unsettled = unsettled & grown
    residual = data - problem.model.forward(image)
    return Reconstruction(problem, image, level, residual, noise_var, mismatch)


def detailed(made: Reconstruction, good: Tensor) -> Reconstruction:
    """The same under a prior that knows where the detail is, from the image that there is.

    good: (B, N, H, W) pixels to use.
    """
    data = made.residual + made.problem.model.forward(made.image)
    problem = made.problem.with_detail(local_prior(made.problem, made.image))
    image = problem.solve(data, made.image, *_accuracy(good, problem.scale))
    residual = data - problem.model.forward(image)
    return made._replace(problem=problem, image=image, residual=residual)


def _accuracy(good: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """Tolerance, and error in posterior standard deviations, to solve to, (B, 1, 1)."""
    holed = hidden_share(good) > MANY_HOLES
    few = good.any(-1).any(-1).sum(1) <= FEW * scale**2
    tolerance = torch.where(holed, HOLED_TOLERANCE, TOLERANCE)
    error_std = torch.where(few, FEW_ERROR_STD, ERROR_STD) * ~holed
    return tolerance[:, None, None], error_std[:, None, None]
