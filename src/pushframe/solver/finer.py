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
from ..geometry import middle_of
from .image import MANY_HOLES, Reconstruction, reconstruct
from .outliers import hidden_share
from .search import Search

FINER = 2
FINEST_SCALE = 4
LOOKS = 10  # in which steep spectra settle, too
LEAST_MISFIT = 0.25  # of the noise variance of the best frame
LEAST_SHARE = 1e-3  # and of the power where the grid ends: there is no less beyond it
ENOUGH_FRAMES = 2  # times the aliases: so many would have shown a misfit
LEAST_DIFFERENCE = 10.0  # of -2 log likelihood
MIDDLE_PX = 40  # side of what is compared


def finer(
    burst: Burst, good: Tensor, gain: Tensor, made: Reconstruction
) -> tuple[Tensor, Reconstruction] | None:
    """The bursts of a batch that hold more than their grid, and their images on a finer one.

    good: (B, N, H, W) pixels used; gain: (B, N); made: the images on the grid itself. Of frames
    without holes, translated, at scale 2; None if no burst needs it.
    """
    problem = made.problem
    scale, flow_px = FINER * problem.scale, problem.flow_px
    if flow_px.ndim == 5 or scale > FINEST_SCALE or burst.days:
        return None
    few = good.any(-1).any(-1).sum(1) <= ENOUGH_FRAMES * problem.scale**2
    # a scene that reaches beyond its grid does not stop there
    last = torch.maximum(problem.prior[:, problem.canvas[0] // 2, 0], problem.prior[:, 0, -1])
    least = torch.maximum(LEAST_MISFIT * made.noise_var.amin((1, 2, 3)), LEAST_SHARE * last)
    misfit = made.mismatch > least
    # a search fills holes, and does so too slowly to be compared
    index = ((misfit | few) & (hidden_share(good) < MANY_HOLES)).nonzero()[:, 0]
    if not len(index):
        return None
    seen = dataclasses.replace(burst, valid=good)
    # enough to tell grids apart, at a part of the cost
    middle = seen.part(index).tile(*middle_of(seen.shape, MIDDLE_PX))
    own, other = (
        _settled(middle, flow_px[index], gain[index], grid).improbability()
        for grid in (problem.scale, scale)
    )
    index = index[own - other > LEAST_DIFFERENCE]
    if not len(index):
        return None
    seen, flow_px, gain = seen.part(index), flow_px[index], gain[index]
    knots = _settled(seen, flow_px, gain, scale).knots
    return index, reconstruct(seen, seen.valid, flow_px, gain, knots, scale)


def _settled(burst: Burst, flow_px: Tensor, gain: Tensor, scale: int) -> Search:
    """The search for what a grid makes of a burst, its spectrum and mismatch settled."""
    search = Search(burst, flow_px, burst.valid.any(-1).any(-1), scale, gain=gain, belong=True)
    for looks in (LOOKS, 2, 1):
        for _ in range(looks):
            search.look()
        if looks > 1:
            search.budget()
            search.outlier = torch.zeros_like(search.outlier)  # judged before
            search.judged = False
        if looks == LOOKS:
            search.unbias()  # not before: an image that must explain all would explain it wrongly
    return search
