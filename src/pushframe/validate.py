"""Does a burst hang together? Checks that need no truth and name the frame at fault."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Literal

import torch

from .brightness import MAX_GAIN_ERROR, brightness_fault, reference_excess, reference_fault
from .burst import Burst
from .checks import counted, frame_label
from .days import as_of_one_day
from .infer import tiled_batch
from .left_out import left_out_notes
from .noise_law import MIN_FRAMES, STATE_IT, first_guess
from .registration import agreement, off_grid, on_grid_note, register
from .seams import TILES_AT_ONCE, Tile, tile_corners
from .solver.outliers import foreign_pixels, on_reference_grid

MIN_CORRELATION = 0.5
ODD, NOISIER = 0.05, 9.0  # what a frame may disagree by, besides 9 times what the usual one does
BELOW_BLACK = "the mean of the reference lies below black; correct `black_level`"
MAX_SATURATED = 0.05
MIN_VALID = 0.5


@dataclass(frozen=True)
class Finding:
    """One observation: `bad` makes the burst unfit, `note` is worth knowing, `good` is neither."""

    verdict: Literal["good", "note", "bad"]
    message: str


def examine(burst: Burst) -> list[Finding]:
    """Findings about one burst (N, H, W), the most general first."""
    height, width = burst.shape
    found = [Finding("good", f"{counted(burst.count, 'frame')} of {height}x{width}")]
    found += [Finding("note", text) for text in burst.notes]
    found += _count(burst)
    found += _masks(burst)
    found += _saturation(burst)
    if burst.count > 1:
        agreement, unfit = _agreement(burst)
        found += [*agreement, *_disagreement(burst, unfit)]
    return found


def _count(burst: Burst) -> list[Finding]:
    """Are there frames enough to gain from, and to tell their noise?"""
    if burst.count == 1:
        text = (
            "expected at least 2 frames, got 1: it shows no detail between its pixels; add frames"
        )
        return [Finding("bad", text)]
    if burst.noise is None and burst.count < MIN_FRAMES:
        text = f"expected a noise law or at least {MIN_FRAMES} frames to estimate it from, got "
        return [Finding("bad", f"{text}{burst.count} frames: {STATE_IT}")]
    return []


def _masks(burst: Burst) -> list[Finding]:
    share = burst.valid.float().mean((-1, -2)).tolist()
    return [
        Finding("note", f"{frame_label(k, name)}: only {value:.0%} of its pixels are valid")
        for k, (name, value) in enumerate(zip(burst.names, share, strict=True))
        if value < MIN_VALID
    ]


def _saturation(burst: Burst) -> list[Finding]:
    """Frames with many pixels stuck at their own maximum."""
    found = []
    for k, (frame, mask, name) in enumerate(
        zip(burst.frames, burst.valid, burst.names, strict=True)
    ):
        values = frame[mask]
        share = float((values >= values.max()).float().mean())
        if share > MAX_SATURATED:
            text = f"{frame_label(k, name)}: {share:.0%} of its pixels sit at its maximum; "
            found.append(Finding("note", text + "mask saturated pixels with `valid`"))
    return found


def _agreement(burst: Burst) -> tuple[list[Finding], set[int]]:
    """Does each frame, once registered, show the reference's scene at the stated exposure?

    Findings, and the frames that are unfit.
    """
    batch = burst.batched()
    flow_px = register(batch)
    gain, correlation, contrast = (row[0].tolist() for row in agreement(batch, flow_px))
    least = least_correlation(correlation[1:])
    dark = math.isnan(gain[0])  # the reference against itself
    alike = [k for k in range(1, burst.count) if contrast[k] >= 1 and correlation[k] >= least]
    comparable = not dark and not burst.days
    excess = reference_excess([gain[k] for k in alike]) if comparable else 1.0
    found, placed, unfit = [], [], set()
    if dark or excess != 1:
        text = BELOW_BLACK if dark else reference_fault(excess)
        found.append(Finding("bad", f"{frame_label(0, burst.names[0])}: {text}"))
        unfit.add(0)
    for k in range(1, burst.count):
        label = frame_label(k, burst.names[k])
        dy, dx = flow_px[0, k].tolist()
        if contrast[k] < 1:
            found.append(Finding("note", f"{label}: too little contrast above noise to compare"))
        elif correlation[k] < least:
            text = f"{label}: disagrees with the reference: clouded, or of another place "
            found.append(Finding("bad", f"{text}(correlation {correlation[k]:.2f}); leave it out"))
            unfit.add(k)
        elif comparable and abs(excess * gain[k] - 1) > MAX_GAIN_ERROR:
            found.append(Finding("bad", f"{label}: {brightness_fault(excess * gain[k])}"))
            unfit.add(k)
        else:
            placed.append(k)
            found.append(Finding("good", f"{label}: shift ({dy:+.2f}, {dx:+.2f}) px"))
    on_grid = on_grid_note(off_grid(flow_px[0, placed]).amax(0)) if placed else None
    return [*found, *([] if on_grid is None else [Finding("note", on_grid)])], unfit


def _disagreement(burst: Burst, told: set[int]) -> list[Finding]:
    """Notes on frames in parts of which the others show something else, but for those `told`."""
    if burst.count < MIN_FRAMES:
        return []
    batch = burst.batched()
    facts = (
        batch if batch.noise is not None else dataclasses.replace(batch, noise=first_guess(batch))
    )
    seen = left = torch.zeros(burst.count)
    worst = torch.zeros(burst.count)
    for tiles in _groups(burst.shape):
        part = as_of_one_day(tiled_batch(burst, tiles, facts))
        flow_px = register(part)
        foreign = foreign_pixels(part, flow_px, on_reference_grid(part, flow_px)).sum((2, 3))
        seen, left = seen + part.valid.sum((0, 2, 3)), left + foreign.sum(0)
        worst = worst.maximum((foreign / (part.shape[0] * part.shape[1])).amax(0))
    share = left / seen.clamp(min=1)
    for index in told:
        worst[index] = 0
    labels = [frame_label(k, name) for k, name in enumerate(burst.names)]
    return [
        Finding("note", text)
        for text in left_out_notes(labels, share.tolist(), worst.tolist(), "are")
    ]


def _groups(shape: tuple[int, int]) -> Iterator[list[Tile]]:
    """Tiles that cover a frame, some at a time."""
    corners = tile_corners(shape)
    while group := list(islice(corners, TILES_AT_ONCE)):
        yield group


def least_correlation(correlation: list[float]) -> float:
    """The correlation with the reference below which a frame shows something else.

    Noise alone lowers it: for a frame of a quarter of the exposure, and 16 times the variance, by
    up to 9 times as much as for the usual one.
    """
    usual = median(correlation) if len(correlation) > 1 else 0.0
    return max(MIN_CORRELATION, 1 - ODD - NOISIER * (1 - usual))
