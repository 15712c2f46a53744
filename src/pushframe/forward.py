"""The forward model `v_t = D F_t u` (eq:degradation) and its adjoint.

`F_t` is defined by one kernel: a sinc under a Kaiser window (beta 8, half-width 12 px of the
image), its 24 taps normalised to sum one. Images live on a canvas that extends `pad` pixels
beyond the reference's field on every side; beyond the canvas its edge values are repeated.
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
from .once import made_once

HALF_WIDTH = 12
KAISER_BETA = 8.0
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


def sinc_taps(fraction: Tensor) -> Tensor:
    """The 24 weights that read a band-limited signal `fraction` of a pixel after tap 11.

    fraction: (...,) in [0, 1). Returns (..., 24), for the pixels -11 to 12, summing to one.
    """
    distance = fraction[..., None] - _tap_places(fraction.device)
    taps = torch.sinc(distance) * _kaiser(distance, HALF_WIDTH, KAISER_BETA)
    return taps / taps.sum(-1, keepdim=True)


@made_once
def _tap_places(device: torch.device) -> Tensor:
    """The pixels that the taps weigh, -11 to 12."""
    return torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=device)


def split_position(offset: Tensor) -> tuple[Tensor, Tensor]:
    """Whole and fractional part of positions, (int64, in [0, 1))."""
    whole = offset.floor()
    return whole.long(), offset - whole


class Translations:
    """One shift a frame: two banded matrices, rows and columns, stored dense."""

    def __init__(self, flow_px: Tensor, shape: tuple[int, int], scale: int, pad: int) -> None:
        whole, fraction = split_position(scale * flow_px.movedim(-1, 0))
        taps = sinc_taps(fraction)

        def centre(length: int, whole: Tensor) -> Tensor:
            # s*x is whole, so positions are exact however far the pixel is from the origin
            return torch.arange(length, device=whole.device) * scale + pad + whole[..., None]

        def inside(length: int, centre: Tensor) -> Tensor:
            return centre == centre.clamp(0, scale * length + 2 * pad - 1)

        def matrix(length: int, centre: Tensor, taps: Tensor) -> Tensor:
            canvas = scale * length + 2 * pad
            index = (centre[..., None] + _tap_places(centre.device)).clamp(0, canvas - 1)
            weight = taps[..., None, :].expand(*index.shape)
            return taps.new_zeros(*centre.shape, canvas).scatter_add_(-1, index, weight)

        centres = per_axis(centre, shape, whole)
        down, right = per_axis(inside, shape, centres)
        self.inside = down[..., :, None] & right[..., None, :]
        rows, columns = per_axis(matrix, shape, centres, taps)
        self.rows: Tensor = rows  # (B, N, H, h)
        self.columns: Tensor = columns  # (B, N, W, w)

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

    def part(self, index: Tensor) -> Translations:
        other = copy.copy(self)
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
        weight = _fine_taps(fraction, (first - 1) % 2).permute(2, 5, 0, 1, 3, 4)
        self.weight_y, self.weight_x = weight.flatten(3).contiguous()  # (6, B, N*H*W) each

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

    def part(self, index: Tensor) -> Flows:
        other = copy.copy(self)
        other.place, other.inside = self.place[index], self.inside[index]
        other.weight_y, other.weight_x = self.weight_y[:, index], self.weight_x[:, index]
        return other


@made_once
def _fine_filter() -> Tensor:
    """What one pixel becomes on the fine image: the sinc kernel at half-pixel steps, unblurred.

    (2 L + 1,) float64, centred; divided in Fourier space by the response of the short kernel. Up
    to a factor, which `_fine_taps` takes out.
    """
    size = 512
    step = torch.arange(-size // 2, size // 2, dtype=torch.float64)
    kernel = torch.sinc(step / 2) * _kaiser(step, 2 * HALF_WIDTH, KAISER_BETA)
    kernel = torch.where(step.abs() <= 2 * HALF_WIDTH, kernel, 0)
    place = torch.linspace(-1, 1, 20001, dtype=torch.float64) * FINE_TAPS / 2
    waves = torch.cos(2 * torch.pi * torch.fft.fftfreq(size, dtype=torch.float64)[:, None] * place)
    blur = waves @ _kaiser(place, FINE_TAPS / 2, FINE_BETA) * (place[1] - place[0])
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

    odd: where tap 2 lies between pixels of the canvas. A constant is read without error.
    """
    tap = torch.arange(FINE_TAPS, device=fraction.device).to(fraction) - (FINE_TAPS // 2 - 1)
    weight = _kaiser(fraction[..., None] - tap, FINE_TAPS / 2, FINE_BETA)
    filters = _fine_filter().to(fraction)
    even_sum, odd_sum = filters[FINE_REACH % 2 :: 2].sum(), filters[1 - FINE_REACH % 2 :: 2].sum()
    at_even = (tap.long() + odd[..., None]) % 2 == 0
    return weight / (weight * torch.where(at_even, even_sum, odd_sum)).sum(-1, keepdim=True)


def _kaiser(place: Tensor, reach: float, beta: float) -> Tensor:
    """The Kaiser window, up to a factor, for places from -reach to reach."""
    inner = torch.rsub(place.square(), beta**2, alpha=(beta / reach) ** 2)
    return torch.special.i0(inner.clamp(min=1e-12).sqrt())
