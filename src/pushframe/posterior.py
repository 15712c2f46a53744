"""What is believed of the high-resolution image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import check_shape


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is believed of the high-resolution image: mean and per-pixel variance.

    mean: (..., s*H, s*W) normalised radiance, NaN where nothing is known.
    var: same shape, not negative; None where a method has no error bar.
    """

    mean: Tensor
    var: Tensor | None = None

    def __post_init__(self) -> None:
        if self.var is not None:
            check_shape("var", self.var, tuple(self.mean.shape))

    def without(self, unknown: Tensor) -> Posterior:
        """The same with NaN where `unknown`."""
        var = None if self.var is None else self.var.masked_fill(unknown, torch.nan)
        return Posterior(self.mean.masked_fill(unknown, torch.nan), var)

    def __getitem__(self, index: int) -> Posterior:
        """One entry of a batch."""
        return Posterior(self.mean[index], None if self.var is None else self.var[index])
