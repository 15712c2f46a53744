"""The forward model in Fourier space, where it falls apart into small blocks.

Sampling on every s-th pixel adds up s*s frequencies of the image, its aliases, on each low-res
frequency. For translated frames under periodic boundaries nothing else is mixed: at each
low-res frequency the N frames are N linear equations in s*s unknowns. Solving those blocks
exactly costs little more than the Fourier transforms, and is an excellent preconditioner where
borders, masks and signal-dependent noise break the symmetry.

Convention: transforms are orthonormal. "Folded" tensors end in (a, c, K): low-res frequency
(rows, then the non-negative half of the columns) and alias, K = s*s.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .forward import HALF_WIDTH, sinc_taps, split_position
from .linear import small_inverse


def fold(spectrum: Tensor, scale: int) -> Tensor:
    """Image spectrum (..., s*a, s*b) to the aliases of each low-res frequency (..., a, c, K)."""
    tall, wide = (size // scale for size in spectrum.shape[-2:])
    parts = spectrum.unflatten(-1, (scale, wide)).unflatten(-3, (scale, tall))
    lead = range(spectrum.ndim - 2)
    n = spectrum.ndim - 2
    return parts.permute(*lead, n + 1, n + 3, n, n + 2)[..., : wide // 2 + 1, :, :].flatten(-2)


def unfold(folded: Tensor, scale: int, width: int) -> Tensor:
    """Aliases (..., a, c, K) to the full spectrum (..., s*a, s*b), zero in the other half.

    width: b, the number of low-res columns. The real part of the inverse transform of the
    result, entries weighted by `half_weight`, is the image.
    """
    tall, half = folded.shape[-3:-1]
    full = folded.new_zeros(*folded.shape[:-3], tall, width, scale, scale)
    full[..., :half, :, :] = folded.unflatten(-1, (scale, scale))
    n = folded.ndim - 3
    order = (*range(n), n + 2, n, n + 3, n + 1)
    return full.permute(*order).reshape(*folded.shape[:-3], scale * tall, scale * width)


def half_weight(width: int, like: Tensor) -> Tensor:
    """How many frequencies of a real image each kept column stands for, (c,): 1, 2, ..., 2(, 1)."""
    weight = torch.full((width // 2 + 1,), 2.0, device=like.device)
    weight[0] = 1
    if width % 2 == 0:
        weight[-1] = 1
    return weight


def to_folded(image: Tensor, scale: int) -> Tensor:
    """A real image (..., s*a, s*b) as folded spectrum (..., a, c, K)."""
    return fold(torch.fft.fft2(image, norm="ortho"), scale)


def to_image(folded: Tensor, scale: int, width: int) -> Tensor:
    """The real image (..., s*a, s*b) of a folded spectrum (..., a, c, K)."""
    weighted = folded * half_weight(width, folded)[:, None]
    return torch.fft.ifft2(unfold(weighted, scale, width), norm="ortho").real


def image_frequencies(lattice: tuple[int, int], scale: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Frequencies (fy, fx) of each alias, cycles per high-res px, folded (a, c, K)."""
    fy, fx = (torch.fft.fftfreq(scale * size, device=like.device) for size in lattice)
    grids = torch.meshgrid(fy, fx, indexing="ij")
    return fold(grids[0], scale), fold(grids[1], scale)


def transfer(flow_px: Tensor, lattice: tuple[int, int], scale: int) -> Tensor:
    """What each frame sees of each alias: `v_t(l) = sum_k h_t(l, k) u(k)`, (B, a, c, N, K).

    flow_px: (B, N, 2) translations. The kernel is that of `forward`, taken exactly.
    """
    whole, fraction = split_position(scale * flow_px)
    taps = sinc_taps(fraction)
    position = torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=flow_px.device)
    axes = []
    for axis, size in enumerate(lattice):
        frequency = torch.fft.fftfreq(scale * size, device=flow_px.device)
        waves = torch.polar(*_unit(frequency * position[:, None]))
        shift = torch.polar(*_unit(whole[..., axis, None] * frequency))
        seen = taps[..., axis, :].to(waves.dtype) @ waves * shift
        axes.append(seen.unflatten(-1, (scale, size)).permute(0, 3, 1, 2))  # (B, size, N, s)
    rows, columns = axes
    rows = rows[:, :, None, :, :, None] / scale
    columns = columns[:, None, : lattice[1] // 2 + 1, :, None, :]
    return (rows * columns).flatten(-2)


def _unit(cycles: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ones_like(cycles), 2 * math.pi * cycles


class AliasBlocks:
    """The posterior of an image given translated frames, block by block (periodic, stationary).

    see: (B, a, c, N, K) from `transfer`; precision: one over the noise variance of each frame,
    (B, a, c, N) or broadcastable; prior: (B, a, c, K) image spectrum.
    """

    def __init__(self, see: Tensor, precision: Tensor, prior: Tensor) -> None:
        self.see = see
        self.weighted = see.conj() * precision[..., None]
        normal = self.weighted.mT @ see + torch.diag_embed(1 / prior)
        self.covariance, self.log_det = small_inverse(normal)

    def mean(self, data: Tensor) -> Tensor:
        """The posterior mean (B, a, c, K) of frames' spectra (B, a, c, N)."""
        return self.solve((self.weighted * data[..., None]).sum(-2))

    def solve(self, right: Tensor) -> Tensor:
        """The normal equations at each frequency."""
        return (self.covariance @ right[..., None])[..., 0]

    def reach(self) -> Tensor:
        """How the posterior mean answers to each frame, `M^-1 h_t' w_t`, (B, a, c, N, K)."""
        return self.weighted @ self.covariance.mT

    def predict(self, image: Tensor) -> Tensor:
        """What the frames would be, (B, a, c, N)."""
        return (self.see @ image[..., None])[..., 0]

    def information(
        self, change: Tensor, precision: Tensor, count: Tensor, every: int = 1
    ) -> Tensor:
        """What the frames tell of unknowns beside the image, with the image unknown too.

        change: (B, a, c, N, P), how each frame answers to P unknowns of its own; precision:
        (B, a, c, N); count: (c,); every: take each so-many-th row of frequencies to stand for
        all. Returns (B, N*P, N*P): `change' C^-1 change`, where `C^-1 = W - W h M^-1 h' W` is
        the inverse covariance of the frames.
        """
        rows = slice(None, None, every)
        counted = change[:, rows] * (every * count[:, None, None]).sqrt()
        weighted, covariance = self.weighted[:, rows], self.covariance[:, rows]
        own = torch.einsum(
            "bacnp,bacn,bacnq->bnpq", counted.conj(), precision[:, rows].to(change), counted
        )
        seen = (weighted[..., None] * counted[..., None, :]).movedim(-2, -3)
        seen = seen.flatten(-2)  # (B, a, c, K, N*P)
        answer = (covariance @ seen).flatten(1, 3)
        frames, kinds = change.shape[-2:]
        full = torch.zeros(len(own), frames, kinds, frames, kinds, device=own.device)
        index = torch.arange(frames, device=own.device)
        full[:, index, :, index, :] = own.real.transpose(0, 1)
        return full.flatten(3).flatten(1, 2) - (seen.flatten(1, 3).mH @ answer).real
