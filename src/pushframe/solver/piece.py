"""Bursts of a batch registered in one way: their images, bars, and places in the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ..burst import Burst
from ..gaussian import far_from_samples
from ..geometry import flow_field
from ..posterior import Posterior
from .finer import finer
from .image import Reconstruction, detailed
from .variance import bent_variance, posterior_variance


@dataclass(frozen=True)
class Piece:
    """Bursts of a batch that were registered in one way, and their images.

    index: their places in the batch. make: the image, where it is asked for. knots: (B, TERMS), log
    power of the image on the grid asked for, from the fit of the motion. covariance:
    (B, 3N, 3N) of each frame's (dy, dx, gain). doubt: of bursts fitted in space, makes what
    `bent_variance` takes. finer: how much finer the image's grid is than the one asked for.
    common_gain: (B,), of bursts fitted in Fourier space, what all gains but the reference's are
    about.
    """

    index: Tensor
    flow_px: Tensor
    make: Callable[[], Reconstruction]
    gain: Tensor
    knots: Tensor
    kept: Tensor
    good: Tensor
    covariance: Tensor
    doubt: Callable[[], tuple[Tensor, Tensor]] | None = None
    finer: int = 1
    common_gain: Tensor | None = None

    @property
    def made(self) -> Reconstruction:
        """The image."""
        return self.make()

    def part(self, chosen: Tensor) -> Piece:
        """The same for some of its bursts, (B,) bool."""
        index, doubt = chosen.nonzero()[:, 0], self.doubt
        return Piece(
            self.index[index],
            self.flow_px[index],
            cache(lambda: self.made.part(index)),
            self.gain[index],
            self.knots[index],
            self.kept[index],
            self.good[index],
            self.covariance[index],
            None if doubt is None else lambda: (doubt()[0][index], doubt()[1][index]),
            self.finer,
            None if self.common_gain is None else self.common_gain[index],
        )

    def refined(self, burst: Burst) -> list[Piece]:
        """The same, with those bursts on a finer grid whose scenes hold more than their own."""
        found = finer(burst.part(self.index), self.good, self.gain, self.made)
        if found is None:
            return [self]
        index, made = found
        chosen = torch.zeros_like(self.index, dtype=torch.bool)
        chosen[index] = True
        step = made.problem.scale // self.made.problem.scale
        new = dataclasses.replace(self.part(chosen), make=lambda: made, finer=step)
        return [new] if bool(chosen.all()) else [self.part(~chosen), new]

    def posterior(self) -> Posterior:
        """The image and its variance, NaN where nothing is known."""
        made = detailed(self.made, self.good)
        step, problem = self.finer, made.problem
        if self.doubt is None:
            var = posterior_variance(made, self.covariance)
        else:
            misplaced, scarcer = self.doubt()
            # what is scarce in the image is so on each of the grids of a finer one
            scarcer = scarcer.repeat_interleave(step, 1).repeat_interleave(step, 2)
            var = bent_variance(made, misplaced, scarcer)
        unknown = far_from_samples(self.good, problem.flow_px, problem.scale // step)
        return Posterior(made.mean[:, ::step, ::step], var[:, ::step, ::step]).without(unknown)


def merged(pieces: Sequence[Piece], parts: Sequence[Tensor]) -> Tensor:
    """Values of the pieces' bursts in the order of the batch."""
    order = torch.cat([piece.index for piece in pieces])
    return torch.cat(list(parts))[order.argsort()]


def merged_flows(pieces: Sequence[Piece]) -> Tensor:
    flows = [piece.flow_px for piece in pieces]
    if any(flow.ndim == 5 for flow in flows):
        height, width = pieces[0].good.shape[-2:]
        flows = [flow_field(flow, (height, width)) for flow in flows]
    return merged(pieces, flows)
