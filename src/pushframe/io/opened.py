"""A burst that was opened, with what only a simulator knows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .source import BurstSource


@dataclass(frozen=True, eq=False)
class Verified:
    """What goes with a burst whose truth is known.

    truth: (s*H, s*W) DN at exposure 1 above black; flow_px: (N, 2) or (N, 2, H, W).
    """

    truth: np.ndarray | None = None
    flow_px: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Opened:
    """A burst, and how to read what only a simulator knows of it, unread unless asked for."""

    source: BurstSource
    verified: Callable[[], Verified] = Verified
