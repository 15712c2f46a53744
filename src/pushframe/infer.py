"""Burst to product: tile, reconstruct, stitch, and put it in the reference's unit and place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .baselines import weighted_splat
from .burst import Burst, GeoRef, stack
from .checks import check_scale, require
from .days import as_of_one_day, with_law
from .errors import UsageError
from .geometry import middle_of, upscale_georef
from .methods import METHODS, Estimate, best_method, find_methods
from .motion_table import FrameMotion, MotionTable
from .noise_law import MIDDLE_PX
from .notes import in_order
from .ops import splat
from .product import Product
from .residuals import Witness, telling_witness
from .scene_motion import SceneMotion, register_scene
from .seams import Block, Seams, Tile, tile_axes, tile_corners, tiles_at_once
from .solver import Belief
from .solver.exposure import at_true_exposure
from .uneven import LEAST_FRAMES, Pattern, find_pattern
from .version import __version__

ALONE = (
    "A single frame shows nothing between its pixels: what the product shows there, and any error "
    "bar, rests on what images are usually like."
)


class Source(Protocol):
    """What can be worked on by windows: a `Burst`, or files that are never read whole.

    `tile(rows, columns)` gives the frames of a window, low-res px of the reference, as a batch of
    one. Exposures, levels, noise law, names and notes are those of any window. `moved_px` says how
    many whole px each frame of a tile was moved by, so that the tile shows the reference's ground.
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def georef(self) -> GeoRef | None: ...

    def tile(self, rows: slice, columns: slice) -> Burst: ...

    def moved_px(self, rows: slice, columns: slice) -> Tensor: ...


@dataclass(frozen=True)
class Evened:
    """A source without the pattern of its detector."""

    source: Source
    pattern: Pattern

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def georef(self) -> GeoRef | None:
        return self.source.georef

    def tile(self, rows: slice, columns: slice) -> Burst:
        moved_px = self.source.moved_px(rows, columns)[None]
        return self.pattern.corrected(self.source.tile(rows, columns), [(rows, columns)], moved_px)

    def moved_px(self, rows: slice, columns: slice) -> Tensor:
        return self.source.moved_px(rows, columns)


class Part(NamedTuple):
    """Finished pixels of the product from (row, column) on, high-res px, (h, w) float32 DN."""

    row: int
    column: int
    mean: np.ndarray
    std: np.ndarray
    samples: np.ndarray


def super_resolve(
    burst: Burst,
    scale: int = 2,
    method: str | None = None,
    on_tile: Callable[[int, int], None] = lambda *_: None,
) -> Product:
    """The image of `scale` times the resolution with its error bar, in DN of the reference frame.

    burst: one burst, on the device to compute on, of any size: large frames are worked on in
    overlapping tiles, whose motion is that of the scene, refined. on_tile: told (done, total).
    method: a name of `methods`, or a file of weights; `methods.best_method` by default.
    """
    require(
        burst.frames.ndim == 3,
        "one burst of frames (N, H, W)",
        tuple(burst.frames.shape),
        "call super_resolve for each burst",
        UsageError,
    )
    return Reconstruction(burst, scale, method, burst.frames.device, on_tile).product()


