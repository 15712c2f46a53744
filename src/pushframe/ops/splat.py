"""Shift-and-add: samples laid on the high-res grid where they belong, with bilinear weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..forward import split_position
from ..geometry import flow_field, pixel_grid


class Splat(NamedTuple):
    """Sums over the samples near each high-res pixel, each (B, s*H, s*W).

    k is a sample's bilinear weight, w its given weight, v its value.
    """

    value: Tensor  # sum of k w v
    weight: Tensor  # sum of k w
    square: Tensor  # sum of (k w)^2
    square_over_weight: Tensor  # sum of k^2 w: the noise variance of `value` where w = 1 / var

    @property
    def samples(self) -> Tensor:
        """The effective number of observations, `(sum kw)^2 / sum (kw)^2`; zero in holes."""
        return torch.where(self.square > 0, self.weight**2 / self.square, 0)


def splat(frames: Tensor, weight: Tensor, flow_px: Tensor, scale: int) -> Splat:
    """Spread each sample over the 4 high-res pixels around `s (x + flow)`.

    frames, weight: (B, N, H, W); weight 0 leaves a sample out. flow_px: (B, N, 2[, H, W]).
    Samples beyond the high-res grid are dropped, never moved to its edge.
    """
    batch, _, *shape = frames.shape
    height, width = scale * shape[0], scale * shape[1]
    whole, fraction = split_position(scale * flow_field(flow_px, (shape[0], shape[1])))
    corner = whole + pixel_grid((shape[0], shape[1]), flow_px).long() * scale
    sums = [frames.new_zeros(batch, height * width) for _ in range(4)]
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = corner[:, :, 0] + dy, corner[:, :, 1] + dx
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            share_y = fraction[:, :, 0] if dy else 1 - fraction[:, :, 0]
            share_x = fraction[:, :, 1] if dx else 1 - fraction[:, :, 1]
            kernel = share_y * share_x * inside
            index = torch.where(inside, y * width + x, 0).flatten(1)
            both = kernel * weight
            terms = (both * frames, both, both**2, kernel * both)
            sums = [
                total.scatter_add(1, index, term.flatten(1))
                for total, term in zip(sums, terms, strict=True)
            ]
    return Splat(*(total.unflatten(1, (height, width)) for total in sums))
