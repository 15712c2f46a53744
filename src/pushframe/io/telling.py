"""Frames that tell nothing of their own, left out when a burst is opened: copies and constants."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..checks import LEFT_OUT, REPLACED, require
from .frames import Frame, spread_windows
from .opened import Opened, Verified
from .source import SAMPLE_PX, SAMPLES, BurstSource


class Idle(NamedTuple):
    """Frames without anything of their own: the value of constant ones, and groups of copies."""

    constant: dict[int, float]
    copies: list[list[int]]


def with_telling(opened: Opened) -> Opened:
    """The burst without constant frames and copies, each named in a note; as it is where `clean`.

    Of copies the reference stays, or else the one with most valid pixels. A constant reference that
    nobody chose gives way to the next frame. Nothing is left out where all frames are constant:
    reading says so.
    """
    source = opened.source
    if source.clean or source.count == 1:
        return opened
    idle = find_idle(source.frames)
    if len(idle.constant) == source.count:
        return opened
    old = source.reference
    require(
        not (old in idle.constant and source.chosen),
        f"an image in {source.names[0]}, the reference",
        f"the constant {idle.constant.get(old, 0):g}",
        "choose another `reference`",
    )
    first = next(k for k in source.order if k not in idle.constant)
    stays = [
        (first if first in group else _clearest(source, group), group) for group in idle.copies
    ]
    copied = {k: twin for twin, group in stays for k in group if k != twin}
    kept = [k for k in range(source.count) if k not in idle.constant and k not in copied]
    if len(kept) == source.count:
        return opened
    said = _sentences(source, idle.constant, copied, first, len(kept))
    left = dataclasses.replace(source, reference=first, said=(*source.said, *said)).keep(kept)
    left = dataclasses.replace(left, detector=None)  # looked at by the frames that tell

    def verified() -> Verified:
        known = opened.verified()
        flow_px = known.flow_px
        require(
            first == old or (known.truth is None and flow_px is None),
            f"an image in {source.names[0]}, on whose grid truth and flows are",
            f"the constant {idle.constant.get(old, 0):g}",
            "leave this burst out",
        )
        if flow_px is None or len(flow_px) != source.count:  # a wrong number is told elsewhere
            return known
        return dataclasses.replace(known, flow_px=flow_px[kept])

    return Opened(left, verified)


def _clearest(source: BurstSource, group: Sequence[int]) -> int:
    """The first of the frames of a group that have most valid pixels, by their masks."""
    if not source.masks:
        return group[0]

    def clear(k: int) -> int:
        windows = spread_windows(source.frames[k].shape, SAMPLE_PX, SAMPLES)
        return sum(int(np.count_nonzero(source.masks[k].read(*part))) for part in windows)

    return max(group, key=clear)


def find_idle(frames: Sequence[Frame]) -> Idle:
    """Frames of one size that are constant, and those whose pixels are all the same as another's.

    Windows are read until every frame is seen to vary and to differ from all others, which is
    after one of them, mostly. What never does is compared whole. Invalid pixels are like each
    other; a frame of nothing else is neither constant nor a copy.
    """
    low, high = np.full(len(frames), np.inf), np.full(len(frames), -np.inf)
    alike = [list(range(len(frames)))]
    for window in _windows(frames[0].shape):
        alike = [group for group in alike if len(group) > 1]
        doubtful = {k for group in alike for k in group} | set(np.flatnonzero(low >= high).tolist())
        if not doubtful:
            break
        digests = {}
        for k in sorted(doubtful):
            pixels = frames[k].read(*window)
            seen = pixels[np.isfinite(pixels)]
            low[k] = min(low[k], seen.min(initial=np.inf))
            high[k] = max(high[k], seen.max(initial=-np.inf))
            digests[k] = hashlib.blake2b(pixels.tobytes()).digest()
        alike = [part for group in alike for part in _parts(group, digests)]
    constant = {k: float(low[k]) for k in range(len(frames)) if low[k] == high[k]}
    varying = [group for group in alike if low[group[0]] < high[group[0]]]
    return Idle(constant, [group for group in varying if len(group) > 1])


def _windows(shape: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Windows spread over a frame, then, where they are not all of it, all of it in strips."""
    spread = spread_windows(shape, SAMPLE_PX, SAMPLES)
    yield from spread
    if len(spread) > 1:
        for top in range(0, shape[0], SAMPLE_PX):
            yield slice(top, min(top + SAMPLE_PX, shape[0])), slice(0, shape[1])


def _parts(group: list[int], digests: dict[int, bytes]) -> list[list[int]]:
    """A group of frames as groups of equal digests."""
    found = defaultdict(list)
    for k in group:
        found[digests[k]].append(k)
    return list(found.values())


def _sentences(
    source: BurstSource,
    constant: dict[int, float],
    copied: dict[int, int],
    first: int,
    count: int,
) -> Iterator[str]:
    """What was left out, and why; first: the reference, count: the number of frames left."""
    names = [frame.name for frame in source.frames]
    for k, value in constant.items():
        instead = f"; {names[first]} {REPLACED}" if k == source.reference else ""
        yield f"{names[k]} {LEFT_OUT} all its pixels are {value:g}{instead}."
    for k, twin in copied.items():
        yield f"{names[k]} {LEFT_OUT} it is an exact copy of {names[twin]}."
    if count == 1:
        yield f"{names[first]} alone is left: this is a burst of one frame."
