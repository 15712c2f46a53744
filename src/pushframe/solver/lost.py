"""Frames that do not belong, and frames that only began too far off.

With few other frames an image can be made that shows one of another scene as well, and what it
cannot explain passes for mismatch. Without that frame nothing is left unexplained.

Two aliased frames, much masked ones above all, may resemble each other most a pixel from where
they belong. The image that the other frames make is not aliased, and shows where.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..burst import Burst
from ..forward import forward_model
from ..noise import usual_noise_var
from .belief import Belief
from .bend import all_bending, bending
from .fit import Fit
from .image import Reconstruction, reconstruct
from .motion import Task
from .peaks import at_once, energy_at, highest_peak, negligible
from .rise import held_down
from .search import Search

REACH_PX = 2.0
STEP_PX = 0.25
SUSPICIOUS = 3.0  # mismatch over the variance of noise, where frames are suspected
SUSPECTS = 4
EXPLAINED = 0.1  # of a mismatch, at most, is left without the one to blame
TOLERATED = 0.5  # of noise or mismatch, that frames found again may add to the latter


def fit_translations(
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    moving: bool = True,
    belief: Belief | None = None,
    rough: Tensor | None = None,
) -> Fit:
    """As `Task.settled` and `highest_peak`, of those frames that belong.

    Who is to blame is asked before other peaks are looked for: a frame that does not belong fits
    badly anywhere, but less so at some places. Where motion bends, translations are not the answer
    wherever they are. Where the spectrum was held down, translations are fitted once more.
    """
    task = Task(burst, start_px, kept, scale, moving=moving, belief=belief, rough=rough)
    fit = task.settled()
    if moving:
        fit = dataclasses.replace(fit, bent=_bent(task, fit))
        index = (~fit.bent).nonzero()[:, 0]
        if not len(index):
            return fit
        part, straight = task.part(index), fit.part(index)
        fit = fit.with_part(index, _all_found(part, _without_culprits(part, straight)))
    index = (held_down(task, fit) & ~fit.bent).nonzero()[:, 0]
    return fit.with_part(index, _risen(task.part(index), fit.part(index))) if len(index) else fit


def _risen(task: Task, fit: Fit) -> Fit:
    """Fits with a spectrum that may rise, from the start and from where they ended: the likelier.

    Either may be a wave off, and such a spectrum leaves nothing unexplained.
    """
    again = dataclasses.replace(task, kept=fit.kept, belong=True)
    number = torch.arange(len(fit.kept), device=fit.kept.device)
    begun = dataclasses.replace(
        again.part(number.repeat(2)), start_px=torch.cat([task.start_px, fit.flow_px])
    )
    both = begun.settled()
    both = highest_peak(begun, both) if task.moving else both
    first, second = both.part(number), both.part(number + len(number))
    own, other = (energy_at(again, fit, one.flow_px, one.gain) for one in (first, second))
    index = (other < own).nonzero()[:, 0]
    return first.with_part(index, second.part(index))


def _bent(task: Task, fit: Fit) -> Tensor:
    """Bursts that translations do not explain and bends would, (B,) bool."""
    bent = torch.zeros_like(task.kept[:, 0])
    poor = (fit.mismatch > negligible(task)) | (fit.kept != task.kept).any(1)
    index = poor.nonzero()[:, 0]
    if len(index) and not task.burst.days:  # what days changed looks like bends
        made = _imaged(task.part(index), fit.part(index))
        bent[index] = bending(made) & all_bending(made)
    return bent


def _imaged(task: Task, fit: Fit) -> Reconstruction:
    """The image that a fit makes of its frames."""
    good = fit.good(task.burst)
    return reconstruct(task.burst, good, fit.flow_px, fit.gain, fit.knots, task.scale, fit.scene)


def _all_found(task: Task, fit: Fit) -> Fit:
    """A fit at its highest peak; where it left frames out, again, and from where they may be.

    A frame that does not belong drags the others along before it is left out, so these begin anew.
    Their image then shows where the frames left out would fit, and a fit with those frames counts
    where more of them agree with it and it leaves no more unexplained.
    """
    burst, kept = task.burst, task.kept
    fit = highest_peak(task, fit)
    lost = (kept & ~fit.kept & burst.valid.any(-1).any(-1)).any(1).nonzero()[:, 0]
    if not len(lost):
        return fit
    part = task.part(lost)
    alone = dataclasses.replace(part, kept=fit.kept[lost])
    rest = highest_peak(alone, alone.settled())
    whole = (rest.kept == alone.kept).all(1).nonzero()[:, 0]
    fit = fit.with_part(lost[whole], rest.part(whole))
    rest = fit.part(lost)
    made = _imaged(part, rest)
    part = dataclasses.replace(part, start_px=nearest_places(made, part.burst, rest.gain))
    again = highest_peak(part, part.settled())
    noise = made.noise_var.flatten(1).median(1).values
    explained = again.mismatch < rest.mismatch + TOLERATED * torch.maximum(noise, rest.mismatch)
    more = again.kept.sum(1) > rest.kept.sum(1)
    better = (more & explained).nonzero()[:, 0]
    return fit.with_part(lost[better], again.part(better))


def _without_culprits(task: Task, fit: Fit) -> Fit:
    """Where much is left unexplained, a fit without the one frame that is to blame, if one is.

    Each of the frames that surprised most at the start is left out, in fits of their own.
    """
    much = fit.mismatch > SUSPICIOUS * usual_noise_var(task.burst)
    whole = (fit.kept == task.kept).all(1)
    # as many frames as aliases explain anything, whichever is left out
    index = (much & whole & (task.kept.sum(1) > task.scale**2 + 1)).nonzero()[:, 0]
    if not len(index):
        return fit
    part = task.part(index)
    search = Search(part.burst, part.start_px, part.kept, part.scale, part.belief)
    search.look()
    search.look()
    search.budget()
    surprise = search.judgement.surprise().masked_fill(~part.kept, 0).nan_to_num(torch.inf)
    surprise[:, 0] = -1  # the reference stays
    suspects = surprise.topk(min(SUSPECTS, task.burst.count - 1)).indices.T  # (S, n)
    kept = torch.cat([part.kept.scatter(1, who[:, None], False) for who in suspects])  # (S n, N)
    fits = Fit.joined(
        [
            dataclasses.replace(part.part(some % len(index)), kept=kept[some]).settled()
            for some in torch.arange(len(kept), device=kept.device).split(at_once(task))
        ]
    )
    agreed = (fits.kept == kept).all(1).view(suspects.shape)
    explained = (fits.mismatch.view(suspects.shape) < EXPLAINED * fit.mismatch[index]) & agreed
    guilty = explained.sum(0) == 1
    number, chosen = (explained & guilty).nonzero(as_tuple=True)
    return fit.with_part(index[chosen], fits.part(number * len(index) + chosen))


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
