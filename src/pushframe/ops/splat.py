"""Shift-and-add: samples laid on the high-res grid where they belong, with bilinear weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..filters import LARGEST_MATRIX
from ..forward import per_axis
from ..geometry import flow_field, pixel_grid
from ..kernel import split_position


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
    return Splat(
        *spread((weight * frames, weight), flow_px, scale),
        *spread((weight**2, weight), flow_px, scale, power=2),
    )


def spread(values: Sequence[Tensor], flow_px: Tensor, scale: int, power: int = 1) -> list[Tensor]:
    """`sum k^power v` over the samples near each high-res pixel, (B, s*H, s*W) for each value.

    values: (B, N, H, W) each; k, flow_px: as of `splat`.
    """
    small = scale * max(values[0].shape[-2:]) <= LARGEST_MATRIX
    way = _by_products if flow_px.ndim == 3 and small else _by_scatter
    return way(values, flow_px, scale, power)


def _by_products(values: Sequence[Tensor], flow_px: Tensor, scale: int, power: int) -> list[Tensor]:
    """For translations: a matrix along each axis, as `forward.Translations` has them."""
    shape = (values[0].shape[-2], values[0].shape[-1])
    rows, columns = bilinear(flow_px, shape, scale)
    if power > 1:
        rows, columns = rows**power, columns**power
    tall = rows.flatten(1, 2).mT
    return [tall @ (value @ columns).flatten(1, 2) for value in values]


def bilinear(flow_px: Tensor, shape: tuple[int, int], scale: int) -> Sequence[Tensor] | Tensor:
    """The weights of the high-res pixels around each sample, of rows and of columns.

    flow_px: (B, N, 2). Returns (B, N, H, s*H) and (B, N, W, s*W).
    """

    def weights(length: int, shift: Tensor) -> Tensor:
        pixel = torch.arange(scale * length, device=shift.device)
        # whole numbers first: distances are exact however far the pixel is from the origin
        away = (pixel - pixel[::scale, None]) - shift[..., None, None]
        return away.abs_().neg_().add_(1).clamp_(min=0)

    return per_axis(weights, shape, scale * flow_px.movedim(-1, 0))


def _by_scatter(values: Sequence[Tensor], flow_px: Tensor, scale: int, power: int) -> list[Tensor]:
    """For any flow."""
    batch, _, *shape = values[0].shape
    height, width = scale * shape[0], scale * shape[1]
    whole, fraction = split_position(scale * flow_field(flow_px, (shape[0], shape[1])))
    corner = whole + pixel_grid((shape[0], shape[1]), flow_px).long() * scale
    sums = [value.new_zeros(batch, height * width) for value in values]
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = corner[:, :, 0] + dy, corner[:, :, 1] + dx
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            share_y = fraction[:, :, 0] if dy else 1 - fraction[:, :, 0]
            share_x = fraction[:, :, 1] if dx else 1 - fraction[:, :, 1]
            kernel = (share_y * share_x * inside) ** power
            index = torch.where(inside, y * width + x, 0).flatten(1)
            sums = [
                total.scatter_add(1, index, (kernel * value).flatten(1))
                for total, value in zip(sums, values, strict=True)
            ]
    return [total.unflatten(1, (height, width)) for total in sums]
