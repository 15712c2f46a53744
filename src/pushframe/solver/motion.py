"""Motion, gains and prior of a burst by maximum marginal likelihood, in Fourier space.

The image is integrated out: with covariance `C = sum_k h_k S_k h_k' + noise` of the frames at a
low-res frequency, `v' C^-1 v + log det C` is minimised over the shifts inside `h`, the gains of
the frames and the spectrum `S`. The determinant matters: the energy alone prefers shifts that
let the image explain noise, and with few frames it drives them away from the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..burst import Burst
from ..filters import tukey
from ..forward import per_axis
from ..gaussian import folded_basis, weighted_mean
from ..noise import frame_noise_var
from ..prior import fit_spectrum, power_law, spectrum_at
from ..spectral import (
    AliasBlocks,
    axis_frequencies,
    half_weight,
    image_frequencies,
    power_of,
    transfer,
)
from .mismatch import freedom, model_mismatch
from .outliers import disagreeing_pixels

TAPER = 1 / 8  # share of the frame's width over which the window falls to zero, at each side
FIRST_JITTER_PX = 0.05  # what the start may be off; halved at each step
LARGEST_STEP_PX = 0.25
CONVERGED = 5e-4  # px, or share of a gain
LOOKS = 6  # after which the spectrum of known motion has settled
MASKED_LOOKS = 6  # in which the image grows into masked pixels, before anything else is judged
GAIN_STD = 0.03  # what a stated exposure may be off, before the burst has told
LEAST_GAIN_STD = 3e-4
SETTLED = 3  # steps after which residuals tell of the model, not of the motion
MAX_OUTLIERS = 0.3  # share of a frame's pixels beyond which the frame itself is the outlier
MAX_SURPRISE = 4.0  # squared residuals over their expectation, against the usual frame's


@dataclass(frozen=True)
class Fit:
    """What is known of a batch of bursts besides their images.

    flow_px: (B, N, 2). gain: (B, N) true over stated exposure, the reference's as the unit.
    covariance: (B, 3N, 3N) of each frame's (dy, dx, gain), zero where nothing was estimated.
    knots: (B, KNOTS) log power of the image. mismatch: (B,) variance that the model leaves.
    outlier: (B, N, H, W) pixels that disagree with the other frames. kept: (B, N) frames used.
    """

    flow_px: Tensor
    gain: Tensor
    covariance: Tensor
    knots: Tensor
    mismatch: Tensor
    outlier: Tensor
    kept: Tensor

    def shift_error_px(self) -> Tensor:
        """The rms error that the covariance states of the kept frames' shifts, (B,)."""
        var = self.covariance.diagonal(dim1=-2, dim2=-1).unflatten(1, (-1, 3))[..., :2].mean(2)
        moving = self.kept.to(var)
        moving[:, 0] = 0
        return ((var * moving).sum(1) / moving.sum(1).clamp(min=1)).sqrt()


def fit_motion(
    burst: Burst, start_px: Tensor, kept: Tensor, scale: int, steps: int = 8, moving: bool = True
) -> Fit:
    """Shifts, gains, spectrum and model mismatch of a batch.

    start_px: (B, N, 2) within some 0.2 px of the truth; kept: (B, N) bool, frames to use. With
    `moving` False the shifts stay as they are and only the rest is fitted. Never worse than its
    start: where the likelihood ended below that of the start, the start is kept.
    """
    search = _Search(burst, start_px, kept, scale)
    for _ in range(1 if bool(burst.valid.all()) else MASKED_LOOKS):
        search.look()
    for count in range(steps):
        search.jitter_px = FIRST_JITTER_PX / 2**count if moving else 0.0
        search.look()
        changed = search.step(moving)
        if count >= SETTLED:
            search.learn_gain_std()
            search.budget()
        if count > SETTLED and changed < CONVERGED:
            break
    search.jitter_px = 0.0
    search.look()
    search.budget()
    search.expel()
    search.look()
    search.step(moving)
    search.look()
    if moving:
        search.keep_the_better(start_px)
    return Fit(
        search.flow_px,
        search.gain,
        search.covariance(moving),
        search.knots,
        search.mismatch,
        search.outlier,
        search.kept,
    )


