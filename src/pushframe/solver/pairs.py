"""Where each frame lies by the reference alone, aliases known for what they are.

Lucas-Kanade compares low-passed frames, since their aliases do not move with the scene; where a
scene is little but aliases it is a third of a pixel off. Here the reference predicts the frame at
every place nearby, as a Gaussian: what is aliased in either is not foretold, and is not missed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..burst import Burst
from ..spectral import AliasBlocks, Transfer, power_of, transfer
from .belief import Belief
from .search import Search

LOOKS = 4  # at frames that may be off by DOUBT_PX, in which their spectrum shows
DOUBT_PX = 0.1
REACH_PX = 0.5
STEP_PX = 0.0625
BLUR_PX = 0.03  # of the places: half the distance of one to the next


def paired_places(
    burst: Burst, start_px: Tensor, kept: Tensor, scale: int, belief: Belief | None = None
) -> Tensor:
    """The translations (B, N, 2) about those given under which the reference foretells each best.

    kept: (B, N) bool, frames that tell of the spectrum.
    """
    search = Search(burst, start_px, kept, scale, belief)
    search.jitter_px = torch.full_like(search.jitter_px, DOUBT_PX)
    for _ in range(LOOKS):
        search.look()
    noise = search.noise + search.steepness(search.prior) * BLUR_PX**2
    alone = torch.zeros_like(noise)
    alone[:, 0] = 1 / noise[:, 0]
    blocks = AliasBlocks(search.see, alone, search.prior)
    mean = blocks.mean(search.data)
    offset = torch.arange(-REACH_PX, REACH_PX + STEP_PX / 2, STEP_PX, device=noise.device)
    found = [start_px[:, 0]]
    for t in range(1, burst.count):
        see = transfer(start_px[:, t, None] + offset[:, None], burst.shape, scale)
        misfit = _improbability(see, blocks, mean, search.data[:, t], noise[:, t], search.count)
        found.append(start_px[:, t] + STEP_PX * _lowest(misfit) - REACH_PX)
    return torch.stack(found, 1)


def _lowest(table: Tensor) -> Tensor:
    """Where tables (B, D, D) are lowest, (B, 2), between entries by the parabolas through them."""
    size = table.shape[-1]
    place = table.flatten(1).argmin(1)
    entry = torch.arange(len(table), device=table.device)
    row, column = (part.clamp(1, size - 2) for part in (place // size, place % size))
    lines = table[entry, :, place % size], table[entry, place // size]
    found = []
    for line, middle in zip(lines, (row, column), strict=True):
        before, here, after = (line[entry, middle + k] for k in (-1, 0, 1))
        bend = (before - 2 * here + after).clamp(min=1e-30)
        found.append(middle + ((before - after) / (2 * bend)).clamp(-1, 1))
    return torch.stack(found, -1)


def _improbability(
    see: Transfer, blocks: AliasBlocks, mean: Tensor, frame: Tensor, noise: Tensor, count: Tensor
) -> Tensor:
    """Minus twice the log likelihood of a frame (B, a, c) at D x D places, (B, D, D).

    see: what it would see, its rows and columns at D places each. mean, blocks: the image's. noise:
    (B,); count: (c,).
    """
    s = blocks.scale
    image = mean.unflatten(1, (s, s))
    spread = blocks.covariance.unflatten(2, (s, s)).unflatten(1, (s, s))
    tables = []
    for rows in see.rows.unbind(1):  # (B, s, a); a row of places at a time, for memory's sake
        seen = torch.einsum("bia,bijac->bjac", rows, image)
        unsure = torch.einsum("bia,bijklac,bka->bjlac", rows, spread, rows.conj())
        foretold = torch.einsum("bdjc,bjac->bdac", see.columns, seen)
        var = torch.einsum("bdjc,bjlac,bdlc->bdac", see.columns, unsure, see.columns.conj()).real
        var = var + noise[:, None, None, None]
        off = power_of(frame[:, None] - foretold) / var + var.log()
        tables.append((off * count).sum((-1, -2)))
    return torch.stack(tables, 1)
