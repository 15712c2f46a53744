"""Motion and gains as Gaussians: what is believed of a burst beforehand, what it tells itself.

The unknowns of a frame are the coefficients of its flow along y, those along x (`smooth_basis`, K
functions each), and its gain less one: C = 2 K + 1 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .bend import LEAST_BEND_PX

NOTHING = 1e6  # the variance of what nothing tells about
FIRST_JITTER_PX = 0.05  # what translations may be off at the start; halved at each step
SURE_PX = 0.1  # motion believed to within this is begun from


@dataclass(frozen=True)
class Belief:
    """A Gaussian a frame; mean: (B, N, C), covariance: (B, N, C, C), the reference's no matter."""

    mean: Tensor
    covariance: Tensor

    @property
    def functions(self) -> int:
        """K, the functions that flows are made of."""
        return self.mean.shape[-1] // 2

    def part(self, index: Tensor) -> Belief:
        """That of some bursts of the batch."""
        return Belief(self.mean[index], self.covariance[index])

    def of_translations(self) -> Belief:
        """What is believed of the constants and the gain alone."""
        chosen = torch.tensor([0, self.functions, -1], device=self.mean.device)
        return Belief(self.mean[..., chosen], self.covariance[..., chosen[:, None], chosen])

    def loosened(self, chosen: Tensor) -> Belief:
        """With doubt about the bends of some bursts, (B,) bool, that look as if they had others."""
        doubt = torch.full_like(self.mean[0, 0], SURE_PX**2)
        doubt[[0, self.functions, -1]] = 0
        more = chosen[:, None, None, None] * torch.diag(doubt)
        return Belief(self.mean, self.covariance + more)

    def at_exposure(self, excess: Tensor) -> Belief:
        """The same of frames brought to `excess` (B, N) times their stated exposures."""
        return Belief(*_gains_times(1 / excess, self.mean, self.covariance))

    def precision(self) -> Tensor:
        """The inverse covariance, (B, N, C, C)."""
        return torch.linalg.inv(self.covariance.double()).to(self.mean)

    def coefficients(self) -> Tensor:
        """Of the flows, (B, N, 2, K) px."""
        return self.mean[..., :-1].unflatten(-1, (2, -1))

    def error_px(self) -> Tensor:
        """The standard deviation of each frame's translation, (B, N); none for the reference."""
        var = self.covariance.diagonal(dim1=-2, dim2=-1)
        error = (var[..., [0, self.functions]].mean(-1)).sqrt()
        error[:, 0] = 0
        return error

    def sure(self) -> Tensor:
        """Frames near enough to where they are believed to be to begin from there, (B, N) bool."""
        return self.error_px() < SURE_PX

    def bends(self) -> Tensor:
        """Bursts whose motion, as far as it is sure, bends as much as `bending` asks, (B,) bool."""
        power = self.coefficients()[..., 1:].square().sum((2, 3)) * self.sure()
        return power[:, 1:].mean(1).sqrt() > LEAST_BEND_PX


class Evidence(NamedTuple):
    """What bursts tell of their unknowns by themselves; see `Belief`."""

    mean: Tensor
    covariance: Tensor

    def as_stated(self, excess: Tensor) -> Evidence:
        """The same against stated exposures, of frames brought to `excess` (B, N) times them."""
        return Evidence(*_gains_times(excess, self.mean, self.covariance))


def _gains_times(factor: Tensor, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Unknowns (B, N, C) and their covariance, the gains multiplied by `factor` (B, N)."""
    size = torch.ones_like(mean)
    size[..., -1] = factor
    shift = torch.zeros_like(mean)
    shift[..., -1] = factor - 1
    return size * mean + shift, size[..., :, None] * covariance * size[..., None, :]


def evidence_of(
    state: Tensor, information: Tensor, slope: Tensor, free: Tensor, functions: int
) -> Evidence:
    """Where a Newton step from `state` would end without any prior, and how sure that is.

    state: (B, N, P) unknowns, P = 3 (translation and gain) or 2 K + 1; slope: (B, N, P) of the
    log likelihood there; information: (B, N*P, N*P); free: (B, N) bool, frames that tell.
    functions: K, of the result.
    """
    count = state.shape[-1]
    known = ~free.repeat_interleave(count, 1)
    system = information.double()
    system = system.masked_fill(known[:, :, None] | known[:, None], 0)
    loose = 1e-6 * system.diagonal(dim1=-2, dim2=-1) + 1 / NOTHING
    covariance = torch.linalg.inv(system + torch.diag_embed(loose))
    step = (covariance @ slope.double().flatten(1)[..., None])[..., 0].unflatten(1, (-1, count))
    mean = state + step.to(state) * free[..., None]
    blocks = covariance.unflatten(1, (-1, count)).unflatten(3, (-1, count))
    blocks = blocks.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).to(state)
    lost = ~(torch.isfinite(mean).all(-1) & torch.isfinite(blocks).all(-1).all(-1))
    nothing = NOTHING * torch.eye(count, dtype=blocks.dtype, device=blocks.device)
    mean = torch.where(lost[..., None], 0, mean)
    blocks = torch.where(lost[..., None, None], nothing, blocks)
    if count == 2 * functions + 1:
        return Evidence(mean, blocks)
    place = torch.tensor([0, functions, 2 * functions], device=state.device)
    whole = mean.new_zeros(*mean.shape[:2], 2 * functions + 1)
    whole[..., place] = mean
    wide = torch.diag_embed(torch.full_like(whole, NOTHING))
    wide[..., place[:, None], place] = blocks
    return Evidence(whole, wide)


def on_diagonal(blocks: Tensor) -> Tensor:
    """Blocks (B, N, P, P) as one matrix (B, N*P, N*P)."""
    alone = torch.eye(blocks.shape[1], dtype=blocks.dtype, device=blocks.device)
    return (blocks[:, :, :, None] * alone[:, None, :, None]).flatten(3).flatten(1, 2)


def first_jitter(start_px: Tensor, belief: Belief | None, usual_px: float) -> Tensor:
    """What the start of each burst may be off, px rms, (B,)."""
    usual = torch.full_like(start_px[:, 0, 0], usual_px)
    return usual if belief is None else belief.error_px().amax(1).minimum(usual)


def unheld(information: Tensor, together: Tensor) -> Tensor:
    """Information (B, n, n) of unknowns, less that of changes of all of them together, (B, n, m).

    A scene would move along with all its frames, which costs nothing; but taken at one image the
    prior seems to hold it where it is. Only the reference does, being one of the frames.
    """
    held = information @ together
    own = together.mT @ held
    return information - held @ torch.linalg.solve_ex(own, held.mT).result.nan_to_num(0)
