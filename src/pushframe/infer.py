"""Burst to product: tile, reconstruct, stitch, and put it in the reference's unit and place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .baselines import weighted_splat
from .burst import Burst, Product
from .checks import check_scale, require
from .errors import UsageError
from .geometry import upscale_georef
from .methods import BEST, Estimate, Method, find_methods
from .noise_law import with_noise_law
from .ops import splat
from .version import __version__

LARGEST_TILE_PX = 128  # larger frames are worked on in overlapping tiles
TILE_PX = 96
OVERLAP_PX = 16
TILES_AT_ONCE = 8


def super_resolve(
    burst: Burst,
    scale: int = 2,
    method: str = BEST,
    on_tile: Callable[[int, int], None] = lambda *_: None,
) -> Product:
    """The image of `scale` times the resolution with its error bar, in DN of the reference frame.

    burst: one burst, on the device to compute on, of any size: large frames are worked on in
    overlapping tiles, each with its own motion. on_tile: told (done, total), for progress.
    """
    require(
        burst.frames.ndim == 3,
        "one burst of frames (N, H, W)",
        tuple(burst.frames.shape),
        "call super_resolve for each burst",
        UsageError,
    )
    check_scale(scale)
    chosen = find_methods([method])[method]
    if chosen.weighs_noise:
        burst = with_noise_law(burst, scale)
    corners = list(tile_corners(burst.shape))
    seams = _Seams(burst.shape, scale, burst.frames)
    notes: dict[str, None] = {}
    for first in range(0, len(corners), TILES_AT_ONCE):
        group = corners[first : first + TILES_AT_ONCE]
        _add_tiles(burst, chosen, scale, group, seams, notes)
        on_tile(first + len(group), len(corners))
    mean, var, samples = seams.finish()
    named = dataclasses.replace(burst, notes=(*burst.notes, *notes))
    return make_product(named, mean, var, samples, scale, method)


def make_product(
    burst: Burst, mean: Tensor, var: Tensor | None, samples: Tensor, scale: int, method: str
) -> Product:
    """A product from normalised images (s*H, s*W): `dn = radiance * gain + black`.

    Without an error bar std is NaN, and the product says so.
    """
    gain, black = burst.gain[0], burst.black_level
    if var is None:
        said = f"The method {method} has no error bar: std is NaN."
        burst = dataclasses.replace(burst, notes=(*burst.notes, said))
    std = torch.full_like(mean, torch.nan) if var is None else var.sqrt()
    return Product(
        mean=(mean * gain + black).cpu().numpy(),
        std=(std * gain).cpu().numpy(),
        samples=samples.cpu().numpy(),
        scale=scale,
        georef=None if burst.georef is None else upscale_georef(burst.georef, scale),
        provenance=_provenance(burst, method),
    )


def count_samples(burst: Burst, estimate: Estimate, scale: int) -> Tensor:
    """Effective number of observations of each high-res pixel of a batch, (B, s*H, s*W).

    Without motion they are those of the reference alone.
    """
    if estimate.flow_px is None:
        alone = burst.select([0])
        still = torch.zeros(len(alone.frames), 1, 2).to(alone.frames)
        return splat(alone.frames, alone.valid.to(alone.frames), still, scale).samples
    if estimate.used is not None:
        burst = dataclasses.replace(burst, valid=estimate.used)
    return weighted_splat(burst, estimate.flow_px, scale).samples


def tile_corners(shape: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Overlapping tiles that cover a frame; the whole frame where it is small."""
    axes = []
    for size in shape:
        side = size if size <= LARGEST_TILE_PX else TILE_PX
        count = 1 + -(-(size - side) // (TILE_PX - OVERLAP_PX))
        starts = [round(k * (size - side) / max(count - 1, 1)) for k in range(count)]
        axes.append([slice(start, start + side) for start in starts])
    return ((rows, columns) for rows in axes[0] for columns in axes[1])


def _add_tiles(
    burst: Burst,
    method: Method,
    scale: int,
    tiles: list[tuple[slice, slice]],
    seams: _Seams,
    notes: dict[str, None],
) -> None:
    """Reconstruct tiles of one size as a batch and lay them down."""
    batch = tiled_batch(burst, tiles)
    estimate: Estimate = method.run(batch, scale, None)
    samples = count_samples(batch, estimate, scale)
    notes.update(dict.fromkeys(estimate.notes))
    for index, tile in enumerate(tiles):
        posterior = estimate.posterior[index]
        seams.lay(tile, posterior.mean, posterior.var, samples[index])


def tiled_batch(burst: Burst, tiles: list[tuple[slice, slice]]) -> Burst:
    """Tiles of one burst as a batch; a tile may be masked in some frames, as a burst may not."""
    whole = burst.batched()
    parts = [(whole.frames[..., y, x], whole.valid[..., y, x]) for y, x in tiles]
    count = len(tiles)
    return Burst(
        frames=torch.cat([frames for frames, _ in parts]),
        exposure=whole.exposure.expand(count, -1),
        white_level=whole.white_level.expand(count),
        noise=None if whole.noise is None else whole.noise.map(lambda x: x.expand(count)),
        valid=torch.cat([valid for _, valid in parts]),
        black_level=whole.black_level.expand(count),
        names=whole.names,
    )


class _Seams:
    """Overlapping tiles blended with weights that fall to zero at inner edges."""

    def __init__(self, shape: tuple[int, int], scale: int, like: Tensor) -> None:
        self.shape, self.scale = shape, scale
        self.sums = like.new_zeros(4, scale * shape[0], scale * shape[1])
        self.has_var = True

    def lay(
        self, tile: tuple[slice, slice], mean: Tensor, var: Tensor | None, samples: Tensor
    ) -> None:
        """Add one tile's images, each (s*h, s*w); NaN counts as nothing."""
        place = [slice(self.scale * part.start, self.scale * part.stop) for part in tile]
        ramps = [self._ramp(part, size, mean) for part, size in zip(tile, self.shape, strict=True)]
        weight = ramps[0][:, None] * ramps[1] * torch.isfinite(mean)
        self.has_var = self.has_var and var is not None
        layers = (mean, torch.zeros_like(mean) if var is None else var, samples)
        for total, layer in zip(self.sums[:3], layers, strict=True):
            total[place[0], place[1]] += weight * torch.nan_to_num(layer)
        self.sums[3, place[0], place[1]] += weight

    def _ramp(self, part: slice, size: int, like: Tensor) -> Tensor:
        """Weights along one axis: a ramp over the overlap at each edge that has a neighbour."""
        length = self.scale * (part.stop - part.start)
        place = torch.arange(length, device=like.device) + 0.5
        reach = self.scale * OVERLAP_PX
        weight = torch.ones_like(place)
        if part.start > 0:
            weight = torch.minimum(weight, place / reach)
        if part.stop < size:
            weight = torch.minimum(weight, (length - place) / reach)
        return weight

    def finish(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Mean, variance (None where a method has none) and samples, NaN where nothing is known."""
        weight = torch.where(self.sums[3] > 0, self.sums[3], torch.nan)
        mean, var, samples = self.sums[:3] / weight
        return mean, var if self.has_var else None, torch.nan_to_num(samples)


def _provenance(burst: Burst, method: str) -> dict[str, str]:
    facts = {
        "software": f"pushframe {__version__}",
        "method": method,
        "frames": ", ".join(burst.names),
        "exposure": ", ".join(f"{value:g}" for value in burst.exposure.tolist()),
        "white_level": f"{float(burst.white_level):g}",
        "black_level": f"{float(burst.black_level):g}",
        "notes": " ".join(burst.notes),
    }
    if burst.noise is not None:
        facts["noise_law"] = f"var = {float(burst.noise.a):g} * dn + {float(burst.noise.b):g}"
    return facts
