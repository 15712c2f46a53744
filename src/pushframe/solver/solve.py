"""The solver from burst to posterior."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..posterior import Posterior
from .begin import begin
from .belief import Belief, Evidence
from .bend import smooth_basis
from .lost import fit_translations
from .motion import Task
from .peaks import fit_motion
from .piece import merged, merged_flows
from .pieces import in_pieces
from .space import measure_in_space

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


def solve(burst: Burst, scale: int, motion: Tensor | Belief | None = None) -> Solution:
    """Motion, gains, prior, image and error bar of a batch of bursts, jointly.

    motion: (B, N, 2[, H, W]) low-res px if it is known, or what is believed of it; else estimated.
    """
    pieces, excess = in_pieces(burst, scale, motion)
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
    pieces, excess = in_pieces(burst, scale, motion)
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
