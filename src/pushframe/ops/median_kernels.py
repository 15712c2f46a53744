"""Each value's rank among the frames by counting, as a Triton kernel: no sorting, no indices."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # pixels a program


@triton.jit
def _median_kernel(values, out, N, P, NP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = values + tl.program_id(1).to(tl.int64) * N * P
    n = tl.arange(0, NP)
    mask = (n < N)[:, None] & (pixel < P)[None, :]
    x = tl.load(base + n[:, None] * P + pixel[None, :], mask, float("nan"))
    known = x == x
    rank = tl.zeros([NP, BLOCK], tl.int32)
    for m in range(N):
        y = tl.load(base + m * P + pixel, pixel < P, float("nan"))[None, :]
        before = (y < x) | ((y == x) & (m < n)[:, None])
        rank += before.to(tl.int32)
    count = tl.sum(known.to(tl.int32), 0)
    chosen = known & (rank == ((count - 1) // 2)[None, :])
    middle = tl.sum(tl.where(chosen, x, 0.0), 0)
    place = out + tl.program_id(1).to(tl.int64) * P + pixel
    tl.store(place, tl.where(count > 0, middle, float("nan")), pixel < P)


def lower_median(values: Tensor) -> Tensor:
    """The lower median over frames, NaN left out, (B, 1, H, W) of float32 (B, N, H, W)."""
    values = values.contiguous()
    batch, count, height, width = values.shape
    out = torch.empty(batch, 1, height, width, device=values.device)
    grid = (triton.cdiv(height * width, BLOCK), batch)
    padded = triton.next_power_of_2(count)
    _median_kernel[grid](values, out, count, height * width, padded, BLOCK, num_warps=2)
    return out
