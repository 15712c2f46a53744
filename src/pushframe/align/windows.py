"""Windows spread over the reference, each registered to every frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ..burst import Burst, stack
from ..filters import masked_blur
from ..io import BurstSource
from ..io.frames import spread_windows
from ..noise import frame_noise_var
from ..noise_law import first_guess
from ..registration import AGREEMENT_SMOOTHING_PX, agreement, register
from .agree import Matches

WINDOW_PX, WINDOWS = 128, 5  # side of a window, and how many along each axis
IMAGES_AT_ONCE = 64  # windows times frames that are registered together
MIN_SHARE = 0.3  # of a window that frame and reference must both show


def measure(source: BurstSource) -> list[Matches]:
    """Windows of the frames registered to the reference, one entry a frame, the reference first."""
    windows = spread_windows(source.shape, WINDOW_PX, WINDOWS)
    step = max(1, IMAGES_AT_ONCE // source.count)
    groups = [windows[first : first + step] for first in range(0, len(windows), step)]
    flow_px, gain, correlation, share, telling = (
        np.concatenate(parts)
        for parts in zip(*(_look(source, group) for group in groups), strict=True)
    )
    centre = np.array([[(part.start + part.stop - 1) / 2 for part in pair] for pair in windows])
    found = []
    for place, k in enumerate(source.order):
        offset = np.array([source.placements[k].offset_px(*pair) for pair in windows])
        overlapping = (share[:, 0] > MIN_SHARE) & (share[:, place] > MIN_SHARE)
        found.append(
            Matches(
                centre,
                offset - flow_px[:, place],
                np.nan_to_num(correlation[:, place]),
                gain[:, place],
                overlapping,
                overlapping & telling[:, place],
            )
        )
    return found


def _look(source: BurstSource, windows: Sequence[tuple[slice, slice]]) -> tuple[np.ndarray, ...]:
    """Flow (P, N, 2), gain, correlation, share of valid pixels, whether contrast tells, (P, N)."""
    batch = _batch(source, windows)
    flow_px = register(batch)
    gain, correlation, _ = agreement(batch, flow_px)
    share = batch.valid.float().mean((-1, -2))
    return (
        flow_px.double().numpy(),
        gain.double().numpy(),
        correlation.double().numpy(),
        share.numpy(),
        _contrast(batch).numpy() > 1,
    )


def _batch(source: BurstSource, windows: Sequence[tuple[slice, slice]]) -> Burst:
    """Windows of one size as a batch, with a noise law, guessed where none is given."""
    batch = stack([source.tile(*window) for window in windows])
    return batch if batch.noise is not None else replace(batch, noise=first_guess(batch))


def _contrast(batch: Burst) -> torch.Tensor:
    """Contrast of the smoothed reference over the noise of each frame and its own, (B, N).

    Of the reference, not of the frame: a frame that shows no contrast where it should disagrees.
    """
    smooth = masked_blur(batch.frames[:, :1], batch.valid[:, :1], AGREEMENT_SMOOTHING_PX)
    weight = batch.valid[:, :1].to(smooth)
    total = weight.sum((-1, -2)).clamp(min=1)
    mean = (smooth * weight).sum((-1, -2)) / total
    power = ((smooth - mean[..., None, None]) ** 2 * weight).sum((-1, -2)) / total
    noise = frame_noise_var(batch).mean((-1, -2)) / (4 * math.pi * AGREEMENT_SMOOTHING_PX**2)
    return (power / (noise + noise[:, :1])).sqrt() / 2
