"""Frames that a fit left out may only have begun too far off: they are looked for again.

Two aliased frames, much masked ones above all, may resemble each other most a pixel from where
they belong. The image that the other frames make is not aliased, and shows where.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..burst import Burst
from ..forward import forward_model
from .belief import Belief
from .fit import Fit
from .image import Reconstruction, reconstruct
from .motion import fit_motion

REACH_PX = 2.0
STEP_PX = 0.25


def fit_translations(
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    moving: bool = True,
    belief: Belief | None = None,
) -> Fit:
    """As `fit_motion`; where it left frames out, again from where the image of the rest has them.

    The second fit counts where more frames agree with it.
    """
    fit = fit_motion(burst, start_px, kept, scale, moving=moving, belief=belief)
    lost = (kept & ~fit.kept & burst.valid.any(-1).any(-1)).any(1).nonzero()[:, 0]
    if not moving or not len(lost):
        return fit
    part, old = burst.part(lost), fit.part(lost)
    good = part.valid & ~old.outlier & old.kept[..., None, None]
    made = reconstruct(part, good, old.flow_px, old.gain, old.knots, scale)
    found_px = nearest_places(made, part, old.gain)
    held = None if belief is None else belief.part(lost)
    again = fit_motion(part, found_px, kept[lost], scale, belief=held)
    better = (again.kept.sum(1) > old.kept.sum(1)).nonzero()[:, 0]
    return fit.with_part(lost[better], again.part(better))


def nearest_places(made: Reconstruction, burst: Burst, gain: Tensor) -> Tensor:
    """Translations (B, N, 2), on a grid about those of `made`, where each frame fits its image.

    By the mean squared difference of valid pixels; a frame that is where it belongs stays.
    """
    problem = made.problem
    data = (burst.frames / gain[..., None, None] - made.level)[:, None]
    weight = (burst.valid / made.noise_var)[:, None]
    place = torch.arange(-REACH_PX, REACH_PX + STEP_PX / 2, STEP_PX, device=gain.device)
    least = torch.full_like(gain, torch.inf)
    best = problem.flow_px
    for down in place:  # a row of places at once: each by itself is too little for a GPU
        offset = torch.stack([down.expand_as(place), place], -1)
        flow_px = problem.flow_px[:, None] + offset[:, None]  # (B, places, N, 2)
        model = forward_model(flow_px.flatten(1, 2), burst.shape, problem.scale, problem.pad)
        shape = flow_px.shape[1:3]
        seen = weight * model.inside.unflatten(1, shape)
        off = data - model.forward(made.image).unflatten(1, shape)
        gap = (seen * off**2).sum((-1, -2)) / seen.sum((-1, -2)).clamp(min=1e-30)
        nearest = gap.min(1, keepdim=True)
        there = flow_px.gather(1, nearest.indices[..., None].expand(-1, -1, -1, 2))[:, 0]
        best = torch.where((nearest.values[:, 0] < least)[..., None], there, best)
        least = torch.minimum(nearest.values[:, 0], least)
    return best - best[:, :1]
