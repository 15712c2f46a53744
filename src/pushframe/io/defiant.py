"""Pixels of a detector that do not follow the scene: they stand out wherever the frames look."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ..filters import masked_blur

SHARE = 0.8  # of the frames in which a pixel stands out, at least
LEAST_FRAMES = 4  # in which it does
APART_PX = 1.25  # no detail is narrower than to stand out in two frames so far apart
MOVED_CHANCE = 1e-4  # that detail of one place stands out in so many others, too
TYPICAL = 0.5  # of the typical difference between neighbours: less by which a pixel stands out
RUN_PX = 8  # of a line, to both sides of a pixel, by which it is judged
ONE_WAY = 0.5  # of them brighter than both neighbours, less those darker than both; or the reverse
FILLED = 1 / 3  # of them found, from which those between are of the line, too
NEAR_PX = 16  # to all sides of a pixel: there others stand out as often as detail makes them
CHANCE = 1e-9  # that detail makes one pixel stand out so often
BAND_PX = (1.0, 4.0)  # what frames are compared by: neither aliases nor gradients
CLIP = 4.0  # median absolute values of that
ALIKE = 0.4  # correlation from which two frames show the same ground
# Along furrows and streets frames that lie so far apart match as well where they are as so moved
FURTHER_PX, AS_STILL = 2.0, 0.85
COMPARED = 16  # frames at most: pairs grow with their square
OVERLAP = 0.25  # share of a window that two frames must both show
AROUND = tuple((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0))


def defiant_pixels(stack: np.ndarray) -> np.ndarray:
    """Pixels (h, w) that lie beyond all their neighbours in most of the frames (N, h, w).

    NaN where invalid. Beyond them by more than these differ among each other: above, or below.
    Detail of the scene does so, too, but not at the same pixel of frames that lie APART_PX apart,
    for then it has moved. Nothing is found where few frames move, or show no detail that tells.
    A column is judged by what lies to the left and right of it, and need not move but along rows; a
    row likewise.
    """
    stack = np.where(np.isinf(stack), np.nan, stack)[_brightness(stack).argsort()]
    beyond = [_beyond(stack), _beyond_as_line(stack, 0), _beyond_as_line(stack, 1)]
    often, rates = zip(
        *(_often(*found, axis) for found, axis in zip(beyond, (None, 0, 1), strict=True)),
        strict=True,
    )
    suspects = _with_lines(often)
    if not suspects.any():
        return suspects
    apart_px = frames_apart(stack, suspects)
    for axes, (out, _), found, rate in zip([(0, 1), (1,), (0,)], beyond, often, rates, strict=True):
        far = np.nan_to_num(apart_px[..., axes]).max(-1) >= APART_PX
        found[found] = _moved(out[:, found], rate[found], far)
    return _with_lines(often)


def _brightness(stack: np.ndarray) -> np.ndarray:
    """The median of each frame (N, h, w), 0 without a valid pixel."""
    seen = [frame[np.isfinite(frame)] for frame in stack]
    return np.array([np.median(pixels) if pixels.size else 0.0 for pixels in seen])


def _moved(out: np.ndarray, rate: np.ndarray, far: np.ndarray) -> np.ndarray:
    """Pixels (P,) that stand out (N, P) elsewhere than most frames look, more than by chance.

    rate: (P,) at which others near by do. far: (N, N) bool. Frames that look at one place count
    once: what detail does in one of them it does in all.
    """
    looks = _looks(far)[1:]
    times = sum((out[look].mean(0) > 0.5 for look in looks), np.zeros(len(rate), int))
    ways = np.array([math.comb(len(looks), k) for k in range(len(looks) + 1)], float)
    moved: np.ndarray = ways[times] * rate**times <= MOVED_CHANCE
    return moved


def _looks(far: np.ndarray) -> list[list[int]]:
    """Frames (N, N) in groups of which no two are far from each other, the first the largest."""
    left = far.sum(1).argsort(kind="stable").tolist()
    looks: list[list[int]] = []
    while left:
        together: list[int] = []
        for frame in left:
            if not far[frame, together].any():
                together.append(frame)
        looks.append(together)
        left = [frame for frame in left if frame not in together]
    return sorted(looks, key=len, reverse=True)


def _beyond(stack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a pixel lies beyond all its neighbours, and where that can be told, (N, h, w) bool."""
    high = np.full(stack.shape, -np.inf, np.float32)
    low = np.full(stack.shape, np.inf, np.float32)
    for step in AROUND:
        there = _neighbour(stack, *step)
        np.maximum(high, there, out=high)  # NaN stays: all neighbours must be seen
        np.minimum(low, there, out=low)
    with np.errstate(invalid="ignore"):  # infinite pixels are told of elsewhere
        return _one_way(stack - high, low - stack, high - low)


