"""How sure a search is of its shifts and gains, and what the frames alone tell of them.

From the information of its last step, or of `Search.weigh`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .motion_prior import LEAST_GAIN_STD, unheld_shifts
from .search import Search


def covariance(search: Search, moving: bool) -> Tensor:
    """Covariance of shifts and gains, (B, 3N, 3N), zero where nothing was estimated."""
    prior, kept = search.motion_prior, search.kept
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
        pull = search.motion_prior.pull(search.flow_px, search.gain)[..., 2]
        gain_slope = torch.where(search.arrived[:, None], pull, slope[..., 2])
        slope = torch.cat([slope[..., :2], gain_slope[..., None]], -1)
    information = unheld_shifts(search.information.double(), search.kept).to(search.information)
    return information * share, slope * share[..., 0, None]


def learn_gain_std(search: Search) -> None:
    """How far exposures are off in each burst: the gains' spread beyond their own errors."""
    if search.motion_prior.belief is not None:
        return
    var = covariance(search, moving=False).diagonal(dim1=-2, dim2=-1)[:, 2::3]
    used = search.kept.to(var)
    used[:, 0] = 0
    excess = ((search.gain - 1) ** 2 - var) * used
    spread = excess.sum(1) / used.sum(1).clamp(min=1)
    search.motion_prior.gain_std = spread.clamp(min=LEAST_GAIN_STD**2).sqrt()
