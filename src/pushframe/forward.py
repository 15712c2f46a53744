"""The forward model `v_t = D F_t u` (eq:degradation) and its adjoint.

`F_t` is defined by one kernel: a sinc under a Kaiser window (beta 8, half-width 12 px of the
image), its 24 taps normalised to sum one. Images live on a canvas that extends `pad` pixels
beyond the reference's field on every side; beyond the canvas its edge values are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from .geometry import flow_field, pixel_grid

HALF_WIDTH = 12
KAISER_BETA = 8.0


class ForwardModel(Protocol):
    """A linear map from images (B, h, w) to bursts (B, N, H, W), with its exact transpose."""

    inside: Tensor  # (B, N, H, W) or broadcastable: samples that fall on the canvas

    def forward(self, image: Tensor) -> Tensor:
        """Image to frames."""
        ...

    def adjoint(self, frames: Tensor) -> Tensor:
        """Frames to image: <forward(u), v> = <u, adjoint(v)>."""
        ...


def forward_model(flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> ForwardModel:
    """The operator that samples a canvas at `scale * (x + flow) + pad`.

    flow_px: (B, N, 2) translations or (B, N, 2, H, W), frame to reference, low-res px.
    shape: (H, W) of a frame; pad: canvas pixels around the reference's field.
    """
    kind = Translations if flow_px.ndim == 3 else Flows
    return kind(flow_px, shape, scale, pad)


def canvas_shape(shape: tuple[int, int], scale: int, pad: int) -> tuple[int, int]:
    """The size of the canvas, `scale * (H, W) + 2 * pad`."""
    return scale * shape[0] + 2 * pad, scale * shape[1] + 2 * pad


def sinc_taps(fraction: Tensor) -> Tensor:
    """The 24 weights that read a band-limited signal `fraction` of a pixel after tap 11.

    fraction: (...,) in [0, 1). Returns (..., 24), for the pixels -11 to 12, summing to one.
    """
    tap = torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=fraction.device)
    distance = fraction[..., None] - tap.to(fraction)
    window = torch.special.i0(
        KAISER_BETA * (1 - (distance / HALF_WIDTH) ** 2).clamp(min=1e-12).sqrt()
    ) / torch.special.i0(torch.tensor(KAISER_BETA, dtype=fraction.dtype))
    taps = torch.sinc(distance) * window
    return taps / taps.sum(-1, keepdim=True)


def split_position(offset: Tensor) -> tuple[Tensor, Tensor]:
    """Whole and fractional part of positions, (int64, in [0, 1))."""
    whole = offset.floor()
    return whole.long(), offset - whole


class Translations:
    """One shift a frame: two banded matrices, rows and columns, stored dense."""

    def __init__(self, flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> None:
        whole, fraction = split_position(scale * flow_px)
        taps = sinc_taps(fraction)
        size = canvas_shape(shape, scale, pad)
        axes = [
            self._axis(whole[..., k], taps[..., k, :], shape[k], size[k], scale, pad)
            for k in (0, 1)
        ]
        (self.rows, inside_y), (self.columns, inside_x) = axes
        self.inside = inside_y[..., :, None] & inside_x[..., None, :]

    @staticmethod
    def _axis(
        whole: Tensor, taps: Tensor, length: int, canvas: int, scale: int, pad: int
    ) -> tuple[Tensor, Tensor]:
        """The (B, N, length, canvas) matrix of one axis, and which samples are on the canvas."""
        # s*x is whole, so positions are exact however far the pixel is from the origin
        centre = torch.arange(length, device=whole.device) * scale + pad + whole[..., None]
        tap = torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=whole.device)
        index = (centre[..., None] + tap).clamp(0, canvas - 1)
        weight = taps[..., None, :].expand(*index.shape)
        matrix = taps.new_zeros(*whole.shape, length, canvas).scatter_add(-1, index, weight)
        return matrix, (centre >= 0) & (centre <= canvas - 1)

    def forward(self, image: Tensor) -> Tensor:
        # one product for all frames' rows, then a small one a frame
        left = self.rows.flatten(1, 2) @ image
        return left.unflatten(1, self.rows.shape[1:3]) @ self.columns.mT

    def adjoint(self, frames: Tensor) -> Tensor:
        # summing over frames inside the product saves a (B, N, h, w) intermediate
        left = (frames @ self.columns).flatten(1, 2)
        return self.rows.flatten(1, 2).mT @ left


class Flows:
    """A flow for every pixel: 24 x 24 taps gathered row by row."""

    def __init__(self, flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> None:
        self.size = canvas_shape(shape, scale, pad)
        whole, fraction = split_position(scale * flow_field(flow_px, shape))
        grid = pixel_grid(shape, flow_px).long() * scale + pad
        self.centre = (whole + grid).unbind(2)  # (y, x), each (B, N, H, W)
        self.fraction = fraction.unbind(2)
        self.inside = ((self.centre[0] >= 0) & (self.centre[0] < self.size[0])) & (
            (self.centre[1] >= 0) & (self.centre[1] < self.size[1])
        )

    def _rows(self) -> Iterator[tuple[Tensor, Tensor]]:
        """For each of 24 rows of taps: flat indices and weights, (B, N*H*W*24).

        One at a time: all of them together would be as large as 576 bursts.
        """
        tap = torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=self.centre[0].device)
        weight_y, weight_x = (sinc_taps(part) for part in self.fraction)
        column = (self.centre[1][..., None] + tap).clamp(0, self.size[1] - 1)
        for j in range(len(tap)):
            row = (self.centre[0] + tap[j]).clamp(0, self.size[0] - 1)
            index = row[..., None] * self.size[1] + column
            yield index.flatten(1), (weight_y[..., j, None] * weight_x).flatten(1)

    def forward(self, image: Tensor) -> Tensor:
        flat, shape = image.flatten(1), self.inside.shape
        taps = 2 * HALF_WIDTH
        return sum(
            (flat.gather(1, index) * weight).view(*shape, taps).sum(-1)
            for index, weight in self._rows()
        )  # type: ignore[return-value]

    def adjoint(self, frames: Tensor) -> Tensor:
        flat = frames.new_zeros(frames.shape[0], self.size[0] * self.size[1])
        taps = 2 * HALF_WIDTH
        spread = frames[..., None].expand(*frames.shape, taps).flatten(1)
        for index, weight in self._rows():
            flat = flat.scatter_add(1, index, weight * spread)
        return flat.unflatten(1, self.size)
