"""Parcels: rectangles in a district's own axes, split at random, and what grows on them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pushframe.scenes.canvas import PX_PER_M, Canvas, Window
from pushframe.scenes.districts import District


@dataclass(frozen=True)
class Rect:
    """u0 < u < u1, v0 < v < v1 in a district's axes, in metres."""

    u0: float
    u1: float
    v0: float
    v1: float

    @property
    def size(self) -> tuple[float, float]:
        return self.u1 - self.u0, self.v1 - self.v0

    @property
    def centre(self) -> tuple[float, float]:
        return (self.u0 + self.u1) / 2, (self.v0 + self.v1) / 2

    def inset(self, margin: float) -> "Rect":
        return Rect(self.u0 + margin, self.u1 - margin, self.v0 + margin, self.v1 - margin)


def split(rect: Rect, largest_m: float, gap_m: float, rng: np.random.Generator) -> list[Rect]:
    """Halve the longer side, off centre, leaving a gap, until no side exceeds largest_m."""
    width, height = rect.size
    if max(width, height) <= largest_m * rng.uniform(0.8, 1.25):
        return [rect]
    share = rng.uniform(0.38, 0.62)
    if width >= height:
        cut = rect.u0 + share * width
        pieces = (
            Rect(rect.u0, cut - gap_m / 2, rect.v0, rect.v1),
            Rect(cut + gap_m / 2, rect.u1, rect.v0, rect.v1),
        )
    else:
        cut = rect.v0 + share * height
        pieces = (
            Rect(rect.u0, rect.u1, rect.v0, cut - gap_m / 2),
            Rect(rect.u0, rect.u1, cut + gap_m / 2, rect.v1),
        )
    return [leaf for piece in pieces for leaf in split(piece, largest_m, gap_m, rng)]


@dataclass
class Parcel:
    """A rectangle on the canvas: window, local axes (m), distance inside its edge (m), cover."""

    rect: Rect
    window: Window
    u: np.ndarray
    v: np.ndarray
    inside_m: np.ndarray
    cover: np.ndarray


def whole(district: District) -> Rect:
    """The square, in local axes, that holds a district whatever its shape."""
    reach = district.radius_m
    return Rect(-reach, reach, -reach, reach)


def parcels(canvas: Canvas, district: District, rects: list[Rect]) -> Iterator[Parcel]:
    """The visible part of each rectangle, cut to the district's own pixels."""
    for rect in rects:
        (u, v), (width, height) = rect.centre, rect.size
        x, y = district.frame.to_image(u, v)
        reach = np.hypot(width, height) / 2 + 2 * district.frame.bend_m
        window = canvas.window(x, y, reach, reach)
        own = canvas.zone[window] == district.index
        if not own.any():
            continue
        # Cut the window to the pixels that matter: most of it lies in other districts.
        rows, cols = np.flatnonzero(own.any(axis=1)), np.flatnonzero(own.any(axis=0))
        top, left = window[0].start, window[1].start
        window = (
            slice(top + rows[0], top + rows[-1] + 1),
            slice(left + cols[0], left + cols[-1] + 1),
        )
        local_u, local_v = district.frame.to_local(*canvas.axes(window))
        inside = np.minimum(
            width / 2 - np.abs(local_u - np.float32(u)),
            height / 2 - np.abs(local_v - np.float32(v)),
        )
        cover = np.clip(inside * np.float32(PX_PER_M) + 0.5, 0, 1)
        cover *= canvas.zone[window] == district.index
        yield Parcel(rect, window, local_u - np.float32(u), local_v - np.float32(v), inside, cover)


