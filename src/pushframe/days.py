"""Frames of different days: what they agree on at large, and how far each of them is off.

Between days light and haze change, and the land itself. As frames of one scene with white noise
they are far from alike: most of what they disagree about is smooth, while a reconstruction takes
every disagreement for detail between the pixels. So the low-pass of each frame is replaced by the
one on which the frames agree, and what they disagreed about there counts as the noise of the rest.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from .burst import Burst, NoiseLaw
from .checks import require
from .filters import gaussian_blur
from .forward import moved
from .geometry import middle_of
from .noise_law import MIDDLE_PX, first_guess, with_noise_law
from .registration import register

BASE_SIGMA_PX = 1.0  # of the low-pass: aliases are taken to live in the rest
ROUNDS = 6
TAIL_SIGMAS = 3.0  # from where on a pixel's say in the common image falls
MAX_SPREAD = 2.0  # times that of the usual frame, beyond which a frame is left out
MIN_FRAMES = 3
MIN_SEEN = 0.6  # share of the low-pass that valid pixels made up


class Reconciled(NamedTuple):
    """Frames less what their day added, and the variance of that beyond an offset, (B, N)."""

    burst: Burst
    var: Tensor


def reconciled(burst: Burst) -> Reconciled:
    """The frames of a batch with one low-pass, that of their common image.

    burst: with a noise law. The offset of a frame against the common image is its median
    difference; the reference's is kept. Frames twice as far off as the usual one are invalid,
    but for the reference. With less than three frames nothing is done.
    """
    if burst.count < MIN_FRAMES:
        return Reconciled(burst, torch.zeros_like(burst.exposure))
    flow_px = register(burst)
    share = gaussian_blur(burst.valid.to(burst.frames), BASE_SIGMA_PX)
    total = gaussian_blur(burst.frames * burst.valid, BASE_SIGMA_PX)
    # frame(x) = reference(x + flow), so the frame at x - flow lies on the reference's grid
    share, total = (moved(part, -flow_px) for part in (share, total))
    seen = share > MIN_SEEN
    low = total / share.clamp(min=1e-6)
    common, var, spread = _agreed(low, seen)
    day = torch.where(seen, low - common, 0)
    known = gaussian_blur(seen.to(day), BASE_SIGMA_PX).clamp(min=0.05)
    day = moved(gaussian_blur(day, BASE_SIGMA_PX) / known, flow_px)
    kept = spread <= MAX_SPREAD * spread.nanmedian(1, keepdim=True).values
    kept[:, 0] = True
    valid = burst.valid & kept[..., None, None]
    return Reconciled(dataclasses.replace(burst, frames=burst.frames - day, valid=valid), var)


def _agreed(low: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The common image of registered low-passes, (B, 1, H, W); variance and spread, (B, N).

    Each frame is compared with the mean of the others, weighted by how well they agree: variance
    is the mean square of the difference less its median, spread its robust root.
    """
    offset = torch.zeros_like(low[:, :, :1, :1])
    weight = seen.to(low)
    for _ in range(ROUNDS):
        level = low - offset
        total = weight.sum(1, keepdim=True)
        summed = (weight * level).sum(1, keepdim=True)
        others = (summed - weight * level) / (total - weight).clamp(min=1e-12)
        told = seen & (total - weight > 1e-9)
        off = (level - others).masked_fill(~told, torch.nan).flatten(2)
        middle = off.nanmedian(2, keepdim=True).values
        off = off - middle
        spread = (off.abs().nanmedian(2, keepdim=True).values / 0.6745).clamp(min=1e-9)
        trust = (1 + (off / (TAIL_SIGMAS * spread)) ** 2) * spread**2
        weight = torch.nan_to_num(1 / trust).unflatten(2, low.shape[2:]) * seen
        weight = weight / weight.amax((1, 2, 3), keepdim=True).clamp(min=1e-30)
        offset = offset + torch.nan_to_num(middle)[..., None]
        offset = offset - offset[:, :1]
    common = (weight * (low - offset)).sum(1, keepdim=True)
    common = common / weight.sum(1, keepdim=True).clamp(min=1e-30)
    return common, off.square().nanmean(2), spread[..., 0]


def as_of_one_day(burst: Burst) -> Burst:
    """A batch, reconciled where its frames are of different days and it has a noise law."""
    return reconciled(burst).burst if burst.days and burst.noise is not None else burst


def with_law(burst: Burst, scale: int) -> Burst:
    """One burst, or a batch of it, with its noise law; estimated where none is given, and said.

    That of frames of different days counts what the days changed; once: a second call would add
    it again.
    """
    if burst.days and burst.count >= MIN_FRAMES:
        return _with_law_across_days(burst)
    return with_noise_law(burst, scale)


def _with_law_across_days(burst: Burst) -> Burst:
    """The law of the noise and of what the days changed, as the middle tells, and a note.

    `var = a * dn + b + days`, `days` being the usual frame's variance about the common image.
    """
    middle = burst.tile(*middle_of(burst.shape, MIDDLE_PX))
    given = middle.noise
    law = first_guess(middle) if given is None else given
    found = reconciled(dataclasses.replace(middle, noise=law)).var
    days = (found * middle.gain**2).nanmedian(1).values  # DN^2
    require(
        bool(torch.isfinite(days).all()),
        f"{MIN_FRAMES} frames of different days that show the middle",
        "fewer, or none",
        "run a --window that they show",
    )
    if given is None:
        given = NoiseLaw(torch.zeros_like(days), torch.zeros_like(days))
    note = (
        "The frames are of different days: their low-pass is the one they agree on, and the "
        f"{float(days[0].sqrt()):.3g} DN rms by which the usual frame was off count as noise."
    )
    noise = NoiseLaw(given.a, given.b + days).map(lambda x: x.view(burst.white_level.shape))
    return dataclasses.replace(burst, noise=noise, notes=(*burst.notes, note))
