"""The image's power spectrum, a smooth radial curve fitted to the burst itself."""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

KNOTS = 20
LOWEST = 1 / 256  # cycles per high-res px
SMOOTHNESS = 30.0  # of log power, against the number of frequencies around a knot
LARGEST_STEP = 3.0  # of log power, at once
ANCHOR = 0.01  # weight of the curve that there was, for scenes that determine no other
LEAST_LOG_POWER = -40.0
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


@cache
def _roughness(device: torch.device) -> tuple[Tensor, Tensor]:
    """The quadratic form of second differences of the knots, and the unit matrix."""
    with torch.inference_mode(False):  # kept, and maybe trained through later
        unit = torch.eye(KNOTS, device=device)
        bend = unit[:-2] - 2 * unit[1:-1] + unit[2:]
        return SMOOTHNESS * bend.T @ bend, unit


def fit_spectrum(
    knots: Tensor, prior: Tensor, power: Tensor, known: Tensor, counted: Tensor
) -> Tensor:
    """Better log powers at the knots, (B, KNOTS), from the power (B, F) of a posterior mean.

    knots, prior: those that the mean was found with, prior (B, F) at its frequencies. known: (B, F)
    how far the data determine each, `1 - posterior / prior variance`; the mean of a right prior
    shows just that share of it. counted: (F, KNOTS), the knots' basis times the number of
    frequencies that each entry stands for.

    Where power is missing the share is what is wrong too: a scene without detail would be followed
    as 1, 1/2, 1/3, ... of the noise, so the step is divided by the share (Fisher scoring). A knot
    counts as far as the data determine it; where they do not, the curve goes on smoothly, and stays
    where it was if they determine none, in a scene without detail. It never rises: power that
    appears beyond a dip is not the scene's but what frames of different days disagree about, which
    repeats with the pixels.
    """
    shown = known * prior
    sums = torch.stack([shown, known * shown, known.square(), power]) @ counted
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
    return torch.minimum(curve, told.cummin(-1).values).clamp(min=LEAST_LOG_POWER)


def spectrum_at(knots: Tensor, basis: Tensor) -> Tensor:
    """The spectrum (B, ...) of log powers (B, KNOTS) at a basis (..., KNOTS)."""
    return torch.einsum("bk,...k->b...", knots, basis).exp()


def power_law(variance: Tensor) -> Tensor:
    """Log power at the knots, (B, KNOTS), of `c / (f^2 + 1e-4)^1.25` with a given variance (B,)."""
    return _unit_power_law(variance.device) + variance.log()[:, None]


@cache
def _unit_power_law(device: torch.device) -> Tensor:
    """The same of variance 1, (KNOTS,)."""
    with torch.inference_mode(False):  # kept, and maybe trained through later
        low, high = math.log10(LOWEST), math.log10(math.sqrt(0.5))
        frequency = torch.logspace(low, high, KNOTS, device=device)
        log_shape = -1.25 * (frequency**2 + 1e-4).log()
        side = torch.fft.fftfreq(256, device=device)
        mean = spectrum_at(log_shape[None], radial_basis(side[:, None], side)).mean()
        return log_shape - mean.log()
