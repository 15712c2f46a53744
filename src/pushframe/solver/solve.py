"""The solver from burst to posterior."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..posterior import Posterior
from ..registration import register
from .belief import Belief, Evidence
from .bend import bending, smooth_basis
from .exposure import at_true_exposure, exposure_excess, far_off
from .image import Reconstruction, reconstruct
from .lost import fit_translations
from .motion import Task, spectrum_of_translations
from .outliers import agreeing_frames, foreign_pixels, hidden_share, on_reference_grid
from .peaks import fit_motion
from .piece import Piece, merged, merged_flows
from .space import fit_gains, fit_in_space, measure_in_space

MAX_FOREIGN = 0.5  # share of foreign pixels beyond which a frame is of another place
LEAST_SEEN = 0.15  # share of valid pixels below which a frame cannot be registered
MUCH_MASKED = 0.003  # share of masked pixels beyond which frames are fitted in space
MUCH_MASKED_OF_FEW = 0.05
FEW_FRAMES_PX = 0.1  # how far off a window of fewer frames than aliases may be, unnoticed
HIDDEN_PX = 0.05  # the same of a frame that it hardly shows


class Solution(NamedTuple):
    """The posterior of a batch, what was estimated on the way, and the pixels that were used.

    flow_px: (B, N, 2), or (B, N, 2, H, W) where motion bends in a burst of the batch.
    """

    posterior: Posterior
    flow_px: Tensor
    gain: Tensor  # (B, N) true over stated exposure, the reference's as the unit
    kept: Tensor  # (B, N) bool, the frames that belong
    used: Tensor  # (B, N, H, W) bool
    mismatch: Tensor  # (B,) variance that the model leaves
    covariance: Tensor  # (B, 3N, 3N) of each frame's (dy, dx, gain)


class Located(NamedTuple):
    """Where and how bright the frames of a batch are; see `Solution`."""

    flow_px: Tensor
    gain: Tensor
    used: Tensor
    covariance: Tensor  # (B, 3N, 3N) of each frame's (dy, dx, gain)


class Begun(NamedTuple):
    """A burst to begin with: as bright as the reference, without what is of another scene.

    excess: (B, N), what its exposures were multiplied by; gains that are found come on top.
    """

    burst: Burst
    kept: Tensor  # (B, N) bool, the frames that agree
    start_px: Tensor  # (B, N, 2)
    excess: Tensor

    @property
    def rough(self) -> Tensor:
        """Bursts at least half of whose exposures were put right: gains are off together."""
        return (self.excess != 1).sum(1) >= self.excess.shape[1] / 2


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


def solve(burst: Burst, scale: int, motion: Tensor | Belief | None = None) -> Solution:
    """Motion, gains, prior, image and error bar of a batch of bursts, jointly.

    motion: (B, N, 2[, H, W]) low-res px if it is known, or what is believed of it; else estimated.
    """
    pieces, excess = _pieces(burst, scale, motion)
    posteriors = [piece.posterior() for piece in pieces]
    mean = merged(pieces, [posterior.mean for posterior in posteriors])
    var = merged(pieces, [posterior.var for posterior in posteriors if posterior.var is not None])
    return Solution(
        Posterior(mean, var),
        merged_flows(pieces),
        merged(pieces, [piece.gain for piece in pieces]) * excess,
        merged(pieces, [piece.kept for piece in pieces]),
        merged(pieces, [piece.good for piece in pieces]),
        merged(pieces, [piece.made.mismatch for piece in pieces]),
        _as_stated(merged(pieces, [piece.covariance for piece in pieces]), excess),
    )


def locate(burst: Burst, scale: int, motion: Tensor | Belief | None = None) -> Located:
    """The motion and gains that `solve` finds, and the pixels that it would use."""
    pieces, excess = _pieces(burst, scale, motion)
    gain = merged(pieces, [piece.gain for piece in pieces]) * excess
    used = merged(pieces, [piece.good for piece in pieces])
    covariance = merged(pieces, [piece.covariance for piece in pieces])
    return Located(merged_flows(pieces), gain, used, _as_stated(covariance, excess))


def locate_translations(burst: Burst, scale: int, unbiased: bool = True) -> Located:
    """The same for frames known to be translated and little masked: many times faster.

    unbiased: as in `Task`; otherwise no other peaks are looked for either.
    """
    begun = begin(burst)
    burst, kept, start_px, excess = begun
    if unbiased:
        fit = fit_motion(burst, start_px, kept, scale, begun.rough)
    else:
        fit = Task(burst, start_px, kept, scale, unbiased=False).settled()
    covariance = _as_stated(fit.covariance, excess)
    return Located(fit.flow_px, fit.gain * excess, fit.good(burst), covariance)


def measure(burst: Burst, scale: int, belief: Belief | None = None) -> Evidence:
    """What the frames of a batch tell of their motion and gains, whatever is believed of them.

    With a belief that bends, of all coefficients; otherwise of translations and gains.
    """
    basis = smooth_basis(burst.shape, burst.frames)
    begun = begin(burst, belief)
    burst, kept, start_px, excess = begun
    belief = None if belief is None else belief.at_exposure(excess)
    bent = torch.zeros_like(kept[:, 0]) if belief is None else belief.bends()
    parts: list[tuple[Tensor, Evidence]] = []
    # each bent burst by itself, for they take the memory of many
    for chosen in (index for index in [*bent.nonzero(), (~bent).nonzero()[:, 0]] if len(index)):
        part, there, start = burst.part(chosen), kept[chosen], start_px[chosen]
        held = None if belief is None else belief.part(chosen)
        if held is not None and bool(bent[chosen].any()):
            told = measure_in_space(part, there, start, scale, basis, held)
        else:
            simple = None if held is None else held.of_translations()
            rough = begun.rough[chosen]
            fit = fit_translations(part, start, there, scale, belief=simple, rough=rough)
            told = fit.evidence(len(basis))
        parts.append((chosen, told))
    order = torch.cat([chosen for chosen, _ in parts]).argsort()
    mean, covariance = (torch.cat([told[k] for _, told in parts])[order] for k in (0, 1))
    covariance = covariance + _unstated(burst, kept, scale, len(basis))
    return Evidence(mean, covariance).as_stated(excess)


def _as_stated(covariance: Tensor, excess: Tensor) -> Tensor:
    """The covariance (B, 3N, 3N) of (dy, dx, gain), gains being `excess` (B, N) times as large."""
    size = torch.ones_like(excess)
    size = torch.stack([size, size, excess], -1).flatten(1)
    return size[:, :, None] * covariance * size[:, None]


def _unstated(burst: Burst, kept: Tensor, scale: int, functions: int) -> Tensor:
    """Covariance that a fit does not state, (B, N, 2 K + 1, 2 K + 1), of its translations.

    With fewer frames than aliases the likelihood itself is off, and frames that show little of a
    window are filled with what the others predict.
    """
    shown = (burst.valid & kept[..., None, None]).to(burst.frames).mean((-1, -2))
    few = (shown.sum(1, keepdim=True) < scale**2) * FEW_FRAMES_PX**2
    var = few + ((1 - shown) * HIDDEN_PX) ** 2
    constant = torch.zeros(2 * functions + 1, device=var.device)
    constant[[0, functions]] = 1
    return var[..., None, None] * torch.diag(constant)


def _start_px(burst: Burst, belief: Belief) -> Tensor:
    """Translations (B, N, 2) to begin from: what is believed for sure, or else the images'."""
    shift_px, sure = belief.coefficients()[..., 0], belief.sure()
    if bool(sure.all()):
        return shift_px
    return torch.where(sure[..., None], shift_px, register(burst))


