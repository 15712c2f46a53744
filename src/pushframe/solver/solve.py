"""The solver from burst to posterior."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst, Posterior
from ..checks import require
from ..errors import UsageError
from ..gaussian import GaussianProblem, far_from_samples, weighted_mean
from ..noise import frame_noise_var, normalised_noise_var
from ..registration import register
from .mismatch import unexplained
from .motion import Fit, fit_motion
from .outliers import agreeing_frames, foreign_pixels
from .variance import posterior_variance

MAX_REWEIGHTINGS = 3
MAX_FOREIGN = 0.5  # share of foreign pixels beyond which a frame is of another place


class Solution(NamedTuple):
    """The posterior of a batch, what was estimated on the way, and the pixels that were used."""

    posterior: Posterior
    fit: Fit
    used: Tensor  # (B, N, H, W) bool


def solve(burst: Burst, scale: int, flow_px: Tensor | None = None) -> Solution:
    """Motion, gains, prior, image and error bar of a batch of bursts, jointly.

    flow_px: (B, N, 2) motion if it is known; estimated otherwise.
    """
    require(
        flow_px is None or flow_px.ndim == 3,
        "translations, one a frame, as known motion of the solver",
        "a flow for every pixel",
        "use estimated motion, or another method",
        UsageError,
    )
    start_px = register(burst) if flow_px is None else flow_px
    kept = agreeing_frames(burst, start_px)
    foreign = foreign_pixels(burst, start_px)
    kept = kept & (foreign.to(burst.frames).mean((-1, -2)) < MAX_FOREIGN)
    kept[:, 0] = True
    burst = dataclasses.replace(burst, valid=burst.valid & ~foreign)
    fit = fit_motion(burst, start_px, kept, scale, moving=flow_px is None)
    good = burst.valid & ~fit.outlier & fit.kept[..., None, None]
    gain = fit.gain[..., None, None]
    frames = burst.frames / gain
    noise_var = frame_noise_var(burst) / gain**2
    mismatch = torch.zeros_like(fit.mismatch)
    problem = GaussianProblem(fit.flow_px, good / noise_var, fit.knots, scale)
    level = weighted_mean(frames, problem.precision)
    data = frames - level
    image = problem.solve(data)
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
        solved = problem.part(again).solve(data[again], image[again])
        image = image.index_copy(0, again, solved)
        unsettled = unsettled & grown
    fit = dataclasses.replace(fit, mismatch=mismatch)
    mean = problem.crop(image) + level[:, 0]
    var = posterior_variance(problem, image, level[:, 0, 0, 0], fit)
    unknown = far_from_samples(dataclasses.replace(burst, valid=good), fit.flow_px, scale)
    return Solution(Posterior(mean, var).without(unknown), fit, good)
