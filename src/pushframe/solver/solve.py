"""The solver from burst to posterior."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst, Posterior
from ..gaussian import far_from_samples
from ..geometry import flow_field
from ..registration import register
from .bend import bending, fit_in_space, smooth_basis
from .image import Reconstruction, reconstruct
from .motion import fit_motion
from .outliers import agreeing_frames, foreign_pixels
from .spectrum import spectrum_of_burst
from .variance import bent_variance, posterior_variance

MAX_FOREIGN = 0.5  # share of foreign pixels beyond which a frame is of another place
MUCH_MASKED = 0.02  # share of masked pixels beyond which Fourier space is no place to fit gains


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


class Located(NamedTuple):
    """Where and how bright the frames of a batch are; see `Solution`."""

    flow_px: Tensor
    gain: Tensor
    used: Tensor


@dataclass(frozen=True)
class _Piece:
    """Bursts of a batch that were registered in one way, and their images.

    doubt: the covariance (B, 3N, 3N) of shifts and gains, or draws (B, D, N, H, W) of what their
    errors do to the frames.
    """

    index: Tensor
    burst: Burst
    made: Reconstruction
    gain: Tensor
    kept: Tensor
    good: Tensor
    doubt: Tensor

    def mean(self) -> Tensor:
        """The image (B, s*H, s*W), NaN where nothing is known."""
        return self.made.mean.masked_fill(self._unknown(), torch.nan)

    def var(self) -> Tensor:
        """Its variance."""
        variance = posterior_variance if self.doubt.ndim == 3 else bent_variance
        return variance(self.made, self.doubt).masked_fill(self._unknown(), torch.nan)

    def _unknown(self) -> Tensor:
        seen = dataclasses.replace(self.burst, valid=self.good)
        return far_from_samples(seen, self.made.problem.flow_px, self.made.problem.scale)


def solve(burst: Burst, scale: int, flow_px: Tensor | None = None) -> Solution:
    """Motion, gains, prior, image and error bar of a batch of bursts, jointly.

    flow_px: (B, N, 2[, H, W]) motion if it is known; estimated otherwise.
    """
    pieces = _pieces(burst, scale, flow_px)
    return Solution(
        Posterior(
            _merged(pieces, [piece.mean() for piece in pieces]),
            _merged(pieces, [piece.var() for piece in pieces]),
        ),
        _merged_flows(pieces),
        _merged(pieces, [piece.gain for piece in pieces]),
        _merged(pieces, [piece.kept for piece in pieces]),
        _merged(pieces, [piece.good for piece in pieces]),
        _merged(pieces, [piece.made.mismatch for piece in pieces]),
    )


def locate(burst: Burst, scale: int) -> Located:
    """The motion and gains that `solve` finds, and the pixels that it would use."""
    pieces = _pieces(burst, scale, None)
    gain = _merged(pieces, [piece.gain for piece in pieces])
    used = _merged(pieces, [piece.good for piece in pieces])
    return Located(_merged_flows(pieces), gain, used)


def locate_translations(burst: Burst, scale: int) -> Located:
    """The same for frames known to be translated and little masked: many times faster."""
    burst, kept, start_px = without_foreign(burst)
    fit = fit_motion(burst, start_px, kept, scale)
    return Located(fit.flow_px, fit.gain, burst.valid & ~fit.outlier & fit.kept[..., None, None])


def _pieces(burst: Burst, scale: int, flow_px: Tensor | None) -> list[_Piece]:
    """The bursts of a batch, registered and reconstructed; those alike together."""
    if flow_px is not None and flow_px.ndim == 5:
        return [_known(burst, scale, flow_px)]
    burst, kept, start_px = without_foreign(burst, flow_px)
    shifted = _in_fourier_space(burst, kept, start_px, scale, moving=flow_px is None)
    if flow_px is not None:
        return [shifted]
    bends = bending(shifted.made)
    seen = burst.valid.flatten(2).float().mean(2)
    masked = ~bends & (seen.masked_fill(~kept, 1).mean(1) < 1 - MUCH_MASKED)
    whole = smooth_basis(burst.shape, burst.frames)
    pieces = []
    for chosen, basis in ((~bends & ~masked, None), (masked, whole[:1]), (bends, whole)):
        index = chosen.nonzero()[:, 0]
        if len(index) == len(chosen) and basis is None:
            return [shifted]
        if not len(index):
            continue
        if basis is None:
            pieces.append(_again(shifted, index, scale))
        else:
            pieces.append(_in_space(burst, kept, start_px, scale, index, basis))
    return pieces


def without_foreign(burst: Burst, flow_px: Tensor | None = None) -> tuple[Burst, Tensor, Tensor]:
    """The burst less what is of another scene, the frames that agree (B, N), their translations."""
    start_px = register(burst) if flow_px is None else flow_px
    kept = agreeing_frames(burst, start_px)
    foreign = foreign_pixels(burst, start_px)
    kept = kept & (foreign.to(burst.frames).mean((-1, -2)) < MAX_FOREIGN)
    kept[:, 0] = True
    return dataclasses.replace(burst, valid=burst.valid & ~foreign), kept, start_px


def _in_fourier_space(
    burst: Burst, kept: Tensor, start_px: Tensor, scale: int, moving: bool
) -> _Piece:
    """Translations, as `motion` finds them."""
    fit = fit_motion(burst, start_px, kept, scale, moving=moving)
    good = burst.valid & ~fit.outlier & fit.kept[..., None, None]
    made = reconstruct(burst, good, fit.flow_px, fit.gain, fit.knots, scale)
    index = torch.arange(len(good), device=good.device)
    return _Piece(index, burst, made, fit.gain, fit.kept, good, fit.covariance)


def _again(piece: _Piece, index: Tensor, scale: int) -> _Piece:
    """The same for some of its bursts."""
    burst, good, gain = piece.burst.part(index), piece.good[index], piece.gain[index]
    problem = piece.made.problem
    made = reconstruct(burst, good, problem.flow_px[index], gain, problem.knots[index], scale)
    return _Piece(index, burst, made, gain, piece.kept[index], good, piece.doubt[index])


def _in_space(
    burst: Burst, kept: Tensor, start_px: Tensor, scale: int, index: Tensor, basis: Tensor
) -> _Piece:
    """Motion that bends, or frames much masked, as `bend` fits them."""
    burst, kept = burst.part(index), kept[index]
    fit = fit_in_space(burst, burst.valid & kept[..., None, None], start_px[index], scale, basis)
    made = reconstruct(burst, fit.good, fit.flow_px, fit.gain, fit.knots, scale)
    return _Piece(index, burst, made, fit.gain, kept, fit.good, fit.misplaced)


def _known(burst: Burst, scale: int, flow_px: Tensor) -> _Piece:
    """Motion that is known at every pixel."""
    gain, good = torch.ones_like(burst.exposure), burst.valid
    knots = spectrum_of_burst(burst, good, flow_px, gain, scale)
    made = reconstruct(burst, good, flow_px, gain, knots, scale)
    index = torch.arange(len(good), device=good.device)
    certain = burst.frames[:, None][:, :0]
    return _Piece(index, burst, made, gain, good.any(-1).any(-1), good, certain)


def _merged(pieces: Sequence[_Piece], parts: Sequence[Tensor]) -> Tensor:
    """Values of the pieces' bursts in the order of the batch."""
    order = torch.cat([piece.index for piece in pieces])
    return torch.cat(list(parts))[order.argsort()]


def _merged_flows(pieces: Sequence[_Piece]) -> Tensor:
    flows = [piece.made.problem.flow_px for piece in pieces]
    if any(flow.ndim == 5 for flow in flows):
        shape = pieces[0].burst.shape
        flows = [flow_field(flow, shape) for flow in flows]
    return _merged(pieces, flows)
