"""The alias blocks of `spectral` at scale 2 in one pass over memory, as Triton kernels for a GPU.

A thread holds the four aliases of its frequency in registers, where the plain operations of
`spectral.AliasBlocks` and `spectral.Transfer`, which define the result, write every intermediate
to memory. At larger scales the registers do not suffice. Complex tensors are pairs of floats.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32  # frequencies a program


@triton.jit
def _frequencies(F, C, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    f = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return f, f // C, f % C, f < F


@triton.jit
def _seen(rows, columns, frame, i, j, a, c, mask, A, C, S: tl.constexpr):  # type: ignore[no-untyped-def]
    """h of one frame: real and imaginary part, (K, BLOCK)."""
    p = 2 * ((frame * S + i[:, None]) * A + a[None, :])
    q = 2 * ((frame * S + j[:, None]) * C + c[None, :])
    row_re, row_im = tl.load(rows + p, mask, 0.0), tl.load(rows + p + 1, mask, 0.0)
    col_re, col_im = tl.load(columns + q, mask, 0.0), tl.load(columns + q + 1, mask, 0.0)
    return row_re * col_re - row_im * col_im, row_re * col_im + row_im * col_re


@triton.jit
def _covariance_kernel(  # type: ignore[no-untyped-def]
    rows, columns, precision, prior, covariance, log_det,
    N, A, C, K: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    F = A * C
    b = tl.program_id(1).to(tl.int64)
    f, a, c, inside = _frequencies(F, C, BLOCK)
    k = tl.arange(0, K)
    mask = inside[None, :] & (k >= 0)[:, None]  # (K, BLOCK)
    re = tl.zeros([K, K, BLOCK], tl.float32)
    im = tl.zeros([K, K, BLOCK], tl.float32)
    for n in range(N):
        frame = b * N + n
        weight = tl.load(precision + frame)
        hr, hi = _seen(rows, columns, frame, k // S, k % S, a, c, mask, A, C, S)
        wr, wi = weight * hr, weight * hi
        re += wr[:, None, :] * hr[None, :, :] + wi[:, None, :] * hi[None, :, :]
        im += wr[:, None, :] * hi[None, :, :] - wi[:, None, :] * hr[None, :, :]
    power = tl.load(prior + (b * K + k[:, None]) * F + f[None, :], mask, 1.0)
    re += tl.where((k[:, None] == k[None, :])[:, :, None], (1 / power)[:, None, :], 0.0)
    total = tl.zeros([BLOCK], tl.float32)
    for step in tl.static_range(K):  # Gauss-Jordan, as in `linear.small_inverse`
        here = k == step
        at_row, at_column = here[:, None, None], here[None, :, None]
        row_re, row_im = tl.sum(tl.where(at_row, re, 0.0), 0), tl.sum(tl.where(at_row, im, 0.0), 0)
        col_re = tl.sum(tl.where(at_column & ~at_row, re, 0.0), 1)
        col_im = tl.sum(tl.where(at_column & ~at_row, im, 0.0), 1)
        pivot = tl.maximum(tl.sum(tl.where(here[:, None], row_re, 0.0), 0), 1e-30)
        total += tl.log(pivot)
        inverse = 1 / pivot
        row_re, row_im = row_re * inverse[None, :], row_im * inverse[None, :]
        re -= col_re[:, None, :] * row_re[None, :, :] - col_im[:, None, :] * row_im[None, :, :]
        im -= col_re[:, None, :] * row_im[None, :, :] + col_im[:, None, :] * row_re[None, :, :]
        re = tl.where(at_row, row_re[None, :, :], re)
        im = tl.where(at_row, row_im[None, :, :], im)
        re = tl.where(at_column, -(col_re * inverse[None, :])[:, None, :], re)
        im = tl.where(at_column, -(col_im * inverse[None, :])[:, None, :], im)
        re = tl.where(at_row & at_column, inverse[None, None, :], re)
    place = 2 * (((b * K + k[:, None, None]) * K + k[None, :, None]) * F + f[None, None, :])
    both = mask[:, None, :] & mask[None, :, :]
    tl.store(covariance + place, re, both)
    tl.store(covariance + place + 1, im, both)
    tl.store(log_det + b * F + f, total, inside)


@triton.jit
def _mean_kernel(  # type: ignore[no-untyped-def]
    rows, columns, precision, data, covariance, image,
    N, A, C, K: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    F = A * C
    b = tl.program_id(1).to(tl.int64)
    f, a, c, inside = _frequencies(F, C, BLOCK)
    k = tl.arange(0, K)
    mask = inside[None, :] & (k >= 0)[:, None]  # (K, BLOCK)
    re = tl.zeros([K, BLOCK], tl.float32)
    im = tl.zeros([K, BLOCK], tl.float32)
    for n in range(N):
        frame = b * N + n
        weight = tl.load(precision + frame)
        hr, hi = _seen(rows, columns, frame, k // S, k % S, a, c, mask, A, C, S)
        vr = weight * tl.load(data + 2 * (frame * F + f), inside, 0.0)[None, :]
        vi = weight * tl.load(data + 2 * (frame * F + f) + 1, inside, 0.0)[None, :]
        re += hr * vr + hi * vi
        im += hr * vi - hi * vr
    # M^-1 is Hermitian: reading it transposed puts the summed alias first
    place = 2 * (((b * K + k[None, :, None]) * K + k[:, None, None]) * F + f[None, None, :])
    both = mask[:, None, :] & mask[None, :, :]
    cr, ci = tl.load(covariance + place, both, 0.0), tl.load(covariance + place + 1, both, 0.0)
    out_re = tl.sum(cr * re[:, None, :] - ci * im[:, None, :], 0)
    out_im = tl.sum(cr * im[:, None, :] + ci * re[:, None, :], 0)
    place = 2 * ((b * K + k[:, None]) * F + f[None, :])
    tl.store(image + place, out_re, mask)
    tl.store(image + place + 1, out_im, mask)


@triton.jit
def _solve_kernel(  # type: ignore[no-untyped-def]
    spectrum, covariance, out, A, C, W, K: tl.constexpr, BLOCK: tl.constexpr
):
    F = A * C
    b = tl.program_id(1).to(tl.int64)
    f, a, c, inside = _frequencies(F, C, BLOCK)
    k = tl.arange(0, K)
    mask = inside[None, :] & (k >= 0)[:, None]  # (K, BLOCK)
    # the aliases of the second column are kept as the conjugates of their opposites
    mirrored = ((k % 2) == 1)[:, None] & mask
    row = (k // 2)[:, None] * A + a[None, :]
    row = tl.where(mirrored, (2 * A - row) % (2 * A), row)
    column = tl.where(mirrored, (W - c)[None, :], c[None, :])
    here = 2 * ((b * 2 * A + row) * (W + 1) + column)
    ur, ui = tl.load(spectrum + here, mask, 0.0), tl.load(spectrum + here + 1, mask, 0.0)
    ui = tl.where(mirrored, -ui, ui)
    place = 2 * (((b * K + k[None, :, None]) * K + k[:, None, None]) * F + f[None, None, :])
    both = mask[:, None, :] & mask[None, :, :]
    cr, ci = tl.load(covariance + place, both, 0.0), tl.load(covariance + place + 1, both, 0.0)
    out_re = tl.sum(cr * ur[:, None, :] - ci * ui[:, None, :], 0)
    out_im = tl.sum(cr * ui[:, None, :] + ci * ur[:, None, :], 0)
    # a column that is its own opposite is written once
    once = mask & ~(mirrored & (2 * c == W)[None, :])
    tl.store(out + here, out_re, once)
    tl.store(out + here + 1, tl.where(mirrored, -out_im, out_im), once)


@triton.jit
def _predict_kernel(  # type: ignore[no-untyped-def]
    rows, columns, image, frames,
    N, A, C, K: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    F = A * C
    b = tl.program_id(1).to(tl.int64)
    f, a, c, inside = _frequencies(F, C, BLOCK)
    k = tl.arange(0, K)
    mask = inside[None, :] & (k >= 0)[:, None]  # (K, BLOCK)
    place = 2 * ((b * K + k[:, None]) * F + f[None, :])
    ur, ui = tl.load(image + place, mask, 0.0), tl.load(image + place + 1, mask, 0.0)
    for n in range(N):
        frame = b * N + n
        hr, hi = _seen(rows, columns, frame, k // S, k % S, a, c, mask, A, C, S)
        tl.store(frames + 2 * (frame * F + f), tl.sum(hr * ur - hi * ui, 0), inside)
        tl.store(frames + 2 * (frame * F + f) + 1, tl.sum(hr * ui + hi * ur, 0), inside)


@triton.jit
def _couple_kernel(  # type: ignore[no-untyped-def]
    rows, columns, change, covariance, seen, answer, chosen,
    N, A, C, K: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
    P: tl.constexpr, ROWS,
):  # fmt: skip
    F = A * C
    kept = ROWS * C
    b = tl.program_id(1).to(tl.int64)
    g, a, c, inside = _frequencies(kept, C, BLOCK)
    a = tl.load(chosen + a, inside, 0)
    f = a * C + c
    k = tl.arange(0, K)
    mask = inside[None, :] & (k >= 0)[:, None]  # (K, BLOCK)
    place = 2 * (((b * K + k[:, None, None]) * K + k[None, :, None]) * F + f[None, None, :])
    both = mask[:, None, :] & mask[None, :, :]
    cr, ci = tl.load(covariance + place, both, 0.0), tl.load(covariance + place + 1, both, 0.0)
    for n in range(N):
        frame = b * N + n
        hr, hi = _seen(rows, columns, frame, k // S, k % S, a, c, mask, A, C, S)
        # the conjugate of M^-1 h'
        mr = tl.sum(cr * hr[:, None, :] - ci * hi[:, None, :], 0)
        mi = tl.sum(cr * hi[:, None, :] + ci * hr[:, None, :], 0)
        for p in tl.static_range(P):
            unknown = frame * P + p
            x = 2 * (unknown * kept + g)
            xr = tl.load(change + x, inside, 0.0)[None, :]
            xi = -tl.load(change + x + 1, inside, 0.0)[None, :]
            y = 2 * ((unknown * K + k[:, None]) * kept + g[None, :])
            tl.store(seen + y, hr * xr - hi * xi, mask)
            tl.store(seen + y + 1, hr * xi + hi * xr, mask)
            tl.store(answer + y, mr * xr - mi * xi, mask)
            tl.store(answer + y + 1, mr * xi + mi * xr, mask)


def covariance(
    rows: Tensor, columns: Tensor, precision: Tensor, prior: Tensor
) -> tuple[Tensor, Tensor]:
    """`M^-1`, (B, K, K, a, c), and `log det M`, (B, a, c); arguments as of `AliasBlocks`."""
    batch, aliases, tall, half = prior.shape
    found = rows.new_empty(batch, aliases, aliases, tall, half)
    log_det = prior.new_empty(batch, tall, half)
    _launch(_covariance_kernel, rows, columns, precision, prior, found, log_det)
    return found, log_det


def mean(
    rows: Tensor, columns: Tensor, precision: Tensor, data: Tensor, covariance: Tensor
) -> Tensor:
    """The posterior mean, (B, K, a, c), of frames' spectra (B, N, a, c)."""
    image = covariance.new_empty(covariance.shape[:1] + covariance.shape[2:])
    _launch(_mean_kernel, rows, columns, precision, data, covariance, image)
    return image


