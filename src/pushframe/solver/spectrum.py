"""The power spectrum of a solved image, its own share of noise and prior taken into account."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..burst import Burst
from ..filters import tukey
from ..folding import half_weight, power_of, to_folded
from ..gaussian import GaussianProblem, folded_basis, weighted_mean
from ..noise import frame_noise_var
from ..prior import counted_basis, fit_spectrum, largest_rise, power_law, spectrum_at
from .motion import spectrum_of_translations
from .outliers import hidden_share

ROUNDS = 3
MANY_HOLES = 0.003  # share of masked pixels beyond which a fill shows in the spectrum
TOLERANCE = 1e-3  # a looser one shows as power at the highest frequencies
HOLED_TOLERANCE = 1e-4
TAPER = 1 / 8  # share of the width over which the window rises, at each side


def spectrum_of_burst(
    burst: Burst, good: Tensor, flow_px: Tensor, gain: Tensor, scale: int
) -> Tensor:
    """Log power at the knots, (B, TERMS), of the image of a burst whose motion is known.

    good: (B, N, H, W) pixels to use. Translations in Fourier space, but where much is masked.
    """
    if flow_px.ndim == 5:
        return _in_space(burst, good, flow_px, gain, scale)
    seen = dataclasses.replace(burst, valid=good)
    knots = spectrum_of_translations(seen, flow_px, gain, scale)
    holed = (hidden_share(good) > MANY_HOLES).nonzero()[:, 0]
    if not len(holed):
        return knots
    again = _in_space(burst.part(holed), good[holed], flow_px[holed], gain[holed], scale)
    return knots.index_copy(0, holed, again)


def _in_space(burst: Burst, good: Tensor, flow_px: Tensor, gain: Tensor, scale: int) -> Tensor:
    """Of images solved from the pixels that there are."""
    gain = gain[..., None, None]
    frames, noise_var = burst.frames / gain, frame_noise_var(burst) / gain**2
    problem = GaussianProblem(
        flow_px, good / noise_var, first_knots(frames, good, noise_var), scale
    )
    data = frames - weighted_mean(frames, problem.precision)
    holed = hidden_share(good) > MANY_HOLES
    tolerance = torch.where(holed, HOLED_TOLERANCE, TOLERANCE)[:, None, None]
    image: Tensor | None = None
    for _ in range(ROUNDS):
        image = problem.solve(data, image, tolerance)
        knots = spectrum_of(problem, image, burst.days)
        problem = GaussianProblem(flow_px, problem.precision, knots, scale)
    return problem.knots


def first_knots(frames: Tensor, good: Tensor, noise_var: Tensor) -> Tensor:
    """A power law with the variance of the frames beyond their noise, (B, TERMS)."""
    weight = good / noise_var
    spread = weighted_mean((frames - weighted_mean(frames, weight)) ** 2, weight)
    signal = spread - weighted_mean(noise_var, weight)
    return power_law(signal[:, 0, 0, 0].clamp(min=1e-10))


def spectrum_of(problem: GaussianProblem, image: Tensor, days: bool) -> Tensor:
    """Log power at the knots, (B, TERMS), of a solved canvas (B, h, w); days: as of a burst."""
    scale = problem.scale
    lattice = (problem.canvas[0] // scale, problem.canvas[1] // scale)
    folded = to_folded(image * _window(problem.canvas, problem.pad, image), scale)
    basis = folded_basis(lattice, scale, image.device)
    prior = spectrum_at(problem.knots, basis)
    spread = problem.blocks.covariance.diagonal(dim1=1, dim2=2).real.movedim(-1, 1)
    known = (1 - spread / prior).clamp(min=0)
    counted = counted_basis(basis, half_weight(lattice[1], image)[:, None])
    power = power_of(folded).flatten(1)
    rise = largest_rise((problem.precision > 0).flatten(2).any(2).sum(1), scale, days)
    return fit_spectrum(problem.knots, prior.flatten(1), power, known.flatten(1), counted, rise)


def _window(canvas: tuple[int, int], pad: int, like: Tensor) -> Tensor:
    """A Tukey window of unit power over the canvas, zero over its margin."""
    axes = []
    for size in canvas:
        axes.append(tukey(torch.arange(size, device=like.device) - pad, size - 2 * pad, TAPER))
    window = axes[0][:, None] * axes[1]
    return window / window.square().mean().sqrt()
