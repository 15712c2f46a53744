"""A grid twice as fine, for scenes that hold more than theirs.

A sharp optic passes detail beyond the frequencies of the high-res grid. On that grid it is misfit,
the same for all pixels; on a finer one it is part of the image, which then explains the frames,
and every second of its pixels is the answer. Which of the two the frames speak for is a matter of
likelihood.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..burst import Burst
from .image import Reconstruction, reconstruct
from .search import Search

FINER = 2
FINEST_SCALE = 4
LOOKS = 10  # in which steep spectra settle, too
LEAST_MISFIT = 0.25  # of the noise variance of the best frame
ENOUGH_FRAMES = 2  # times the aliases: so many would have shown a misfit
LEAST_DIFFERENCE = 20.0  # of -2 log likelihood


def finer(
    burst: Burst, good: Tensor, gain: Tensor, made: Reconstruction
) -> tuple[Tensor, Reconstruction] | None:
    """The bursts of a batch that hold more than their grid, and their images on a finer one.

    good: (B, N, H, W) pixels used; gain: (B, N); made: the images on the grid itself. Translations
    at scale 2 alone; None if no burst needs it.
    """
    problem = made.problem
    scale, flow_px = FINER * problem.scale, problem.flow_px
    if flow_px.ndim == 5 or scale > FINEST_SCALE or burst.days:
        return None
    few = good.any(-1).any(-1).sum(1) <= ENOUGH_FRAMES * problem.scale**2
    misfit = made.mismatch > LEAST_MISFIT * made.noise_var.amin((1, 2, 3))
    index = (misfit | few).nonzero()[:, 0]
    if not len(index):
        return None
    seen = dataclasses.replace(burst, valid=good).part(index)
    own, _ = _likelihood(seen, flow_px[index], gain[index], problem.scale)
    other, knots = _likelihood(seen, flow_px[index], gain[index], scale)
    better = own - other > LEAST_DIFFERENCE
    if not bool(better.any()):
        return None
    index, knots, seen = index[better], knots[better], seen.part(better.nonzero()[:, 0])
    return index, reconstruct(seen, seen.valid, flow_px[index], gain[index], knots, scale)


def _likelihood(burst: Burst, flow_px: Tensor, gain: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """-2 log likelihood of the frames on a grid, (B,), under the spectrum fitted there."""
    search = Search(burst, flow_px, burst.valid.any(-1).any(-1), scale, gain=gain)
    for looks in (LOOKS, 2, 1):
        for _ in range(looks):
            search.look()
        if looks > 1:
            search.budget()
            search.outlier = torch.zeros_like(search.outlier)  # judged before
    return search.improbability(), search.knots
