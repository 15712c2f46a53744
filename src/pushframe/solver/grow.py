"""Where frames lie if nothing is known of it: an image grown from one of them.

Phase correlation and Lucas-Kanade compare two frames at a time. Where a scene is little but
aliases, repeats itself or hardly exceeds the noise, two frames may resemble each other most where
they do not belong. Here one frame begins an image, and the image foretells any other frame at every
place nearby, as a Gaussian: what is aliased is not foretold, and is not missed. The frames whose
place is least in doubt join the image, which then tells more of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..burst import Burst
from ..folding import power_of
from ..registration import reordered
from ..spectral import transfer
from .search import Search

LOOKS = 6  # at the first frame, in which its spectrum shows
FRACTIONS = 8  # of a pixel, at which places are looked at
BLUR_PX = 0.04  # of a place: what it is off its entry in the table, rms
REACH_PX = 4  # about the middle of the frames
APART_PX = 0.3  # beyond which another place is another answer
ALIKE = 0.5  # of the largest certainty, from which frames join together
FRAMES_AT_ONCE = 4096  # on a GPU, each at a row of places
NEAR_PX, DOUBT_PX = 0.5, 0.1  # how far pairs are looked for, and what frames may be off
STEPS, JITTER_PX = 3, 0.06  # of frames that have joined; halved at each step


def grown_places(
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    anchor: Tensor | int = 0,
    belong: bool = False,
) -> Tensor:
    """Translations (B, N, 2) of the frames kept (B, N), grown from the least noisy of them.

    start_px: (B, N, 2), of which the median is used, and frames that are not kept stay there.
    anchor: how many less noisy frames there are than that to begin with, one number or (B,).
    """
    exposure = torch.where(kept, burst.exposure, 0)
    rank = torch.as_tensor(anchor, device=kept.device).minimum(kept.sum(1) - 1).clamp(min=0)
    by_noise = exposure.argsort(dim=1, descending=True, stable=True)
    first = by_noise.gather(1, rank[:, None])
    place = torch.arange(burst.count, device=first.device)
    order = torch.where(place == first, -1, place).argsort(1)
    back = order.argsort(1)
    kept = kept.gather(1, order)
    middle = _middle(_in_order(start_px, order), kept)
    done_px = middle[:, None].expand_as(start_px)
    first = (place == 0).expand_as(kept)
    search = Search(reordered(burst, order), done_px, first, scale, belong=belong)
    search.motion_prior.adrift = False  # from a frame that is as good as any
    for _ in range(LOOKS):
        search.look()
    while bool((waiting := kept & ~search.kept).any()):
        found_px, certainty = _lowest(improbability_at_places(search, middle))
        certainty = certainty.nan_to_num(0).masked_fill(~waiting, -torch.inf)
        joining = waiting & (certainty >= ALIKE * certainty.amax(1, keepdim=True))
        search.take_in(joining, middle[:, None] + found_px)
        for count in range(STEPS):
            search.jitter_px = torch.full_like(search.jitter_px, JITTER_PX / 2**count)
            search.look()
            search.step(moving=True)
        search.look()
        # those that wait no more are done, whatever others of the batch still need
        done_px = torch.where(waiting.any(1)[:, None, None], search.flow_px, done_px)
    found_px = _in_order(done_px, back)
    found_px = found_px - found_px[:, :1]
    good = _in_order(kept, back) & torch.isfinite(found_px).all(-1)
    return torch.where(good[..., None], found_px, start_px)


def paired_places(
    burst: Burst, start_px: Tensor, kept: Tensor, scale: int, belong: bool = False
) -> Tensor:
    """The translations (B, N, 2) about those given under which the reference foretells each best.

    kept: (B, N) bool, frames that tell of the spectrum, and are placed.
    """
    search = Search(burst, start_px, kept, scale, belong=belong)
    search.jitter_px = torch.full_like(search.jitter_px, DOUBT_PX)
    for _ in range(LOOKS):
        search.look()
    search.kept = torch.zeros_like(kept)
    search.kept[:, 0] = True
    search.look()
    middle = _middle(start_px, kept)
    place = _places(start_px)
    about_px = start_px - middle[:, None]
    down, right = ((place - axis[..., None]).abs() for axis in about_px.unbind(-1))
    away = torch.maximum(down[..., :, None], right[..., None, :])
    table = improbability_at_places(search, middle).masked_fill(away > NEAR_PX, torch.inf)
    found_px = middle[:, None] + _lowest(table)[0]
    moved = kept & ~search.kept & (about_px.abs().amax(-1) <= REACH_PX)
    return torch.where(moved[..., None], found_px, start_px)


def _in_order(values: Tensor, order: Tensor) -> Tensor:
    """Values of frames (B, N, ...) in another order, (B, N)."""
    return values[torch.arange(len(order), device=order.device)[:, None], order]


def _middle(places_px: Tensor, kept: Tensor) -> Tensor:
    """The median of places (B, N, 2) of the frames kept, (B, 2)."""
    return places_px.masked_fill(~kept[..., None], torch.nan).nanmedian(1).values


def improbability_at_places(search: Search, middle: Tensor) -> Tensor:
    """Minus twice the log likelihood of each frame at places about a middle (B, 2), (B, N, D, D).

    Given the image of the frames that are kept, for each frame by itself. Places are whole pixels
    from -REACH_PX to REACH_PX and FRACTIONS of them more, in order. A whole low-res pixel
    turns all aliases alike: all of them are one transform.
    """
    s, shape = search.scale, search.burst.shape
    fraction = torch.arange(FRACTIONS, device=middle.device) / FRACTIONS
    see = transfer(middle[:, None] + fraction[:, None], shape, s)
    image = search.image.unflatten(1, (s, s))
    spread = search.blocks.covariance.unflatten(2, (s, s)).unflatten(1, (s, s))
    noise = search.noise + search.lattice.steepness(search.prior) * BLUR_PX**2
    whole = torch.arange(-REACH_PX, REACH_PX + 1, device=middle.device)
    data = search.data[:, :, None, None]
    tables = []
    for rows in see.rows.split(_rows_at_once(search.kept), 1):  # (B, R, s, a)
        seen = torch.einsum("bria,bijac->brjac", rows, image)
        unsure = torch.einsum("bria,bijklac,brka->brjlac", rows, spread, rows.conj())
        foretold = torch.einsum("bdjc,brjac->brdac", see.columns, seen)[:, None]
        var = torch.einsum("bdjc,brjlac,bdlc->brdac", see.columns, unsure, see.columns.conj()).real
        var = var[:, None] + noise[:, :, None, None, None, None]  # (B, N, R, D, a, c)
        apart = (power_of(data) + power_of(foretold)) / var + var.log()
        alike = torch.fft.irfft2(data.conj() * foretold / var, s=shape, norm="forward")
        alike = alike[..., whole, :][..., whole]
        tables.append((apart * search.lattice.count).sum((-1, -2))[..., None, None] - 2 * alike)
    table = torch.cat(tables, 2).permute(0, 1, 4, 2, 5, 3)
    return table.flatten(4, 5).flatten(2, 3)


def _rows_at_once(kept: Tensor) -> int:
    """Rows of places to work on together, for frames (B, N): what keeps a GPU busy.

    On a CPU one, which its cache holds.
    """
    return max(1, FRAMES_AT_ONCE // kept.numel()) if kept.is_cuda else 1


def _places(like: Tensor) -> Tensor:
    """The places of a table along an axis, (D,) px."""
    size = (2 * REACH_PX + 1) * FRACTIONS
    return torch.arange(size, device=like.device) / FRACTIONS - REACH_PX


def _lowest(table: Tensor) -> tuple[Tensor, Tensor]:
    """Where tables (B, N, D, D) are lowest, (B, N, 2) px, and by how much less than elsewhere."""
    place = _places(table)
    lowest = table.flatten(2).min(2)
    down, right = place[lowest.indices // len(place)], place[lowest.indices % len(place)]
    away = torch.hypot(place[:, None] - down[..., None, None], place - right[..., None, None])
    other = table.masked_fill(away <= APART_PX, torch.inf).flatten(2).amin(2)
    return torch.stack([down, right], -1), other - lowest.values
