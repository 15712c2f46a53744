"""What training minimises: Gaussian likelihood of the noisy reference, or of the truth.

Every loss is a mean over valid pixels; constants such as log(2 pi)/2 are left out.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .burst import NoiseLaw
from .checks import require
from .errors import UsageError
from .filters import gaussian_taps
from .geometry import subsample
from .noise import normalised_noise_var
from .posterior import Posterior

DETAIL_SIGMA_PX = 1.0  # of the Gaussian whose complement is the detail


def self_supervised_nll(
    posterior: Posterior,
    target: Tensor,
    valid: Tensor,
    tau: Tensor,
    noise: NoiseLaw,
    gain: Tensor,
    detail: bool = False,
    outlier_nats: float = math.inf,
) -> Tensor:
    """`(z - A u)^2 / (2 (A nu + R)) + log(A nu + R) / 2` with A = A_tau (eq:nll-self, diagonal).

    posterior: (B, s*H, s*W); target, valid: (B, H, W), the reference z and its mask; tau: (B, 2)
    high-res px; noise: law of the raw pixels, (B,); gain: (B, 1) = exposure * white_level of z.
    detail: compare high-passed images, blind to an inexact exposure; `R` changes with them, and
    the variance is then that of the detail, not of the pixel.
    outlier_nats: see `gaussian_nll`.
    """
    scale = target_scale(posterior, target)
    mean, var = subsample(posterior.mean, scale, tau), subsample(_var(posterior), scale, tau)
    error = target - mean
    # the lemmas hold R_hat fixed: no gradient may flow through it
    noise_var = normalised_noise_var(noise, mean.detach()[:, None], gain)[:, 0]
    if detail:
        error, noise_var = high_pass(error, valid), detail_noise_var(noise_var, valid)
    return gaussian_nll(error, var + noise_var, valid, outlier_nats)


def supervised_nll(
    posterior: Posterior,
    truth: Tensor,
    outlier_nats: float = math.inf,
    seen: Tensor | None = None,
) -> Tensor:
    """`(u - u_hat)^2 / (2 nu) + log(nu) / 2` (eq:sup-gaussian-nll); truth (B, s*H, s*W).

    seen: (B,) bool, bursts that count; all of them unless given.
    """
    valid = torch.ones_like(truth, dtype=torch.bool)
    valid = valid if seen is None else valid & seen[:, None, None]
    return gaussian_nll(truth - posterior.mean, _var(posterior), valid, outlier_nats)


def gaussian_nll(
    error: Tensor, var: Tensor, valid: Tensor, outlier_nats: float = math.inf
) -> Tensor:
    """`error^2 / (2 var) + log(var) / 2`, mean over valid pixels; all of one shape.

    outlier_nats: bursts that much less likely than the median of the batch are left out; frames
    that could not be registered teach nothing but that.
    """
    nats = known(error, valid) ** 2 / (2 * var) + var.log() / 2
    if math.isfinite(outlier_nats):
        share = valid.sum((-1, -2)).clamp(min=1)
        each = known(nats.detach(), valid).sum((-1, -2)) / share
        # what is not a number is no outlier but a mistake, and must be seen
        likely = ~(each > each.nanmedian() + outlier_nats)
        valid = valid & likely[:, None, None]
    return masked_mean(nats, valid)


def mse(mean: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """`(z - u)^2`, mean over valid pixels; all of one shape."""
    return masked_mean(known(target - mean, valid) ** 2, valid)


def l1(mean: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """`|z - u|`, mean over valid pixels; all of one shape."""
    return masked_mean(known(target - mean, valid).abs(), valid)


def motion_l1(flow_px: Tensor, true_px: Tensor, noise_var: Tensor) -> Tensor:
    """`|flow - true flow|`, a frame's weight one over its noise std; (B, N, 2), low-res px.

    noise_var: (B, N, H, W). Of a true flow for every pixel the mean counts. Frame 0, the
    reference, has no motion to learn.
    """
    true_px = true_px.mean((-1, -2)) if true_px.ndim == 5 else true_px
    weight = 1 / noise_var.mean((-1, -2)).sqrt()
    weight = (weight / weight.mean(1, keepdim=True))[:, 1:, None]
    return (weight * (flow_px - true_px)[:, 1:].abs()).mean()


def known(error: Tensor, valid: Tensor) -> Tensor:
    """The error, zero where invalid: what is there, NaN even, reaches neither loss nor gradient."""
    return error.masked_fill(~valid.bool(), 0)


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over valid pixels."""
    return known(values, valid).sum() / valid.sum().clamp(min=1)


def high_pass(image: Tensor, valid: Tensor) -> Tensor:
    """`image - g * image`, g a Gaussian of sigma 1 px over valid pixels, (B, H, W)."""
    weight = valid.to(image)
    image = known(image, valid)
    return image - _blur(image) / _blur(weight).clamp(min=1e-6)


def detail_noise_var(noise_var: Tensor, valid: Tensor) -> Tensor:
    """Noise variance of `high_pass`, `conv(R, (delta - g)^2)`, (B, H, W).

    0.76 R for white noise far from holes and borders; near them g is renormalised, as there.
    """
    weight = valid.to(noise_var)
    share = _blur(weight).clamp(min=1e-6)
    centre = gaussian_taps(DETAIL_SIGMA_PX, noise_var).max() ** 2
    return noise_var * (1 - 2 * centre / share) + _blur(noise_var * weight, power=2) / share**2


def _blur(image: Tensor, power: int = 1) -> Tensor:
    """Convolution of (B, H, W) with g^power, zeros beyond the border."""
    taps = gaussian_taps(DETAIL_SIGMA_PX, image) ** power
    radius = len(taps) // 2
    rows = F.conv2d(image[:, None], taps[None, None, :, None], padding=(radius, 0))
    return F.conv2d(rows, taps[None, None, None, :], padding=(0, radius))[:, 0]


def target_scale(posterior: Posterior, target: Tensor) -> int:
    """The zoom from the target to the posterior."""
    return posterior.mean.shape[-1] // target.shape[-1]


def _var(posterior: Posterior) -> Tensor:
    require(
        posterior.var is not None,
        "a posterior with a variance",
        "a mean alone",
        "use mse or l1 for it",
        UsageError,
    )
    assert isinstance(posterior.var, torch.Tensor)
    return posterior.var
