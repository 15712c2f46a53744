"""How sure a search is of its shifts and gains, and what the frames alone tell of them.

From the information of its last step, or of `Search.weigh`.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from .motion_prior import LEAST_GAIN_STD, MotionPrior, unheld_shifts
from .search import Search

UNSTATED_STD = 4e-4  # share of all gains together, which no frame states


def covariance(search: Search, moving: bool, prior: MotionPrior | None = None) -> Tensor:
    """Covariance of shifts and gains, (B, 3N, 3N), zero where nothing was estimated.

    Under the prior of the search, or another.
    """
    prior, kept = search.motion_prior if prior is None else prior, search.kept
    free = prior.free(kept, moving)
    system = prior.system(search.information * _share(search), kept, free, moving)
    inverse = torch.linalg.inv_ex(system).inverse
    return torch.where(free[:, :, None] & free[:, None], inverse, 0).to(search.gain)


def _share(search: Search) -> Tensor:
    """A window leaves fewer independent frequencies than there are pixels, (B, 1, 1)."""
    return 1 / search.placed.window.pow(4).mean((1, 2, 3))[:, None, None]


def likelihood(search: Search) -> tuple[Tensor, Tensor]:
    """Information (B, 3N, 3N) and slope (B, N, 3) of shifts and gains, without any prior."""
    share, slope = _share(search), search.slope(search.changes(whole=False))
    if search.whole.scene is not None:  # where the search ended, data pull gains as the prior does
        pull = search.motion_prior.pull(search.flow_px, search.gain, search.kept)[..., 2]
        gain_slope = torch.where(search.arrived[:, None], pull, slope[..., 2])
        slope = torch.cat([slope[..., :2], gain_slope[..., None]], -1)
    information = unheld_shifts(search.information.double(), search.kept).to(search.information)
    return information * share, slope * share[..., 0, None]


def learn_gain_std(search: Search) -> None:
    """How far exposures are off in each burst: the gains' spread beyond their own errors.

    About 1, or about their mean where it is the reference that is off.
    """
    prior = search.motion_prior
    if prior.belief is not None:
        return
    cov = covariance(search, moving=False)[:, 2::3, 2::3]
    used = search.kept.to(cov)
    used[:, 0] = 0
    about = used / used.sum(1, keepdim=True).clamp(min=1) * (prior.reference_std > 0)[:, None]
    centred = torch.diag_embed(used) - used[:, :, None] * about[:, None]
    off = (centred @ (search.gain - 1)[..., None])[..., 0]
    var = (centred @ cov @ centred.mT).diagonal(dim1=-2, dim2=-1)
    spread = (off**2 - var).sum(1) / (used.sum(1) - about.sum(1)).clamp(min=1)
    prior.gain_std = spread.clamp(min=LEAST_GAIN_STD**2).sqrt()


def reference_surprise(search: Search, moving: bool) -> Tensor:
    """By how many of its errors the usual frame is off the reference's exposure, (B,).

    Where a Newton step would end if gains might be anything; the search ended where data pull them
    as the prior does. The median, for a frame that is off by itself is its own fault.
    """
    pull = search.motion_prior.pull(search.flow_px, search.gain, search.kept)
    free = copy.copy(search.motion_prior)
    free.forget(torch.ones_like(search.kept[:, 0]))
    slope = _share(search) * pull - free.pull(search.flow_px, search.gain, search.kept)
    cov = covariance(search, moving, free).double()
    step = (cov @ slope.double().flatten(1)[..., None])[:, 2::3, 0]
    used = search.kept.clone()
    used[:, 0] = False
    off = (search.gain - 1 + step).masked_fill(~used, torch.nan)
    usual = off.nanquantile(0.5, 1, keepdim=True)
    count = used.sum(1)
    cov = cov[:, 2::3, 2::3]
    common = cov.sum((1, 2)) / count**2
    own = cov.diagonal(dim1=1, dim2=2).sum(1) / count - common
    spread = (1.4826 * (off - usual).abs().nanquantile(0.5, 1)) ** 2
    var = common + math.pi / 2 * (spread - own).clamp(min=0) / count + UNSTATED_STD**2
    return (usual[:, 0] / var.sqrt()).nan_to_num(0)
