"""Shift-and-pool: features of all frames laid on the high-res grid, then pooled over frames.

`land` puts the features of each frame where they belong; `Pool` takes weighted average, maximum
and standard deviation over frames, chunk by chunk, so that memory does not grow with their number.
Features are channels-last, (B, N, H, W, C): one sample is one contiguous vector.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..geometry import flow_field, pixel_grid
from ..kernel import split_position
from .fused import kernels


class Sums(NamedTuple):
    """Sums over frames at each high-res pixel; k is the weight of a frame's feature f there."""

    weight: Tensor  # (B, H, W, 1) sum of k
    first: Tensor  # (B, H, W, C) sum of k f
    second: Tensor  # (B, H, W, C) sum of k f^2
    peak: Tensor  # (B, H, W, C) maximum of k f and zero


def frame_sums(feat: Tensor, valid: Tensor, flow_px: Tensor, scale: int) -> Sums:
    """The sums of frames, given as to `land`.

    On a GPU translated frames are never laid out, unless their flow is itself learnt or anything is
    in float64.
    """
    single = feat.dtype != torch.float64 and flow_px.dtype == torch.float32
    fused = kernels("pool") if feat.is_cuda and flow_px.ndim == 3 and single else None
    if fused is None or flow_px.requires_grad:
        return landed_sums(*land(feat, valid, flow_px, scale))
    rows, columns = (reading(flow_px[..., k], feat.shape[2 + k], scale) for k in (0, 1))
    return Sums(*fused.sums(feat, valid.float(), rows, columns))


def landed_sums(feat: Tensor, weight: Tensor) -> Sums:
    """The sums of landed frames, (B, N, H, W, C) and (B, N, H, W)."""
    weight = weight[..., None]
    both = weight * feat  # in float32, whatever the features are
    peak = both.amax(1).clamp(min=0)
    return Sums(weight.sum(1), both.sum(1), (both * feat).sum(1), peak)


