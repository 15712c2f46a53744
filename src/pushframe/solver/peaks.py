"""The highest peak of the likelihood: which fits may be at another, and a search for it.

One fit (`motion`) ends at the peak nearest to its start. Few frames have a likelihood of several;
with many, pairs of frames may have misled the start. Fits in doubt are begun again from other
places, and replaced where that explains the frames clearly better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from ..burst import Burst
from ..gaussian import folded_basis
from ..noise import usual_noise_var
from ..prior import spectrum_at
from .belief import FIRST_JITTER_PX, first_jitter
from .fit import Fit
from .grow import grown_places, paired_places
from .motion import LOOKS, MASKED_LOOKS, Task
from .search import Search

PEAK_JITTER_PX = 0.0125  # what the highest peak may be off
CLEARLY = 20.0  # of -2 log likelihood, by which another peak must be higher
UNSURE_PX = 0.02  # stated error, beyond which shifts may be at a wrong one
FAR_PX = 0.1  # from their start, likewise
ELSEWHERE_PX = 0.01  # beyond which it is another one
NEGLIGIBLE = 0.25  # mismatch over the variance of noise, at which no peak is looked for
EXPLAINED = 0.5  # of a mismatch, at most, is left at a better one
# frames that images are grown from, in the order of their noise; the later where all is lost
ANCHORS = ((1,), (2, 3, 4, 5, 6, 7, 8, 9))
ALIKE_PX = 0.15  # within which places grown from the least noisy one confirm a fit
SCATTERED, SCATTER_PX = 8, 0.06  # starts of few frames, about where the reference says
LOST = 0.01  # mismatch over the variance of the scene
LEAST_AT_ONCE = 16  # bursts that are searched for together, or as many as the batch has


def fit_motion(
    burst: Burst, start_px: Tensor, kept: Tensor, scale: int, rough: Tensor | None = None
) -> Fit:
    """Shifts, gains, spectrum and model mismatch of a batch, at the highest peak that is found.

    Frames that do not belong are left out as a fit finds them; `lost` looks after them better.
    """
    task = Task(burst, start_px, kept, scale, rough=rough)
    return highest_peak(task, task.settled())


def highest_peak(task: Task, fit: Fit) -> Fit:
    """A fit with those of its bursts that may be at a wrong peak fitted again, if at a higher one.

    Where all is lost, images are grown from more frames. What different days changed no peak
    explains: none is looked for.
    """
    if task.burst.days:
        return fit
    # not where frames were left out: a search that doubts nothing would give in to them
    whole = (fit.kept == task.kept).all(1)
    index = (doubtful(task, fit) & whole).nonzero()[:, 0]
    if not len(index):
        return fit
    most = at_once(task)
    (grown_px,) = _grown(task.part(index), (0,), most)
    doubted = ~_confirmed(task.part(index), fit.part(index), grown_px)
    index, grown_px = index[doubted], grown_px[doubted]
    for anchors in ANCHORS:
        enough = task.kept[index].sum(1) > anchors[0]
        index, grown_px = index[enough], grown_px[enough]
        if not len(index):
            break
        part = task.part(index)
        again, better = _higher_peak(part, fit.part(index), grown_px, anchors, most)
        fit = fit.with_part(index[better], again)
        lost = _lost(part, fit.part(index))
        index, grown_px = index[lost], grown_px[lost]
    return fit


def doubtful(task: Task, fit: Fit) -> Tensor:
    """The bursts of a fit that may be at a wrong peak, (B,) bool.

    They are not explained, or hardly know where they are. Few frames also if they ended far
    from where they began, or are no more than there are aliases: those leave no mismatch,
    wherever they are.
    """
    count = task.kept.sum(1)
    var = fit.covariance.diagonal(dim1=1, dim2=2).unflatten(1, (-1, 3))[..., :2]
    unsure = var.sum(-1).amax(1).sqrt() > UNSURE_PX
    moved_px = ((fit.flow_px - task.start_px) * task.kept[..., None]).norm(dim=2).amax(1)
    freely = task.few() & ((moved_px > FAR_PX) | (count <= task.scale**2))
    return ((fit.mismatch > negligible(task)) | unsure | freely) & (count > 1)


def _confirmed(task: Task, fit: Fit, places_px: Tensor) -> Tensor:
    """Bursts that leave nothing unexplained and whose frames are at these places, (B,) bool.

    Not few frames: their peaks lie closer together than such places are exact.
    """
    apart_px = ((fit.flow_px - places_px) * task.kept[..., None]).norm(dim=2).amax(1)
    return (apart_px < ALIKE_PX) & (fit.mismatch <= negligible(task)) & ~task.few()


def _lost(task: Task, fit: Fit) -> Tensor:
    """Bursts whose frames do not show one scene where a fit has them, (B,) bool.

    An image of few frames can show much: they should leave nothing at all unexplained.
    """
    basis = folded_basis(task.burst.shape, task.scale, fit.knots.device)
    variance = spectrum_at(fit.knots, basis).mean((1, 2, 3))
    little = task.few() & (fit.mismatch > negligible(task))
    return little | (fit.mismatch > LOST * variance)


def negligible(task: Task) -> Tensor:
    """The mismatch that is as good as none, (B,)."""
    return NEGLIGIBLE * usual_noise_var(task.burst)


def at_once(task: Task) -> int:
    """How many searches to make together, for the memory that the batch takes anyway."""
    return max(len(task.kept), LEAST_AT_ONCE)


def _higher_peak(
    task: Task, fit: Fit, grown_px: Tensor, anchors: tuple[int, ...], most: int
) -> tuple[Fit, Tensor]:
    """Fits at likelier peaks than those of a fit, and which bursts they are for (n,).

    Searched for from many `starts`, so many together. Shifts and gains are all that is doubted: a
    mismatch, growing with what is wrong, excuses any peak. The fit from the highest counts if it
    explains more: with the wrong model other peaks are no better.
    """
    begun = list(starts(task, fit, grown_px, anchors, most))
    places_px = torch.stack([start_px for start_px, _, _ in begun])  # (S, B, N, 2)
    off = torch.stack([first_jitter(px, task.belief, off_px) for px, off_px, _ in begun])
    energy = torch.full_like(off, torch.inf)  # (S, B)
    for which in torch.stack([whose for *_, whose in begun]).nonzero().split(most):
        number, whose = which.unbind(1)
        part = task.part(whose)
        search = part.search(places_px[number, whose])
        for count in range(task.steps):
            search.jitter_px = off[number, whose] / 2**count
            search.look()
            search.step(moving=True)
        places_px[number, whose] = search.flow_px
        energy[number, whose] = energy_at(part, fit.part(whose), search.flow_px, search.gain)
    least, number = energy.min(0)
    likelier = least < energy_at(task, fit, fit.flow_px, fit.gain) - CLEARLY
    found_px = places_px[number, torch.arange(len(number), device=number.device)]
    best_px = torch.where(likelier[:, None, None], found_px, fit.flow_px)
    apart_px = (best_px - fit.flow_px).abs().amax(2) * task.kept
    index = (apart_px.amax(1) > ELSEWHERE_PX).nonzero()[:, 0]
    if not len(index):
        return fit.part(index), index
    there = dataclasses.replace(task.part(index), start_px=best_px[index])
    again = there.fit(PEAK_JITTER_PX)
    old = fit.part(index)
    explained = again.mismatch <= torch.maximum(EXPLAINED * old.mismatch, negligible(there))
    better = (explained & (again.kept == old.kept).all(1)).nonzero()[:, 0]
    return again.part(better), index[better]


def starts(
    task: Task, fit: Fit, grown_px: Tensor, anchors: tuple[int, ...], most: int
) -> Iterator[tuple[Tensor, float, Tensor]]:
    """Translations from which other peaks may be found, by how much they may be off, px, and
    the bursts that they are for, (B,) bool."""
    few = task.few()
    everyone = torch.ones_like(few)
    count = task.kept.sum(1)
    there = tuple(anchor for anchor in anchors if bool((count > anchor).any()))
    for anchor, places_px in zip(there, _grown(task, there, most), strict=True):
        yield places_px, FIRST_JITTER_PX, count > anchor
    if anchors != ANCHORS[0]:
        return
    yield task.start_px, PEAK_JITTER_PX, everyone
    yield fit.flow_px, PEAK_JITTER_PX, everyone
    yield grown_px, FIRST_JITTER_PX, everyone
    if not bool(few.any()):
        return
    paired_px = paired_places(task.burst, task.start_px, task.kept, task.scale, task.belong)
    generator = torch.Generator().manual_seed(0)
    for _ in range(SCATTERED):
        off_px = SCATTER_PX * torch.randn(task.start_px.shape[1:], generator=generator)
        off_px[0] = 0
        yield paired_px + off_px.to(paired_px) * task.kept[..., None], FIRST_JITTER_PX, few


def _grown(task: Task, anchors: tuple[int, ...], most: int) -> Tensor:
    """As `grown_places`, from several frames of each burst, (len(anchors), B, N, 2)."""
    number = torch.arange(len(anchors) * len(task.kept), device=task.kept.device)
    anchor = torch.tensor(anchors, device=number.device)
    found = []
    for some in number.split(most):
        part = task.part(some % len(task.kept))
        first = anchor[some // len(task.kept)]
        given = (part.burst, part.start_px, part.kept, task.scale, first, task.belong)
        found.append(grown_places(*given))
    return torch.cat(found).unflatten(0, (len(anchors), -1))


def energy_at(task: Task, fit: Fit, flow_px: Tensor, gain: Tensor) -> Tensor:
    """Minus twice the log posterior of shifts and gains without any mismatch, (B,).

    Under the windows of the fit, and with a spectrum that has settled as far as that of others.
    """
    search = Search(task.burst, fit.flow_px, task.kept, task.scale, task.belief, gain, task.belong)
    search.flow_px, search.knots = flow_px, fit.knots
    search.look()
    search.grow_into_masks(MASKED_LOOKS)
    for _ in range(LOOKS):
        search.look()
    return search.energy().nan_to_num(torch.inf)
