"""`pool.frame_sums` of translated frames in one pass over memory, as Triton kernels for a GPU.

Laid on the high-res grid, the features of a burst are the largest tensors of a training step, and
they are never made here: a program adds up what the samples near its high-res pixels say, and
backwards what the at most 2 x 2 pixels near its samples ask of them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .pool import Reading

PIXELS = 16  # high-res pixels, or samples, a program


@triton.jit
def _sums_kernel(  # type: ignore[no-untyped-def]
    feat, valid, row, down, column, across, total, first, second, peak,
    N, H, W, SH, SW, C, CP: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    b, y = tl.program_id(2).to(tl.int64), tl.program_id(1)
    x = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = x < SW
    channel = tl.arange(0, CP)
    mask = inside[:, None] & (channel < C)[None, :]
    weights = tl.zeros([PIXELS], tl.float32)
    sums = tl.zeros([PIXELS, CP], tl.float32)
    squares = tl.zeros([PIXELS, CP], tl.float32)
    highest = tl.zeros([PIXELS, CP], tl.float32)
    for n in range(N):
        frame = b * N + n
        i, j = tl.load(row + frame * SH + y), tl.load(column + frame * SW + x, inside, 0)
        sample = (frame * H + i) * W + j
        k = tl.load(down + frame * SH + y) * tl.load(across + frame * SW + x, inside, 0.0)
        k = k * tl.load(valid + sample, inside, 0.0)
        f = tl.load(feat + sample[:, None] * C + channel[None, :], mask, 0.0).to(tl.float32)
        both = k[:, None] * f
        weights += k
        sums += both
        squares += both * f
        highest = tl.maximum(highest, both)
    pixel = (b * SH + y) * SW + x
    place = pixel[:, None] * C + channel[None, :]
    tl.store(total + pixel, weights, inside)
    tl.store(first + place, sums, mask)
    tl.store(second + place, squares, mask)
    tl.store(peak + place, highest, mask)


@triton.jit
def _slopes_kernel(  # type: ignore[no-untyped-def]
    feat, valid, rows, down, columns, across, peak, of_first, of_second, of_peak, slope,
    N, H, W, SH, SW, C, CP: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    i, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = j < W
    channel = tl.arange(0, CP)
    mask = inside[:, None] & (channel < C)[None, :]
    for n in range(N):
        frame = b * N + n
        sample = (frame * H + i) * W + j
        seen = tl.load(valid + sample, inside, 0.0)
        place = sample[:, None] * C + channel[None, :]
        f = tl.load(feat + place, mask, 0.0).to(tl.float32)
        asked = tl.zeros([PIXELS, CP], tl.float32)
        for dy in tl.static_range(2):
            y = tl.load(rows + (frame * 2 + dy) * H + i)
            tall = tl.load(down + frame * SH + y, y >= 0, 0.0)
            for dx in tl.static_range(2):
                x = tl.load(columns + (frame * 2 + dx) * W + j, inside, -1)
                read = (x >= 0) & (y >= 0)
                k = tall * tl.load(across + frame * SW + x, read, 0.0) * seen
                pixel = ((b * SH + y) * SW + x)[:, None] * C + channel[None, :]
                here = mask & read[:, None]
                both = k[:, None] * f
                top = both == tl.load(peak + pixel, here, float("nan"))
                wish = tl.load(of_first + pixel, here, 0.0)
                wish += 2 * f * tl.load(of_second + pixel, here, 0.0)
                wish += tl.where(top, tl.load(of_peak + pixel, here, 0.0), 0.0)
                asked += k[:, None] * wish
        tl.store(slope + place, asked.to(slope.dtype.element_ty), mask)


class _Sums(torch.autograd.Function):
    """The sums, with a gradient for the features alone."""

    @staticmethod
    def forward(ctx, feat, valid, rows, columns):  # type: ignore[no-untyped-def]
        feat, valid = feat.contiguous(), valid.contiguous()
        batch, channels = feat.shape[0], feat.shape[-1]
        tall, wide = rows.sample.shape[-1], columns.sample.shape[-1]
        total = feat.new_empty(batch, tall, wide, 1, dtype=torch.float32)
        shape = (batch, tall, wide, channels)
        first, second, peak = (feat.new_empty(shape, dtype=torch.float32) for _ in range(3))
        read = (rows.sample, rows.weight, columns.sample, columns.weight)
        _launch(_sums_kernel, feat, (wide, tall), valid, *read, total, first, second, peak)
        ctx.save_for_backward(feat, valid, *rows, *columns, peak)
        ctx.mark_non_differentiable(total)
        return total, first, second, peak

    @staticmethod
    def backward(ctx, _, of_first, of_second, of_peak):  # type: ignore[no-untyped-def]
        feat, valid, *axes, peak = ctx.saved_tensors
        rows, columns = Reading(*axes[:3]), Reading(*axes[3:])
        slope = torch.empty_like(feat)
        asked = (part.contiguous() for part in (of_first, of_second, of_peak))
        read = (rows.pixels, rows.weight, columns.pixels, columns.weight)
        grid = (feat.shape[3], feat.shape[2])
        _launch(_slopes_kernel, feat, grid, valid, *read, peak, *asked, slope)
        return slope, None, None, None


def sums(
    feat: Tensor, valid: Tensor, rows: Reading, columns: Reading
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`pool.Sums` of features (B, N, H, W, C) and valid (B, N, H, W) as they are read."""
    found: tuple[Tensor, Tensor, Tensor, Tensor] = _Sums.apply(feat, valid, rows, columns)
    return found


def _launch(kernel: Any, feat: Tensor, size: tuple[int, int], *tensors: Tensor) -> None:
    """One program for PIXELS of a row, for all rows of a burst: size is (row's length, rows)."""
    batch, count, height, width, channels = feat.shape
    scaled = [tensors[2].shape[-1], tensors[4].shape[-1]]
    grid = (triton.cdiv(size[0], PIXELS), size[1], batch)
    padded = triton.next_power_of_2(channels)
    kernel[grid](feat, *tensors, count, height, width, *scaled, channels, padded, PIXELS)
