"""How much less is known at the borders of frames, where samples end, than inside.

Far from its ends a border of translated frames repeats itself, and frequencies along it are
independent of each other. At each, the few rows of samples next to the border are one small
Gaussian problem, solved exactly, on a small lattice that stands for the burst.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..folding import half_weight, image_frequencies
from ..gaussian import GaussianProblem
from ..once import made_once
from ..prior import spectral_basis, spectrum_at
from ..spectral import AliasBlocks, Transfer, transfer

LATTICE = (16, 6)  # low-res frequencies across and along a border
DEPTH_PX = 3  # low-res px from a border that feel it
SAMPLE_ROWS = 5  # of each frame, next to the border, that tell of them


def border_excess(problem: GaussianProblem) -> Tensor:
    """Variance of noise and prior over that of the same sub-grid inside, (B, s*H, s*W), at least 1.

    What borders alone make of it for translated frames; in corners the product of two, but never
    more than not to know anything.
    """
    height, width = (size - 2 * problem.pad for size in problem.canvas)
    rows, columns = (_excess(problem, turned) for turned in (False, True))
    tall, wide = _laid_out(rows, height, width), _laid_out(columns, width, height).mT
    count = half_weight(problem.blocks.width, problem.folded_prior)
    power = (problem.folded_prior * count).mean((1, 2, 3)) / count.mean()
    most = (power / problem.blocks.subgrid_variance().mean((1, 2))).clamp(min=1)
    return (tall * wide).to(most).minimum(most[:, None, None])


def _laid_out(excess: Tensor, size: int, along: int) -> Tensor:
    """Of (B, 2, s * DEPTH_PX, s), at both ends of `size` px and 1 between, (B, size, along)."""
    depth = min(excess.shape[2], size // 2)
    whole = excess.new_ones(len(excess), size, excess.shape[-1])
    whole[:, :depth], whole[:, size - depth :] = excess[:, 0, :depth], excess[:, 1, -depth:]
    return whole.repeat(1, 1, along // excess.shape[-1])


def _excess(problem: GaussianProblem, turned: bool) -> Tensor:
    """At the borders before the first and after the last row, (B, 2, s * DEPTH_PX, s).

    turned: at those along the columns instead.
    """
    scale, flow_px = problem.scale, problem.flow_px.double()
    flow_px = flow_px.flip(-1) if turned else flow_px  # across, along
    prior = spectrum_at(problem.knots.double(), _basis(scale, turned, flow_px.device))
    see = transfer(flow_px, LATTICE, scale)
    precision = problem.typical_precision().double()
    inside = AliasBlocks(see, precision, prior).subgrid_variance()
    ends = [_variance(see, precision, prior, flow_px[..., 0], last) for last in (False, True)]
    return (torch.stack(ends, 1) / inside.repeat(1, DEPTH_PX, 1)[:, None]).clamp(min=1)


@made_once
def _basis(scale: int, turned: bool, device: torch.device) -> Tensor:
    """The knots' weights at the aliases of the lattice, (K, a, c, TERMS)."""
    like = torch.zeros((), dtype=torch.float64, device=device)
    across, along = image_frequencies(LATTICE, scale, like)
    return spectral_basis(along, across) if turned else spectral_basis(across, along)


def _variance(
    see: Transfer, precision: Tensor, prior: Tensor, across_px: Tensor, last: bool
) -> Tensor:
    """Of the pixels next to a border, (B, s * DEPTH_PX, s), known by the samples there alone.

    across_px: (B, N) shifts across it; last: the border after the last row.
    """
    root = prior.sqrt().unflatten(1, see.rows.shape[2:3] * 2).movedim(-1, 1)  # (B, c, i, j, a)
    samples = _samples(see, precision, across_px, last) * root[:, :, None]
    wanted = _pixels(see.rows.shape[2], last, precision.device) * root[:, :, None]
    samples, wanted = samples.flatten(3), wanted.flatten(3)  # (B, c, ., s*s*a)
    system = samples @ samples.mH
    system.diagonal(dim1=-2, dim2=-1).add_(1)
    lower = torch.linalg.cholesky_ex(system).L
    told = torch.linalg.solve_triangular(lower, samples @ wanted.mH, upper=False)
    left = wanted.abs().square().sum(-1) - told.abs().square().sum(-2)  # (B, c, D * s)
    count = half_weight(LATTICE[1], precision)
    return ((count @ left) / count.sum()).unflatten(-1, (-1, see.rows.shape[2]))


def _samples(see: Transfer, precision: Tensor, across_px: Tensor, last: bool) -> Tensor:
    """What samples near a border show of each frequency, noise as the unit, (B, c, N * L, i, j, a).

    Row 0 is that of the reference at the border.
    """
    row = torch.arange(SAMPLE_ROWS, device=precision.device)
    if last:
        row = (1 - across_px).floor().clamp(max=0)[..., None] - row
    else:
        row = (-1 - across_px).ceil().clamp(min=0)[..., None] + row
    near = (across_px[..., None] + row).abs() <= SAMPLE_ROWS + 1  # others would come round
    weight = (precision[..., None] * near / LATTICE[0]).sqrt()
    frequency = torch.arange(LATTICE[0], device=precision.device) / LATTICE[0]
    waves = weight[..., None] * _unit(frequency * row[..., None])  # (B, N, L, a)
    across = see.rows[:, :, None] * waves[:, :, :, None]  # (B, N, L, i, a)
    along = see.columns.permute(0, 3, 1, 2)  # (B, c, N, j)
    shown = across[:, None, :, :, :, None] * along[:, :, :, None, None, :, None]
    return shown.flatten(2, 3)


def _pixels(scale: int, last: bool, device: torch.device) -> Tensor:
    """What pixels next to a border show of each frequency, (s * DEPTH_PX * s, i, j, a)."""
    row = torch.arange(scale * DEPTH_PX, device=device)
    row = row - scale * (DEPTH_PX - 1) if last else row
    across = torch.arange(scale * LATTICE[0], device=device) / (scale * LATTICE[0])
    alias = torch.arange(scale, device=device) / scale
    tall = _unit(across * row[:, None]).unflatten(1, (scale, -1))  # (D, i, a)
    wide = _unit(alias * torch.arange(scale, device=device)[:, None])  # (s, j)
    shown = tall[:, None, :, None] * wide[:, None, :, None]
    return shown.flatten(0, 1) / math.sqrt(scale**2 * LATTICE[0])


def _unit(cycles: Tensor) -> Tensor:
    """Complex numbers of modulus 1, of many digits."""
    cycles = cycles.double()
    return torch.polar(torch.ones_like(cycles), 2 * math.pi * cycles)
