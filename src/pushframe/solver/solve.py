"""The solver from burst to posterior."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..burst import Burst, Posterior
from ..gaussian import GaussianProblem, far_from_samples, weighted_mean
from ..noise import frame_noise_var, normalised_noise_var
from ..registration import register
from .motion import Fit, fit_motion
from .outliers import agreeing_frames
from .variance import posterior_variance


class Solution(NamedTuple):
    """The posterior of a batch, and everything that was estimated on the way."""

    posterior: Posterior
    fit: Fit


def solve(burst: Burst, scale: int, flow_px: Tensor | None = None) -> Solution:
    """Motion, gains, prior, image and error bar of a batch of bursts, jointly.

    flow_px: (B, N, 2) motion if it is known; estimated otherwise.
    """
    start_px = register(burst) if flow_px is None else flow_px
    kept = agreeing_frames(burst, start_px)
    fit = fit_motion(burst, start_px, kept, scale, moving=flow_px is None)
    good = burst.valid & ~fit.outlier & fit.kept[..., None, None]
    gain = fit.gain[..., None, None]
    frames = burst.frames / gain

    def precision_for(noise_var: Tensor) -> Tensor:
        return good / (noise_var / gain**2 + fit.mismatch[:, None, None, None])

    precision = precision_for(frame_noise_var(burst))
    level = weighted_mean(frames, precision)
    problem = GaussianProblem(fit.flow_px, precision, fit.knots, scale)
    image = problem.solve(frames - level, max_steps=4)
    if burst.noise is not None and bool((burst.noise.a > 0).any()):
        # the signal is now known better than from single frames
        signal = problem.model.forward(image) + level
        noise_var = normalised_noise_var(burst.noise, signal * gain, burst.gain)
        problem = GaussianProblem(fit.flow_px, precision_for(noise_var), fit.knots, scale)
    image = problem.solve(frames - level)
    mean = problem.crop(image) + level[:, 0]
    var = posterior_variance(problem, image, level[:, 0, 0, 0], fit)
    posterior = Posterior(mean, var)
    unknown = far_from_samples(burst, fit.flow_px, scale)
    return Solution(posterior.without(unknown) if bool(unknown.any()) else posterior, fit)
