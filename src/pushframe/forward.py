"""The forward model `v_t = D F_t u` (eq:degradation) and its adjoint.

`F_t` is defined by one `kernel`. Images live on a canvas that extends `pad` pixels beyond the
reference's field on every side; beyond the canvas its edge values are repeated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .filters import LARGEST_MATRIX
from .geometry import flow_field, pixel_grid
from .kernel import (
    HALF_WIDTH,
    KAISER_BETA,
    kaiser,
    kaiser_slope,
    sinc_slopes,
    sinc_taps,
    slope_of_share,
    split_position,
    tap_places,
)
from .once import made_once

FINE_TAPS = 6  # of the short kernel that reads an image of half the pixel size
FINE_BETA = 13.2  # least error for what the long kernel passes, up to 0.307 cycles a fine px
FINE_REACH = 36  # fine px, beyond which the first stage's filter has died away


class ForwardModel(Protocol):
    """A linear map from images (B, h, w) to bursts (B, N, H, W), with its exact transpose."""

    inside: Tensor  # (B, N, H, W) or broadcastable: samples that fall on the canvas

    def forward(self, image: Tensor) -> Tensor:
        """Image to frames."""
        ...

    def adjoint(self, frames: Tensor) -> Tensor:
        """Frames to image: <forward(u), v> = <u, adjoint(v)>."""
        ...

    def slopes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """How the frames of an image change with their flow along y and x, a low-res px.

        Exactly: near the image's Nyquist frequency the kernel responds to a fraction of a pixel in
        another way than an ideal shift does.
        """
        ...

    def part(self, index: Tensor) -> ForwardModel:
        """That of some entries of the batch."""
        ...


def forward_model(flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> ForwardModel:
    """The operator that samples a canvas at `scale * (x + flow) + pad`.

    flow_px: (B, N, 2) translations or (B, N, 2, H, W), frame to reference, low-res px.
    shape: (H, W) of a frame; pad: canvas pixels around the reference's field.
    """
    kind = Translations if flow_px.ndim == 3 else Flows
    return kind(flow_px, shape, scale, pad)


def moved(images: Tensor, flow_px: Tensor) -> Tensor:
    """Images (B, N, H, W) at `x + flow`, each with a flow of its own, (B, N, 2[, H, W])."""
    count, *shape = images.shape[1:]
    model = forward_model(flow_px.flatten(0, 1)[:, None], (shape[0], shape[1]), 1, 0)
    return model.forward(images.flatten(0, 1))[:, 0].unflatten(0, (-1, count))


def canvas_shape(shape: tuple[int, int], scale: int, pad: int) -> tuple[int, int]:
    """The size of the canvas, `scale * (H, W) + 2 * pad`."""
    return scale * shape[0] + 2 * pad, scale * shape[1] + 2 * pad


def per_axis(
    work: Callable[..., Tensor], shape: tuple[int, int], *values: Sequence[Tensor] | Tensor
) -> Sequence[Tensor] | Tensor:
    """`work(size, *values)` along rows and columns; of a square both at once, as (2, ...).

    values: two tensors each, or one of (2, ...).
    """
    if shape[0] == shape[1] and all(isinstance(value, Tensor) for value in values):
        return work(shape[0], *values)
    return [work(size, *(value[k] for value in values)) for k, size in enumerate(shape)]


class Translations:
    """One shift a frame: two banded matrices, rows and columns, stored dense."""

    def __init__(self, flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> None:
        self.flow_px, self.shape, self.scale, self.pad = flow_px, shape, scale, pad
        whole, fraction = split_position(scale * flow_px.movedim(-1, 0))

        def inside(length: int, whole: Tensor) -> Tensor:
            centre = self._centre(length, whole)
            return centre == centre.clamp(0, scale * length + 2 * pad - 1)

        down, right = per_axis(inside, shape, whole)
        self.inside = down[..., :, None] & right[..., None, :]
        rows, columns = self._matrices(whole, sinc_taps(fraction))
        self.rows: Tensor = rows  # (B, N, H, h)
        self.columns: Tensor = columns  # (B, N, W, w)

    def _centre(self, length: int, whole: Tensor) -> Tensor:
        """The canvas pixel at or before each sample along an axis, (..., length)."""
        # s*x is whole, so positions are exact however far the pixel is from the origin
        place = torch.arange(length, device=whole.device) * self.scale + self.pad
        return place + whole[..., None]

    def _matrices(self, whole: Tensor, taps: Tensor) -> Sequence[Tensor] | Tensor:
        """The matrices of rows and columns, of taps (2, B, N, 24)."""

        def matrix(length: int, whole: Tensor, taps: Tensor) -> Tensor:
            canvas, centre = self.scale * length + 2 * self.pad, self._centre(length, whole)
            index = (centre[..., None] + tap_places(centre.device)).clamp(0, canvas - 1)
            weight = taps[..., None, :].expand(*index.shape)
            return taps.new_zeros(*centre.shape, canvas).scatter_add_(-1, index, weight)

        return per_axis(matrix, self.shape, whole, taps)

    def forward(self, image: Tensor) -> Tensor:
        # one product for all frames' rows, then a small one a frame
        left = self.rows.flatten(1, 2) @ image
        return left.unflatten(1, self.rows.shape[1:3]) @ self.columns.mT

    def forward_each(self, images: Tensor) -> Tensor:
        """The same for several images (B, C, h, w) at once, (B, N, C, H, W)."""
        side_by_side = images.transpose(1, 2).flatten(2)
        left = (self.rows.flatten(1, 2) @ side_by_side).unflatten(2, images.shape[1::2])
        right = left.flatten(1, 2).unflatten(1, (self.rows.shape[1], -1)) @ self.columns.mT
        return right.unflatten(2, (-1, images.shape[1])).transpose(2, 3)

    def adjoint(self, frames: Tensor) -> Tensor:
        # summing over frames inside the product saves a (B, N, h, w) intermediate
        left = (frames @ self.columns).flatten(1, 2)
        return self.rows.flatten(1, 2).mT @ left

    def slopes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        whole, fraction = split_position(self.scale * self.flow_px.movedim(-1, 0))
        down, right = copy.copy(self), copy.copy(self)
        down.rows, right.columns = self._matrices(whole, self.scale * sinc_slopes(fraction))
        return down.forward(image), right.forward(image)

    def part(self, index: Tensor) -> Translations:
        other = copy.copy(self)
        other.flow_px = self.flow_px[index]
        other.rows, other.columns = self.rows[index], self.columns[index]
        other.inside = self.inside[index]
        return other


class Flows:
    """A flow for every pixel, in two stages.

    The image is first brought to half its pixel size, where it is smooth enough for a kernel of
    6 x 6 taps to read it anywhere; a filter in the first stage makes up for what that kernel
    blurs. Together they are the 24 x 24 taps of `sinc_taps` to 4e-5 of an image of white noise, at
    a sixteenth of the work, and exactly for a constant.
    """

    def __init__(self, flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> None:
        size = canvas_shape(shape, scale, pad)
        whole, fraction = split_position(scale * flow_field(flow_px, shape))
        centre = whole + pixel_grid(shape, flow_px).long() * scale + pad
        limit = torch.tensor(size, device=centre.device)[:, None, None]
        self.inside = ((centre >= 0) & (centre < limit)).all(2)
        half, fraction = split_position(2 * fraction)
        # the fine image begins FINE_TAPS / 2 of its pixels before the canvas
        first = (2 * centre + half).clamp(min=0).minimum(2 * limit - 1) + 1
        self.shape = tuple(2 * length + FINE_TAPS for length in size)
        row, column = first.unbind(2)
        self.place = (row * self.shape[1] + column).flatten(1)  # (B, N*H*W)
        self.fraction, self.odd, self.scale = fraction, first % 2 == 0, scale
        self.weight_y, self.weight_x = _in_rows(_fine_taps(fraction, self.odd))

    def _places(self) -> Tensor:
        """Where the samples' first taps lie in the fine images of the batch, one after another."""
        entry = torch.arange(len(self.place), device=self.place.device)[:, None]
        return (self.place + entry * (self.shape[0] * self.shape[1])).flatten()

    def _from_tap(self, fine: Tensor, down: int, right: int) -> Tensor:
        """The fine images (B*F,) as all samples' tap in that row and column counts its places."""
        return fine[down * self.shape[1] + right :]

    def forward(self, image: Tensor) -> Tensor:
        fine, place, taps = _refined(image).flatten(), self._places(), range(FINE_TAPS)
        weight_y, weight_x = self.weight_y.flatten(1), self.weight_x.flatten(1)
        total = torch.zeros_like(weight_y[0])
        for j in taps:
            row = [self._from_tap(fine, j, i).index_select(0, place) for i in taps]
            along = row[0] * weight_x[0]
            for i in taps[1:]:
                along = along.addcmul_(row[i], weight_x[i])
            total = torch.addcmul(total, along, weight_y[j])
        return total.view(self.inside.shape)

    def adjoint(self, frames: Tensor) -> Tensor:
        fine, place = frames.new_zeros(len(frames) * self.shape[0] * self.shape[1]), self._places()
        weight_y, along = self.weight_y.flatten(1), self.weight_x.flatten(1) * frames.flatten()
        for j in range(FINE_TAPS):
            for i in range(FINE_TAPS):
                self._from_tap(fine, j, i).scatter_add_(0, place, weight_y[j] * along[i])
        return _refined_adjoint(fine.view(-1, *self.shape))

    def slopes(self, image: Tensor) -> tuple[Tensor, Tensor]:
        down, right = copy.copy(self), copy.copy(self)
        steep = 2 * self.scale * _fine_slopes(self.fraction, self.odd)  # of pixels half the size
        down.weight_y, right.weight_x = _in_rows(steep)
        return down.forward(image), right.forward(image)

    def part(self, index: Tensor) -> Flows:
        other = copy.copy(self)
        other.place, other.inside = self.place[index], self.inside[index]
        other.fraction, other.odd = self.fraction[index], self.odd[index]
        other.weight_y, other.weight_x = self.weight_y[:, index], self.weight_x[:, index]
        return other


