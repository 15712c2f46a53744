"""Does a burst hang together? Checks that need no truth and name the frame at fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .burst import Burst
from .checks import counted, frame_label
from .registration import agreement, register

MIN_CORRELATION = 0.5
MAX_GAIN_ERROR = 0.10
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
    found += _masks(burst)
    found += _saturation(burst)
    if burst.count > 1:
        found += _agreement(burst)
    return found


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


def _agreement(burst: Burst) -> list[Finding]:
    """Does each frame, once registered, show the reference's scene at the stated exposure?"""
    batch = burst.batched()
    flow_px = register(batch)
    gain, correlation, contrast = (row[0].tolist() for row in agreement(batch, flow_px))
    found = []
    for k in range(1, burst.count):
        label = frame_label(k, burst.names[k])
        dy, dx = flow_px[0, k].tolist()
        if contrast[k] < 1:
            found.append(Finding("note", f"{label}: too little contrast above noise to compare"))
        elif correlation[k] < MIN_CORRELATION:
            text = f"{label}: shows another place than the reference (correlation "
            found.append(Finding("bad", text + f"{correlation[k]:.2f}); leave it out"))
        elif abs(gain[k] - 1) > MAX_GAIN_ERROR:
            text = f"{label}: {gain[k]:.2f} times as bright as its exposure says; "
            found.append(Finding("bad", text + "correct `exposure` or `black_level`"))
        else:
            found.append(Finding("good", f"{label}: shift ({dy:+.2f}, {dx:+.2f}) px"))
    return found
