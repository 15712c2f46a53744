"""What does not belong: frames of another place, and pixels that disagree with the rest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..burst import Burst
from ..filters import gaussian_blur, highest_near, masked_blur
from ..forward import moved, per_axis
from ..noise import frame_noise_var
from ..ops import median_over_frames
from ..registration import agreement

MIN_CORRELATION = 0.5
PIXEL_SIGMAS = 5.0
NEIGHBOUR_SIGMAS = 2.0
FOREIGN_SMOOTHING_PX = 1.5
FOREIGN_SIGMAS = 6.0
FOREIGN_MARGIN_PX = 2.0  # nearer to a border more than a twentieth of the low-pass lies beyond it
CUT_SIGMAS = 3.0
MAX_SURPRISE = 4.0  # squared residuals over their expectation, against the usual frame's


def agreeing_frames(burst: Burst, flow_px: Tensor) -> Tensor:
    """Frames that show the reference's scene, (B, N) bool; too faint to tell counts as agreeing."""
    _, correlation, contrast = agreement(burst, flow_px)
    return (correlation > MIN_CORRELATION) | (contrast < 1)


def foreign_pixels(burst: Burst, flow_px: Tensor, still: Tensor) -> Tensor:
    """Pixels of a frame far from the median of the registered, low-passed frames, (B, N, H, W).

    Clouds and moving objects, found before they enter any mean. The yardstick is the spread of
    the frames at that place, so that aliased edges, which differ in every frame, do not count.
    still: the frames `on_reference_grid`.
    """
    middle = median_over_frames(still)
    off = still - middle
    spread = median_over_frames(off.abs()) / 0.6745
    enough = (~torch.isnan(still)).sum(1, keepdim=True) >= 3
    spread = highest_near(torch.nan_to_num(spread), 2)
    noise = frame_noise_var(burst) / (4 * math.pi * FOREIGN_SMOOTHING_PX**2)
    gain_error = 0.03 * middle.abs()
    foreign = enough & (off.abs() > FOREIGN_SIGMAS * (spread**2 + noise + gain_error**2).sqrt())
    grown = highest_near(foreign.to(off), 4)
    return (moved(grown, flow_px) > 0.3) & burst.valid


def on_reference_grid(burst: Burst, flow_px: Tensor) -> Tensor:
    """The low-passed frames where the reference has its pixels, NaN beyond, (B, N, H, W)."""
    smooth = masked_blur(burst.frames, burst.valid, FOREIGN_SMOOTHING_PX)
    # what a mask has bitten into says nothing of the scene
    whole = gaussian_blur(burst.valid.to(smooth), FOREIGN_SMOOTHING_PX) > 0.95
    # frame(x) = reference(x + flow), so the frame at x - flow lies on the reference's grid
    still, seen = (moved(x.to(smooth), -flow_px) for x in (smooth, whole))
    return still.masked_fill((seen < 0.99) | ~_well_inside(burst.shape, -flow_px), torch.nan)


def _well_inside(shape: tuple[int, int], flow_px: Tensor) -> Tensor:
    """Whether `x + flow` lies in a frame, FOREIGN_MARGIN_PX from its borders, (B, N, H, W) bool.

    What a low-pass shows nearer to them is half repeated values, and stands out by itself.
    """

    def inside(size: int, shift_px: Tensor) -> Tensor:
        place = torch.arange(size, device=shift_px.device) + shift_px[..., None]
        return place == place.clamp(FOREIGN_MARGIN_PX, size - 1 - FOREIGN_MARGIN_PX)

    down, right = per_axis(inside, shape, flow_px.movedim(-1, 0))
    return down[..., :, None] & right[..., None, :]


def disagreeing_pixels(z: Tensor, seen: Tensor) -> Tensor:
    """Pixels far beyond their error bar where the other frames are not, with their surroundings.

    z: (B, N, H, W) residuals in standard deviations; seen: bool, which of them count. Where all
    frames disagree (a sharp edge under an inexact model), none of them is the outlier.
    """
    size = z.abs().masked_fill(~seen, 0)
    common = median_over_frames(size)
    common = highest_near(common, 2)
    scale = torch.maximum(2 * common, torch.ones_like(common))
    core = size > PIXEL_SIGMAS * scale
    near = highest_near(core.to(z), 2) > 0
    return core | (near & (size > NEIGHBOUR_SIGMAS * scale))


def surprising_frames(surprise: Tensor, seen: Tensor) -> Tensor:
    """Frames whose residuals surprise, against those of the usual one seen, (B, N) bool.

    surprise: (B, N) squared residuals over their expectation; seen: bool. Never the reference.
    """
    usual = surprise.masked_fill(~seen, torch.nan).nanmedian(1, keepdim=True).values
    lost = surprise > MAX_SURPRISE * usual.clamp(min=1)
    lost[:, 0] = False
    return lost


def cut_pixels(frames: Tensor, valid: Tensor, predicted: Tensor, noise_std: Tensor) -> Tensor:
    """Pixels expected within 3 sigma of a ceiling that masks what is brighter, (B, N, H, W) bool.

    Of pixels near saturation those with dark noise alone are below it: what is left of them is
    too dark. Only the expectation tells them apart, the value itself is what they were chosen by.
    The ceiling is the brightest valid pixel of a frame that has masked ones.
    """
    ceiling = frames.masked_fill(~valid, -torch.inf).amax((-1, -2), keepdim=True)
    masked = ~valid.all(-1, keepdim=True).all(-2, keepdim=True)
    return masked & (predicted > ceiling - CUT_SIGMAS * noise_std)


def hidden_share(good: Tensor) -> Tensor:
    """Share of pixels (B, N, H, W) not to be used, of the frames that show anything, (B,)."""
    shown = good.float().mean((-1, -2))
    there = shown > 0
    return ((1 - shown) * there).sum(1) / there.sum(1).clamp(min=1)
