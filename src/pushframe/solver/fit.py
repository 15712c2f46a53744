"""What a fit of translations leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..burst import Burst
from .belief import Evidence, evidence_of


@dataclass(frozen=True)
class Fit:
    """What is known of a batch of bursts besides their images.

    flow_px: (B, N, 2). gain: (B, N) true over stated exposure, the reference's as the unit.
    covariance: (B, 3N, 3N) of each frame's (dy, dx, gain), zero where nothing was estimated.
    knots: (B, TERMS) log power of the image. mismatch: (B,) variance that the model leaves.
    outlier: (B, N, H, W) pixels that disagree with the other frames. kept: (B, N) frames used.
    information, slope: (B, 3N, 3N) and (B, N, 3), of the likelihood alone, where the search ended.
    bent: (B,) bool, whether bends would explain what translations do not, as far as was asked.
    freed: (B,) bool, whether all gains are off together: the reference's exposure is.
    scene: (B, h, w), nearly the image, on the canvas of a `GaussianProblem`, if the fit made one.
    """

    flow_px: Tensor
    gain: Tensor
    covariance: Tensor
    knots: Tensor
    mismatch: Tensor
    outlier: Tensor
    kept: Tensor
    information: Tensor
    slope: Tensor
    bent: Tensor
    freed: Tensor
    scene: Tensor | None = None

    def good(self, burst: Burst) -> Tensor:
        """The pixels of a burst to use, (B, N, H, W) bool."""
        return burst.valid & ~self.outlier & self.kept[..., None, None]

    def part(self, index: Tensor) -> Fit:
        """That of some bursts of the batch."""
        return Fit(**{name: value[index] for name, value in self._found()})

    def with_part(self, index: Tensor, other: Fit) -> Fit:
        """The same with other fits for some bursts of the batch."""
        return Fit(
            **{
                name: value.index_copy(0, index, getattr(other, name))
                for name, value in self._found()
            }
        )

    @classmethod
    def joined(cls, fits: Sequence[Fit]) -> Fit:
        """The fits of several batches as one."""
        return cls(
            **{
                name: torch.cat([getattr(fit, name) for fit in fits])
                for name, _ in fits[0]._found()
            }
        )

    def _found(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, value) for name, value in vars(self).items() if value is not None)

    def common_gain(self) -> Tensor:
        """What all gains but the reference's are about, (B,): 1, unless they are off together."""
        others = self.kept.to(self.gain)
        others[:, 0] = 0
        mean = (self.gain * others).sum(1) / others.sum(1).clamp(min=1)
        return torch.where(self.freed & others.any(1), mean, 1)

    def evidence(self, functions: int) -> Evidence:
        """What the frames tell of their motion, whatever was believed of it beforehand."""
        state = torch.cat([self.flow_px, (self.gain - 1)[..., None]], -1)
        free = self.kept.clone()
        free[:, 0] = False
        return evidence_of(state, self.information, self.slope, free, functions)

    def shift_error_px(self) -> Tensor:
        """The rms error that the covariance states of the kept frames' shifts, (B,)."""
        var = self.covariance.diagonal(dim1=-2, dim2=-1).unflatten(1, (-1, 3))[..., :2].mean(2)
        moving = self.kept.to(var)
        moving[:, 0] = 0
        return ((var * moving).sum(1) / moving.sum(1).clamp(min=1)).sqrt()
