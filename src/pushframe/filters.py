"""Gaussian low-pass, running maximum, Tukey window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .once import made_once

LARGEST_MATRIX = 512  # px of a side up to which a product costs less than a convolution


def gaussian_taps(sigma_px: float, like: Tensor) -> Tensor:
    """A normalised Gaussian of odd length, cut at 5 sigma."""
    radius = max(1, int(5 * sigma_px + 0.5))
    offset = torch.arange(-radius, radius + 1, device=like.device, dtype=like.dtype)
    taps = torch.exp(-0.5 * (offset / sigma_px) ** 2)
    return taps / taps.sum()


def gaussian_blur(image: Tensor, sigma_px: float) -> Tensor:
    """Separable Gaussian low-pass of (B, N, H, W), edge values repeated beyond the border."""
    height, width = image.shape[-2:]
    if max(height, width) <= LARGEST_MATRIX:
        tall, wide = (_blur_matrix(n, sigma_px, image.dtype, image.device) for n in (height, width))
        return tall @ image @ wide.mT
    rows = _blur_rows(image.flatten(0, 1), sigma_px)
    return _blur_rows(rows.mT.contiguous(), sigma_px).mT.unflatten(0, image.shape[:2])


@made_once
def _blur_matrix(size: int, sigma_px: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The low-pass along one axis as a matrix, (size, size)."""
    return _blur_rows(torch.eye(size, dtype=dtype, device=device)[None], sigma_px)[0].mT


def _blur_rows(image: Tensor, sigma_px: float) -> Tensor:
    """The rows of (B, h, w) low-passed."""
    taps = gaussian_taps(sigma_px, image)
    radius = len(taps) // 2
    wide = F.pad(image[:, None], (radius, radius, 0, 0), mode="replicate")
    return F.conv2d(wide, taps[None, None, None])[:, 0]


def highest_near(image: Tensor, radius: int) -> Tensor:
    """The largest value of (B, N, H, W) within `radius` pixels along either axis, itself included.

    Beyond the border is nothing.
    """
    size = 2 * radius + 1
    if image.is_cuda:
        rows = F.max_pool2d(image, (1, size), stride=1, padding=(0, radius))
        return F.max_pool2d(rows, (size, 1), stride=1, padding=(radius, 0))
    for _ in range(2):  # thirty times faster on a CPU than over squares
        rows = F.max_pool1d(image.flatten(0, 2), size, stride=1, padding=radius)
        image = rows.view(image.shape).mT.contiguous()
    return image


def masked_blur(image: Tensor, valid: Tensor, sigma_px: float) -> Tensor:
    """The Gaussian low-pass over valid pixels alone, (B, N, H, W); what others hold is ignored."""
    weight = valid.to(image)
    share = gaussian_blur(weight, sigma_px).clamp(min=1e-6)
    return gaussian_blur(image * weight, sigma_px) / share


def tukey(place: Tensor, size: int, taper: float) -> Tensor:
    """A window over `size` pixels that rises from zero over a share `taper` at each end.

    place: positions, 0 the centre of the first pixel; zero beyond the ends.
    """
    edge = torch.minimum(place + 0.5, size - 0.5 - place) / (taper * size)
    return 0.5 - 0.5 * torch.cos(torch.pi * edge.clamp(0, 1))
