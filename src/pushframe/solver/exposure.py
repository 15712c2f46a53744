"""Exposures far from what was stated: by how much, and the burst with them put right."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ..burst import Burst
from ..noise import frame_noise_var
from ..ops import median_over_frames
from .outliers import FOREIGN_SMOOTHING_PX

LEAST_EXCESS = 1.04  # a brightness nearer to what was stated is found along with the motion
EXPLAINED = 0.5  # of how far a frame is off, at most left by a factor that is to be believed
LIFTED = 1.2  # times what an offset leaves, likewise: in a flat scene the two are the same
USUAL, USUAL_SIGMAS = 3.0, 2.0  # times what is left of the usual frame, and of the noise, likewise
MOST = 0.9  # of the pixels, which that holds for: shadows fall on a part of a frame
DARK_SIGMAS = 5.0  # of the noise, below which a pixel tells no factor
LIT_SIGMAS = 5.0  # of the noise, that brighter pixels exceed: in a dark scene noise chooses them
LEAST_TELLING = 64  # pixels that are brighter


def far_off(factor: Tensor) -> Tensor:
    """Factors of exposures that are not near to 1, and 1 in place of the others."""
    far = (factor > LEAST_EXCESS) | ((factor > 0) & (factor < 1 / LEAST_EXCESS))
    return torch.where(far, factor, 1)


def exposure_excess(burst: Burst, still: Tensor) -> Tensor:
    """True over stated exposure of frames, the reference's as the unit, (B, N).

    The median over pixels of a frame over what most frames show there. 1 where it is near 1, and
    where no factor explains the frame: a pedestal, a veil of cloud or another scene adds, and shade
    on a part leaves the rest. Of frames of different days 1: the light is another. still: the
    frames `on_reference_grid`.
    """
    if burst.days:
        return torch.ones_like(burst.exposure)
    noise = frame_noise_var(burst).mean((-1, -2), keepdim=True)
    noise = noise / (4 * math.pi * FOREIGN_SMOOTHING_PX**2)

    def middle(values: Tensor) -> Tensor:
        return values.flatten(2).nanmedian(2).values[..., None, None]

    usual = median_over_frames(still)
    bright = usual / middle(usual) > DARK_SIGMAS * noise.sqrt() / middle(still)
    still = still.masked_fill(~bright, torch.nan)
    factor = middle(still / usual)
    if bool((far_off(factor) == 1).all()):
        return torch.ones_like(burst.exposure)
    added = middle(still - usual)
    off, multiplied, lifted = (
        middle((still - guess).abs()) for guess in (usual, factor * usual, usual + added)
    )
    told = (~still.isnan()).sum((2, 3), keepdim=True) >= LEAST_TELLING
    told &= middle(still) > LIT_SIGMAS * noise.sqrt()
    told &= (multiplied < EXPLAINED * off) & (multiplied < LIFTED * lifted)
    alike = still / factor
    left = _most((alike - median_over_frames(alike)).abs())
    usually = USUAL * left.nanmedian(1, keepdim=True).values
    told &= left < usually + USUAL_SIGMAS * noise.sqrt() / factor
    factor = torch.where(told, far_off(factor), 1)[..., 0, 0]
    return factor / factor[:, :1]


def _most(values: Tensor) -> Tensor:
    """What `MOST` of the pixels of a frame are below, NaN left out, (B, N, 1, 1)."""
    pixels = values.flatten(2).sort(2).values  # NaN last
    count = (~pixels.isnan()).sum(2, keepdim=True)
    return pixels.gather(2, (MOST * (count - 1)).long().clamp(min=0))[..., None]


def at_true_exposure(burst: Burst, excess: Tensor) -> Burst:
    """The burst as if exposures had been stated `excess` (B, N) times as long."""
    frames = burst.frames / excess[..., None, None]
    return dataclasses.replace(burst, frames=frames, exposure=burst.exposure * excess)