def land(feat: Tensor, valid: Tensor, flow_px: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """Features of each frame on the high-res grid and their bilinear weights.

    feat: (B, N, H, W, C); valid: (B, N, H, W), zero leaves a sample out; flow_px:
    (B, N, 2[, H, W]) low-res px. Returns (B, N, s*H, s*W, C) and (B, N, s*H, s*W); where a weight
    is zero the feature means nothing. Convention: the sample at x lands on `s (x + flow)`.
    """
    if flow_px.ndim == 3:
        return land_by_gather(feat, valid, flow_px, scale)
    return land_by_splat(feat, valid, flow_px, scale)


def land_by_splat(
    feat: Tensor, valid: Tensor, flow_px: Tensor, scale: int
) -> tuple[Tensor, Tensor]:
    """The definition, for any flow: `sum k f / sum k` and `sum k` over a frame's own samples."""
    batch, count, *shape, channels = feat.shape
    tall, wide = scale * shape[0], scale * shape[1]
    whole, fraction = split_position(scale * flow_field(flow_px, (shape[0], shape[1])))
    corner = whole + pixel_grid((shape[0], shape[1]), flow_px).long() * scale
    value = flow_px.new_zeros(batch, count, tall * wide, channels)
    weight = value.new_zeros(batch, count, tall * wide)
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = corner[:, :, 0] + dy, corner[:, :, 1] + dx
            inside = (y >= 0) & (y < tall) & (x >= 0) & (x < wide)
            share_y = fraction[:, :, 0] if dy else 1 - fraction[:, :, 0]
            share_x = fraction[:, :, 1] if dx else 1 - fraction[:, :, 1]
            kernel = (share_y * share_x * inside * valid).flatten(2)
            index = torch.where(inside, y * wide + x, 0).flatten(2)
            weight = weight.scatter_add(2, index, kernel)
            spread = index[..., None].expand(*index.shape, channels)
            value = value.scatter_add(2, spread, kernel[..., None] * feat.flatten(2, 3))
    value = value / weight.clamp(min=1e-12)[..., None]
    value, weight = (x.unflatten(2, (tall, wide)) for x in (value, weight))
    return value.to(feat), weight


def land_by_gather(
    feat: Tensor, valid: Tensor, flow_px: Tensor, scale: int
) -> tuple[Tensor, Tensor]:
    """The same for translations (B, N, 2): each high-res pixel reads the one sample near it.

    A bilinear kernel reaches less than one high-res px, samples are s >= 2 apart: no more than
    one sample of a frame has a say in a pixel. Backwards the same holds, so nothing is scattered.
    """
    shape = (feat.shape[2], feat.shape[3])
    rows, columns = (_nearest_sample(flow_px[..., axis], shape[axis], scale) for axis in (0, 1))
    feat = _Read.apply(feat, rows[0], columns[0], flow_px, scale)
    seen = _read(valid[..., None].to(flow_px), rows[0], columns[0])[..., 0]
    return feat, rows[1][..., :, None] * columns[1][..., None, :] * seen


def _nearest_sample(flow_px: Tensor, length: int, scale: int) -> tuple[Tensor, Tensor]:
    """For each high-res pixel of an axis the sample that lands nearest, and its weight.

    flow_px: (B, N). Returns indices, clamped to the frame, and weights, zero beyond it or beyond
    the kernel, both (B, N, s*length).
    """
    whole, fraction = split_position(scale * flow_px)  # exact however far the pixel is
    pixel = torch.arange(scale * length, device=flow_px.device)
    offset = pixel - whole[..., None]  # lands on scale * x + whole + fraction
    sample = torch.div(offset, scale, rounding_mode="floor")
    below = offset - scale * sample  # 0 .. s-1 px above the sample's whole position
    # that sample is `below - fraction` away, the next one `scale - below + fraction`
    upper = below - fraction[..., None] >= 1
    sample = torch.where(upper, sample + 1, sample)
    distance = scale * sample - offset + fraction[..., None]
    inside = (sample >= 0) & (sample < length)
    weight = (1 - distance.abs()).clamp(min=0) * inside
    return sample.clamp(0, length - 1), weight


def _read(feat: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`out[b, n, y, x] = feat[b, n, rows[b, n, y], columns[b, n, x]]`."""
    batch, count, height, width, channels = feat.shape
    frame = torch.arange(batch * count, device=rows.device).view(batch, count, 1, 1)
    index = (frame * height + rows[..., :, None]) * width + columns[..., None, :]
    # whole vectors of channels by one index: several times faster than four indices
    flat = feat.reshape(-1, channels).index_select(0, index.flatten())
    return flat.view(*index.shape, channels)


class _Read(torch.autograd.Function):
    """`_read` whose gradient is read too: each sample is near at most 2 x 2 high-res pixels."""

    @staticmethod
    def forward(ctx, feat, rows, columns, flow_px, scale):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(rows, columns, flow_px)
        ctx.scale, ctx.shape = scale, feat.shape[2:4]
        return _read(feat, rows, columns)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        rows, columns, flow_px = ctx.saved_tensors
        total = None
        for dy in (0, 1):
            y, reads_y = _pixel_beside(flow_px[..., 0], rows, ctx.shape[0], ctx.scale, dy)
            for dx in (0, 1):
                x, reads_x = _pixel_beside(flow_px[..., 1], columns, ctx.shape[1], ctx.scale, dx)
                reads = (reads_y[..., :, None] & reads_x[..., None, :])[..., None]
                part = _read(grad, y, x).masked_fill(~reads, 0)
                total = part if total is None else total + part
        return total, None, None, None, None


def _pixel_beside(
    flow_px: Tensor, chosen: Tensor, length: int, scale: int, step: int
) -> tuple[Tensor, Tensor]:
    """The high-res pixel below (step 0) or above (1) where each sample lands, if it reads it.

    chosen: (B, N, s*length), the sample that each pixel reads. Returns (B, N, length) each.
    """
    whole, _ = split_position(scale * flow_px)
    sample = torch.arange(length, device=flow_px.device)
    pixel = scale * sample + whole[..., None] + step
    inside = (pixel >= 0) & (pixel < scale * length)
    pixel = pixel.clamp(0, scale * length - 1)
    return pixel, inside & (chosen.gather(-1, pixel) == sample)


class Reading(NamedTuple):
    """Which sample each high-res pixel of an axis reads, and which pixels read each sample.

    sample, weight: (B, N, s*length); pixels: (B, N, 2, length), -1 for none.
    """

    sample: Tensor
    weight: Tensor
    pixels: Tensor


def reading(flow_px: Tensor, length: int, scale: int) -> Reading:
    """How translations (B, N) along an axis of frames are read."""
    sample, weight = _nearest_sample(flow_px, length, scale)
    beside = (_pixel_beside(flow_px, sample, length, scale, step) for step in (0, 1))
    pixels = torch.stack([torch.where(reads, pixel, -1) for pixel, reads in beside], 2)
    return Reading(sample.int(), weight, pixels.int())


class Pool:
    """Weighted average, maximum and standard deviation over frames, added chunk by chunk.

    With k the weight of a frame's feature f at a pixel: average `sum k f / sum k`, spread
    `sqrt(sum k f^2 / sum k - average^2)`, maximum of `k f` and zero, so that a sample far from the
    pixel cannot win and a masked one is none, and the accumulated weight `sum k`. All zero where
    there is no sample.
    """

    def __init__(self) -> None:
        self.sums: Sums | None = None

    def add(self, sums: Sums) -> None:
        """Add a chunk of frames."""
        if self.sums is not None:
            weight, first, second, peak = self.sums
            added = (weight + sums.weight, first + sums.first, second + sums.second)
            sums = Sums(*added, torch.maximum(peak, sums.peak))
        self.sums = sums

    def finish(self) -> Tensor:
        """(B, H, W, 3 C + 1): average, maximum, standard deviation and accumulated weight."""
        assert self.sums is not None
        total, first, second, peak = self.sums
        share = 1 / total.clamp(min=1e-6)
        mean = first * share
        # a root of zero has no slope: a trace under it keeps the gradient finite
        spread = ((second * share - mean**2).clamp(min=0) + 1e-6).sqrt()
        seen = total > 1e-6
        return torch.cat([mean, peak, spread * seen, total], -1)
