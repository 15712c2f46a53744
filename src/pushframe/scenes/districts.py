"""Districts: a warped division of the ground into cells, and the roads along their sides."""

from dataclasses import dataclass

import numpy as np

from pushframe.scenes.buildings import car
from pushframe.scenes.canvas import PX_PER_M, ROAD, WATER, Canvas
from pushframe.scenes.noise import smooth_field

COARSE = 4  # canvas pixels between the points where cells are looked up


@dataclass(frozen=True)
class Frame:
    """A district's own axes: a rotation about its site, bent by a sine so that streets curve."""

    x: float
    y: float
    angle: float
    bend_m: float
    wavelength_m: float
    phase: float

    def _offset(self, v: np.ndarray) -> np.ndarray:
        return self.bend_m * np.sin(2 * np.pi * v / self.wavelength_m + self.phase)

    def to_local(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(u, v) of image points; the exact inverse of to_image."""
        cos, sin = np.float32(np.cos(self.angle)), np.float32(np.sin(self.angle))
        x, y = x - np.float32(self.x), y - np.float32(self.y)
        v = y * cos - x * sin
        return x * cos + y * sin - self._offset(v).astype(np.float32), v

    def to_image(self, u: float, v: float) -> tuple[float, float]:
        """Image (x, y) of one local point."""
        x, y = self.points(np.array([u]), np.array([v]))[0]
        return float(x), float(y)

    def points(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Image (x, y) of many local points, as rows (n, 2)."""
        u = u + self._offset(v)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return np.stack([self.x + u * cos - v * sin, self.y + u * sin + v * cos], axis=1)

    def heading(self, v: float) -> float:
        """Angle of the v axis, less a quarter turn, at v: how a house along the street stands."""
        wave = 2 * np.pi / self.wavelength_m
        slope = self.bend_m * wave * np.cos(wave * v + self.phase)
        return self.angle - float(np.arctan(slope))


@dataclass(frozen=True)
class District:
    """One cell of the partition: its index in Canvas.zone, its land use and its axes."""

    index: int
    use: str
    frame: Frame
    radius_m: float


@dataclass(frozen=True)
class _Cell:
    """Bounds (u0, u1, v0, v1) in the plan's axes, and half-widths of the roads along them, in m."""

    bounds: tuple[float, float, float, float]
    roads: tuple[float, float, float, float]


def _divide(
    cell: _Cell, pitch_m: float, widths_m: tuple[float, float], rng: np.random.Generator
) -> list[_Cell]:
    """Halve a cell across its longer side, off centre, until its sides are near pitch_m.

    Each cut is a road; the first ones run through and are the widest, later ones end on them.
    A width drawn below zero is no road.
    """
    u0, u1, v0, v1 = cell.bounds
    if max(u1 - u0, v1 - v0) < 1.45 * pitch_m * rng.uniform(0.85, 1.2):
        return [cell]
    through = min(max(u1 - u0, v1 - v0) / (4 * pitch_m), 1)
    half = max(rng.uniform(widths_m[0], widths_m[0] + (widths_m[1] - widths_m[0]) * through), 0) / 2
    share, (a, b, c, d) = rng.uniform(0.35, 0.65), cell.roads
    if u1 - u0 >= v1 - v0:
        cut = u0 + share * (u1 - u0)
        parts = _Cell((u0, cut, v0, v1), (a, half, c, d)), _Cell((cut, u1, v0, v1), (half, b, c, d))
    else:
        cut = v0 + share * (v1 - v0)
        parts = _Cell((u0, u1, v0, cut), (a, b, c, half)), _Cell((u0, u1, cut, v1), (a, b, half, d))
    return [leaf for part in parts for leaf in _divide(part, pitch_m, widths_m, rng)]


def _plan(canvas: Canvas, pitch_m: float, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """The plan's axes (u, v) in metres at every pixel: turned by angle, then warped."""
    shape = canvas.albedo.shape
    x, y = canvas.axes((slice(0, shape[0]), slice(0, shape[1])))
    width, height = canvas.extent_m
    frame = Frame(width / 2, height / 2, angle, 0.0, 1.0, 0.0)
    u, v = frame.to_local(x, y)
    u = u + 0.11 * pitch_m * smooth_field(shape, 0.75 * pitch_m * PX_PER_M, canvas.rng)
    v = v + 0.11 * pitch_m * smooth_field(shape, 0.75 * pitch_m * PX_PER_M, canvas.rng)
    return u, v


def _cell_of(u: np.ndarray, v: np.ndarray, cells: list[_Cell]) -> np.ndarray:
    """Index of the cell of every pixel, searched on every fourth pixel and repeated."""
    shape = u.shape
    pad = [(COARSE // 2, COARSE) for _ in shape]
    u, v = (np.pad(axis, pad, mode="edge")[COARSE::COARSE, COARSE::COARSE] for axis in (u, v))
    index = np.zeros(u.shape, np.int16)
    for number, cell in enumerate(cells):
        u0, u1, v0, v1 = cell.bounds
        index[(u >= u0) & (u < u1) & (v >= v0) & (v < v1)] = number
    return index.repeat(COARSE, axis=0).repeat(COARSE, axis=1)[: shape[0], : shape[1]]


def lay_out(
    canvas: Canvas,
    uses: dict[str, float],
    pitch_m: float,
    widths_m: tuple[float, float],
    bridges: bool,
) -> list[District]:
    """Partition the canvas into districts, fill Canvas.zone, and pave the roads between them.

    uses gives each land use its probability, widths_m the range of road widths. The district in
    the middle takes the first use, so that a small scene still shows it. Where the canvas is
    already WATER it stays so, but for bridges of wide roads, if wanted.
    """
    rng = canvas.rng
    angle = rng.uniform(0, np.pi)
    reach = np.hypot(*canvas.extent_m) / 2 + pitch_m
    offset_u, offset_v = rng.uniform(0, pitch_m, 2)
    bounds = (-reach - offset_u, reach, -reach - offset_v, reach)
    cells = _divide(_Cell(bounds, (0, 0, 0, 0)), pitch_m, widths_m, rng)
    u, v = _plan(canvas, pitch_m, angle)
    index = _cell_of(u, v, cells)
    _pave(canvas, u, v, index, cells, angle, bridges)
    width, height = canvas.extent_m
    plan = Frame(width / 2, height / 2, angle, 0.0, 1.0, 0.0)
    central = index[index.shape[0] // 2, index.shape[1] // 2]
    districts = []
    for number in np.unique(index):
        u0, u1, v0, v1 = cells[number].bounds
        x, y = plan.to_image((u0 + u1) / 2, (v0 + v1) / 2)
        use = str(rng.choice(list(uses), p=list(uses.values())))
        use = next(iter(uses)) if number == central else use
        bend_m = rng.uniform(3, 10) if use in ("suburb", "field") and rng.random() < 0.5 else 0.0
        turn = angle + rng.choice([0, np.pi / 2]) + rng.normal(0, 0.05 if bend_m else 0.02)
        wave = rng.uniform(120, 260), rng.uniform(0, 2 * np.pi)
        radius = 0.5 * max(u1 - u0, v1 - v0) + 0.35 * pitch_m
        districts.append(District(int(number), use, Frame(x, y, turn, bend_m, *wave), radius))
    return districts


def _pave(
    canvas: Canvas,
    u: np.ndarray,
    v: np.ndarray,
    index: np.ndarray,
    cells: list[_Cell],
    angle: float,
    bridges: bool,
) -> None:
    """Roads where the distance to a cell's side is below that side's half-width, zones beyond."""
    bounds = np.array([cell.bounds for cell in cells], np.float32)
    roads = np.array([cell.roads for cell in cells], np.float32)
    # The road whose edge is nearest owns the pixel; a side without one is infinitely far.
    excess = np.full(index.shape, 1e6, np.float32)
    half, side = np.zeros(index.shape, np.float32), np.zeros(index.shape, np.int8)
    for number in range(4):
        own_half = np.where(roads > 0, roads, -1e6)[:, number][index]
        to_edge = np.abs((u if number < 2 else v) - bounds[:, number][index]) - own_half
        nearer = to_edge < excess
        excess = np.where(nearer, to_edge, excess)
        half = np.where(nearer, own_half, half)
        side = np.where(nearer, np.int8(number), side)
    dry = canvas.zone != WATER
    if bridges:
        crossing = ~dry & (half > 2.8) & (excess < 1)
        canvas.height[crossing] = 2.5
        dry |= crossing
    # Verges belong to the road: nothing is built or planted on them.
    canvas.zone[dry] = np.where(excess < 1.8, ROAD, index)[dry]
    near = dry & (excess < 3.0)
    along = np.where(side < 2, v, u)[near]
    across, half, side = excess[near] + half[near], half[near], side[near]
    place = np.nonzero(near)
    _draw_road(canvas, place, across, along, half)
    heading = angle + np.where(side < 2, np.pi / 2, 0)
    lanes = np.flatnonzero((half > 2.8) & (np.abs(across - half / 2) < 0.3))
    for pick in canvas.rng.choice(lanes, len(lanes) // 600) if lanes.size else ():
        at = (place[1][pick] + 0.5) / PX_PER_M, (place[0][pick] + 0.5) / PX_PER_M
        car(canvas, *at, float(heading[pick]), 10.0 if canvas.rng.random() < 0.1 else 4.4)


def _draw_road(
    canvas: Canvas,
    place: tuple[np.ndarray, ...],
    across: np.ndarray,
    along: np.ndarray,
    half: np.ndarray,
) -> None:
    """Asphalt with lines and polished strips on a wide road, pale dirt on a track."""
    grain, mottle = canvas.grain[place], canvas.mottle[place]
    wide = half > 2.2
    asphalt = 0.21 * (1 + 0.07 * grain + 0.09 * mottle)
    asphalt *= 1 + 0.08 * np.cos(np.pi * across / 1.7)  # tyres polish two strips of each lane
    dirt = 0.5 * (1 + 0.14 * grain + 0.1 * mottle) - 0.15 * (across < 0.5)
    value = np.where(wide, asphalt, dirt)
    dashes = np.clip((np.abs(along % 9 - 4.5) - 2.8) * PX_PER_M, 0, 1)
    line = np.clip((0.16 - across) * PX_PER_M + 0.5, 0, 1) * dashes
    border = np.clip((0.13 - np.abs(half - 0.5 - across)) * PX_PER_M + 0.5, 0, 1)
    value += (0.7 - value) * wide * np.maximum(line, 0.7 * border * (half > 3.4))
    verge = np.clip((half + 1.5 + 0.7 * mottle - across) * PX_PER_M * 0.4, 0, 1) * 0.6
    edge = np.clip((half - across + 0.15 * grain * ~wide) * PX_PER_M + 0.5, 0, 1)
    below = canvas.albedo[place]
    below += verge * (0.32 * (1 + 0.22 * grain) - below)
    below += edge * (value - below)
    canvas.albedo[place] = below
