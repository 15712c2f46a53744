"""The spectrum of an image and the aliases that sampling adds up: folded, and back.

Convention: transforms are orthonormal. "Folded" tensors end in (K, a, c): alias, K = s*s, then
low-res frequency (rows, then the non-negative half of the columns).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .once import made_once


def fold(spectrum: Tensor, scale: int) -> Tensor:
    """Image spectrum (..., s*a, s*b) to the aliases of each low-res frequency (..., K, a, c)."""
    tall, wide = (size // scale for size in spectrum.shape[-2:])
    parts = spectrum.unflatten(-1, (scale, wide))[..., : wide // 2 + 1]
    return parts.unflatten(-3, (scale, tall)).transpose(-3, -2).flatten(-4, -3)


def unfold(folded: Tensor, scale: int, width: int) -> Tensor:
    """Aliases (..., K, a, c) to the full spectrum (..., s*a, s*b), zero in the other half.

    width: b, the number of low-res columns. The real part of the inverse transform of the
    result, entries weighted by `half_weight`, is the image.
    """
    tall, half = folded.shape[-2:]
    full = folded.new_zeros(*folded.shape[:-3], scale, tall, scale, width)
    full[..., :half] = folded.unflatten(-3, (scale, scale)).transpose(-3, -2)
    return full.flatten(-4, -3).flatten(-2)


def half_weight(width: int, like: Tensor) -> Tensor:
    """How many frequencies of a real image each kept column stands for, (c,): 1, 2, ..., 2(, 1)."""
    return _half_weight(width, real_dtype(like), like.device)


@made_once
def _half_weight(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    own_mirror = 2 * torch.arange(width // 2 + 1, device=device) % width == 0
    return 2 - own_mirror.to(dtype)


def real_dtype(like: Tensor) -> torch.dtype:
    """Of what goes with a tensor: float64 with doubles, real or complex, and otherwise float32."""
    double = like.dtype in (torch.float64, torch.complex128)
    return torch.float64 if double else torch.float32


def to_folded(image: Tensor, scale: int) -> Tensor:
    """A real image (..., s*a, s*b) as folded spectrum (..., K, a, c)."""
    return fold(torch.fft.fft2(image, norm="ortho"), scale)


def to_image(folded: Tensor, scale: int, width: int) -> Tensor:
    """The real image (..., s*a, s*b) of a folded spectrum (..., K, a, c)."""
    weighted = folded * half_weight(width, folded)
    return torch.fft.ifft2(unfold(weighted, scale, width), norm="ortho").real


@made_once
def half_places(
    size: tuple[int, int], scale: int, device: torch.device
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Where the half spectrum of a real image has the aliases, and where those have it.

    size: of the image. Both flat places, and the sign of the imaginary part there: a frequency that
    is not kept is the conjugate of its opposite.
    """
    tall, wide = (length // scale for length in size)
    half, kept = wide // 2 + 1, size[1] // 2 + 1

    def places(row: Tensor, column: Tensor, direct: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        row = torch.where(direct, row, -row % size[0])
        column = torch.where(direct, column, -column % size[1])
        return row, column, 2 * direct.float() - 1

    row = torch.arange(size[0], device=device)[:, None]
    column = torch.arange(size[1], device=device)
    y, x, sign = places(row, column, column < kept)
    parts = [y * kept + x, sign.expand(y.shape[0], -1)]
    fold_from, fold_sign = (fold(torch.broadcast_to(part, size), scale).flatten() for part in parts)
    column = column[:kept]
    y, x, sign = places(row, column, column % wide < half)
    alias = (y // tall) * scale + x // wide
    unfold_from = (alias * tall + y % tall) * half + x % wide
    unfold_sign = sign.expand(size[0], -1).flatten()
    signs = [torch.stack([torch.ones_like(x), x], -1) for x in (fold_sign, unfold_sign)]
    return (fold_from, signs[0]), (unfold_from.flatten(), signs[1])


def taken(values: Tensor, places: Tensor, sign: Tensor) -> Tensor:
    """Complex numbers (B, F) from their places, conjugate where the sign says so."""
    return torch.view_as_complex(torch.view_as_real(values.index_select(1, places)) * sign)


def power_of(values: Tensor) -> Tensor:
    """`|x|^2` of complex numbers, without the square root."""
    return values.real.square() + values.imag.square()


def axis_frequencies(lattice: tuple[int, int], scale: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Frequencies of the aliases along rows (s, a) and columns (s, c), cycles per high-res px."""
    fy, fx = (
        torch.fft.fftfreq(scale * size, dtype=real_dtype(like), device=like.device).unflatten(
            0, (scale, size)
        )
        for size in lattice
    )
    return fy, fx[:, : lattice[1] // 2 + 1]


def image_frequencies(lattice: tuple[int, int], scale: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Frequencies (fy, fx) of each alias, cycles per high-res px, folded (K, a, c)."""
    rows, columns = axis_frequencies(lattice, scale, like)
    fy, fx = torch.broadcast_tensors(rows[:, None, :, None], columns[:, None, :])
    return fy.flatten(0, 1), fx.flatten(0, 1)