class Reconstruction:
    """A product in the making: its parts, from the first to the last, then how they were made.

    source: one burst, or files. The memory in use is that of the tiles worked on together
    (`tiles_at_once`) and of what overlaps with the next row of them: 1 kB for each px of the
    scene's width at scale 2. An uneven detector is found beforehand, and mapped whole (`uneven`).
    """

    def __init__(
        self,
        source: Source,
        scale: int = 2,
        method: str | None = None,
        device: torch.device | str = "cpu",
        on_tile: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self.scale = check_scale(scale)
        self.method_name = method or best_method(scale)
        self.method = find_methods([self.method_name], scale)[self.method_name]
        self.source, self.device, self.on_tile = source, torch.device(device), on_tile
        self.facts = facts_of(source, scale, self.method.weighs_noise)
        self.pattern = self._pattern()
        if self.pattern is not None:
            self.source = Evened(source, self.pattern)
            self.facts = facts_of(self.source, scale, self.method.weighs_noise)
        self.levels = float(self.facts.gain[0, 0]), float(self.facts.black_level[0])
        self.motion = MotionTable(self.facts.names)
        self.notes: dict[str, None] = {}
        if self.pattern is not None:
            self.notes[
                self.pattern.note(float(self.facts.gain[0, 0]), float(self.facts.white_level[0]))
            ] = None
        self.witness: Witness | None = None  # the tile in which most was left out, or the middle

    def _pattern(self) -> Pattern | None:
        """The pattern of the detector, for methods that believe what they are told."""
        if not self.method.believes or self.facts.count < LEAST_FRAMES or self.facts.days:
            return None
        return find_pattern(
            self.source.shape,
            lambda tiles: tiled_batch(self.source, tiles, self.facts).to(self.device),
            lambda tiles: moves_of(self.source, tiles),
            self.scale,
            tiles_at_once(self.device, self.facts.count, self.scale),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The size of the product, (s*H, s*W)."""
        height, width = self.source.shape
        return self.scale * height, self.scale * width

    @property
    def georef(self) -> GeoRef | None:
        """Where the product lies."""
        low = self.source.georef
        return None if low is None else upscale_georef(low, self.scale)

    @cached_property
    def scene(self) -> SceneMotion | None:
        """The motion that all tiles share; None for one tile, or a method without belief."""
        if not self.method.believes or self.facts.count < 2:
            return None

        def cut(tiles: Sequence[Tile]) -> tuple[Burst, Tensor]:
            batch = tiled_batch(self.source, tiles, self.facts).to(self.device)
            return as_of_one_day(batch), moves_of(self.source, tiles).to(self.device)

        at_once = tiles_at_once(self.device, self.facts.count, self.scale)
        return register_scene(self.source.shape, cut, self.scale, at_once)

    def parts(self) -> Iterator[Part]:
        """All pixels of the product, each once: a part for each tile, row by row."""
        total = math.prod(map(len, tile_axes(self.source.shape)))
        corners = tile_corners(self.source.shape)
        seams = Seams(self.source.shape, self.scale)
        done, at_once = 0, tiles_at_once(self.device, self.facts.count, self.scale)
        while group := list(islice(corners, at_once)):
            for block in self._lay_tiles(group, seams):
                yield self._in_dn(block)
            done += len(group)
            self.on_tile(done, total)

    def product(self) -> Product:
        """The whole product in memory."""
        mean, std, samples = layers = np.empty((3, *self.shape), np.float32)
        for row, column, *images in self.parts():
            height, width = images[0].shape
            place = (slice(row, row + height), slice(column, column + width))
            for layer, image in zip(layers, images, strict=True):
                layer[place] = image
        return Product(mean, std, samples, self.scale, self.georef, self.provenance())

    def said(self) -> tuple[str, ...]:
        """The notes, what changes the product first; complete once all parts are made."""
        alone = [ALONE] if self.facts.count == 1 else []
        return in_order([*alone, *self.motion.notes(self.facts.notes), *self.notes])

    def provenance(self) -> dict[str, str]:
        """How the product was made; complete once all parts are made."""
        facts = dataclasses.replace(self.facts, notes=self.said())
        made = _provenance(facts, self.method_name, self.scale, self.device)
        gains = self.motion.gains_tag()
        return made if gains is None else {**made, "gains": gains}

    def frames(self) -> list[FrameMotion]:
        """What became of each frame; complete once all parts are made."""
        rows = self.motion.rows()
        if self.scene is None:
            return rows
        return [
            dataclasses.replace(row, bend_px=bend_px, error_px=error_px)
            for row, (bend_px, error_px) in zip(rows, self.scene.summary(), strict=True)
        ]

    def _lay_tiles(self, tiles: list[Tile], seams: Seams) -> Iterator[Block]:
        """Reconstruct tiles of one size as a batch and lay them down."""
        batch = as_of_one_day(tiled_batch(self.source, tiles, self.facts).to(self.device))
        belief = believed(self.scene, self.source, tiles, self.device)
        estimate: Estimate = self.method.run(batch, self.scale, belief)
        samples = count_samples(batch, estimate, self.scale)
        self.motion.update(batch, estimate, moves_of(self.source, tiles))
        shape = self.source.shape
        self.witness = telling_witness(tiles, batch, estimate, shape, self.witness)
        mean, var = estimate.posterior.mean, estimate.posterior.var
        if self.pattern is not None and var is not None:
            var = var + self.pattern.variance_in(mean)
        return seams.lay(tiles, mean, var, samples)

    def _in_dn(self, block: Block) -> Part:
        if block.var is None:
            self.notes[_no_bar(self.method_name)] = None
        mean, std = _to_dn(block.mean, block.var, *self.levels)
        return Part(block.row, block.column, mean, std, block.samples.numpy())


def make_product(
    burst: Burst, mean: Tensor, var: Tensor | None, samples: Tensor, scale: int, method: str
) -> Product:
    """A product from normalised images (s*H, s*W): `dn = radiance * gain + black`.

    Without an error bar std is NaN, and the product says so.
    """
    if var is None:
        burst = dataclasses.replace(burst, notes=(*burst.notes, _no_bar(method)))
    mean_dn, std_dn = _to_dn(mean, var, burst.gain[0], burst.black_level)
    georef = None if burst.georef is None else upscale_georef(burst.georef, scale)
    provenance = _provenance(burst, method, scale, burst.frames.device)
    return Product(mean_dn, std_dn, samples.cpu().numpy(), scale, georef, provenance)


def _to_dn(
    mean: Tensor, var: Tensor | None, gain: Tensor | float, black: Tensor | float
) -> tuple[np.ndarray, np.ndarray]:
    std = torch.full_like(mean, torch.nan) if var is None else var.sqrt()
    return (mean * gain + black).cpu().numpy(), (std * gain).cpu().numpy()


def _no_bar(method: str) -> str:
    return f"The method {method} has no error bar: std is NaN."


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
    if estimate.gain is not None:
        burst = at_true_exposure(burst, estimate.gain)
    return weighted_splat(burst, estimate.flow_px, scale).samples


def moves_of(source: Source, tiles: Sequence[Tile]) -> Tensor:
    """Whole px by which the frames of tiles were moved, (B, N, 2)."""
    return torch.stack([source.moved_px(*tile) for tile in tiles])


def believed(
    scene: SceneMotion | None, source: Source, tiles: Sequence[Tile], device: torch.device | str
) -> Belief | None:
    """What a scene says of tiles of one size."""
    return None if scene is None else scene.belief(tiles, moves_of(source, tiles).to(device))


def tiled_batch(source: Source, tiles: Sequence[Tile], facts: Burst) -> Burst:
    """Windows of one size as a batch, with the levels and the noise law of `facts`."""
    batch = stack([source.tile(*tile) for tile in tiles])
    if facts.noise is None:
        return batch
    noise = facts.noise.map(lambda x: x.expand(len(tiles)))
    return dataclasses.replace(batch, noise=noise)


def facts_of(source: Source, scale: int, noise: bool) -> Burst:
    """The middle of the frames, a batch of one: its levels, law and names hold for all windows.

    noise: whether the law is needed, and estimated where it is not given.
    """
    middle = source.tile(*middle_of(source.shape, MIDDLE_PX))
    return with_law(middle, scale) if noise else middle


def _provenance(burst: Burst, method: str, scale: int, device: torch.device) -> dict[str, str]:
    facts = {
        "software": f"pushframe {__version__}",
        "method": method,
        "scale": str(scale),
        "weights": "none" if method in METHODS else Path(method).name,
        "backend": f"torch {torch.__version__} on {device.type}",
        "frames": ", ".join(burst.names),
        "exposure": ", ".join(f"{value:g}" for value in burst.exposure.flatten().tolist()),
        "white_level": f"{float(burst.white_level):g}",
        "black_level": f"{float(burst.black_level):g}",
        "notes": " ".join(burst.notes),
    }
    if burst.noise is not None:
        facts["noise_law"] = str(burst.noise)
    return facts