def _pieces(burst: Burst, scale: int, motion: Tensor | Belief | None) -> tuple[list[Piece], Tensor]:
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


def begin(burst: Burst, motion: Tensor | Belief | None = None) -> Begun:
    """What to begin with, where frames lie as `motion` says, or as they look.

    How wrong exposures are is told by the pixels, unless it is believed: what is dimmer than the
    scene is under a cloud.
    """
    if isinstance(motion, Belief):
        excess = far_off(1 + motion.mean[..., -1])
        burst = at_true_exposure(burst, excess)
        start_px = _start_px(burst, motion)
        still = on_reference_grid(burst, start_px)
    else:
        start_px = register(burst) if motion is None else motion
        still = on_reference_grid(burst, start_px)
        excess = exposure_excess(burst, still)
        if bool((excess != 1).any()):
            burst = at_true_exposure(burst, excess)
            still = still / excess[..., None, None]
    kept = agreeing_frames(burst, start_px)
    foreign = foreign_pixels(burst, start_px, still)
    kept = kept & (foreign.to(burst.frames).mean((-1, -2)) < MAX_FOREIGN)
    kept = kept & (burst.valid.to(start_px).mean((-1, -2)) >= LEAST_SEEN)
    kept[:, 0] = True
    return Begun(dataclasses.replace(burst, valid=burst.valid & ~foreign), kept, start_px, excess)


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