def _in_rows(taps: Tensor) -> Tensor:
    """Taps (B, N, 2, H, W, 6) of both axes, (2, 6, B, N*H*W)."""
    return taps.permute(2, 5, 0, 1, 3, 4).flatten(3).contiguous()


@made_once
def _fine_filter() -> Tensor:
    """What one pixel becomes on the fine image: the sinc kernel at half-pixel steps, unblurred.

    (2 L + 1,) float64, centred; divided in Fourier space by the response of the short kernel. Up
    to a factor, which `_fine_taps` takes out.
    """
    size = 512
    step = torch.arange(-size // 2, size // 2, dtype=torch.float64)
    kernel = torch.sinc(step / 2) * kaiser(step, 2 * HALF_WIDTH, KAISER_BETA)
    kernel = torch.where(step.abs() <= 2 * HALF_WIDTH, kernel, 0)
    place = torch.linspace(-1, 1, 20001, dtype=torch.float64) * FINE_TAPS / 2
    waves = torch.cos(2 * torch.pi * torch.fft.fftfreq(size, dtype=torch.float64)[:, None] * place)
    blur = waves @ kaiser(place, FINE_TAPS / 2, FINE_BETA) * (place[1] - place[0])
    response = torch.fft.fft(torch.fft.ifftshift(kernel)).real
    sharpened = torch.fft.fftshift(torch.fft.ifft(response / blur).real)
    return sharpened[size // 2 - FINE_REACH : size // 2 + FINE_REACH + 1]


def _refined(image: Tensor) -> Tensor:
    """Images (B, h, w) at half the pixel size, edge values repeated, (B, 2h + 6, 2w + 6)."""
    if max(image.shape[-2:]) > LARGEST_MATRIX:
        return _refine(_refine(image).mT).mT
    tall, wide = (_refining(size, image.dtype, image.device) for size in image.shape[-2:])
    return tall @ image @ wide.mT


def _refined_adjoint(fine: Tensor) -> Tensor:
    """The transpose of `_refined`."""
    height, width = ((length - FINE_TAPS) // 2 for length in fine.shape[-2:])
    if max(height, width) > LARGEST_MATRIX:
        return _refine_adjoint(_refine_adjoint(fine.mT).mT)
    tall, wide = (_refining(size, fine.dtype, fine.device) for size in (height, width))
    return tall.mT @ fine @ wide


@made_once
def _refining(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`_refine` of one axis as a matrix, (2 size + 6, size)."""
    return _refine(torch.eye(size, dtype=dtype, device=device)[None])[0].mT.contiguous()


def _refine(image: Tensor) -> Tensor:
    """The rows of (B, h, w) at half the pixel size, edge values repeated, (B, h, 2w + 6)."""
    around = FINE_REACH // 2 + 2  # with which the fine rows begin one too early and end one late
    flat = F.pad(image.flatten(0, 1)[:, None], (around, around), mode="replicate")
    length = 2 * image.shape[-1] + FINE_TAPS
    fine = F.conv1d(flat, _phases(image)).transpose(1, 2).flatten(1)
    return fine[:, 1 : 1 + length].unflatten(0, image.shape[:2])


def _refine_adjoint(fine: Tensor) -> Tensor:
    """The transpose of `_refine`."""
    around = FINE_REACH // 2 + 2  # with which the fine rows begin one too early and end one late
    padded = F.pad(fine.flatten(0, 1), (1, 1)).unflatten(1, (-1, 2)).transpose(1, 2)
    wide = F.conv_transpose1d(padded, _phases(fine))[:, 0]
    image = wide[:, around:-around].clone()
    image[:, 0] += wide[:, :around].sum(1)
    image[:, -1] += wide[:, -around:].sum(1)
    return image.unflatten(0, fine.shape[:2])


def _phases(like: Tensor) -> Tensor:
    """The fine filter's taps for fine pixels on and between those of the image, (2, 1, 37)."""
    taps = F.pad(_fine_filter(), (0, 1)).unflatten(0, (-1, 2)).flip(0)
    return taps.T[:, None].to(like)


def _fine_taps(fraction: Tensor, odd: Tensor) -> Tensor:
    """The 6 weights that read the fine image `fraction` of its pixel after tap 2, (..., 6).

    odd: bool, where tap 2 lies between pixels of the canvas. A constant is read without error.
    """
    distance, count = _from_fine_taps(fraction, odd)
    weight = kaiser(distance, FINE_TAPS / 2, FINE_BETA)
    return weight / (weight * count).sum(-1, keepdim=True)


def _fine_slopes(fraction: Tensor, odd: Tensor) -> Tensor:
    """The derivative of `_fine_taps` in the fraction, (..., 6)."""
    distance, count = _from_fine_taps(fraction, odd)
    reach = FINE_TAPS / 2, FINE_BETA
    return slope_of_share(kaiser(distance, *reach), kaiser_slope(distance, *reach), count)


def _from_fine_taps(fraction: Tensor, odd: Tensor) -> tuple[Tensor, Tensor]:
    """How far from each tap is read, and how much of a constant the fine filter puts there."""
    tap = torch.arange(FINE_TAPS, device=fraction.device).to(fraction) - (FINE_TAPS // 2 - 1)
    filters = _fine_filter().to(fraction)
    even_sum, odd_sum = filters[FINE_REACH % 2 :: 2].sum(), filters[1 - FINE_REACH % 2 :: 2].sum()
    at_even = (tap.long() + odd[..., None]) % 2 == 0
    return fraction[..., None] - tap, torch.where(at_even, even_sum, odd_sum)
