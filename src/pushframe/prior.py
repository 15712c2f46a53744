"""The image's power spectrum, fitted to the burst itself: a smooth radial curve, and directions.

The log power at a frequency is that of the curve there, plus waves of its angle, up to the fourth,
that grow and fade along the radius. Streets, rows and an optic's own axes give a scene directions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .once import made_once

KNOTS = 20  # of the curve
RINGS = (0.125, 0.25, 0.5)  # cycles per high-res px, where the waves have heights of their own
WAVES = 4 * len(RINGS)  # of two and four periods in a circle, cosines and sines
TERMS = KNOTS + WAVES  # that describe a spectrum; called knots for short
WAVE_STD = 0.15  # of heights, in log power, before the burst has told; also the largest step
LOWEST = 1 / 256  # cycles per high-res px
SMOOTHNESS = 30.0  # of log power, against the number of frequencies around a knot
LARGEST_STEP = 3.0  # of log power, at once
ANCHOR = 0.01  # weight of the curve that there was, for scenes that determine no other
LEAST_LOG_POWER = -40.0
LARGEST_RISE = 2.3  # of log power
FEW = 2  # frames an alias, up to which no curve rises and a likelihood has several peaks
MANY = 100.0  # frequencies by which a knot is known well enough to bound those beyond it


def radial_basis(fy: Tensor, fx: Tensor) -> Tensor:
    """Piecewise linear weights of the knots, even in log frequency, (..., KNOTS).

    fy, fx: frequencies in cycles per high-res px.
    """
    radius = torch.sqrt(fy**2 + fx**2).clamp(min=LOWEST)
    top = math.log(math.sqrt(0.5) * 1.0001)
    place = (radius.log() - math.log(LOWEST)) / (top - math.log(LOWEST)) * (KNOTS - 1)
    first = place.floor().long().clamp(max=KNOTS - 2)
    share = (place - first)[..., None]
    one_hot = F.one_hot(first, KNOTS).to(share)
    return one_hot * (1 - share) + one_hot.roll(1, -1) * share


def spectral_basis(fy: Tensor, fx: Tensor) -> Tensor:
    """What the log power at frequencies adds up from, (..., TERMS): knots, then heights of waves.

    fy, fx: as of `radial_basis`. A wave has its height at each ring, less towards the next ones an
    octave away, none below the first by more than that, and keeps it beyond the last. At the
    Nyquist frequency of an axis, where left is right, there are no sines.
    """
    fy, fx = torch.broadcast_tensors(fy, fx)
    octave = torch.sqrt(fy**2 + fx**2).clamp(min=LOWEST).log2()[..., None]
    rings = torch.tensor(RINGS, device=octave.device).log2()
    share = (1 - (octave.clamp(max=math.log2(RINGS[-1])) - rings).abs()).clamp(min=0)
    angle = torch.atan2(fy, fx)[..., None]
    turned = share * (torch.maximum(fy.abs(), fx.abs()) < 0.5)[..., None]
    waves = [
        height * wave(turns * angle)
        for turns in (2, 4)
        for height, wave in ((share, torch.cos), (turned, torch.sin))
    ]
    return torch.cat([radial_basis(fy, fx), *waves], -1)


def counted_basis(basis: Tensor, count: Tensor) -> Tensor:
    """What `fit_spectrum` sums over frequencies: (F, TERMS + WAVES), of a basis (..., TERMS).

    count: (..., 1), how many frequencies each entry stands for.
    """
    return (torch.cat([basis, basis[..., KNOTS:].square()], -1) * count).flatten(0, -2)


def scaled(knots: Tensor, factor: float) -> Tensor:
    """The spectrum of an image of so many times the power."""
    return torch.cat([knots[:, :KNOTS] + math.log(factor), knots[:, KNOTS:]], 1)


def without_directions(knots: Tensor) -> Tensor:
    """The spectrum of the curve alone."""
    return F.pad(knots[:, :KNOTS], [0, WAVES])


@made_once
def _roughness(device: torch.device) -> tuple[Tensor, Tensor]:
    """The quadratic form of second differences of the knots, and the unit matrix."""
    unit = torch.eye(KNOTS, device=device)
    bend = unit[:-2] - 2 * unit[1:-1] + unit[2:]
    return SMOOTHNESS * bend.T @ bend, unit


def fit_spectrum(
    knots: Tensor,
    prior: Tensor,
    power: Tensor,
    known: Tensor,
    counted: Tensor,
    rise: Tensor | float,
) -> Tensor:
    """A better spectrum, (B, TERMS), from the power (B, F) of a posterior mean.

    knots, prior: those that the mean was found with, prior (B, F) at its frequencies. known: (B, F)
    how far the data determine each, `1 - posterior / prior variance`; the mean of a right prior
    shows just that share of it. counted: (F, TERMS + WAVES), see `counted_basis`. rise: how far the
    curve may rise, (B, 1) or one number, see `largest_rise`.
    """
    shown = known * prior
    sums = torch.stack([shown, known * shown, known.square(), power, power / prior - known])
    of_curve, of_waves, of_squares = (sums @ counted).split([KNOTS, WAVES, WAVES], -1)
    curve, height = knots[:, :KNOTS], knots[:, KNOTS:]
    # a step of Fisher scoring, each height by itself: over a circle the waves are orthogonal, in
    # the corners and between rings nearly so
    slope = of_waves[4] - height / WAVE_STD**2
    change = (slope / (of_squares[2] + WAVE_STD**-2)).clamp(-WAVE_STD, WAVE_STD)
    return torch.cat([_better_curve(curve, of_curve[:4], rise), height + change], 1)


def largest_rise(frames: Tensor, scale: int, days: bool, belong: bool = False) -> Tensor:
    """How far the curve of bursts of so many frames (B,) may rise, of log power, (B, 1).

    Water has ripples and next to no large shapes. But of few frames, unless it is known that they
    belong together, what rises may as well be what one of them, of another scene or misplaced, has
    not in common with the others; and what frames of different days disagree about repeats with the
    low-res pixel.
    """
    may = (frames > FEW * scale**2) | belong
    return (0 if days else LARGEST_RISE) * may[:, None]


def _better_curve(knots: Tensor, sums: Tensor, rise: Tensor | float) -> Tensor:
    """The radial curve of `fit_spectrum`, (B, KNOTS), from its sums about each knot, (4, B, KNOTS).

    Where power is missing the share is what is wrong too: a scene without detail would be followed
    as 1, 1/2, 1/3, ... of the noise, so the step is divided by the share (Fisher scoring). A knot
    counts as far as the data determine it; where they do not, the curve goes on smoothly, and stays
    where it was if they determine none, in a scene without detail.
    """
    expected, twice, trust, found = sums.unbind()
    expected = expected.clamp(min=1e-20)
    excess = (found / expected).clamp(min=1e-6).log()
    # the share is at most 1, so this divides what is missing and leaves what is too much
    change = torch.minimum(excess, excess / (twice / expected).clamp(min=1e-3))
    trust = F.threshold(trust.clamp(max=300), 0.5, 0)
    held = trust + ANCHOR
    roughness, unit = _roughness(trust.device)
    system = torch.addcmul(roughness, held[..., None], unit)
    level = torch.addcmul(knots * held, change.clamp(min=-LARGEST_STEP), trust)
    curve = torch.linalg.solve_ex(system, level[..., None]).result[..., 0]
    curve = torch.clamp(curve, knots - LARGEST_STEP, knots + LARGEST_STEP)
    told = curve.masked_fill(trust < MANY, torch.inf)  # few frequencies scatter
    return torch.minimum(curve, told.cummin(-1).values + rise).clamp(min=LEAST_LOG_POWER)


def owed_to_spectrum(energy: Tensor, grown: Tensor) -> Tensor:
    """What a spectrum that is off adds to the slope of the log likelihood in each gain, (B, N).

    Frames that all grow are an image that grows, and tell nothing of gains: with a right spectrum
    the energy of the image, `u' S^-1 u` (B,), and the slopes of the determinant, grown (B, N),
    balance. What is left over is shared out as the frames show the image.
    """
    total = grown.sum(1, keepdim=True)
    return (energy[:, None] - total) * grown / total.clamp(min=1e-30)


def spectrum_at(knots: Tensor, basis: Tensor) -> Tensor:
    """The spectrum (B, ...) of its terms (B, TERMS) at a basis (..., TERMS)."""
    return torch.einsum("bk,...k->b...", knots, basis).exp()


def power_law(variance: Tensor) -> Tensor:
    """The spectrum (B, TERMS) of `c / (f^2 + 1e-4)^1.25` with a given variance (B,)."""
    return without_directions(_unit_power_law(variance.device) + variance.log()[:, None])


@made_once
def _unit_power_law(device: torch.device) -> Tensor:
    """The curve of variance 1, (KNOTS,)."""
    low, high = math.log10(LOWEST), math.log10(math.sqrt(0.5))
    frequency = torch.logspace(low, high, KNOTS, device=device)
    log_shape = -1.25 * (frequency**2 + 1e-4).log()
    side = torch.fft.fftfreq(256, device=device)
    mean = (radial_basis(side[:, None], side) @ log_shape).exp().mean()
    return log_shape - mean.log()
