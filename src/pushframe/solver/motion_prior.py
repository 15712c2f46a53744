"""What is known of the shifts and gains of a batch, whatever its frames tell of them."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from .belief import Belief, on_diagonal, unheld

GAIN_STD = 0.03  # what a stated exposure may be off, before the burst has told
LEAST_GAIN_STD = 3e-4


class MotionPrior:
    """A Gaussian of each frame's (dy, dx, gain); the reference's are no unknowns.

    belief: of them. Without one shifts may be any, and gains are 1 to within `gain_std` (B,), which
    the burst tells, and to within `reference_std` (B,) all together, if that is not 0: it is the
    reference's exposure that is off then. adrift: whether all frames may be off the reference
    together.
    """

    def __init__(self, belief: Belief | None, gain: Tensor) -> None:
        self.belief, self.adrift = belief, True
        self.trust = None if belief is None else belief.precision()
        self.gain_std = torch.full_like(gain[:, 0], GAIN_STD)
        self.reference_std = torch.zeros_like(self.gain_std)
        place = torch.arange(gain.shape[1], device=gain.device)[:, None]
        self.unknown = (place > 0).expand(-1, 3)
        self.unknown_gain = self.unknown & (torch.arange(3, device=gain.device) == 2)

    def part(self, index: Tensor) -> MotionPrior:
        """That of some bursts of the batch."""
        other = copy.copy(self)
        other.gain_std, other.reference_std = self.gain_std[index], self.reference_std[index]
        if self.belief is not None and self.trust is not None:
            other.belief, other.trust = self.belief.part(index), self.trust[index]
        return other

    def put_back(self, index: Tensor, part: MotionPrior) -> None:
        """What some bursts of the batch told of exposures."""
        for name in ("gain_std", "reference_std"):
            setattr(self, name, getattr(self, name).index_copy(0, index, getattr(part, name)))

    def forget(self, lost: Tensor) -> None:
        """Bursts (B,) bool have told nothing."""
        self.gain_std = torch.where(lost, GAIN_STD, self.gain_std)
        self.reference_std = self.reference_std.masked_fill(lost, 0)

    def precision(self) -> Tensor:
        """Of each frame's shift and gain, (B, N, 3, 3)."""
        if self.trust is not None:
            return self.trust
        still = torch.full_like(self.gain_std, 1e-6)
        doubt = torch.stack([still, still, self.gain_std**-2], -1)
        return torch.diag_embed(doubt)[:, None].expand(-1, len(self.unknown), 3, 3)

    def together(self, kept: Tensor) -> Tensor:
        """What the precision of all gains together is less than theirs each, a root of it, (B, N).

        The covariance of gains is `gain_std**2 + reference_std**2 1 1'`, its inverse
        `gain_std**-2 - together together'`. kept: (B, N) bool, the frames that are used.
        """
        if self.belief is not None:
            return torch.zeros_like(kept, dtype=self.gain_std.dtype)
        others = kept & self.unknown[:, 2]
        each, all_ = self.gain_std**2, self.reference_std**2
        less = all_ / (each + others.sum(1) * all_) / each
        return less.sqrt()[:, None] * others

    def off(self, flow_px: Tensor, gain: Tensor) -> Tensor:
        """Shifts (B, N, 2) and gains (B, N) less what they are believed to be, (B, N, 3)."""
        centre = 0 if self.belief is None else self.belief.mean
        return torch.cat([flow_px, (gain - 1)[..., None]], -1) - centre

    def pull(self, flow_px: Tensor, gain: Tensor, kept: Tensor) -> Tensor:
        """How the prior holds shifts and gains, (B, N, 3)."""
        off, together = self.off(flow_px, gain), self.together(kept)
        pull = (self.precision() @ off[..., None])[..., 0]
        loose = together * (together * off[..., 2]).sum(1, keepdim=True)
        return pull - F.pad(loose[..., None], [2, 0])

    def energy(self, flow_px: Tensor, gain: Tensor, kept: Tensor) -> Tensor:
        """Minus twice the log prior of shifts and gains, up to a constant, (B,)."""
        return (self.off(flow_px, gain) * self.pull(flow_px, gain, kept)).sum((1, 2))

    def free(self, kept: Tensor, moving: bool) -> Tensor:
        """Which of the 3N components are unknown, (B, 3N) bool; without `moving` gains alone."""
        unknown = self.unknown if moving else self.unknown_gain
        return (kept[..., None] & unknown).flatten(1)

    def system(self, information: Tensor, kept: Tensor, free: Tensor, moving: bool) -> Tensor:
        """Information (B, 3N, 3N) and prior together, float64, with a trace of damping.

        free: (B, 3N) bool, as of `free`; known components are taken out.
        """
        system = information.double()
        if self.adrift and moving:
            system = unheld_shifts(system, kept)
        system = system + on_diagonal(self.precision().double())
        loose = F.pad(self.together(kept).double()[..., None], [2, 0]).flatten(1)
        system = system - loose[:, :, None] * loose[:, None]
        system = torch.where(free[:, :, None] & free[:, None], system, 0)
        diagonal = system.diagonal(dim1=-2, dim2=-1)
        diagonal += torch.where(free, 1e-4 * information.diagonal(dim1=-2, dim2=-1), 1)
        return system


def unheld_shifts(information: Tensor, kept: Tensor) -> Tensor:
    """Information (B, 3N, 3N) less that of all frames kept, (B, N) bool, moving together."""
    axes = torch.eye(3, 2, dtype=information.dtype, device=information.device)
    together = axes.repeat(kept.shape[1], 1) * kept.repeat_interleave(3, 1)[..., None]
    return unheld(information, together)
