"""Motion, gains and prior of a burst by maximum marginal likelihood, in Fourier space.

The image is integrated out: with covariance `C = sum_k h_k S_k h_k' + noise` of the frames at a
low-res frequency, `v' C^-1 v + log det C` is minimised over the shifts inside `h`, the gains of
the frames and the spectrum `S`. The determinant matters: the energy alone prefers shifts that
let the image explain noise, and with few frames it drives them away from the truth.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..prior import FEW
from .belief import FIRST_JITTER_PX, Belief, first_jitter
from .certainty import covariance, learn_gain_std, likelihood, reference_surprise
from .fit import Fit
from .motion_prior import GAIN_STD
from .relax import Relaxation
from .search import Search

LOOKS = 6  # after which the spectrum of known motion has settled
MASKED_LOOKS = 5  # in which the image grows into masked pixels, before anything else is judged
SETTLED = 3  # steps after which residuals tell of the model, not of the motion
RESTLESS = 0.4  # see `Search.restlessness`; less does not matter
CERTAIN_PX = 0.02  # belief of the motion, from which few steps are left to take


class Pace(NamedTuple):
    """Steps of a search, and more once the motion is nearly known, and with it what windows do."""

    steps: int
    last_steps: int


THOROUGH = Pace(8, 3)
ENOUGH = Pace(5, 3)  # unless bursts are restless after that
HURRIED = Pace(2, 2)  # where the motion is believed for certain
FEW_PACE = Pace(8, 4)  # of few frames, which need all of them
MORE_ROUNDS, MORE_STEPS = 6, 2  # of the restless: little noise takes longer
FEW_MORE_ROUNDS, FEW_MORE_STEPS = 2, 6
FREED_STEPS = 3  # once the reference may be off
# errors, by which the usual frame is off the reference's exposure: to look closely, and for sure
DOUBTED, REFERENCE_OFF = 2.5, 3.0


@dataclass(frozen=True)
class Task:
    """Shifts, gains, spectrum and model mismatch of a batch, to be fitted.

    start_px: (B, N, 2) within some 0.2 px of the truth; kept: (B, N) bool, frames to use. steps: at
    the most. With `moving` False the shifts stay as they are and only the rest is fitted. belief:
    of translations and gains. unbiased: take out what windows do to frames, in a few steps more; it
    matters more to gains than to shifts. belong: the spectrum may rise, as if the frames were known
    to show one scene. rough: (B,) bool, bursts whose exposures were put right, most of them, but
    roughly. Never worse than its start: where the likelihood (with the
    belief, the posterior) ended below that of the start, the start is kept.
    """

    burst: Burst
    start_px: Tensor
    kept: Tensor
    scale: int
    steps: int = THOROUGH.steps
    moving: bool = True
    belief: Belief | None = None
    unbiased: bool = True
    belong: bool = False
    rough: Tensor | None = None

    def part(self, index: Tensor) -> Task:
        """The same for some bursts of the batch."""
        return dataclasses.replace(
            self,
            burst=self.burst.part(index),
            start_px=self.start_px[index],
            kept=self.kept[index],
            belief=None if self.belief is None else self.belief.part(index),
            rough=None if self.rough is None else self.rough[index],
        )

    def search(self, start_px: Tensor) -> Search:
        """A search that has looked once, into masked pixels too."""
        search = Search(
            self.burst, start_px, self.kept, self.scale, self.belief, belong=self.belong
        )
        search.look()
        search.grow_into_masks(MASKED_LOOKS)
        return search

    def few(self) -> Tensor:
        """The bursts of so few frames that their likelihood has several peaks, (B,) bool."""
        return self.kept.sum(1) <= FEW * self.scale**2

    def all_few(self) -> bool:
        """Whether there are no others."""
        return bool(self.few().all())

    def certain(self) -> Tensor:
        """The bursts whose motion is believed for certain, (B,) bool."""
        if self.belief is None or not self.moving:
            return torch.zeros_like(self.kept[:, 0])
        return (self.belief.error_px() * self.kept).amax(1) < CERTAIN_PX

    def settled(self) -> Fit:
        """A fit in no more steps than a burst needs."""
        certain = self.certain()
        if bool((certain == certain[0]).all()):
            return self.fit(FIRST_JITTER_PX, HURRIED if bool(certain[0]) else ENOUGH)
        index = certain.nonzero()[:, 0], (~certain).nonzero()[:, 0]
        fits = [
            self.part(some).fit(FIRST_JITTER_PX, pace)
            for some, pace in zip(index, (HURRIED, ENOUGH), strict=True)
        ]
        return Fit.joined(fits).part(torch.cat(index).argsort())

    def fit(self, jitter_px: float, pace: Pace = THOROUGH) -> Fit:
        """From the start, which may be off by so much.

        Those of few frames are fitted by themselves: nothing depends on the other bursts of a
        batch.
        """
        if self.all_few():
            return self._fit(jitter_px, FEW_PACE)
        fit, index = self._fit(jitter_px, pace), self.few().nonzero()[:, 0]
        return fit.with_part(index, self.part(index).fit(jitter_px)) if len(index) else fit

    def _fit(self, jitter_px: float, pace: Pace) -> Fit:
        search, moving = self.search(self.start_px), self.moving
        jitter = first_jitter(self.start_px, self.belief, jitter_px) * moving
        for count in range(min(pace.steps, self.steps)):
            search.jitter_px = jitter / 2**count
            search.look()
            search.step(moving)
            if count >= SETTLED:
                learn_gain_std(search)
                search.budget()
        search.jitter_px = 0 * jitter
        if self.unbiased:
            search.relaxation = Relaxation()  # another search begins
            self.unwindow(search, pace.last_steps)
            if self.all_few():
                self.settle(search, FEW_MORE_ROUNDS, FEW_MORE_STEPS)
            else:
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
        fit = self._result(search)
        if self.unbiased and self.belief is None and not self.burst.days:
            fit = self.free_reference(search, fit)
        return fit

    def _result(self, search: Search) -> Fit:
        """What a search has found, weighed."""
        return Fit(
            search.flow_px,
            search.gain,
            covariance(search, self.moving),
            search.knots,
            search.mismatch,
            search.outlier,
            search.kept,
            *likelihood(search),
            torch.zeros_like(search.arrived),
            search.motion_prior.reference_std > 0,
            search.whole.scene,
        )

    def unwindow(self, search: Search, steps: int, learning: bool = True) -> None:
        """Steps that take out what windows do to the frames, if that is asked for."""
        for _ in range(steps):
            if self.unbiased:
                search.unbias()
            search.look()
            search.step(self.moving)
            if learning:
                learn_gain_std(search)
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

    def free_reference(self, search: Search, fit: Fit) -> Fit:
        """A fit in which gains may be off together where the frames say so, and it is confirmed.

        By whole frames. Or where gains are known to be right but roughly.
        """
        rough = torch.zeros_like(search.arrived) if self.rough is None else self.rough
        doubt = reference_surprise(search, self.moving)
        index = (((doubt.abs() > DOUBTED) | rough) & search.arrived).nonzero()[:, 0]
        if not len(index):
            return fit
        part, doubt = search.part(index), doubt[index]
        part.motion_prior.forget(torch.ones_like(part.arrived))
        part.look_closely()
        self.freed(part, learning=False)
        found = reference_surprise(part, self.moving) * doubt.sign()
        certain = (found > REFERENCE_OFF) | rough[index]
        if not bool(certain.any()):
            return fit
        part.motion_prior.reference_std = GAIN_STD * certain
        learn_gain_std(part)
        self.freed(part)
        chosen = certain.nonzero()[:, 0]
        return fit.with_part(index[chosen], self._result(part).part(chosen))

    def freed(self, search: Search, learning: bool = True) -> None:
        """A few steps under another prior of the gains, and what the frames tell then."""
        self.unwindow(search, FREED_STEPS, learning)
        search.look()
        search.weigh()


def spectrum_of_translations(burst: Burst, flow_px: Tensor, gain: Tensor, scale: int) -> Tensor:
    """Log power at the knots, (B, TERMS), of the image of a burst whose motion is known."""
    search = Search(burst, flow_px, burst.valid.any(-1).any(-1), scale, gain=gain)
    for _ in range(LOOKS):
        search.look()
    return search.knots
