"""Which step to take, by what became of the one before."""

from __future__ import annotations

import torch
from torch import Tensor

LONGEST = 4.0  # step taken, in lengths of the one wanted


class Relaxation:
    """Steps of a batch, each mixed with the one before it (Anderson).

    How what is wanted changed with the last step tells whether steps along it are too short, or too
    long. Going on, or back, along it is part of the next step, as far as that would leave least to
    be wanted, in the metric of the system.
    """

    def __init__(self) -> None:
        self.wanted: Tensor | None = None  # (B, n), the last step, until there is one
        self.took: Tensor | None = None  # (B, n), instead of it

    def taken(self, wanted: Tensor, system: Tensor) -> Tensor:
        """What to take for a step wanted, (B, n), of positive systems (B, n, n)."""
        step = wanted
        if self.wanted is not None and self.took is not None:
            turn = wanted - self.wanted
            weighed = (system @ turn[..., None])[..., 0]
            share = _dot(wanted, weighed) / _dot(turn, weighed).clamp(min=1e-30)
            step = wanted - (share * (self.took + turn)).nan_to_num(0)
            step = step * (LONGEST * _length(wanted, system) / _length(step, system)).clamp(max=1)
        self.wanted, self.took = wanted, step
        return step

    def part(self, index: Tensor) -> Relaxation:
        """That of some bursts of the batch."""
        other = Relaxation()
        if self.wanted is not None and self.took is not None:
            other.wanted, other.took = self.wanted[index], self.took[index]
        return other

    def forget(self, chosen: Tensor) -> None:
        """Bursts (B,) bool whose systems have changed: no step tells of their next."""
        if self.wanted is not None:
            self.wanted = self.wanted.masked_fill(chosen[:, None], torch.nan)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """The product of vectors (B, n), (B, 1)."""
    return (one * other).sum(1, keepdim=True)


def _length(step: Tensor, system: Tensor) -> Tensor:
    """The length of vectors (B, n) in the metric of the system, (B, 1)."""
    return _dot(step, (system @ step[..., None])[..., 0]).clamp(min=1e-30).sqrt()
