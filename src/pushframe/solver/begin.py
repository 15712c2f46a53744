"""What to begin with: frames of one brightness, at a first guess of where they lie."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..registration import register
from .belief import Belief
from .exposure import at_true_exposure, exposure_excess, far_off
from .outliers import agreeing_frames, foreign_pixels, on_reference_grid

MAX_FOREIGN = 0.5  # share of foreign pixels beyond which a frame is of another place
LEAST_SEEN = 0.15  # share of valid pixels below which a frame cannot be registered


class Begun(NamedTuple):
    """A burst to begin with: as bright as the reference, without what is of another scene.

    excess: (B, N), what its exposures were multiplied by; gains that are found come on top.
    """

    burst: Burst
    kept: Tensor  # (B, N) bool, the frames that agree
    start_px: Tensor  # (B, N, 2)
    excess: Tensor

    @property
    def rough(self) -> Tensor:
        """Bursts at least half of whose exposures were put right: gains are off together."""
        return (self.excess != 1).sum(1) >= self.excess.shape[1] / 2


def begin(burst: Burst, motion: Tensor | Belief | None = None) -> Begun:
    """What to begin with, where frames lie as `motion` says, or as they look.

    How wrong exposures are is told by the pixels, unless it is believed: what is dimmer than the
    scene is under a cloud.
    """
    if isinstance(motion, Belief):
        excess = far_off(1 + motion.mean[..., -1])
        burst = at_true_exposure(burst, excess)
        start_px = _start_px(burst, motion)
        still = on_reference_grid(burst, start_px)
    else:
        start_px = register(burst) if motion is None else motion
        still = on_reference_grid(burst, start_px)
        excess = exposure_excess(burst, still)
        if bool((excess != 1).any()):
            burst = at_true_exposure(burst, excess)
            still = still / excess[..., None, None]
    kept = agreeing_frames(burst, start_px)
    foreign = foreign_pixels(burst, start_px, still)
    kept = kept & (foreign.to(burst.frames).mean((-1, -2)) < MAX_FOREIGN)
    kept = kept & (burst.valid.to(start_px).mean((-1, -2)) >= LEAST_SEEN)
    kept[:, 0] = True
    return Begun(dataclasses.replace(burst, valid=burst.valid & ~foreign), kept, start_px, excess)


def _start_px(burst: Burst, belief: Belief) -> Tensor:
    """Translations (B, N, 2) to begin from: what is believed for sure, or else the images'."""
    shift_px, sure = belief.coefficients()[..., 0], belief.sure()
    if bool(sure.all()):
        return shift_px
    return torch.where(sure[..., None], shift_px, register(burst))
