"""How far a pixel strays: `var = a * dn + b` on raw DN, and its normalised forms."""

from __future__ import annotations

import torch
from torch import Tensor

from .burst import Burst, NoiseLaw
from .errors import BurstError
from .filters import masked_blur


def rounding_var(burst: Burst) -> Tensor:
    """The variance of rounding raw pixels to their step, DN^2, (...)."""
    return burst.step_dn**2 / 12


def normalised_noise_var(law: NoiseLaw, signal: Tensor, gain: Tensor) -> Tensor:
    """Noise variance of normalised pixels, `a*u/(e*W) + b/(e*W)^2`; u below zero counts as zero.

    signal: (B, N, H, W) clean normalised radiance; gain: (B, N) = exposure * white_level;
    law: entries of shape (B,). Returns (B, N, H, W).
    """
    gain = gain[..., None, None]
    a, b = (x[..., None, None, None] for x in (law.a, law.b))
    return a * signal.clamp(min=0) / gain + b / gain**2


def frame_noise_var(burst: Burst) -> Tensor:
    """Noise variance of every pixel of a batch, (B, N, H, W), the signal read off the frames.

    The signal is the frame's own local mean (Gaussian, sigma 1 px, over valid pixels): a single
    noisy pixel would give dark errors more weight than bright ones and bias every mean.
    """
    if burst.noise is None:
        raise BurstError(
            "expected a noise law, got none: give noise_a and noise_b of the raw pixels, "
            "var = noise_a * dn + noise_b, in the side-car or the npz"
        )
    signal = masked_blur(burst.frames, burst.valid, 1.0)
    var = normalised_noise_var(burst.noise, signal, burst.gain)
    # a law that vanishes in the dark would give infinite weight
    least = rounding_var(burst)[..., None] / burst.gain**2
    return torch.maximum(var, least[..., None, None])


def usual_noise_var(burst: Burst) -> Tensor:
    """The mean noise variance of the middle one of a burst's frames, (B,)."""
    return frame_noise_var(burst).mean((-1, -2)).median(1).values
