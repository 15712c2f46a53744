"""Pixels that say nothing of the scene, found by their values: saturated ones, and stuck ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from ..checks import counted

LEAST_CLIPPED = 30  # pixels at the largest value, from which they may be saturated
JUST_BELOW = 0.01  # of that value: fewer pixels lie so near below it than at it
LOOKED_AT = 20_000  # pixels of each frame, about, to tell where they level off
RANKS = np.concatenate([np.linspace(0.05, 0.9, 18), np.linspace(0.91, 0.99, 9)])  # of pixels
DARKER = RANKS <= 0.5  # those that nothing is wrong with
LEVEL = 0.93  # of what shorter exposures foretell, that is at most left where frames level off
BELOW = 0.9  # of the largest value of a frame: up to there it must be as foretold
AS_FORETOLD = 0.06  # of what shorter exposures foretell, by which it may differ there
LEAST_SHOWN = 0.5  # share of the pixels that a frame must show to count
LEAST_HIDDEN = 0.01  # share of the pixels that all show: fewer are masked for their own faults
BRIGHT = 0.9  # rank among the pixels that all frames show, from which hidden ones are bright
ONE_LEVEL = 1.04  # ratio of the levels of two frames, at most
SPREADS = 3.5  # of the pixels' own levels, by which they begin below the typical one
OTHER_EXPOSURE = 1.05  # ratio of their exposures, at least: alike ones may show the same by chance
LEAST_FRAMES = 4  # that hold the same value at a pixel that is stuck
LIVELY_DN = 8.0  # by which most pixels about it change over the frames
NEAR_PX = 9  # the side of what is about it
BLOCK_PX = 5  # the side of a square of zeros: shadows at 0 have noise in between
MAX_ZEROS = 0.005  # share of all pixels


class Defects(NamedTuple):
    """What is wrong with the pixels looked at.

    saturation: the DN from which they count as saturated, None if nowhere; uneven: whether each
    pixel has a level of its own; stuck: how many are; zeros: the share of them within blocks of
    zeros.
    """

    saturation: float | None = None
    uneven: bool = False
    stuck: int = 0
    zeros: float = 0.0

    def notes(self) -> Iterator[str]:
        """What to say of them."""
        if self.saturation is not None:
            found = f"Pixels pile up at {self.saturation:g} DN, the largest value: they"
            if self.uneven:
                found = (
                    "Long exposures level off below what short ones foretell, each pixel at a "
                    f"value of its own: pixels of {self.saturation:g} DN and more"
                )
            yield (
                f"{found} count as saturated and are left out. If they are not, give a higher "
                "saturation_level."
            )
        if self.stuck:
            yield (
                f"{counted(self.stuck, 'pixel')} of the detector, of those looked at, hold one "
                "value in all frames, or stand out wherever the frames look: they count as stuck, "
                "and such pixels are left out."
            )
        if self.zeros > MAX_ZEROS:
            yield (
                f"{self.zeros:.1%} of the pixels are exactly 0, in blocks: they count as dark "
                "ground. If they mean nothing, say so: `gdal_edit.py -a_nodata 0` for each TIFF, "
                "or the key `valid`."
            )


def saturation_of(stacks: Iterable[np.ndarray]) -> float | None:
    """The DN at which pixels pile up, the largest of all frames; None if they do not.

    stacks: windows of the frames, (N, h, w) each, NaN where invalid.
    """
    top, at_top, below = -np.inf, 0, 0
    for stack in stacks:
        seen = stack[~np.isnan(stack)]
        highest = float(seen.max(initial=-np.inf))
        if highest > top:
            top, at_top, below = highest, 0, 0
        if highest == top:
            at_top += int((seen == top).sum())
            below += int(((seen < top) & (seen >= top - max(1.0, JUST_BELOW * top))).sum())
    piled = np.isfinite(top) and at_top >= LEAST_CLIPPED and at_top > below
    return top if piled else None


def thinned(stack: np.ndarray) -> np.ndarray:
    """Pixels of a window (N, h, w) spread evenly over it, some LOOKED_AT, (N, P)."""
    step = max(1, round((stack[0].size / LOOKED_AT) ** 0.5))
    return stack[:, ::step, ::step].reshape(len(stack), -1)


def levels_off(pixels: np.ndarray) -> float | None:
    """The DN from which pixels saturate, each at a value of its own; None if they do not.

    pixels: (N, P), those of a frame at the same places, NaN where invalid. Frames of one scene have
    the same histogram but for exposure and black level. That of the shortest exposures foretells
    the others; where the longest stay below it, all at one level, and nowhere else, they are
    saturated there. Not where long exposures are masked for being bright.
    """
    pixels = pixels[np.isfinite(pixels).mean(1) >= LEAST_SHOWN]
    everywhere = np.isfinite(pixels).all(0)
    if len(pixels) < LEAST_FRAMES or everywhere.sum() < 10 * len(RANKS):
        return None
    if _masked_for_brightness(pixels, everywhere):
        return None
    ranked = np.quantile(pixels[:, everywhere], RANKS, axis=1).T
    ranked = ranked[ranked[:, DARKER].mean(1).argsort()]
    few = max(2, len(ranked) // 3)
    short = ranked[:few] - ranked[:few, DARKER].mean(1, keepdims=True)
    size = short[:, DARKER].std(1, keepdims=True)
    if not size.all():  # no contrast to compare
        return None
    shape = (short / size).mean(0)
    rest = ranked[few:]
    mean = rest[:, DARKER].mean(1)
    exposure = (rest[:, DARKER] - mean[:, None]) @ shape[DARKER] / (shape[DARKER] ** 2).sum()
    foretold = mean[:, None] + exposure[:, None] * shape
    level = rest[:, -1] < LEVEL * foretold[:, -1]
    if level.sum() < 2 or np.ptp(np.log(np.abs(exposure[level]))) < np.log(OTHER_EXPOSURE):
        return None
    off = np.abs(rest - foretold) > AS_FORETOLD * np.abs(foretold)
    if (off & ~DARKER & (foretold < BELOW * rest[:, -1:]))[level].any():
        return None
    middle, spread = np.array(
        [_ceiling(*pair) for pair in zip(rest[level], foretold[level], strict=True)]
    ).T
    lowest, typical, highest = np.quantile(middle, [0, 0.5, 1])
    margin = SPREADS * spread.max()
    beyond = (rest[~level, -1] > typical + margin).any() or ranked[few - 1, -1] > lowest
    if highest > ONE_LEVEL * lowest or beyond:
        return None
    return float(f"{typical - margin:.4g}")


def _masked_for_brightness(pixels: np.ndarray, everywhere: np.ndarray) -> bool:
    """Whether what others of the frames (N, P) hide is bright in the darkest one; not so clouds.

    everywhere: (P,) bool, what all frames show.
    """
    frame = pixels[np.median(pixels[:, everywhere], axis=1).argmin()]
    hidden = frame[np.isfinite(frame) & ~everywhere]
    many = hidden.size > LEAST_HIDDEN * everywhere.sum()
    return bool(many) and np.median(hidden) > np.quantile(frame[everywhere], BRIGHT)


def _ceiling(ranked: np.ndarray, foretold: np.ndarray) -> tuple[float, float]:
    """Where a frame levels off, and by how much its pixels differ there, standard deviation.

    ranked, foretold: its quantiles at RANKS. The pixels that should lie above are the brightest.
    """
    share = 1 - np.interp(ranked[-1], foretold, RANKS)
    middle, upper = np.interp([1 - share / 2, 1 - 0.16 * share], RANKS, ranked)
    return float(middle), float(upper - middle)


def stuck_pixels(stack: np.ndarray) -> np.ndarray:
    """Pixels (h, w) of a detector that hold one value in all frames (N, h, w), whatever they see.

    NaN where invalid. Most pixels about them change: calm water, shadows and roofs, of values that
    are clipped or agree by chance, have neighbours like themselves.
    """
    seen = (~np.isnan(stack)).sum(0)
    with np.errstate(invalid="ignore"):  # infinite pixels are told of elsewhere
        spread = np.fmax.reduce(stack) - np.fmin.reduce(stack)
    lively = torch.from_numpy((spread >= LIVELY_DN).astype(np.float32))[None]
    share = F.avg_pool2d(lively, NEAR_PX, 1, NEAR_PX // 2, count_include_pad=False)[0].numpy()
    stuck: np.ndarray = (seen >= LEAST_FRAMES) & (spread == 0) & (share >= 0.5)
    return stuck


def zeros_in_blocks(stack: np.ndarray) -> float:
    """The share of pixels of frames (N, h, w) about which all is exactly 0, NaN where invalid."""
    other = torch.from_numpy((stack != 0).astype(np.float32))
    return float((F.max_pool2d(other, BLOCK_PX, 1, BLOCK_PX // 2) == 0).float().mean())
