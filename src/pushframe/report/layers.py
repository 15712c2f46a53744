"""The images of a page in one unit, raw DN of the reference frame, and the window shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..burst import Burst, Simulated
from ..checks import check_shape
from ..noise import normalised_noise_var
from ..posterior import Posterior

PAGE_BYTES = 2_800_000  # of images and values in one page: it should open on a phone


@dataclass(frozen=True)
class Layers:
    """Images in raw DN of the reference frame, NaN where nothing is known.

    truth (None where it is not known), mean[name], std[name]: (s*H, s*W); `std` lacks the methods
    without an error bar.
    frames: (N, H, W), normalised by exposure. origin_hpx: (y, x) of the first pixel shown.
    shifts_px: (N, 2) = (dy, dx), what brings each frame onto the reference, or None.
    """

    truth: np.ndarray | None
    frames: np.ndarray
    mean: Mapping[str, np.ndarray]
    std: Mapping[str, np.ndarray]
    scale: int
    shifts_px: np.ndarray | None
    origin_hpx: tuple[int, int] = (0, 0)

    @property
    def known_truth(self) -> np.ndarray:
        """The truth, of a page that is only made where there is one."""
        assert self.truth is not None
        return self.truth

    def error(self, name: str) -> np.ndarray:
        """Estimate minus truth, (s*H, s*W) DN."""
        return self.mean[name] - self.known_truth

    def z_scores(self, name: str, border_hpx: int) -> np.ndarray:
        """Error over error bar, a flat list over the known pixels inside the border."""
        std = self.std[name]
        inside = (slice(border_hpx, size - border_hpx) for size in std.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (self.error(name) / std)[tuple(inside)]
        return z[np.isfinite(z)]


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def collect_layers(simulated: Simulated, posteriors: Mapping[str, Posterior]) -> Layers:
    """All images in raw DN of the reference, `dn = radiance * gain + black`; unbatched input."""
    burst, truth = simulated.burst, simulated.truth
    check_shape("truth", truth, tuple(size * simulated.scale for size in burst.shape))
    gain, black = float(burst.gain[0]), float(burst.black_level)
    for name, posterior in posteriors.items():
        check_shape(f"mean of {name}", posterior.mean, tuple(truth.shape))
    frames = burst.frames.masked_fill(~burst.valid, torch.nan)
    flow = simulated.flow_px
    if flow is not None and flow.ndim == 4:  # (N, 2, H, W): the player moves whole frames
        flow = flow.mean(dim=(2, 3))
    return Layers(
        truth=_array(truth) * gain + black,
        frames=_array(frames) * gain + black,
        mean={name: _array(p.mean) * gain + black for name, p in posteriors.items()},
        std={
            name: np.sqrt(_array(p.var)) * gain
            for name, p in posteriors.items()
            if p.var is not None
        },
        scale=simulated.scale,
        shifts_px=None if flow is None else _array(flow),
    )


def frame_noise_dn(burst: Burst) -> list[float] | None:
    """Noise std of each frame at its median radiance, DN of the reference; None without a law.

    burst: one, or a batch of one.
    """
    if burst.noise is None:
        return None
    batch = burst.batched()
    assert batch.noise is not None
    median = batch.frames[batch.valid].median().expand(1, batch.count, 1, 1)
    var = normalised_noise_var(batch.noise, median, batch.gain)
    return (var.sqrt().flatten() * batch.gain[0, 0]).tolist()


def shown_part(
    shape: tuple[int, int], scale: int, frames: int, valued: int, page_bytes: int = PAGE_BYTES
) -> tuple[slice, slice]:
    """The central window of frames of `shape` that a page of `page_bytes` can show, low-res px.

    valued: high-res images whose values can be read. A base64 byte counts 4/3: values are 2
    bytes, pictures about 1.
    """
    per_pixel = 4 / 3 * (2 * (valued + 1 / scale**2) + 4 + frames / scale**2)
    pixels = scale**2 * shape[0] * shape[1]
    shrink = min(1.0, math.sqrt(page_bytes / (per_pixel * pixels)))
    tall, wide = (max(1, int(scale * size * shrink) // scale) for size in shape)
    top, left = (shape[0] - tall) // 2, (shape[1] - wide) // 2
    return slice(top, top + tall), slice(left, left + wide)


def show_window(layers: Layers, page_bytes: int = PAGE_BYTES) -> Layers:
    """The central window whose images and values fill at most `page_bytes` of a page."""
    scale, (count, *shape) = layers.scale, layers.frames.shape
    valued = len(layers.mean) + len(layers.std) + (layers.truth is not None)
    low = shown_part((shape[0], shape[1]), scale, count, valued, page_bytes)
    high = tuple(slice(part.start * scale, part.stop * scale) for part in low)
    return dataclasses.replace(
        layers,
        truth=None if layers.truth is None else layers.truth[high],
        frames=layers.frames[(slice(None), *low)],
        mean={name: image[high] for name, image in layers.mean.items()},
        std={name: image[high] for name, image in layers.std.items()},
        origin_hpx=(high[0].start, high[1].start),
    )
