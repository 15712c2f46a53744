"""Motion, gains and prior of a burst by maximum marginal likelihood, in Fourier space.

The image is integrated out: with covariance `C = sum_k h_k S_k h_k' + noise` of the frames at a
low-res frequency, `v' C^-1 v + log det C` is minimised over the shifts inside `h`, the gains of
the frames and the spectrum `S`. The determinant matters: the energy alone prefers shifts that
let the image explain noise, and with few frames it drives them away from the truth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..burst import Burst
from ..gaussian import folded_basis
from ..noise import usual_noise_var
from ..prior import spectrum_at
from .belief import FIRST_JITTER_PX, Belief, first_jitter
from .fit import Fit
from .grow import grown_places, paired_places
from .relax import Relaxation
from .search import Search

LOOKS = 6  # after which the spectrum of known motion has settled
MASKED_LOOKS = 5  # in which the image grows into masked pixels, before anything else is judged
SETTLED = 3  # steps after which residuals tell of the model, not of the motion
STEPS = 8
ENOUGH_STEPS = 5  # of many frames, unless they are restless after that
RESTLESS = 0.4  # see `Search.restlessness`; less does not matter
LAST_STEPS = 3  # once the motion is nearly known, and with it what windows do to the frames
MORE_ROUNDS, MORE_STEPS = 6, 2  # of the restless: little noise takes longer
# the same of few frames
FEW_LAST_STEPS = 4
FEW_MORE_ROUNDS, FEW_MORE_STEPS = 2, 6
FEW = 2  # frames an alias, up to which a likelihood has several peaks
PEAK_JITTER_PX = 0.0125  # what the highest of them may be off
CLEARLY = 20.0  # of -2 log likelihood, by which another peak must be higher
UNSURE_PX = 0.02  # stated error, beyond which shifts may be at a wrong one
FAR_PX = 0.1  # from their start, likewise
ELSEWHERE_PX = 0.01  # beyond which it is another one
NEGLIGIBLE = 0.25  # mismatch over the variance of noise, at which no peak is looked for
EXPLAINED = 0.5  # of a mismatch, at most, is left at a better one
# frames that images are grown from, in the order of their noise; the later where all is lost
ANCHORS = ((1,), (2, 3), (4, 5))
ALIKE_PX = 0.15  # within which places grown from the least noisy one confirm a fit
SCATTERED, SCATTER_PX = 8, 0.06  # starts of few frames, about where the reference says
LOST = 0.01  # mismatch over the variance of the scene


def fit_motion(
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    *,
    moving: bool = True,
    belief: Belief | None = None,
) -> Fit:
    """Shifts, gains, spectrum and model mismatch of a batch, at the highest peak that is found.

    As `fit_once` and `highest_peak`.
    """
    fit = fit_once(burst, start_px, kept, scale, moving=moving, belief=belief)
    return highest_peak(fit, burst, start_px, kept, scale, belief) if moving else fit


def fit_once(
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    steps: int = STEPS,
    moving: bool = True,
    belief: Belief | None = None,
    unbiased: bool = True,
) -> Fit:
    """Shifts, gains, spectrum and model mismatch of a batch.

    start_px: (B, N, 2) within some 0.2 px of the truth; kept: (B, N) bool, frames to use. steps: of
    few frames; others have ENOUGH_STEPS at most. With `moving` False the shifts stay
    as they are and only the rest is fitted. belief: of translations and gains. unbiased: take out
    what windows do to frames, in a few steps more; it matters more to gains than to shifts. Never
    worse than its start: where the likelihood (with the belief, the posterior) ended below that of
    the start, the start is kept.
    """
    return _Task(burst, start_px, kept, scale, steps, moving, belief, unbiased).settled()


def highest_peak(
    fit: Fit,
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    belief: Belief | None = None,
) -> Fit:
    """A fit with those of its bursts that may be at a wrong peak fitted again, if at a higher one.

    Few frames have a likelihood of several peaks; with many, pairs of frames may have misled the
    start. Where all is lost, images are grown from more frames.
    """
    task = _Task(burst, start_px, kept, scale, STEPS, True, belief, True)
    # not where frames were left out: a search that doubts nothing would give in to them
    whole = (fit.kept == kept).all(1)
    index = (task.doubtful(fit) & whole).nonzero()[:, 0]
    if not len(index):
        return fit
    grown_px = task.part(index).grown(0)
    doubted = ~task.part(index).confirmed(fit.part(index), grown_px)
    index, grown_px = index[doubted], grown_px[doubted]
    for anchors in ANCHORS:
        if not len(index):
            break
        part = task.part(index)
        again, better = part.higher_peak(fit.part(index), grown_px, anchors)
        fit = fit.with_part(index[better], again)
        lost = part.lost(fit.part(index))
        index, grown_px = index[lost], grown_px[lost]
    return fit


@dataclass(frozen=True)
class _Task:
    """What `fit_once` is given."""

    burst: Burst
    start_px: Tensor
    kept: Tensor
    scale: int
    steps: int
    moving: bool
    belief: Belief | None
    unbiased: bool

    def part(self, index: Tensor) -> _Task:
        """The same for some bursts of the batch."""
        return dataclasses.replace(
            self,
            burst=self.burst.part(index),
            start_px=self.start_px[index],
            kept=self.kept[index],
            belief=None if self.belief is None else self.belief.part(index),
        )

    def search(self, start_px: Tensor) -> Search:
        """A search that has looked once, into masked pixels too."""
        search = Search(self.burst, start_px, self.kept, self.scale, self.belief)
        search.look()
        search.grow_into_masks(MASKED_LOOKS)
        return search

    def few(self) -> Tensor:
        """The bursts of so few frames that their likelihood has several peaks, (B,) bool."""
        return self.kept.sum(1) <= FEW * self.scale**2

    def all_few(self) -> bool:
        """Whether there are no others."""
        return bool(self.few().all())

    def settled(self) -> Fit:
        """A fit in no more steps than a burst needs."""
        if self.all_few():
            return self.fit(FIRST_JITTER_PX)
        fit = dataclasses.replace(self, steps=min(self.steps, ENOUGH_STEPS)).fit(FIRST_JITTER_PX)
        index = self.few().nonzero()[:, 0]
        return fit.with_part(index, self.part(index).fit(FIRST_JITTER_PX)) if len(index) else fit

    def fit(self, jitter_px: float) -> Fit:
        """From the start, which may be off by so much."""
        search, moving = self.search(self.start_px), self.moving
        jitter = first_jitter(self.start_px, self.belief, jitter_px) * moving
        for count in range(self.steps):
            search.jitter_px = jitter / 2**count
            search.look()
            search.step(moving)
            if count >= SETTLED:
                search.learn_gain_std()
                search.budget()
        search.jitter_px = 0 * jitter
        if self.unbiased:
            search.relaxation = Relaxation()  # another search begins
            if self.all_few():
                self.unwindow(search, FEW_LAST_STEPS)
                self.settle(search, FEW_MORE_ROUNDS, FEW_MORE_STEPS)
            else:
                self.unwindow(search, LAST_STEPS)
                self.settle(search, MORE_ROUNDS, MORE_STEPS)
        search.look()
        search.budget()
        poorer = search.expel().nonzero()[:, 0]
        if len(poorer):
            part = search.part(poorer)
            if self.unbiased and not self.all_few():
                part.look_closely()
            self.unwindow(part, 1)
            search.put_back(poorer, part)
        search.look()
        if moving:
            search.keep_the_better(self.start_px)
        search.weigh()
        return Fit(
            search.flow_px,
            search.gain,
            search.covariance(moving),
            search.knots,
            search.mismatch,
            search.outlier,
            search.kept,
            *search.likelihood(),
            search.scene,
        )

    def unwindow(self, search: Search, steps: int) -> None:
        """Steps that take out what windows do to the frames, if that is asked for."""
        for _ in range(steps):
            if self.unbiased:
                search.unbias()
            search.look()
            search.step(self.moving)
            search.learn_gain_std()
            search.budget()

    def settle(self, search: Search, rounds: int, steps: int) -> None:
        """More such steps for the bursts that are restless, in so many rounds at most."""
        index = (~(search.restlessness() <= RESTLESS)).nonzero()[:, 0]
        if not len(index) or not rounds:
            return
        part = search.part(index)
        if not self.all_few():  # they would explain much by gains
            part.look_closely()
        self.unwindow(part, steps)
        self.settle(part, rounds - 1, steps)
        search.put_back(index, part)

    def higher_peak(
        self, fit: Fit, grown_px: Tensor, anchors: tuple[int, ...]
    ) -> tuple[Fit, Tensor]:
        """Fits at likelier peaks than those of a fit, and which bursts they are for (n,).

        Searched for from many `starts`. Shifts and gains are all that is doubted: a mismatch,
        growing with what is wrong, excuses any peak. The fit from the highest counts if it explains
        more: with the wrong model other peaks are no better.
        """
        best_px, least = fit.flow_px, self.energy(fit, fit.flow_px, fit.gain)
        for start_px, off_px, whose in self.starts(fit, grown_px, anchors):
            search = self.search(start_px)
            jitter = first_jitter(start_px, self.belief, off_px)
            for count in range(self.steps):
                search.jitter_px = jitter / 2**count
                search.look()
                search.step(moving=True)
            energy = self.energy(fit, search.flow_px, search.gain)
            likelier = (energy < least - CLEARLY) & whose
            best_px = torch.where(likelier[:, None, None], search.flow_px, best_px)
            least = torch.where(likelier, energy, least)
        apart_px = (best_px - fit.flow_px).abs().amax(2) * self.kept
        index = (apart_px.amax(1) > ELSEWHERE_PX).nonzero()[:, 0]
        if not len(index):
            return fit.part(index), index
        task = dataclasses.replace(self.part(index), start_px=best_px[index])
        again = task.fit(PEAK_JITTER_PX)
        old = fit.part(index)
        explained = again.mismatch <= torch.maximum(EXPLAINED * old.mismatch, task.negligible())
        better = (explained & (again.kept == old.kept).all(1)).nonzero()[:, 0]
        return again.part(better), index[better]

    def doubtful(self, fit: Fit) -> Tensor:
        """The bursts of a fit that may be at a wrong peak, (B,) bool.

        They are not explained, or hardly know where they are. Few frames also if they ended far
        from where they began, or are no more than there are aliases: those leave no mismatch,
        wherever they are.
        """
        count = self.kept.sum(1)
        var = fit.covariance.diagonal(dim1=1, dim2=2).unflatten(1, (-1, 3))[..., :2]
        unsure = var.sum(-1).amax(1).sqrt() > UNSURE_PX
        moved_px = ((fit.flow_px - self.start_px) * self.kept[..., None]).norm(dim=2).amax(1)
        freely = self.few() & ((moved_px > FAR_PX) | (count <= self.scale**2))
        return ((fit.mismatch > self.negligible()) | unsure | freely) & (count > 1)

    def grown(self, anchor: int) -> Tensor:
        """As `grown_places`."""
        return grown_places(self.burst, self.start_px, self.kept, self.scale, anchor)

    def confirmed(self, fit: Fit, places_px: Tensor) -> Tensor:
        """Bursts that leave nothing unexplained and whose frames are at these places, (B,) bool.

        Not few frames: their peaks lie closer together than such places are exact.
        """
        apart_px = ((fit.flow_px - places_px) * self.kept[..., None]).norm(dim=2).amax(1)
        return (apart_px < ALIKE_PX) & (fit.mismatch <= self.negligible()) & ~self.few()

    def lost(self, fit: Fit) -> Tensor:
        """Bursts whose frames do not show one scene where a fit has them, (B,) bool."""
        basis = folded_basis(self.burst.shape, self.scale, fit.knots.device)
        variance = spectrum_at(fit.knots, basis).mean((1, 2, 3))
        return fit.mismatch > LOST * variance

    def negligible(self) -> Tensor:
        """The mismatch that is as good as none, (B,)."""
        return NEGLIGIBLE * usual_noise_var(self.burst)

    def starts(
        self, fit: Fit, grown_px: Tensor, anchors: tuple[int, ...]
    ) -> Iterator[tuple[Tensor, float, Tensor]]:
        """Translations from which other peaks may be found, by how much they may be off, px, and
        the bursts that they are for, (B,) bool."""
        few = self.few()
        everyone = torch.ones_like(few)
        for anchor in anchors:
            yield self.grown(anchor), FIRST_JITTER_PX, everyone
        if anchors != ANCHORS[0]:
            return
        yield self.start_px, PEAK_JITTER_PX, everyone
        yield fit.flow_px, PEAK_JITTER_PX, everyone
        yield grown_px, FIRST_JITTER_PX, everyone
        if not bool(few.any()):
            return
        paired_px = paired_places(self.burst, self.start_px, self.kept, self.scale)
        generator = torch.Generator().manual_seed(0)
        for _ in range(SCATTERED):
            off_px = SCATTER_PX * torch.randn(self.start_px.shape[1:], generator=generator)
            off_px[0] = 0
            yield paired_px + off_px.to(paired_px) * self.kept[..., None], FIRST_JITTER_PX, few

    def energy(self, fit: Fit, flow_px: Tensor, gain: Tensor) -> Tensor:
        """Minus twice the log posterior of shifts and gains without any mismatch, (B,).

        Under the windows of the fit, and with a spectrum that has settled as far as that of others.
        """
        search = Search(self.burst, fit.flow_px, self.kept, self.scale, self.belief, gain)
        search.flow_px, search.knots = flow_px, fit.knots
        search.look()
        search.grow_into_masks(MASKED_LOOKS)
        for _ in range(LOOKS):
            search.look()
        return search.energy().nan_to_num(torch.inf)


def spectrum_of_translations(burst: Burst, flow_px: Tensor, gain: Tensor, scale: int) -> Tensor:
    """Log power at the knots, (B, TERMS), of the image of a burst whose motion is known."""
    search = Search(burst, flow_px, burst.valid.any(-1).any(-1), scale, gain=gain)
    for _ in range(LOOKS):
        search.look()
    return search.knots
