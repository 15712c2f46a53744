"""What does not belong: frames of another place, and pixels that disagree with the rest."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..burst import Burst
from ..registration import agreement

MIN_CORRELATION = 0.5
PIXEL_SIGMAS = 5.0
NEIGHBOUR_SIGMAS = 2.0


def agreeing_frames(burst: Burst, flow_px: Tensor) -> Tensor:
    """Frames that show the reference's scene, (B, N) bool; too faint to tell counts as agreeing."""
    _, correlation, contrast = agreement(burst, flow_px)
    return (correlation > MIN_CORRELATION) | (contrast < 1)


def disagreeing_pixels(z: Tensor, seen: Tensor) -> Tensor:
    """Pixels far beyond their error bar where the other frames are not, with their surroundings.

    z: (B, N, H, W) residuals in standard deviations; seen: bool, which of them count. Where all
    frames disagree (a sharp edge under an inexact model), none of them is the outlier.
    """
    size = z.abs().masked_fill(~seen, 0)
    common = size.median(1, keepdim=True).values
    common = F.max_pool2d(common, 5, stride=1, padding=2)
    scale = torch.maximum(2 * common, torch.ones_like(common))
    core = size > PIXEL_SIGMAS * scale
    near = F.max_pool2d(core.to(z), 5, stride=1, padding=2) > 0
    return core | (near & (size > NEIGHBOUR_SIGMAS * scale))
