"""How much of a step to take, by what became of the one before."""

from __future__ import annotations

import torch
from torch import Tensor

SHARES = (0.5, 1.5)  # of a step wanted, least and most


class Relaxation:
    """The share of each burst's steps that is taken.

    Steps that lead to and fro are too long, ones that lead on and on too short: the secant of what
    is wanted, before and after, in the metric of the system (Irons and Tuck).
    """

    def __init__(self) -> None:
        self.wanted: Tensor | None = None  # (B, n), the last step, until there is one
        self.share: Tensor | float = 1.0  # (B, 1) of it that was taken

    def taken(self, wanted: Tensor, system: Tensor) -> Tensor:
        """What to take of a step wanted, (B, n), of positive systems (B, n, n)."""
        if self.wanted is not None:
            turn = wanted - self.wanted
            weighed = (system @ turn[..., None])[..., 0]
            stiff = _dot(turn, weighed).clamp(min=1e-30)
            share = -self.share * _dot(self.wanted, weighed) / stiff
            self.share = share.nan_to_num(1.0).clamp(*SHARES)
        self.wanted = wanted
        return wanted * self.share

    def forget(self, chosen: Tensor) -> None:
        """Bursts (B,) bool whose systems have changed: no step tells of their next."""
        if self.wanted is not None:
            self.wanted = self.wanted.masked_fill(chosen[:, None], torch.nan)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """The product of vectors (B, n), (B, 1)."""
    return (one * other).sum(1, keepdim=True)
