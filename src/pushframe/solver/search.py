"""The unknowns of a batch of translated bursts, and the steps that improve them (see `motion`)."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from ..burst import Burst
from ..gaussian import GaussianProblem, folded_basis, weighted_mean
from ..noise import frame_noise_var
from ..prior import counted_basis, fit_spectrum, power_law, spectrum_at, without_directions
from ..spectral import (
    AliasBlocks,
    axis_frequencies,
    half_weight,
    image_frequencies,
    power_of,
    transfer,
)
from .belief import Belief, on_diagonal, unheld
from .judge import frame_mean, judge_residuals
from .mismatch import freedom
from .moving_window import moving_window, unseen_margin, windowed_scene
from .relax import Relaxation

LARGEST_STEP_PX = 0.25
TOLERANCE, ERROR_STD = 2e-4, 0.05  # of the image that tells what a window does
CLOSE_TOLERANCE, CLOSE_ERROR_STD = 2e-6, 0.005  # of the one that gains are read off
GAIN_STD = 0.03  # what a stated exposure may be off, before the burst has told
LEAST_GAIN_STD = 3e-4
# what is found of each burst, and what there was before
FOUND = (
    "flow_px",
    "gain",
    "level",
    "knots",
    "mismatch",
    "outlier",
    "gain_std",
    "image",
    "scene",
    "bias",
)
GIVEN = ("kept", "noise_var", "noise", "jitter_px")


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
    ) -> None:
        self.burst, self.flow_px, self.scale, self.belief = burst, flow_px, scale, belief
        self.kept = kept & burst.valid.any(-1).any(-1)
        self.noise_var = frame_noise_var(burst)
        self.noise = frame_mean(self.noise_var, burst.valid | ~self.kept[..., None, None])
        fy, fx = image_frequencies(burst.shape, scale, flow_px)
        # The derivative of an ideal shift. That of the kernel differs near the Nyquist frequency,
        # where its response, not the scene, changes with the fraction of a pixel; following it
        # gains nothing at many frames and leads astray at few.
        rows, columns = axis_frequencies(burst.shape, scale, flow_px)
        self.turn = (2j * math.pi * scale * rows, 2j * math.pi * scale * columns)  # of each axis
        self.folded_turn = [2j * math.pi * scale * f for f in (fy, fx)]
        self.count = half_weight(burst.shape[1], flow_px)
        share = self.count / (self.count.sum() * burst.shape[0])
        self.steep = (2 * math.pi * scale) ** 2 * (fy**2 + fx**2) / 2 * share
        self.basis = folded_basis(burst.shape, scale, flow_px.device)
        self.counted_basis = counted_basis(self.basis, self.count[:, None])
        place = torch.arange(burst.count, device=flow_px.device)[:, None]
        self.unknown = (place > 0).expand(-1, 3)  # not those of the reference
        self.unknown_gain = self.unknown & (torch.arange(3, device=flow_px.device) == 2)
        if belief is not None:
            self.trust = belief.precision()
            gain = 1 + belief.mean[..., -1] if gain is None else gain
        self.gain = torch.ones_like(self.noise) if gain is None else gain
        self.first_gain = self.gain.clone()
        self.mismatch = torch.zeros_like(self.noise[:, 0])
        self.outlier = torch.zeros_like(burst.valid)
        self.whole, self.judged = bool(burst.valid.all()), False  # until outliers are looked for
        self.gain_std = torch.full_like(self.mismatch, GAIN_STD)
        self.jitter_px = torch.zeros_like(self.mismatch)
        self.image: Tensor = None  # type: ignore[assignment]  # until the first look
        self.arrived = torch.ones_like(self.kept[:, 0])  # bursts that stay where the search ended
        self.adrift = True  # whether all frames may be off the reference together
        self.relaxation = Relaxation()
        self.margin_px = unseen_margin(burst.shape, flow_px * self.kept[..., None])
        self.bias: Tensor | float = 0.0  # of windowed frames, until it is estimated
        self.scene: Tensor | None = None  # likewise
        self.close = False  # whether gains are read off whole frames
        self.gain_slope: Tensor | None = None  # there, for the next step
        self._spectra_seen: Tensor | None = None  # until they are asked for
        self.placed_px: Tensor | None = None  # the shifts that `see` and `window` are for
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
        """What follows from the shifts alone."""
        self.placed_px = self.flow_px
        self.see = transfer(self.flow_px, self.burst.shape, self.scale)
        tall, wide = moving_window(self.burst.shape, self.flow_px, self.margin_px)
        self.window = tall[..., :, None] * wide[..., None, :]
        self.window_waves = (
            torch.fft.fft(tall, norm="ortho")[..., :, None],
            torch.fft.rfft(wide, norm="ortho")[..., None, :],
        )
        self._spectra_seen = None

    def part(self, index: Tensor) -> Search:
        """That of some bursts of the batch, to go on with once windows have been judged."""
        other = copy.copy(self)
        other.burst, other.margin_px = self.burst.part(index), self.margin_px[:, index]
        if self.belief is not None:
            other.belief, other.trust = self.belief.part(index), self.trust[index]
        for name in FOUND + GIVEN:
            value = getattr(self, name)
            setattr(other, name, value[index] if isinstance(value, Tensor) else value)
        other.sums = self.sums[0][index], self.sums[1][index]
        other.relaxation = self.relaxation.part(index)
        return other

    def put_back(self, index: Tensor, part: Search) -> None:
        """What was found for some bursts of the batch."""
        for name in FOUND:
            value = getattr(part, name)
            if isinstance(value, Tensor):
                setattr(self, name, getattr(self, name).index_copy(0, index, value))
        self.relaxation.forget(torch.zeros_like(self.kept[:, 0]).index_fill(0, index, True))

    def take_in(self, joining: Tensor, flow_px: Tensor) -> None:
        """Frames (B, N) bool more to use, at their translations (B, N, 2)."""
        self.flow_px = torch.where(joining[..., None], flow_px, self.flow_px)
        self.kept = self.kept | joining
        self.relaxation.forget(joining.any(1))
        self._set_level()

    def look(self) -> None:
        """The image, and the spectrum that it suggests, for the unknowns as they stand."""
        if self.flow_px is not self.placed_px:
            self._place()
        self.data = _spectra(self._believed())
        prior = self.prior = spectrum_at(self.knots, self.basis)
        noise = self.noise + self.mismatch[:, None] + self._jitter_var(prior)
        self.precision = self.kept / noise
        self.blocks = AliasBlocks(self.see, self.precision, prior)
        self.image = self.blocks.mean(self.data)
        self._spectra_seen = None
        spread = self.blocks.covariance.diagonal(dim1=1, dim2=2).real.movedim(-1, 1)
        power, known = power_of(self.image), (1 - spread / prior).clamp(min=0)
        self.knots = fit_spectrum(
            self.knots, prior.flatten(1), power.flatten(1), known.flatten(1), self.counted_basis
        )
        if self.burst.days:  # what days disagree about repeats with the pixels, along their axes
            self.knots = without_directions(self.knots)

    def grow_into_masks(self, looks: int) -> None:
        """Look again where pixels are masked: the image grows into them. Whole bursts wait."""
        if self.whole:
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
        budget = self.noise_var + self.mismatch[:, None, None, None]
        problem = GaussianProblem(self.flow_px, good / budget, self.knots, self.scale)
        frames = self.burst.frames / self.gain[..., None, None] - self.level
        exact = (CLOSE_TOLERANCE, CLOSE_ERROR_STD) if self.close else (TOLERANCE, ERROR_STD)
        self.scene = problem.solve(frames, self.scene, *exact)
        if self.flow_px is not self.placed_px:
            self._place()
        shown = problem.model.forward(self.scene)
        meant = windowed_scene(problem, self.scene, self.see, self.margin_px)
        self.bias = self.window * shown - meant
        if self.close:
            missed = problem.precision * (frames - shown)
            self.gain_slope = (missed * (shown + self.level)).sum((-1, -2))

    def look_closely(self) -> None:
        """Read gains off whole frames, at each `unbias` from now on, for the step that follows."""
        if not self.close:
            self.close, self.relaxation = True, Relaxation()  # other steps than those before

    def _jitter_var(self, prior: Tensor) -> Tensor:
        """Variance that a shift of `jitter_px` adds to a frame, mean over frequencies, (B, 1).

        A frame that may be off says less. As seen through the aliases this varies little with
        frequency; one number a burst keeps the noise white.
        """
        return self.jitter_px[:, None] ** 2 * self.steepness(prior)

    def steepness(self, prior: Tensor) -> Tensor:
        """Mean squared slope of a frame along an axis, a low-res px, (B, 1)."""
        return (prior.flatten(1) @ self.steep.flatten())[:, None] / self.scale**2

    def restlessness(self) -> Tensor:
        """What the last step wanted to change in the frames, over the noise of them all, (B,).

        Mean squares. Changes of shifts and gains, times the frames' slope and level.
        """
        assert self.relaxation.wanted is not None
        wanted = self.relaxation.wanted.to(self.gain).unflatten(1, (-1, 3))
        shift, gain = wanted[..., :2].square().sum(-1), wanted[..., 2].square()
        changed = shift * self.steepness(self.prior) + gain * self.level[..., 0, 0] ** 2
        return changed.mean(1) * (self.kept / self.noise).sum(1)

    def _observed(self) -> Tensor:
        """The windowed frames less the image's level, (B, N, H, W)."""
        frames = self.burst.frames / self.gain[..., None, None]
        return self.window * (frames - self.level) - self.bias

    def _believed(self) -> Tensor:
        """The same, with the image's own prediction in place of pixels not to be believed."""
        if self.whole and not self.judged:
            return self._observed()
        doubtful = ~self.burst.valid | self.outlier
        if self.image is None:  # what the other frames show about there
            weight = self.burst.valid * self.kept[..., None, None] / self.noise_var
            total = weight.sum(1, keepdim=True)
            others = (weight * self.burst.frames).sum(1, keepdim=True) / total.clamp(min=1e-30)
            others = torch.where(total > 0, others, self.level)
            return torch.where(doubtful, self.window * (others - self.level), self._observed())
        return torch.where(doubtful, self._predicted(), self._observed())

    @property
    def predicted(self) -> Tensor:
        """What the image says that the spectra of the windowed frames are, (B, N, a, c)."""
        if self._spectra_seen is None:
            self._spectra_seen = self.see.predict(self.image)
        return self._spectra_seen

    def _predicted(self) -> Tensor:
        """What the image says that the windowed frames are, (B, N, H, W)."""
        return torch.fft.irfft2(self.predicted, s=self.burst.shape, norm="ortho")

    def step(self, moving: bool) -> None:
        """One step of Fisher scoring on shifts and gains; without `moving` on gains alone."""
        free = self._free(moving)
        changes = self._changes(self.gain_slope is not None)
        slope = ((self._slope(changes) - self._pull()).flatten(1) * free).double()
        self.gain_slope = None  # of what the unknowns were
        self.information = self.blocks.information(changes, self.count, roughly=True)
        system = self._pinned(self.information, free, moving)
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
        whole = self.scene is not None
        self.information = self.blocks.information(self._changes(whole), self.count)

    def _changes(self, whole: bool) -> Tensor:
        """How each frame's spectrum answers to its shift (dy, dx) and gain, (B, N, 3, a, c).

        whole: a gain scales the level as if there were no window. The mean of a whole frame is one
        frequency, and much like the shortest waves of the image.
        """
        down, right = (self.see.predict(turn * self.image) for turn in self.folded_turn)
        if whole:
            scaled = self.predicted.clone()
            scaled[..., 0, 0] += self.level[..., 0, 0] * math.sqrt(math.prod(self.burst.shape))
        else:
            tall, wide = self.window_waves
            scaled = torch.addcmul(self.predicted, self.level * tall, wide)
        return torch.stack([down, right, scaled], 2)

    def _slope(self, changes: Tensor) -> Tensor:
        """Derivative of the log likelihood in shifts and gains, (B, N, 3)."""
        residual = self.data - self.predicted
        counted = torch.view_as_real(residual * self.count).flatten(2)[..., None]
        energy = torch.view_as_real(changes).flatten(3) @ counted
        slope = energy[..., 0] * self.precision[..., None]
        if self.gain_slope is not None:
            slope = torch.cat([slope[..., :2], self.gain_slope[..., None]], -1)
        # the determinant grows with shifts and gains too
        return slope - self.blocks.determinant_slope(self.count, self.turn)

    def _prior_precision(self) -> Tensor:
        """Of what is believed of each frame's shift and gain, (B, N, 3, 3)."""
        if self.belief is not None:
            return self.trust
        still = torch.full_like(self.gain_std, 1e-6)
        doubt = torch.stack([still, still, self.gain_std**-2], -1)
        return torch.diag_embed(doubt)[:, None].expand(*self.gain.shape, 3, 3)

    def _off(self) -> Tensor:
        """Shifts and gains less what is believed of them, (B, N, 3)."""
        centre = 0 if self.belief is None else self.belief.mean
        return torch.cat([self.flow_px, (self.gain - 1)[..., None]], -1) - centre

    def _pull(self) -> Tensor:
        """How the prior holds shifts and gains, (B, N, 3)."""
        return (self._prior_precision() @ self._off()[..., None])[..., 0]

    def _free(self, moving: bool) -> Tensor:
        """Which of the 3N components are unknown, (B, 3N) bool."""
        unknown = self.unknown if moving else self.unknown_gain
        return (self.kept[..., None] & unknown).flatten(1)

    def _pinned(self, information: Tensor, free: Tensor, moving: bool) -> Tensor:
        """The information, float64, with known components taken out and a trace of damping."""
        system = information.double()
        if self.adrift and moving:
            system = self._unheld(system)
        system = system + on_diagonal(self._prior_precision().double())
        system = torch.where(free[:, :, None] & free[:, None], system, 0)
        diagonal = system.diagonal(dim1=-2, dim2=-1)
        diagonal += torch.where(free, 1e-4 * information.diagonal(dim1=-2, dim2=-1), 1)
        return system

    def _unheld(self, information: Tensor) -> Tensor:
        """The information less that of all frames moving together, (B, 3N, 3N)."""
        axes = torch.eye(3, 2, dtype=information.dtype, device=information.device)
        together = axes.repeat(self.kept.shape[1], 1) * self.kept.repeat_interleave(3, 1)[..., None]
        return unheld(information, together)

    def covariance(self, moving: bool) -> Tensor:
        """Covariance of shifts and gains, (B, 3N, 3N), zero where nothing was estimated.

        From the information of the last step, or `weigh`.
        """
        free = self._free(moving)
        system = self._pinned(self.information * self._share(), free, moving)
        covariance = torch.linalg.inv_ex(system).inverse
        return torch.where(free[:, :, None] & free[:, None], covariance, 0).to(self.gain)

    def _share(self) -> Tensor:
        """A window leaves fewer independent frequencies than there are pixels, (B, 1, 1)."""
        return 1 / self.window.pow(4).mean((1, 2, 3))[:, None, None]

    def likelihood(self) -> tuple[Tensor, Tensor]:
        """Information (B, 3N, 3N) and slope (B, N, 3) of shifts and gains, without any prior."""
        share, slope = self._share(), self._slope(self._changes(whole=False))
        if self.scene is not None:  # where the search ended, data pull gains as the prior does
            gain_slope = torch.where(self.arrived[:, None], self._pull()[..., 2], slope[..., 2])
            slope = torch.cat([slope[..., :2], gain_slope[..., None]], -1)
        information = self._unheld(self.information.double()).to(self.information)
        return information * share, slope * share[..., 0, None]

    def learn_gain_std(self) -> None:
        """How far exposures are off in this burst: the gains' spread beyond their own errors."""
        if self.belief is not None:
            return
        var = self.covariance(moving=False).diagonal(dim1=-2, dim2=-1)[:, 2::3]
        used = self.kept.to(var)
        used[:, 0] = 0
        excess = ((self.gain - 1) ** 2 - var) * used
        spread = excess.sum(1) / used.sum(1).clamp(min=1)
        self.gain_std = spread.clamp(min=LEAST_GAIN_STD**2).sqrt()

    def budget(self) -> None:
        """What the model leaves unexplained becomes variance, what stands out an outlier."""
        self.judgement = judge_residuals(
            self._observed() - self._predicted(),
            self.window,
            used=self.burst.valid & self.kept[..., None, None],
            outlier=self.outlier,
            noise_var=self.noise_var,
            mismatch=self.mismatch,
            free=freedom(self.blocks, self.count),
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
        found_px, found_gain, knots, bias = self.flow_px, self.gain, self.knots, self.bias
        if isinstance(bias, Tensor):
            self.bias = 0.0
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
            self.bias = torch.where(better[..., None, None], bias, 0)
        self._set_level()
        self.look()

    def _forget(self, lost: Tensor) -> None:
        """Bursts whose search ended in no numbers, (B,) bool, are as at the beginning."""
        some = lost[:, None]
        self.knots = torch.where(some, self.first_knots, self.knots)
        self.mismatch = torch.where(lost, 0, self.mismatch)
        self.gain_std = torch.where(lost, GAIN_STD, self.gain_std)
        if self.scene is not None:
            self.scene = torch.where(some[..., None], 0, self.scene)
        self.outlier = self.outlier & ~some[..., None, None]
        self.image, self._spectra_seen = torch.where(some[..., None, None], 0, self.image), None

    def energy(self) -> Tensor:
        """Minus twice the log posterior of shifts and gains, up to a constant, (B,)."""
        misfit = power_of(self.data - self.predicted) * self.precision[..., None, None]
        spread = power_of(self.image) / self.prior + self.prior.log()
        total = misfit.sum(1) + spread.sum(1) + self.blocks.log_det
        energy = (total * self.count).sum((-1, -2))
        return energy if self.belief is None else energy + (self._off() * self._pull()).sum((1, 2))

    def improbability(self) -> Tensor:
        """Minus twice the log likelihood of the frames under grid and noise, up to 2 pi, (B,)."""
        frequencies = self.count.sum() * self.burst.shape[0]
        noise = torch.where(self.kept, self.precision, 1).log().sum(1)
        return self.energy() - frequencies * noise


def _spectra(frames: Tensor) -> Tensor:
    """Spectra of (B, N, H, W): (B, N, a, c)."""
    return torch.fft.rfft2(frames, norm="ortho")