def grow_crop(canvas: Canvas, parcel: Parcel, district: District) -> None:
    """One field: its own tone, drills or swaths along one axis, tracks of the tractor, moisture."""
    rng = canvas.rng
    grain, mottle = canvas.grain[parcel.window], canvas.mottle[parcel.window]
    along_u = parcel.rect.size[0] > parcel.rect.size[1]
    across, along = (parcel.v, parcel.u) if along_u else (parcel.u, parcel.v)
    tone = rng.choice([0.22, 0.3, 0.38, 0.48, 0.6]) * rng.uniform(0.85, 1.15)
    wobble = across + 0.12 * mottle
    rows = np.sin(2 * np.pi * wobble / rng.uniform(1.6, 4.5)) * rng.uniform(0.02, 0.13)
    rows = rows * np.clip(0.7 + 0.5 * np.roll(mottle, 7), 0, 1.5)
    swath = np.sign(np.sin(2 * np.pi * across / rng.uniform(14, 30))) * rng.choice([0, 0.03, 0.07])
    patchy = rng.uniform(0.05, 0.2) * mottle + rng.uniform(0.04, 0.12) * grain
    tracks = np.abs(np.abs(across % rng.uniform(18, 28) - 6) - 0.95) < 0.3
    tracks = tracks * rng.choice([0, -0.15, 0.2])
    headland = -0.06 * (np.abs(along) > max(parcel.rect.size) / 2 - 7)
    value = tone * np.exp(rows + swath + patchy + tracks + headland)
    margin = np.clip((parcel.inside_m - 1.2 + 0.4 * grain) * 1.5, 0, 1)
    canvas.paint(parcel.window, parcel.cover * margin, value, 0.0)
    if rng.random() < 0.25:  # rows of a tall crop cast shadows of their own
        ridges = np.clip(8 * rows + 0.3 * grain, -1, 1)
        canvas.height[parcel.window] += parcel.cover * margin * ridges
    if rng.random() < 0.25:  # bales or stones
        _scatter_bales(canvas, parcel, district)


def _scatter_bales(canvas: Canvas, parcel: Parcel, district: District) -> None:
    rng = canvas.rng
    (u, v), (width, height) = parcel.rect.centre, parcel.rect.size
    for _ in range(int(width * height / 500)):
        x, y = district.frame.to_image(
            u + rng.uniform(-0.45, 0.45) * width, v + rng.uniform(-0.45, 0.45) * height
        )
        if canvas.owner(x, y) == district.index:
            canvas.box(x, y, rng.uniform(0, 3), 0.8, 0.7, rng.uniform(0.6, 0.85), 1.4)


def plant_rows(canvas: Canvas, parcel: Parcel, district: District) -> None:
    """Orchard: crowns of nearly one size on a nearly regular lattice, some missing."""
    rng = canvas.rng
    (u, v), (width, height) = parcel.rect.inset(4).centre, parcel.rect.inset(4).size
    pitch_u, pitch_v = rng.uniform(4.5, 7), rng.uniform(4.5, 8)
    grid = np.meshgrid(
        np.arange(-width / 2, width / 2, pitch_u), np.arange(-height / 2, height / 2, pitch_v)
    )
    local = np.stack([axis.ravel() for axis in grid], axis=1)
    local = local[rng.random(len(local)) < 0.93]
    local += rng.normal(0, 0.3, local.shape)
    image = district.frame.points(u + local[:, 0], v + local[:, 1])
    image = image[canvas.owner(image[:, 0], image[:, 1]) == district.index]
    radius = rng.uniform(0.3, 0.42) * min(pitch_u, pitch_v) * rng.uniform(0.75, 1.15, len(image))
    canvas.plant(image[:, 0], image[:, 1], radius, rng.uniform(0.15, 0.22), 1.1)


def hedge(canvas: Canvas, parcel: Parcel, district: District) -> None:
    """A line of shrubs along one side of a parcel, with holes."""
    rng = canvas.rng
    rect, side = parcel.rect, rng.integers(4)
    length = rect.size[side % 2]
    steps = np.arange(0, length, 1.7)
    steps = steps + rng.normal(0, 0.4, len(steps))
    holes = np.sin(steps / rng.uniform(6, 15) + rng.uniform(0, 6)) > rng.uniform(-1.2, 0.2)
    steps = steps[holes]
    fixed = ((rect.v0, rect.u1, rect.v1, rect.u0)[side]) + rng.normal(0, 0.5, len(steps))
    if side % 2 == 0:
        image = district.frame.points(rect.u0 + steps, fixed)
    else:
        image = district.frame.points(fixed, rect.v0 + steps)
    image = image[canvas.owner(image[:, 0], image[:, 1]) == district.index]
    radius = rng.lognormal(np.log(1.3), 0.35, len(image)).clip(0.6, 4)
    canvas.plant(image[:, 0], image[:, 1], radius, rng.uniform(0.13, 0.2, len(image)))


def farm(canvas: Canvas, district: District) -> None:
    """Fields of every tone between hedges and tracks, with orchards among them."""
    rng = canvas.rng
    rects = split(whole(district), rng.uniform(60, 150), rng.uniform(0.5, 3.5), rng)
    for parcel in parcels(canvas, district, rects):
        grow_crop(canvas, parcel, district)
        if rng.random() < 0.1:
            plant_rows(canvas, parcel, district)
        if rng.random() < 0.45:
            hedge(canvas, parcel, district)
