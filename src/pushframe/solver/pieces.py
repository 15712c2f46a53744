"""The bursts of a batch, registered and imaged: those alike together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ..burst import Burst
from .begin import begin
from .belief import Belief
from .bend import bending, smooth_basis
from .image import Reconstruction, reconstruct
from .lost import fit_translations
from .motion import spectrum_of_translations
from .outliers import hidden_share
from .piece import Piece
from .space import fit_gains, fit_in_space

MUCH_MASKED = 0.003  # share of masked pixels beyond which frames are fitted in space
MUCH_MASKED_OF_FEW = 0.05


@dataclass(frozen=True)
class _Task:
    """Bursts to solve: the frames kept (B, N), translations (B, N, 2) to start from.

    index: their places in the batch. rough: (B,) bool, whose exposures were put right roughly.
    moving: whether translations are to be estimated. belief: of the motion, if there is one. knots:
    (B, TERMS), log power of the image, once it was fitted, and common_gain: (B,), what gains are
    about.
    """

    index: Tensor
    burst: Burst
    kept: Tensor
    start_px: Tensor
    rough: Tensor
    scale: int
    moving: bool
    belief: Belief | None = None
    knots: Tensor | None = None
    common_gain: Tensor | None = None

    def part(self, index: Tensor) -> _Task:
        """The same for some of the bursts of the batch."""
        return dataclasses.replace(
            self,
            index=index,
            burst=self.burst.part(index),
            kept=self.kept[index],
            start_px=self.start_px[index],
            rough=self.rough[index],
            belief=None if self.belief is None else self.belief.part(index),
            knots=None if self.knots is None else self.knots[index],
            common_gain=None if self.common_gain is None else self.common_gain[index],
        )

    def begun(self) -> _Task:
        """The same with the spectrum that the frames show where they start."""
        burst = dataclasses.replace(self.burst, valid=self.burst.valid & self.kept[..., None, None])
        gain = torch.ones_like(self.start_px[..., 0])
        knots = spectrum_of_translations(burst, self.start_px, gain, self.scale)
        return dataclasses.replace(self, knots=knots)

    def believed(self, functions: int) -> Belief | None:
        """What is believed of flows made of so many functions: the constant, or all."""
        if self.belief is None or functions > 1:
            return self.belief
        return self.belief.of_translations()

    def much_masked(self) -> Tensor:
        """Bursts too much masked to be fitted in Fourier space, (B,) bool."""
        share = hidden_share(self.burst.valid & self.kept[..., None, None])
        # with hardly more frames than aliases the fit in space loses more than a fill does
        few = self.kept.sum(1) <= self.scale**2 + 1
        return share > torch.where(few, MUCH_MASKED_OF_FEW, MUCH_MASKED)


def in_pieces(
    burst: Burst, scale: int, motion: Tensor | Belief | None
) -> tuple[list[Piece], Tensor]:
    """The bursts of a batch, registered and reconstructed, those alike together; see `Begun`."""
    index = torch.arange(len(burst.frames), device=burst.frames.device)
    if isinstance(motion, Tensor) and motion.ndim == 5:
        return [_known(index, burst, scale, motion)], torch.ones_like(burst.exposure)
    begun = begin(burst, motion)
    burst, kept, start_px, excess = begun
    belief = motion if isinstance(motion, Belief) else None
    task = _Task(
        index,
        burst,
        kept,
        start_px,
        begun.rough,
        scale=scale,
        moving=not isinstance(motion, Tensor),
        belief=None if belief is None else belief.at_exposure(excess),
    )
    return _solved(task), excess


def _solved(task: _Task) -> list[Piece]:
    """Translations in Fourier space; from there, in space, what is masked and what bends.

    Not where frames are of different days: what the days left looks like bends and like detail.
    What is believed for sure to bend is fitted in space at once.
    """
    if task.burst.days:
        return [_in_fourier_space(task)[0]]
    basis = smooth_basis(task.burst.shape, task.start_px)
    bent = sure = torch.zeros_like(task.kept[:, 0])
    if task.belief is not None:
        bent = task.belief.bends()
        sure = bent & task.belief.sure().all(1)
    curved, straight = sure.nonzero()[:, 0], (~sure).nonzero()[:, 0]
    pieces = [_in_space(task.part(curved).begun(), basis)] if len(curved) else []
    if not len(straight):
        return pieces
    shifted, looks_bent = _in_fourier_space(task.part(straight))
    free = task
    if task.belief is not None:
        free = dataclasses.replace(task, belief=task.belief.loosened(~bent))
    # before the grid is doubted: what bends looks like more than it holds, too
    bends = bent[straight] | looks_bent
    if bool(bends.any()):
        pieces.append(_again(shifted.part(bends), free, basis))
        if bool(bends.all()):
            return pieces
        shifted = shifted.part(~bends)
    others = _replaced(shifted, task, task.much_masked()[shifted.index], basis[:1])
    # before bends are asked for once more: what a grid cannot hold looks like them
    others = [fine for piece in others for fine in piece.refined(task.burst)]
    if task.moving:
        others = [new for old in others for new in _replaced(old, free, bending(old.made), basis)]
    return pieces + others


def _replaced(piece: Piece, task: _Task, chosen: Tensor, basis: Tensor) -> list[Piece]:
    """A piece with some of its bursts, (B,) bool, fitted anew in space, from where they are."""
    if not bool(chosen.any()):
        return [piece]
    fitted = _again(piece.part(chosen), task, basis)
    return [fitted] if bool(chosen.all()) else [piece.part(~chosen), fitted]


def _again(old: Piece, task: _Task, basis: Tensor) -> Piece:
    """The bursts of a piece, of the whole batch of a task, fitted anew in space."""
    again = dataclasses.replace(
        task.part(old.index),
        start_px=old.flow_px,
        knots=old.knots,
        common_gain=old.common_gain,
    )
    return _in_space(again, basis)


def _in_fourier_space(task: _Task) -> tuple[Piece, Tensor]:
    """Translations, as `lost` finds them, and whether bends would explain more, (B,) bool."""
    burst, scale = task.burst, task.scale
    given = (task.moving, task.believed(1), task.rough)
    fit = fit_translations(burst, task.start_px, task.kept, scale, *given)
    good = fit.good(burst)
    made = reconstruct(burst, good, fit.flow_px, fit.gain, fit.knots, scale, fit.scene)
    found = (fit.gain, fit.knots, fit.kept, good, fit.covariance)
    common = fit.common_gain()
    return Piece(task.index, fit.flow_px, lambda: made, *found, common_gain=common), fit.bent


def _in_space(task: _Task, basis: Tensor) -> Piece:
    """Motion that bends, or frames much masked, as `joint` fits them."""
    burst, scale = task.burst, task.scale
    held = task.believed(len(basis))
    start_px, moving = task.start_px, task.moving
    begun = (task.knots, task.common_gain)
    fit = fit_in_space(burst, task.kept, start_px, scale, basis, moving, held, *begun)

    @cache
    def make() -> Reconstruction:
        return reconstruct(burst, fit.good, fit.flow_px, fit.gain, fit.knots, scale)

    found = (fit.gain, fit.knots, fit.kept, fit.good, fit.covariance, fit.doubt)
    return Piece(task.index, fit.flow_px, make, *found)


def _known(index: Tensor, burst: Burst, scale: int, flow_px: Tensor) -> Piece:
    """Motion that is known at every pixel."""
    gain, knots = fit_gains(burst, flow_px, scale)
    good = burst.valid
    made = reconstruct(burst, good, flow_px, gain, knots, scale)
    exact = gain.new_zeros(len(gain), 3 * burst.count, 3 * burst.count)
    certain = (burst.frames[:, None][:, :0], torch.ones_like(gain[:, :1, None]))
    seen = good.any(-1).any(-1)
    return Piece(index, flow_px, lambda: made, gain, knots, seen, good, exact, lambda: certain)
