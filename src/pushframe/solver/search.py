"""The unknowns of a batch of translated bursts, and the steps that improve them (see `motion`)."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..burst import Burst
from ..folding import power_of
from ..gaussian import GaussianProblem, weighted_mean
from ..noise import frame_noise_var
from ..prior import (
    fit_spectrum,
    largest_rise,
    owed_to_spectrum,
    power_law,
    spectrum_at,
    without_directions,
)
from ..spectral import AliasBlocks
from .belief import Belief
from .judge import frame_mean, judge_residuals
from .lattice import Lattice
from .mismatch import freedom
from .motion_prior import GAIN_STD, MotionPrior
from .moving_window import Placed, unseen_margin
from .relax import Relaxation
from .whole_frames import WholeFrames

LARGEST_STEP_PX = 0.25
# what is found of each burst, and what there was before
FOUND = ("flow_px", "gain", "level", "knots", "mismatch", "outlier", "image")
GIVEN = ("kept", "noise_var", "noise", "jitter_px", "arrived")


class Search:
    """The unknowns of a batch and the posterior of its images under them."""

    def __init__(
        self,
        burst: Burst,
        flow_px: Tensor,
        kept: Tensor,
        scale: int,
        belief: Belief | None = None,
        gain: Tensor | None = None,
        belong: bool = False,
    ) -> None:
        self.burst, self.flow_px, self.scale, self.belong = burst, flow_px, scale, belong
        self.kept = kept & burst.valid.any(-1).any(-1)
        self.noise_var = frame_noise_var(burst)
        self.noise = frame_mean(self.noise_var, burst.valid | ~self.kept[..., None, None])
        self.lattice = Lattice(burst.shape, scale, flow_px)
        if gain is None:
            gain = torch.ones_like(self.noise) if belief is None else 1 + belief.mean[..., -1]
        self.gain, self.first_gain = gain, gain.clone()
        self.motion_prior, self.whole = MotionPrior(belief, gain), WholeFrames()
        self.mismatch = torch.zeros_like(self.noise[:, 0])
        self.outlier = torch.zeros_like(burst.valid)
        self.unmasked, self.judged = bool(burst.valid.all()), False  # until outliers are looked for
        self.jitter_px = torch.zeros_like(self.mismatch)
        self.image: Tensor = None  # type: ignore[assignment]  # until the first look
        self.placed: Placed = None  # type: ignore[assignment]  # likewise
        self.arrived = torch.ones_like(self.kept[:, 0])  # bursts that stay where the search ended
        self.relaxation = Relaxation()
        self.margin_px = unseen_margin(burst.shape, flow_px * self.kept[..., None])
        self._spectra_seen: Tensor | None = None  # until they are asked for
        weight = burst.valid / self.noise_var
        # all that the level needs of the frames, for any gain
        self.sums = weight.sum((-1, -2)), (weight * burst.frames).sum((-1, -2))
        self._set_level()
        weight = weight * self.kept[..., None, None]
        spread = weighted_mean((burst.frames - self.level) ** 2, weight)
        signal = (spread - weighted_mean(self.noise_var, weight)).clamp(min=1e-10)
        self.knots = self.first_knots = power_law(signal[:, 0, 0, 0])

    def _set_level(self) -> None:
        """The mean of the kept frames, gains taken out."""
        weight, total = (self.kept * part for part in self.sums)
        level = (total / self.gain).sum(1) / weight.sum(1).clamp(min=1e-30)
        self.level = level[:, None, None, None]

    def _place(self) -> None:
        """What follows from the shifts alone, if they have changed."""
        if self.placed is None or self.placed.flow_px is not self.flow_px:
            self.placed = Placed(self.burst.shape, self.flow_px, self.margin_px, self.scale)
            self._spectra_seen = None

    def part(self, index: Tensor) -> Search:
        """That of some bursts of the batch, to go on with once windows have been judged."""
        other = copy.copy(self)
        other.burst, other.margin_px = self.burst.part(index), self.margin_px[:, index]
        other.sums = self.sums[0][index], self.sums[1][index]
        for name in FOUND + GIVEN:
            setattr(other, name, getattr(self, name)[index])
        other.motion_prior, other.whole = self.motion_prior.part(index), self.whole.part(index)
        other.relaxation = self.relaxation.part(index)
        return other

    def put_back(self, index: Tensor, part: Search) -> None:
        """What was found for some bursts of the batch."""
        for name in FOUND:
            setattr(self, name, getattr(self, name).index_copy(0, index, getattr(part, name)))
        self.motion_prior.put_back(index, part.motion_prior)
        self.whole.put_back(index, part.whole)
        self.relaxation.forget(torch.zeros_like(self.kept[:, 0]).index_fill(0, index, True))

    def take_in(self, joining: Tensor, flow_px: Tensor) -> None:
        """Frames (B, N) bool more to use, at their translations (B, N, 2)."""
        self.flow_px = torch.where(joining[..., None], flow_px, self.flow_px)
        self.kept = self.kept | joining
        self.relaxation.forget(joining.any(1))
        self._set_level()

    def look(self) -> None:
        """The image, and the spectrum that it suggests, for the unknowns as they stand."""
        self._place()
        self.data = torch.fft.rfft2(self._believed(), norm="ortho")  # (B, N, a, c)
        prior = self.prior = spectrum_at(self.knots, self.lattice.basis)
        # A frame that may be off says less. As seen through the aliases this varies little with
        # frequency; one number a burst keeps the noise white.
        jitter_var = self.jitter_px[:, None] ** 2 * self.lattice.steepness(prior)
        noise = self.noise / self.gain**2 + self.mismatch[:, None] + jitter_var
        self.precision = self.kept / noise
        self.blocks = AliasBlocks(self.placed.see, self.precision, prior)
        self.image = self.blocks.mean(self.data)
        self._spectra_seen = None
        spread = self.blocks.covariance.diagonal(dim1=1, dim2=2).real.movedim(-1, 1)
        power, known = power_of(self.image), (1 - spread / prior).clamp(min=0)
        rise = largest_rise(self.kept.sum(1), self.scale, self.burst.days, self.belong)
        counted = self.lattice.counted_basis
        self.knots = fit_spectrum(
            self.knots, prior.flatten(1), power.flatten(1), known.flatten(1), counted, rise
        )
        if self.burst.days:  # what days disagree about repeats with the pixels, along their axes
            self.knots = without_directions(self.knots)

    def grow_into_masks(self, looks: int) -> None:
        """Look again where pixels are masked: the image grows into them. Whole bursts wait."""
        if self.unmasked:
            return
        masked = ~self.burst.valid.flatten(1).all(1, keepdim=True)
        first = self.knots
        for _ in range(looks):
            self.look()
        self.knots = torch.where(masked, self.knots, first)

    def unbias(self) -> None:
        """Take out of the frames what the window does to them, by what it does to an image.

        The image is solved without a window, as the frames were made. A close one shows what is
        wrong with the gains, too.
        """
        good = self.burst.valid & ~self.outlier & self.kept[..., None, None]
        budget = self._noise_var() + self.mismatch[:, None, None, None]
        problem = GaussianProblem(self.flow_px, good / budget, self.knots, self.scale)
        frames = self.burst.frames / self.gain[..., None, None] - self.level
        self._place()
        self.whole.solve(problem, frames, self.level, self.placed)

    def look_closely(self) -> None:
        """Read gains off whole frames, at each `unbias` from now on, for the step that follows."""
        if not self.whole.close:
            self.whole.close, self.relaxation = True, Relaxation()  # other steps than those before

    def restlessness(self) -> Tensor:
        """What the last step wanted to change in the frames, over the noise of them all, (B,).

        Mean squares. Changes of shifts and gains, times the frames' slope and level.
        """
        assert self.relaxation.wanted is not None
        wanted = self.relaxation.wanted.to(self.gain).unflatten(1, (-1, 3))
        shift, gain = wanted[..., :2].square().sum(-1), wanted[..., 2].square()
        changed = shift * self.lattice.steepness(self.prior) + gain * self.level[..., 0, 0] ** 2
        return changed.mean(1) * (self.kept / self.noise).sum(1)

    def _noise_var(self) -> Tensor:
        """Of the frames, gains taken out, (B, N, H, W)."""
        return self.noise_var / self.gain[..., None, None] ** 2

    def _observed(self) -> Tensor:
        """The windowed frames less the image's level, (B, N, H, W)."""
        frames = self.burst.frames / self.gain[..., None, None]
        return self.placed.window * (frames - self.level) - self.whole.bias

    def _believed(self) -> Tensor:
        """The same, with the image's own prediction in place of pixels not to be believed."""
        if self.unmasked and not self.judged:
            return self._observed()
        doubtful = ~self.burst.valid | self.outlier
        if self.image is None:  # what the other frames show about there
            weight = self.burst.valid * self.kept[..., None, None] / self.noise_var
            total = weight.sum(1, keepdim=True)
            others = (weight * self.burst.frames).sum(1, keepdim=True) / total.clamp(min=1e-30)
            others = torch.where(total > 0, others, self.level)
            filled = self.placed.window * (others - self.level)
            return torch.where(doubtful, filled, self._observed())
        return torch.where(doubtful, self._predicted(), self._observed())

    @property
    def predicted(self) -> Tensor:
        """What the image says that the spectra of the windowed frames are, (B, N, a, c)."""
        if self._spectra_seen is None:
            self._spectra_seen = self.placed.see.predict(self.image)
        return self._spectra_seen

    def _predicted(self) -> Tensor:
        """What the image says that the windowed frames are, (B, N, H, W)."""
        return torch.fft.irfft2(self.predicted, s=self.burst.shape, norm="ortho")

    def step(self, moving: bool) -> None:
        """One step of Fisher scoring on shifts and gains; without `moving` on gains alone."""
        free = self.motion_prior.free(self.kept, moving)
        changes = self.changes(self.whole.gain_slope is not None)
        pull = self.motion_prior.pull(self.flow_px, self.gain, self.kept)
        slope = ((self.slope(changes) - pull).flatten(1) * free).double()
        self.whole.gain_slope = None  # of what the unknowns were
        self.information = self.blocks.information(changes, self.lattice.count, roughly=True)
        system = self.motion_prior.system(self.information, self.kept, free, moving)
        wanted = torch.linalg.solve_ex(system, slope[..., None]).result[..., 0]
        change = self.relaxation.taken(wanted, system).to(self.gain).unflatten(1, (-1, 3))
        largest = change.new_tensor([LARGEST_STEP_PX, LARGEST_STEP_PX, GAIN_STD])
        bounded = change.clamp(-largest, largest)
        if moving:
            self.flow_px = self.flow_px + bounded[..., :2]
        self.gain = self.gain * (1 + bounded[..., 2])
        self._set_level()

    def weigh(self) -> None:
        """What the frames tell of shifts and gains, where the search last looked."""
        changes = self.changes(self.whole.scene is not None)
        self.information = self.blocks.information(changes, self.lattice.count)

    def changes(self, whole: bool) -> Tensor:
        """How each frame's spectrum answers to its shift (dy, dx) and gain, (B, N, 3, a, c).

        whole: a gain scales the level as if there were no window. The mean of a whole frame is one
        frequency, and much like the shortest waves of the image.
        """
        see, turns = self.placed.see, self.lattice.folded_turn
        down, right = (see.predict(turn * self.image) for turn in turns)
        if whole:
            scaled = self.predicted.clone()
            scaled[..., 0, 0] += self.level[..., 0, 0] * math.sqrt(math.prod(self.burst.shape))
        else:
            tall, wide = self.placed.waves
            scaled = torch.addcmul(self.predicted, self.level * tall, wide)
        return torch.stack([down, right, scaled], 2)

    def slope(self, changes: Tensor) -> Tensor:
        """Derivative of the log likelihood in shifts and gains, (B, N, 3).

        Less what a spectrum that is off adds to that of gains.
        """
        residual = self.data - self.predicted
        counted = torch.view_as_real(residual * self.lattice.count).flatten(2)[..., None]
        explained = torch.view_as_real(changes).flatten(3) @ counted
        slope = explained[..., 0] * self.precision[..., None]
        if self.whole.gain_slope is not None:
            slope = torch.cat([slope[..., :2], self.whole.gain_slope[..., None]], -1)
        # the determinant grows with shifts and gains too
        shifted = self.lattice.shifted(self.placed.see)
        grown = self.blocks.determinant_slope(self.lattice.count, shifted)
        energy = self.whole.energy
        if self.whole.gain_slope is None or energy is None:
            energy = (power_of(self.image) / self.prior * self.lattice.count).sum((1, 2, 3))
        owed = owed_to_spectrum(energy, grown[..., 2])
        return slope - grown - F.pad(owed[..., None], [2, 0])

    def budget(self) -> None:
        """What the model leaves unexplained becomes variance, what stands out an outlier."""
        self.judgement = judge_residuals(
            self._observed() - self._predicted(),
            self.placed.window,
            used=self.burst.valid & self.kept[..., None, None],
            outlier=self.outlier,
            noise_var=self._noise_var(),
            mismatch=self.mismatch,
            free=freedom(self.blocks, self.lattice.count),
            days=self.burst.days,
        )
        self.outlier, self.mismatch = self.judgement.outlier, self.judgement.mismatch
        self.judged = True

    def expel(self) -> Tensor:
        """Leave frames out that do not belong, as judged at the last `budget`.

        Returns the bursts that lost frames, (B,) bool.
        """
        kept = self.judgement.belonging(self.kept)
        poorer = (kept != self.kept).any(1)
        self.relaxation.forget(poorer)
        self.kept = kept
        self._set_level()
        return poorer

    def keep_the_better(self, start_px: Tensor) -> None:
        """Return to the start where the likelihood there is higher, or the search was lost.

        Of frames as windows left them: what is known of that is known at the place found.
        """
        found_px, found_gain, knots, bias = self.flow_px, self.gain, self.knots, self.whole.bias
        if isinstance(bias, Tensor):
            self.whole.bias = 0.0
            self.look()
        found = self.energy()
        lost = ~torch.isfinite(found)
        self._forget(lost)
        self.flow_px, self.gain = start_px, self.first_gain
        self._set_level()
        self.look()
        self.arrived = found <= self.energy()
        better = self.arrived[:, None]
        self.flow_px = torch.where(better[..., None], found_px, start_px)
        self.gain = torch.where(better, found_gain, self.gain)
        self.knots = torch.where(lost[:, None], self.first_knots, knots)
        if isinstance(bias, Tensor):
            self.whole.bias = torch.where(better[..., None, None], bias, 0)
        self._set_level()
        self.look()

    def _forget(self, lost: Tensor) -> None:
        """Bursts whose search ended in no numbers, (B,) bool, are as at the beginning."""
        some = lost[:, None]
        self.knots = torch.where(some, self.first_knots, self.knots)
        self.mismatch = torch.where(lost, 0, self.mismatch)
        self.motion_prior.forget(lost)
        self.whole.forget(lost)
        self.outlier = self.outlier & ~some[..., None, None]
        self.image, self._spectra_seen = torch.where(some[..., None, None], 0, self.image), None

    def energy(self) -> Tensor:
        """Minus twice the log posterior of shifts and gains, up to a constant, (B,)."""
        misfit = power_of(self.data - self.predicted) * self.precision[..., None, None]
        spread = power_of(self.image) / self.prior + self.prior.log()
        total = misfit.sum(1) + spread.sum(1) + self.blocks.log_det
        energy = (total * self.lattice.count).sum((-1, -2))
        if self.motion_prior.belief is None:
            return energy
        return energy + self.motion_prior.energy(self.flow_px, self.gain, self.kept)

    def improbability(self) -> Tensor:
        """Minus twice the log likelihood of the frames under grid and noise, up to 2 pi, (B,)."""
        frequencies = self.lattice.count.sum() * self.burst.shape[0]
        noise = torch.where(self.kept, self.precision, 1).log().sum(1)
        return self.energy() - frequencies * noise