def spectrum_of_translations(burst: Burst, flow_px: Tensor, gain: Tensor, scale: int) -> Tensor:
    """Log power at the knots, (B, KNOTS), of the image of a burst whose motion is known."""
    search = _Search(burst, flow_px, burst.valid.any(-1).any(-1), scale, gain)
    for _ in range(LOOKS):
        search.look()
    return search.knots


class _Search:
    """The unknowns of a batch and the posterior of its images under them."""

    def __init__(
        self, burst: Burst, flow_px: Tensor, kept: Tensor, scale: int, gain: Tensor | None = None
    ) -> None:
        self.burst, self.flow_px, self.scale = burst, flow_px, scale
        self.kept = kept & burst.valid.any(-1).any(-1)
        self.noise_var = frame_noise_var(burst)
        self.noise = _frame_mean(self.noise_var, burst.valid | ~self.kept[..., None, None])
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
        self.counted_basis = (self.basis * self.count[:, None]).flatten(0, -2)
        place = torch.arange(burst.count, device=flow_px.device)[:, None]
        self.unknown = (place > 0).expand(-1, 3)  # not those of the reference
        self.unknown_gain = self.unknown & (torch.arange(3, device=flow_px.device) == 2)
        self.gain = torch.ones_like(self.noise) if gain is None else gain
        self.mismatch = torch.zeros_like(self.noise[:, 0])
        self.outlier = torch.zeros_like(burst.valid)
        self.gain_std = torch.full_like(self.mismatch, GAIN_STD)
        self.jitter_px = 0.0
        self.image: Tensor = None  # type: ignore[assignment]  # until the first look
        self.placed_px: Tensor | None = None  # the shifts that `see` and `window` are for
        weight = self._set_level()
        spread = weighted_mean((burst.frames - self.level) ** 2, weight)
        signal = (spread - weighted_mean(self.noise_var, weight)).clamp(min=1e-10)
        self.knots = self.first_knots = power_law(signal[:, 0, 0, 0])

    def _set_level(self) -> Tensor:
        weight = self.burst.valid * self.kept[..., None, None] / self.noise_var
        self.level = weighted_mean(self.burst.frames / self.gain[..., None, None], weight)
        return weight

    def _place(self) -> None:
        """What follows from the shifts alone."""
        self.placed_px = self.flow_px
        self.see = transfer(self.flow_px, self.burst.shape, self.scale)
        self.window = _moving_window(self.burst.shape, self.flow_px)
        if self.image is not None:
            self.predicted = self.see.predict(self.image)

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
        self.predicted = self.see.predict(self.image)
        spread = self.blocks.covariance.diagonal(dim1=1, dim2=2).real.movedim(-1, 1)
        power, known = power_of(self.image), (1 - spread / prior).clamp(min=0)
        self.knots = fit_spectrum(power.flatten(1), known.flatten(1), self.counted_basis)

    def _jitter_var(self, prior: Tensor) -> Tensor:
        """Variance that a shift of `jitter_px` adds to a frame, mean over frequencies, (B, 1).

        A frame that may be off says less. As seen through the aliases this varies little with
        frequency; one number a burst keeps the noise white.
        """
        slope = (prior.flatten(1) @ self.steep.flatten())[:, None]
        return (self.jitter_px / self.scale) ** 2 * slope

    def _observed(self) -> Tensor:
        """The windowed frames less the image's level, (B, N, H, W)."""
        return self.window * (self.burst.frames / self.gain[..., None, None] - self.level)

    def _believed(self) -> Tensor:
        """The same, with the image's own prediction in place of pixels not to be believed."""
        doubtful = ~self.burst.valid | self.outlier
        if self.image is None:  # what the other frames show about there
            weight = self.burst.valid * self.kept[..., None, None] / self.noise_var
            total = weight.sum(1, keepdim=True)
            others = (weight * self.burst.frames).sum(1, keepdim=True) / total.clamp(min=1e-30)
            others = torch.where(total > 0, others, self.level)
            return torch.where(doubtful, self.window * (others - self.level), self._observed())
        return torch.where(doubtful, self._predicted(), self._observed())

    def _predicted(self) -> Tensor:
        """What the image says that the windowed frames are, (B, N, H, W)."""
        return torch.fft.irfft2(self.predicted, s=self.burst.shape, norm="ortho")

    def step(self, moving: bool) -> float:
        """One step of Fisher scoring on shifts and gains; without `moving` on gains alone.

        Returns the largest change of a shift, px, or of a gain.
        """
        free = self._free(moving)
        changes = self._changes()
        slope = (self._slope(changes) * free).double()
        self.information = self.blocks.information(changes, self.count, every=2)
        system = self._pinned(self.information, free)
        change = torch.linalg.solve_ex(system, slope[..., None]).result[..., 0].to(self.gain)
        change = change.unflatten(1, (-1, 3))
        if moving:
            shift_px = change[..., :2].clamp(-LARGEST_STEP_PX, LARGEST_STEP_PX)
            self.flow_px = self.flow_px + shift_px
        self.gain = self.gain * (1 + change[..., 2].clamp(-GAIN_STD, GAIN_STD))
        self._set_level()
        return float(change.abs().max())

    def _changes(self) -> Tensor:
        """How each frame's spectrum answers to its shift (dy, dx) and gain, (B, N, 3, a, c)."""
        down, right = (self.see.predict(turn * self.image) for turn in self.folded_turn)
        whole = self.predicted + _spectra(self.window * self.level)
        return torch.stack([down, right, whole], 2)

    def _slope(self, changes: Tensor) -> Tensor:
        """Derivative of the log likelihood in shifts and gains, (B, 3N)."""
        residual = self.data - self.predicted
        energy = _real_product(changes, residual[:, :, None]) * self.count
        slope = energy.sum((-1, -2)) * self.precision[..., None]
        # the determinant grows with shifts and gains too
        slope = slope - self.blocks.determinant_slope(self.count, self.turn)
        slope[..., 2] -= (self.gain - 1) / self.gain_std[:, None] ** 2
        return slope.flatten(1)

    def _free(self, moving: bool) -> Tensor:
        """Which of the 3N components are unknown, (B, 3N) bool."""
        unknown = self.unknown if moving else self.unknown_gain
        return (self.kept[..., None] & unknown).flatten(1)

    def _pinned(self, information: Tensor, free: Tensor) -> Tensor:
        """The information, float64, with known components taken out and a trace of damping."""
        system = torch.where(free[:, :, None] & free[:, None], information, 0).double()
        diagonal = system.diagonal(dim1=-2, dim2=-1)
        doubt = torch.where(free, 1e-4 * diagonal + 1e-6, 1)
        doubt[:, 2::3] += free[:, 2::3] * self.gain_std[:, None].double() ** -2
        diagonal += doubt
        return system

    def covariance(self, moving: bool) -> Tensor:
        """Covariance of shifts and gains, (B, 3N, 3N), zero where nothing was estimated.

        From the information of the last step.
        """
        free = self._free(moving)
        # a window leaves fewer independent frequencies than there are pixels
        share = 1 / self.window.pow(4).mean((1, 2, 3))[:, None, None]
        system = self._pinned(self.information * share, free)
        covariance = torch.linalg.inv_ex(system).inverse
        return torch.where(free[:, :, None] & free[:, None], covariance, 0).to(self.gain)

    def learn_gain_std(self) -> None:
        """How far exposures are off in this burst: the gains' spread beyond their own errors."""
        var = self.covariance(moving=False).diagonal(dim1=-2, dim2=-1)[:, 2::3]
        used = self.kept.to(var)
        used[:, 0] = 0
        excess = ((self.gain - 1) ** 2 - var) * used
        spread = excess.sum(1) / used.sum(1).clamp(min=1)
        self.gain_std = spread.clamp(min=LEAST_GAIN_STD**2).sqrt()

    def budget(self) -> None:
        """What the model leaves unexplained becomes variance, what stands out an outlier."""
        inner = self.window > 0.3
        residual = (self._observed() - self._predicted()) / self.window.clamp(min=0.3)
        free = freedom(self.blocks, self.count)
        seen = self.burst.valid & inner & self.kept[..., None, None]
        budget = self.noise_var + self.mismatch[:, None, None, None]
        var = budget * free[..., None, None]
        self.outlier = disagreeing_pixels(residual / var.sqrt(), seen)
        good = seen & ~self.outlier
        counted = budget.masked_fill(~good, torch.inf)
        self.mismatch = model_mismatch(residual, counted, self.noise_var, free)
        self.lost_share = _frame_mean(self.outlier.to(var), self.burst.valid & inner)
        self.surprise = _frame_mean(residual**2 / var, good)

    def expel(self) -> None:
        """Leave frames out that are mostly outliers, or whose residuals surprise."""
        usual = self.surprise.masked_fill(~self.kept, torch.nan).nanmedian(1, keepdim=True).values
        lost = (self.lost_share > MAX_OUTLIERS) | (
            self.surprise > MAX_SURPRISE * usual.clamp(min=1)
        )
        lost[:, 0] = False
        self.kept = self.kept & ~lost

    def keep_the_better(self, start_px: Tensor) -> None:
        """Return to the start where the likelihood there is higher, or the search was lost."""
        found_px, found_gain, found = self.flow_px, self.gain, self.energy()
        self._forget(~torch.isfinite(found))
        self.flow_px, self.gain = start_px, torch.ones_like(self.gain)
        self._set_level()
        self.look()
        better = (found <= self.energy())[:, None]
        self.flow_px = torch.where(better[..., None], found_px, start_px)
        self.gain = torch.where(better, found_gain, self.gain)
        self._set_level()
        self.look()
        self.information = self.blocks.information(self._changes(), self.count)

    def _forget(self, lost: Tensor) -> None:
        """Bursts whose search ended in no numbers, (B,) bool, are as at the beginning."""
        some = lost[:, None]
        self.knots = torch.where(some, self.first_knots, self.knots)
        self.mismatch = torch.where(lost, 0, self.mismatch)
        self.outlier = self.outlier & ~some[..., None, None]
        self.image = torch.where(some[..., None, None], 0, self.image)

    def energy(self) -> Tensor:
        """Minus twice the log marginal likelihood of each burst, up to a constant, (B,)."""
        misfit = power_of(self.data - self.predicted) * self.precision[..., None, None]
        spread = power_of(self.image) / self.prior + self.prior.log()
        total = misfit.sum(1) + spread.sum(1) + self.blocks.log_det
        return (total * self.count).sum((-1, -2))


def _moving_window(shape: tuple[int, int], flow_px: Tensor) -> Tensor:
    """A Tukey window of unit power that moves with the scene, (B, N, H, W).

    A window fixed to the frames would make a shifted scene differ by more than its shift.
    """

    def window(size: int, shift_px: Tensor) -> Tensor:
        axis = tukey(torch.arange(size, device=shift_px.device) + shift_px[..., None], size, TAPER)
        return axis / axis.square().mean(-1, True).sqrt().clamp(min=1e-6)

    tall, wide = per_axis(window, shape, flow_px.movedim(-1, 0))
    return tall[..., :, None] * wide[..., None, :]


def _spectra(frames: Tensor) -> Tensor:
    """Spectra of (B, N, H, W): (B, N, a, c)."""
    return torch.fft.rfft2(frames, norm="ortho")


def _real_product(a: Tensor, b: Tensor) -> Tensor:
    """`Re conj(a) b` of complex numbers."""
    return a.real * b.real + a.imag * b.imag


def _frame_mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean over the chosen pixels of each frame, (B, N)."""
    weight = where.to(values)
    return (values * weight).sum((-1, -2)) / weight.sum((-1, -2)).clamp(min=1)