def _beyond_as_line(stack: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of a line along an axis and the lines to both sides, by the pixels next to it."""
    before, after = (_neighbour(stack, *((0, k) if axis == 0 else (k, 0))) for k in (-1, 1))
    with np.errstate(invalid="ignore"):
        high, low = np.maximum(before, after), np.minimum(before, after)
        off, differ = stack - (high + low) / 2, high - low
        way = np.where(stack > high, 1.0, 0.0) - (stack < low)
    told = np.isfinite(off)
    off, differ, way = (np.where(told, part, 0) for part in (off, differ, way))
    count = _sums_along(told.astype(np.float32), axis)
    off, differ, way = (_sums_along(part, axis) for part in (off, differ, way))
    out, _ = _one_way(
        np.where(way >= ONE_WAY * count, off, 0), np.where(way <= -ONE_WAY * count, -off, 0), differ
    )
    return out & told, told


def _neighbour(stack: np.ndarray, down: int, right: int) -> np.ndarray:
    """Frames (N, h, w) moved by a pixel at most, NaN where nothing comes in."""
    height, width = stack.shape[1:]
    padded = np.pad(stack, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    return padded[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]


def _one_way(
    above: np.ndarray, below: np.ndarray, differ: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where pixels stand out in one way, and where that can be told; the darkest frame is first.

    Above in all frames, or below in all, or above in dark ones and below in bright ones: as does a
    value that knows no exposure.

    above, below, differ: by how much they lie above and below their neighbours, and by how much
    these differ among each other, (N, h, w).
    """
    told = np.isfinite(above) & np.isfinite(differ)
    typical = np.array(
        [TYPICAL * np.median(part[where]) if where.any() else 0.0
         for part, where in zip(differ, told, strict=True)]
    )  # fmt: skip
    with np.errstate(invalid="ignore"):
        least = np.maximum(differ, typical[:, None, None])
        up, down = told & (above > least), told & (below > least)
    dark = up.cumsum(0) - down.cumsum(0)  # of the darkest frames, with those below in the others
    last = np.concatenate([np.zeros_like(dark[:1]), dark]).argmax(0)
    return np.where(np.arange(len(up))[:, None, None] < last, up, down), told


def _sums_along(values: np.ndarray, axis: int, reach: int = RUN_PX) -> np.ndarray:
    """Sums of images (..., h, w) over `reach` px to both sides along an axis, 0 or 1 of them."""
    axis += values.ndim - 2
    ends = [(reach + 1, reach) if k == axis else (0, 0) for k in range(values.ndim)]
    sums = np.pad(values.astype(np.float64), ends).cumsum(axis)
    length = values.shape[axis]
    upper, lower = (
        tuple(slice(first, first + length) if k == axis else slice(None) for k in range(sums.ndim))
        for first in (2 * reach + 1, 0)
    )
    return sums[upper] - sums[lower]


def _often(out: np.ndarray, told: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (h, w) that stand out in most frames that can tell, and the rate at which others do.

    And more often than chance allows, by how often others near by do: stripes, and rows of houses,
    have pixels that stand out everywhere. axis: that of the line which a pixel is of, if any.
    """
    times, frames = out.sum(0), told.sum(0)
    often: np.ndarray = (times >= LEAST_FRAMES) & (times >= SHARE * frames)
    if not often.any():
        return often, np.zeros(often.shape)
    out_near, told_near = (_sums_near(part, axis) for part in (times, frames))
    rate = out_near / np.maximum(told_near, 1)
    rows, columns = np.nonzero(often)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        k, n = int(times[row, column]), int(frames[row, column])
        often[row, column] = math.comb(n, k) * rate[row, column] ** k <= CHANCE
    return often, rate


def _sums_near(counts: np.ndarray, axis: int | None) -> np.ndarray:
    """Sums over what is NEAR_PX about a pixel, without itself, or its line and those beside it."""
    near = _sums_along(_sums_along(counts, 0, NEAR_PX), 1, NEAR_PX)
    if axis is None:
        return near - counts
    return near - _sums_along(_sums_along(counts, axis, NEAR_PX), 1 - axis, 1)


def _with_lines(often: Sequence[np.ndarray]) -> np.ndarray:
    """Pixels, and those of columns and rows, with what is hidden in detail between the latter."""
    found: np.ndarray = often[0].copy()
    for axis, line in enumerate(often[1:]):
        near = _sums_along(line, axis) >= FILLED * _sums_along(np.ones(line.shape), axis)
        found |= line | near
    return found


def frames_apart(stack: np.ndarray, without: np.ndarray) -> np.ndarray:
    """How far each two frames (N, h, w) lie apart along each axis, px, (N, N, 2); NaN if unknown.

    without: pixels (h, w) that are not looked at. By the peak of the correlation, of some frames
    if there are many.
    """
    band = _band(stack, without)
    size = np.array(band.shape[1:])
    spectra = np.fft.rfft2(band, tuple(2 * size))
    power = np.sqrt((band**2).sum((1, 2)))
    lags = [np.fft.fftfreq(2 * side, 1 / (2 * side)) for side in size]
    overlap = np.outer(*(1 - np.abs(lag) / side for lag, side in zip(lags, size, strict=True)))
    apart = np.full((len(stack), len(stack), 2), np.nan, np.float32)
    compared = np.unique(np.linspace(0, len(stack) - 1, COMPARED).round().astype(int)).tolist()
    for place, one in enumerate(compared):
        for other in compared[:place]:
            if not power[one] * power[other] > 0:
                continue
            match = np.fft.irfft2(spectra[one] * spectra[other].conj(), tuple(2 * size))
            match = np.where(overlap >= OVERLAP, match / (power[one] * power[other]), 0)
            best = np.unravel_index(int(match.argmax()), match.shape)
            if match[best] >= ALIKE * overlap[best]:
                lag = [float(lags[axis][best[axis]]) for axis in (0, 1)]
                still = match[np.ix_((-1, 0, 1), (-1, 0, 1))].max()
                if max(map(abs, lag)) >= FURTHER_PX and still >= AS_STILL * match[best]:
                    continue
                fine = [lag[axis] + _vertex(match, best, axis) for axis in (0, 1)]
                apart[one, other] = apart[other, one] = np.abs(fine)
    return apart


def _band(stack: np.ndarray, without: np.ndarray) -> np.ndarray:
    """Frames between two low-passes, clipped, 0 where not looked at."""
    finite = np.isfinite(stack) & ~without
    frames = torch.from_numpy(np.where(finite, stack, 0).astype(np.float32))[None]
    valid = torch.from_numpy(finite)[None]
    fine, coarse = (masked_blur(frames, valid, sigma_px) for sigma_px in BAND_PX)
    band = np.where(finite, (fine - coarse)[0].numpy(), 0)
    for frame, where in zip(band, finite, strict=True):
        limit = CLIP * float(np.median(np.abs(frame[where]))) if where.any() else 0.0
        frame[:] = frame.clip(-limit, limit)
    return band


def _vertex(match: np.ndarray, best: tuple[np.intp, ...], axis: int) -> float:
    """From the highest entry to the vertex of the parabola through it and its two neighbours."""
    at = list(best)
    sides = []
    for step in (-1, 1):
        at[axis] = (best[axis] + step) % match.shape[axis]
        sides.append(float(match[tuple(at)]))
    before, after = sides
    bend = before + after - 2 * float(match[best])
    return 0.0 if bend >= 0 else float(np.clip(0.5 * (before - after) / bend, -0.5, 0.5))