def solve(spectrum: Tensor, covariance: Tensor, width: int) -> Tensor:
    """The normal equations for the half spectrum of an image, (B, 2*a, width + 1)."""
    batch, aliases, _, tall, half = covariance.shape
    spectrum = spectrum.resolve_conj().contiguous()
    out = torch.empty_like(spectrum)
    flat = [torch.view_as_real(x) for x in (spectrum, covariance.contiguous(), out)]
    grid = (triton.cdiv(tall * half, BLOCK), batch)
    _solve_kernel[grid](*flat, tall, half, width, aliases, BLOCK, num_warps=1)
    return out


def predict(rows: Tensor, columns: Tensor, image: Tensor) -> Tensor:
    """What the frames would be, (B, N, a, c), of an image (B, K, a, c)."""
    frames = image.new_empty(*rows.shape[:2], *image.shape[2:])
    _launch(_predict_kernel, rows, columns, image, frames)
    return frames


def couple(
    rows: Tensor, columns: Tensor, change: Tensor, covariance: Tensor, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """Conjugates of `h_t' d_t` and `M^-1 h_t' d_t`, each (B, N, P, K, a', c).

    change: (B, N, P, a', c), at the rows of frequencies `chosen` (a',).
    """
    shape = (*change.shape[:3], covariance.shape[1], *change.shape[3:])
    seen, answer = change.new_empty(shape), change.new_empty(shape)
    options = {"P": shape[2], "ROWS": len(chosen)}
    _launch(_couple_kernel, rows, columns, change, covariance, seen, answer, chosen, **options)
    return seen, answer


def _launch(kernel: Any, rows: Tensor, columns: Tensor, *tensors: Tensor, **options: int) -> None:
    batch, count, scale, tall = rows.shape
    half = columns.shape[-1]
    flat = [
        (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).contiguous()
        for x in (rows, columns, *tensors)
    ]
    grid = (triton.cdiv(tall * half, BLOCK), batch)
    # one warp of 32 threads a program, one frequency a thread
    kernel[grid](*flat, count, tall, half, scale**2, scale, BLOCK, **options, num_warps=1)
