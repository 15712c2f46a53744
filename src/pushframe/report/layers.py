"""The images of a page in one unit, raw DN of the reference frame, and the window shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..burst import Burst, Posterior, Simulated
from ..checks import check_shape
from ..noise import normalised_noise_var

PAGE_BYTES = 2_800_000  # of images and values in one page: it should open on a phone


@dataclass(frozen=True)
class Layers:
    """Images in raw DN of the reference frame, NaN where nothing is known.

    truth, mean[name], std[name]: (s*H, s*W); `std` lacks the methods without an error bar.
    frames: (N, H, W), normalised by exposure. origin_hpx: (y, x) of the first pixel shown.
    shifts_px: (N, 2) = (dy, dx), what brings each frame onto the reference, or None.
    """

    truth: np.ndarray
    frames: np.ndarray
    mean: Mapping[str, np.ndarray]
    std: Mapping[str, np.ndarray]
    scale: int
    shifts_px: np.ndarray | None
    origin_hpx: tuple[int, int] = (0, 0)

    def error(self, name: str) -> np.ndarray:
        """Estimate minus truth, (s*H, s*W) DN."""
        return self.mean[name] - self.truth

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
    """Noise std of each frame at its median radiance, DN of the reference; None without a law."""
    if burst.noise is None:
        return None
    median = burst.frames[burst.valid].median().expand(1, burst.count, 1, 1)
    law = burst.noise.map(lambda x: x[None])
    var = normalised_noise_var(law, median, burst.gain[None])
    return (var.sqrt().flatten() * burst.gain[0]).tolist()


def show_window(layers: Layers, page_bytes: int = PAGE_BYTES) -> Layers:
    """The central window whose images and values fill at most `page_bytes` of a page.

    A base64 byte counts 4/3: values are 2 bytes, pictures about 1.
    """
    scale, count = layers.scale, len(layers.frames)
    valued = 1 + len(layers.mean) + len(layers.std) + 1 / scale**2
    per_pixel = 4 / 3 * (2 * valued + 4 + count / scale**2)
    height, width = layers.truth.shape
    shrink = min(1.0, math.sqrt(page_bytes / (per_pixel * height * width)))
    tall, wide = (max(1, int(size * shrink) // scale) for size in (height, width))
    top, left = (height // scale - tall) // 2, (width // scale - wide) // 2
    low = (slice(top, top + tall), slice(left, left + wide))
    high = tuple(slice(part.start * scale, part.stop * scale) for part in low)
    return dataclasses.replace(
        layers,
        truth=layers.truth[high],
        frames=layers.frames[(slice(None), *low)],
        mean={name: image[high] for name, image in layers.mean.items()},
        std={name: image[high] for name, image in layers.std.items()},
        origin_hpx=(top * scale, left * scale),
    )
