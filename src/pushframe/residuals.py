"""Residuals: frames less what the product says of them, in standard deviations.

Noise where the model holds; a shape in them is something that is not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .burst import Burst
from .geometry import pixel_grid
from .left_out import LEAST_SHARE, expected_frames, left_out_pixels
from .methods import Estimate
from .noise import normalised_noise_var, rounding_var
from .seams import Tile

BORDER_PX = 6  # of a tile, where the image knows one side of what a frame shows
MOST_FRAMES = 4


@dataclass(frozen=True, eq=False)
class Witness:
    """One tile whose residuals are looked at: its frames, a batch of one, and what was made.

    rank: what was left out in it, and how near it is to the scene's middle.
    """

    tile: Tile
    burst: Burst
    estimate: Estimate
    rank: tuple[float, float]


@dataclass(frozen=True, eq=False)
class ResidualMap:
    """Of one frame. z: (H, W) residual over its expected error, NaN where it cannot be told;
    left: (H, W) bool, pixels that were left out; rms: of z over the others; share: of `left`.
    """

    index: int
    name: str
    z: np.ndarray
    left: np.ndarray
    rms: float
    share: float


def telling_witness(
    tiles: Sequence[Tile],
    burst: Burst,
    estimate: Estimate,
    shape: tuple[int, int],
    known: Witness | None,
) -> Witness:
    """The tile of a batch, or the one `known`, that tells the most, on the CPU.

    shape: of the scene. It tells more if more was left out, or else if it is nearer to the middle.
    """
    shares = left_out_pixels(burst, estimate)[1].float().mean((1, 2, 3)).tolist()
    ranks = [
        _rank(tile, share * burst.count, shape) for tile, share in zip(tiles, shares, strict=True)
    ]
    index = max(range(len(tiles)), key=lambda k: ranks[k])
    if known is not None and known.rank >= ranks[index]:
        return known
    alone = burst.part(torch.tensor([index], device=burst.frames.device)).to("cpu")
    return Witness(tiles[index], alone, estimate.part(index), ranks[index])


def _rank(tile: Tile, left: float, shape: tuple[int, int]) -> tuple[float, float]:
    off = [part.start + part.stop - size for part, size in zip(tile, shape, strict=True)]
    return left if left >= LEAST_SHARE else 0.0, -float(np.hypot(*off))


def residual_maps(witness: Witness | None, most: int = MOST_FRAMES) -> list[ResidualMap]:
    """Up to `most` frames: the reference, the best, and those with the most pixels left out.

    Nothing where motion or noise law are not known.
    """
    if witness is None or witness.estimate.flow_px is None or witness.burst.noise is None:
        return []
    burst, estimate = witness.burst, witness.estimate
    used = burst.valid if estimate.used is None else estimate.used
    left = left_out_pixels(burst, estimate)[1]
    if estimate.kept is not None:
        left = left | (burst.valid & ~estimate.kept[..., None, None])
    z = residuals(burst, estimate, used)
    maps = []
    for k, name in enumerate(burst.names):
        inside = torch.isfinite(z[0, k])
        if not bool(inside.any()):
            continue
        counted = inside & used[0, k]
        rms = float(z[0, k][counted].square().mean().sqrt()) if bool(counted.any()) else torch.nan
        share = float(left[0, k][inside].float().mean())
        maps.append(ResidualMap(k, name, z[0, k].numpy(), left[0, k].numpy(), rms, share))
    return _chosen(maps, most)


def residuals(burst: Burst, estimate: Estimate, used: Tensor) -> Tensor:
    """Frames less what the image says of them, over its expected error, (B, N, H, W).

    The error is the frame's noise by the law and, of pixels that the image was not shown, its
    error bar. NaN near borders and where frame or image know nothing.
    """
    flow_px = estimate.flow_px
    assert flow_px is not None
    assert burst.noise is not None
    signal, bar_var, known = expected_frames(burst, estimate)
    noise = normalised_noise_var(burst.noise, signal, burst.gain)
    noise = noise.maximum((rounding_var(burst)[:, None] / burst.gain**2)[..., None, None])
    noise = noise + ~used * bar_var
    flow = flow_px if flow_px.ndim == 5 else flow_px[..., None, None]
    place = pixel_grid(burst.shape, signal) + flow
    for axis, size in enumerate(burst.shape):
        known &= (place[:, :, axis] >= BORDER_PX) & (place[:, :, axis] <= size - 1 - BORDER_PX)
    z = (burst.frames - signal) / noise.sqrt()
    return z.masked_fill(~(known & burst.valid), torch.nan)


def _chosen(maps: Sequence[ResidualMap], most: int) -> list[ResidualMap]:
    """The reference, the frame with the least residuals, and those with the most left out."""
    if not maps:
        return []
    best = min(maps, key=lambda one: (one.share > 0, one.rms if one.rms == one.rms else torch.inf))
    rest = sorted(
        maps, key=lambda one: (-one.share, -one.rms if one.rms == one.rms else -torch.inf)
    )
    order = [one for one in maps if one.index == 0] + [best, *rest]
    chosen = list(dict.fromkeys(order))[:most]
    return sorted(chosen, key=lambda one: one.index)
