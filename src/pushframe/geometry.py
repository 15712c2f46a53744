"""Where a sample lies: subsampling A_tau, flows under a grid shift, image sampling, georeference.

Convention (the whole package): 2-vectors are (dy, dx), in the order of the axes. The centre of
low-res pixel `l` is the centre of high-res pixel `s*l`. A flow goes from a frame to the
reference, in low-res px: the sample at `x` lands on high-res position `s * (x + flow)`, under a
grid shift tau on `s * (x + flow) + tau`.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from .burst import GeoRef
from .checks import check_scale


def all_but_the_reference(count: int, like: Tensor) -> Tensor:
    """Zero for frame 0, which defines grid and scale, and one for the others, (N,)."""
    return torch.arange(count, device=like.device).clamp(max=1).to(like)


def subsample(image: Tensor, scale: int, tau: Tensor | None = None) -> Tensor:
    """`(A_tau u)_l = u_{s l + tau}`; without tau the plain `(D u)_l = u_{s l}`.

    image: (..., s*H, s*W), or (B, s*H, s*W) with tau (B, 2) integers in [0, s), (dy, dx).
    Returns (..., H, W).
    """
    if tau is None:
        return image[..., ::scale, ::scale]
    return (
        image.flatten(-2)
        .gather(-1, _flat_index(image, scale, tau))
        .unflatten(-1, (image.shape[-2] // scale, image.shape[-1] // scale))
    )


def subsample_adjoint(frame: Tensor, scale: int, tau: Tensor | None = None) -> Tensor:
    """The transpose of `subsample`: each low-res value on its high-res pixel, zeros elsewhere.

    frame: (..., H, W), or (B, H, W) with tau (B, 2). Returns (..., s*H, s*W).
    """
    height, width = frame.shape[-2:]
    image = frame.new_zeros(*frame.shape[:-2], scale * height, scale * width)
    if tau is None:
        image[..., ::scale, ::scale] = frame
        return image
    index = _flat_index(image, scale, tau)
    return image.flatten(-2).scatter(-1, index, frame.flatten(-2)).unflatten(-1, image.shape[-2:])


def _flat_index(image: Tensor, scale: int, tau: Tensor) -> Tensor:
    """Flat positions of the pixels `s*l + tau`, (B, H*W)."""
    tall, wide = image.shape[-2:]
    row = torch.arange(0, tall - scale + 1, scale, device=image.device) + tau[:, :1]
    column = torch.arange(0, wide - scale + 1, scale, device=image.device) + tau[:, 1:]
    return (row[:, :, None] * wide + column[:, None, :]).flatten(-2)


def random_tau(batch: int, scale: int, generator: torch.Generator) -> Tensor:
    """Grid shifts uniform on {0..s-1}^2, (B, 2) high-res px, (dy, dx)."""
    return torch.randint(
        check_scale(scale), (batch, 2), generator=generator, device=generator.device
    )


def shift_flow(flow_px: Tensor, tau: Tensor, scale: int) -> Tensor:
    """Flows under a grid shift: the sample at x lands on `s (x + flow) + tau`.

    flow_px: (B, N, 2) or (B, N, 2, H, W) low-res px; tau: (B, 2) high-res px.
    Convention: tau is *added*, so that `A_tau u_hat` stays aligned with the reference.
    """
    shift = (tau.to(flow_px) / scale)[:, None]
    return flow_px + (shift if flow_px.ndim == 3 else shift[..., None, None])


def flow_field(flow_px: Tensor, shape: tuple[int, int]) -> Tensor:
    """A flow for every pixel, (B, N, 2, H, W); translations (B, N, 2) are spread."""
    if flow_px.ndim == 5:
        return flow_px
    return flow_px[..., None, None].expand(*flow_px.shape, *shape)


def pixel_grid(shape: tuple[int, int], like: Tensor) -> Tensor:
    """The (y, x) position of every pixel centre, (2, H, W)."""
    axes = [torch.arange(size, device=like.device, dtype=like.dtype) for size in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def sample_at(image: Tensor, position: Tensor, mode: str = "bicubic") -> Tensor:
    """Interpolated values of images at real positions, border values beyond the edge.

    image: (B, H, W); position: (B, 2, h, w), (y, x) in px of `image`. Returns (B, h, w).
    mode: "bilinear", or "bicubic" with Keys' a = -1/2, which moves ramps and parabolas without
        error (the a = -3/4 of torch's own functions displaces them by up to 0.05 px).
    Convention: position (0, 0) is the centre of the first pixel.
    """
    height, width = image.shape[-2:]
    whole, fraction = position.floor().long(), position - position.floor()
    taps = _keys_taps(fraction) if mode == "bicubic" else [1 - fraction, fraction]
    first = -1 if mode == "bicubic" else 0
    flat = image.flatten(1)
    total = torch.zeros_like(position[:, 0])
    for j, weight_y in enumerate(taps):
        row = (whole[:, 0] + first + j).clamp(0, height - 1)
        for k, weight_x in enumerate(taps):
            column = (whole[:, 1] + first + k).clamp(0, width - 1)
            value = flat.gather(1, (row * width + column).flatten(1)).view_as(total)
            total = total + weight_y[:, 0] * weight_x[:, 1] * value
    return total


def _keys_taps(t: Tensor) -> list[Tensor]:
    """Keys' cubic convolution weights of the pixels -1, 0, 1, 2 at a fraction t in [0, 1)."""
    return [
        ((-0.5 * t + 1) * t - 0.5) * t,
        (1.5 * t - 2.5) * t**2 + 1,
        ((-1.5 * t + 2) * t + 0.5) * t,
        (0.5 * t - 0.5) * t**2,
    ]


def middle_of(shape: tuple[int, int], side: int) -> tuple[slice, slice]:
    """Rows and columns of the middle of a frame, at most `side` px of each."""
    starts = (max(0, (size - side) // 2) for size in shape)
    rows, columns = (
        slice(start, min(start + side, size)) for start, size in zip(starts, shape, strict=True)
    )
    return rows, columns


def upscale_georef(georef: GeoRef, scale: int) -> GeoRef:
    """The georeference of the high-res grid, whose pixel `s*l` shares the centre of pixel `l`.

    Transform: `T_high = T_low * translation((s-1)/(2s)) * scale(1/s)`, in low-res px.
    RPC: line and sample offsets and scales times s (their origin is a pixel's centre).
    """
    check_scale(scale)
    transform, rpc = georef.transform, georef.rpc
    if transform is not None:
        a, b, c, d, e, f = transform
        shift = (scale - 1) / (2 * scale)
        transform = (
            *(a / scale, b / scale, c + (a + b) * shift),
            *(d / scale, e / scale, f + (d + e) * shift),
        )
    if rpc is not None:
        scaled = ("LINE_OFF", "LINE_SCALE", "SAMP_OFF", "SAMP_SCALE")
        rpc = {
            key: value * scale if key in scaled and isinstance(value, float | int) else value
            for key, value in rpc.items()
        }
    return dataclasses.replace(georef, transform=transform, rpc=rpc)


def crop_georef(georef: GeoRef, row: int, column: int) -> GeoRef:
    """The georeference of a window whose first pixel is (row, column) of the image."""
    transform, rpc = georef.transform, georef.rpc
    if transform is not None:
        a, b, c, d, e, f = transform
        transform = (a, b, c + a * column + b * row, d, e, f + d * column + e * row)
    if rpc is not None:
        moved = {"LINE_OFF": row, "SAMP_OFF": column}
        rpc = {
            key: value - moved[key] if key in moved and isinstance(value, float | int) else value
            for key, value in rpc.items()
        }
    return dataclasses.replace(georef, transform=transform, rpc=rpc)
