"""Procedural scenes: satellite-like images drawn from a seed, for use where no imagery is at hand.

A scene is painted twice as finely as the image, as albedo and height, lit by one sun, and then
seen through a sensor: its edges carry what a real detector leaves of them, and its detail
reaches beyond the Nyquist frequency, as that of real images does.
"""

from dataclasses import dataclass

import numpy as np

from pushframe.errors import UsageError
from pushframe.scenes.canvas import PX_PER_M, SUPERSAMPLING, Canvas
from pushframe.scenes.districts import District, lay_out
from pushframe.scenes.noise import fractal_pair, good_length, smooth_field
from pushframe.scenes.parcels import farm
from pushframe.scenes.render import expose, sunlight
from pushframe.scenes.towns import city, industry, suburb
from pushframe.scenes.trees import draw_trees, scatter_bushes, sow
from pushframe.scenes.water import flood

WHITE_DN = 2400.0  # 99.5th percentile of every scene
SMALLEST_PX = 16
MARGIN_PX = 24  # image pixels drawn beyond the edge, whose buildings shade the image

__all__ = ["procedural_scene"]


@dataclass(frozen=True)
class Mix:
    """Odds of each land use, size of districts, widths of roads, and the water with its odds."""

    uses: dict[str, float]
    pitch_m: float
    widths_m: tuple[float, float]
    water: str = "river"
    water_odds: float = 0.25


MIXES = (
    Mix({"urban": 0.7, "industrial": 0.16, "suburb": 0.07, "wild": 0.07}, 150, (8, 15)),
    Mix({"field": 0.82, "wild": 0.1, "suburb": 0.08}, 190, (3, 8)),
    Mix({"suburb": 0.86, "urban": 0.06, "wild": 0.08}, 170, (7, 12)),
    Mix({"wild": 0.92, "field": 0.08}, 170, (-4, 4.2)),
    Mix({"suburb": 0.4, "wild": 0.25, "industrial": 0.15, "urban": 0.2}, 140, (6, 10), "sea", 1.0),
)
TREE_COVER = {"urban": (0, 0), "industrial": (0.0, 0.02), "suburb": (0.03, 0.12), "field": (0, 0)}


def _trail_distance(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Distance (m, signed) to the nearest of several winding paths that cross the whole canvas."""
    angle, spacing = rng.uniform(0, np.pi), rng.uniform(120, 220)
    rows = np.arange(shape[0], dtype=np.float32)[:, None] / PX_PER_M
    cols = np.arange(shape[1], dtype=np.float32)[None, :] / PX_PER_M
    ramp = cols * np.float32(np.cos(angle)) + rows * np.float32(np.sin(angle))
    ramp = ramp + 24 * smooth_field(shape, 70 * PX_PER_M, rng)
    ramp += 3 * smooth_field(shape, 18 * PX_PER_M, rng) + rng.uniform(0, spacing)
    return ramp % spacing - spacing / 2


def _blank(shape: tuple[int, int], rng: np.random.Generator) -> Canvas:
    """Open ground: rolling relief, grass and bare soil in patches, gullies of the fine texture."""
    grain, spare = fractal_pair(shape, 1.1, rng)
    mottle, patches = fractal_pair(shape, 2.5, rng)
    bare = np.clip(0.5 + 0.9 * patches + 0.35 * spare, 0, 1) * rng.uniform(0.3, 1)
    grass, soil = rng.uniform(0.24, 0.32), rng.uniform(0.45, 0.6)
    albedo = (grass + (soil - grass) * bare) * np.exp(0.1 * mottle + 0.11 * grain)
    worn = np.clip((1.1 - np.abs(_trail_distance(shape, rng)) + 0.3 * spare) * 1.5, 0, 1)
    albedo += worn * (1.1 * soil * (1 + 0.1 * grain) - albedo)
    relief = 3.0 * smooth_field(shape, 60 * PX_PER_M, rng)
    height = 0.12 * patches + 0.07 * spare
    zone = np.zeros(shape, np.int16)
    return Canvas(rng, albedo, height, relief, zone, grain, mottle)


def _settle(canvas: Canvas, districts: list[District]) -> None:
    """Fill every district according to its use, then let trees grow where ground is left."""
    fill = {"urban": city, "industrial": industry, "suburb": suburb, "field": farm}
    cover = {}
    for district in districts:
        if district.use in fill:
            fill[district.use](canvas, district)
        low, high = TREE_COVER.get(district.use, (0.15, 0.85))
        cover[district.index] = canvas.rng.uniform(low, high)
    sow(canvas, cover, 5.2)
    sow(canvas, {index: 0.5 * share for index, share in cover.items()}, 2.6)
    scatter_bushes(canvas, [district.index for district in districts if district.use == "wild"])
    draw_trees(canvas)


def procedural_scene(shape: tuple[int, int], seed: int) -> np.ndarray:
    """A satellite-like scene of shape (rows, columns): float32 DN, 99.5th percentile 2400.

    A pure function of shape and seed. seed modulo five sets the land use, so that seeds in a row
    differ at a glance: city, farmland, suburb, forest, coast. One pixel stands for 0.7 m.
    """
    rows, cols = _checked(shape)
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"expected a seed of 0, 1, 2, ..., got {seed!r}; pass such an integer")
    rng = np.random.default_rng(seed)
    mix = MIXES[seed % len(MIXES)]
    canvas_shape = (
        good_length(SUPERSAMPLING * (rows + 2 * MARGIN_PX)),
        good_length(SUPERSAMPLING * (cols + 2 * MARGIN_PX)),
    )
    canvas = _blank(canvas_shape, rng)
    if rng.random() < mix.water_odds:
        flood(canvas, mix.water)
    _settle(canvas, lay_out(canvas, mix.uses, mix.pitch_m, mix.widths_m, mix.water == "river"))
    height = canvas.height + canvas.relief
    light = sunlight(height, rng.uniform(0, 2 * np.pi), np.deg2rad(rng.uniform(38, 58)))
    image = expose(canvas.albedo * light, (rows, cols), SUPERSAMPLING * MARGIN_PX, rng)
    image *= WHITE_DN / np.percentile(image, 99.5)
    return np.maximum(image, 1).astype(np.float32)


def _checked(shape: tuple[int, int]) -> tuple[int, int]:
    """shape as two integers of at least SMALLEST_PX."""
    sizes = tuple(shape)
    whole_numbers = all(isinstance(size, int | np.integer) for size in sizes)
    if len(sizes) != 2 or not whole_numbers or min(sizes) < SMALLEST_PX:
        raise UsageError(
            f"expected a shape of two integers (rows, columns) of at least {SMALLEST_PX} px, "
            f"got {shape}; ask for a larger scene and crop it"
        )
    return int(sizes[0]), int(sizes[1])
