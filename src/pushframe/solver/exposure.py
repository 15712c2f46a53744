"""Exposures far from what was stated: by how much, and the burst with them put right."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from ..burst import Burst
from ..noise import frame_noise_var
from ..ops import median_over_frames
from .outliers import FOREIGN_SMOOTHING_PX, on_reference_grid

LEAST_EXCESS = 1.04  # a brightness nearer to what was stated is found along with the motion
EXPLAINED = 0.5  # of how far a frame is off, at most left by a factor that is to be believed
DARK_SIGMAS = 5.0  # of the noise, below which a pixel tells no factor
MIN_PIXELS = 64


def exposure_excess(burst: Burst, flow_px: Tensor) -> Tensor:
    """True over stated exposure of frames, the reference's as the unit, (B, N).

    The median over pixels of a frame over what most frames show there. 1 where it is near 1, and
    where no factor explains the frame: a pedestal, a veil of cloud or another scene adds.
    """
    still = on_reference_grid(burst, flow_px)
    noise = frame_noise_var(burst).mean((-1, -2), keepdim=True)
    noise = noise / (4 * math.pi * FOREIGN_SMOOTHING_PX**2)
    usual = median_over_frames(still)
    bright = usual > DARK_SIGMAS * noise.sqrt()
    still = still.masked_fill(~bright, torch.nan)

    def middle(values: Tensor) -> Tensor:
        return values.flatten(2).nanmedian(2).values[..., None, None]

    factor, added = middle(still / usual), middle(still - usual)
    off, multiplied, lifted = (
        middle((still - guess).abs()) for guess in (usual, factor * usual, usual + added)
    )
    told = (~still.isnan()).sum((2, 3), keepdim=True) >= MIN_PIXELS
    told &= (factor > 0) & ((factor > LEAST_EXCESS) | (factor < 1 / LEAST_EXCESS))
    told &= (multiplied < EXPLAINED * off) & (multiplied < lifted)
    factor = torch.where(told, factor, 1)[..., 0, 0]
    return factor / factor[:, :1]


def at_true_exposure(burst: Burst, excess: Tensor) -> Burst:
    """The burst as if exposures had been stated `excess` (B, N) times as long."""
    frames = burst.frames / excess[..., None, None]
    return dataclasses.replace(burst, frames=frames, exposure=burst.exposure * excess)
