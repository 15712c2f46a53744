"""The kernel that reads an image between its pixels: a sinc under a Kaiser window.

Beta 8, half-width 12 px, its 24 taps normalised to sum one. It *defines* the forward model, in
pixels (`forward`) and in Fourier space (`spectral`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .once import made_once

HALF_WIDTH = 12
KAISER_BETA = 8.0


def split_position(offset: Tensor) -> tuple[Tensor, Tensor]:
    """Whole and fractional part of positions, (int64, in [0, 1))."""
    whole = offset.floor()
    return whole.long(), offset - whole


def sinc_taps(fraction: Tensor) -> Tensor:
    """The 24 weights that read a band-limited signal `fraction` of a pixel after tap 11.

    fraction: (...,) in [0, 1). Returns (..., 24), for the pixels -11 to 12, summing to one.
    """
    distance = fraction[..., None] - tap_places(fraction.device)
    taps = torch.sinc(distance) * kaiser(distance, HALF_WIDTH, KAISER_BETA)
    return taps / taps.sum(-1, keepdim=True)


def sinc_slopes(fraction: Tensor) -> Tensor:
    """The derivative of `sinc_taps` in the fraction, (..., 24)."""
    distance = fraction[..., None] - tap_places(fraction.device)
    sinc, window = torch.sinc(distance), kaiser(distance, HALF_WIDTH, KAISER_BETA)
    near = distance.abs() < 1e-2  # where the difference would be rounding
    steep = (torch.cos(torch.pi * distance) - sinc) / torch.where(near, 1, distance)
    steep = torch.where(near, -(torch.pi**2) / 3 * distance, steep)
    slope = steep * window + sinc * kaiser_slope(distance, HALF_WIDTH, KAISER_BETA)
    return slope_of_share(sinc * window, slope, torch.ones_like(sinc))


def slope_of_share(weight: Tensor, slope: Tensor, count: Tensor) -> Tensor:
    """The derivative of `weight / sum(weight * count)` along the last axis, given the weight's."""
    total = (weight * count).sum(-1, keepdim=True)
    return (slope - weight * (slope * count).sum(-1, keepdim=True) / total) / total


@made_once
def tap_places(device: torch.device) -> Tensor:
    """The pixels that the taps weigh, -11 to 12."""
    return torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=device)


def kaiser(place: Tensor, reach: float, beta: float) -> Tensor:
    """The Kaiser window, up to a factor, for places from -reach to reach."""
    inner = torch.rsub(place.square(), beta**2, alpha=(beta / reach) ** 2)
    return torch.special.i0(inner.clamp(min=1e-12).sqrt())


def kaiser_slope(place: Tensor, reach: float, beta: float) -> Tensor:
    """Its derivative."""
    inner = torch.rsub(place.square(), beta**2, alpha=(beta / reach) ** 2)
    root = inner.clamp(min=1e-12).sqrt()
    return -((beta / reach) ** 2) * place * torch.special.i1(root) / root
