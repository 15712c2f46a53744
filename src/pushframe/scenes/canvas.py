"""The canvas: what covers the ground (albedo), how high it stands, and which district owns it.

Convention: x to the right and y down, in metres from the canvas corner; angles from x towards y.
Rasters are sampled at `PX_PER_M`, twice the density of the final image.
"""

from dataclasses import dataclass, field

import numpy as np

GSD_M = 0.7
SUPERSAMPLING = 2
PX_PER_M = SUPERSAMPLING / GSD_M

ROAD, WATER = -1, -2  # values of Canvas.zone that no district owns

Window = tuple[slice, slice]


@dataclass
class Patch:
    """A rectangle's window on the canvas, its local axes in metres, and the share it covers."""

    window: Window
    u: np.ndarray
    v: np.ndarray
    cover: np.ndarray


@dataclass
class Canvas:
    """Albedo, height above ground (m) and zone of every supersampled pixel, and noise for texture.

    relief (m) is the ground itself. zone holds a district's index, ROAD or WATER. grain is fine
    fractal noise, mottle coarse; both have unit variance. trees collects rows (x, y, radius,
    height, albedo), in metres.
    """

    rng: np.random.Generator
    albedo: np.ndarray
    height: np.ndarray
    relief: np.ndarray
    zone: np.ndarray
    grain: np.ndarray
    mottle: np.ndarray
    trees: list[np.ndarray] = field(default_factory=list)

    @property
    def extent_m(self) -> tuple[float, float]:
        """Width and height of the canvas in metres."""
        return self.albedo.shape[1] / PX_PER_M, self.albedo.shape[0] / PX_PER_M

    def window(self, x: float, y: float, reach_x: float, reach_y: float) -> Window:
        """Pixels within reach of (x, y); empty when they fall outside the canvas."""
        rows, cols = self.albedo.shape
        top, bottom = int((y - reach_y) * PX_PER_M) - 1, int((y + reach_y) * PX_PER_M) + 2
        left, right = int((x - reach_x) * PX_PER_M) - 1, int((x + reach_x) * PX_PER_M) + 2
        top, left = min(max(top, 0), rows), min(max(left, 0), cols)
        return slice(top, min(max(bottom, top), rows)), slice(left, min(max(right, left), cols))

    def axes(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """x (1, W) and y (H, 1) of the pixel centres in a window, in metres."""
        x = (np.arange(window[1].start, window[1].stop, dtype=np.float32) + 0.5) / PX_PER_M
        y = (np.arange(window[0].start, window[0].stop, dtype=np.float32) + 0.5) / PX_PER_M
        return x[None, :], y[:, None]

    def patch(self, x: float, y: float, angle: float, half_u: float, half_v: float) -> Patch:
        """Anti-aliased cover of the rectangle |u| < half_u, |v| < half_v turned by angle."""
        # NumPy's own scalars would turn every raster below into float64.
        x, y, half_u, half_v = float(x), float(y), float(half_u), float(half_v)
        cos, sin = float(np.cos(angle)), float(np.sin(angle))
        reach_x = half_u * abs(cos) + half_v * abs(sin)
        reach_y = half_u * abs(sin) + half_v * abs(cos)
        window = self.window(x, y, reach_x, reach_y)
        axis_x, axis_y = self.axes(window)
        axis_x, axis_y = axis_x - x, axis_y - y
        u = axis_x * cos + axis_y * sin
        v = axis_y * cos - axis_x * sin
        cover = np.clip((half_u - np.abs(u)) * PX_PER_M + 0.5, 0, 1)
        cover *= np.clip((half_v - np.abs(v)) * PX_PER_M + 0.5, 0, 1)
        return Patch(window, u, v, cover)

    def paint(
        self,
        window: Window,
        cover: np.ndarray,
        albedo: np.ndarray | float,
        grain: float = 0.05,
    ) -> None:
        """Blend albedo (1 + grain * noise) over the window, weighted by cover."""
        below = self.albedo[window]
        tint = np.asarray(albedo, np.float32) * (1 + float(grain) * self.grain[window])
        below += cover * (tint - below)

    def box(
        self,
        x: float,
        y: float,
        angle: float,
        half_u: float,
        half_v: float,
        albedo: float,
        height: float = 0.0,
        grain: float = 0.05,
    ) -> None:
        """A flat rectangle of one albedo, standing height metres above what lies under it."""
        patch = self.patch(x, y, angle, half_u, half_v)
        self.paint(patch.window, patch.cover, albedo, grain)
        if height:
            self.height[patch.window] += height * (patch.cover > 0.5)

    def pixel(self, x: np.ndarray | float, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of points given in metres; points outside take the nearest edge's."""
        rows, cols = self.zone.shape
        row = np.clip((np.asarray(y) * PX_PER_M).astype(int), 0, rows - 1)
        return row, np.clip((np.asarray(x) * PX_PER_M).astype(int), 0, cols - 1)

    def owner(self, x: np.ndarray | float, y: np.ndarray | float) -> np.ndarray:
        """zone at points given in metres."""
        return self.zone[self.pixel(x, y)]

    def fits(
        self, x: float, y: float, angle: float, half_u: float, half_v: float, zone: int
    ) -> bool:
        """Whether the corners and the centre of a rectangle all lie in one zone."""
        u = np.array([0, half_u, half_u, -half_u, -half_u])
        v = np.array([0, half_v, -half_v, half_v, -half_v])
        cos, sin = np.cos(angle), np.sin(angle)
        return bool(np.all(self.owner(x + u * cos - v * sin, y + u * sin + v * cos) == zone))

    def plant(
        self,
        x: np.ndarray,
        y: np.ndarray,
        radius: np.ndarray,
        albedo: np.ndarray | float,
        slenderness: float = 1.6,
    ) -> None:
        """Note trees for the drawing of all crowns at the end; metres, one entry each."""
        height = radius * slenderness * self.rng.uniform(0.8, 1.25, np.shape(radius))
        rows = np.broadcast_arrays(x, y, radius, height, albedo)
        self.trees.append(np.stack([np.ravel(row) for row in rows], axis=1))
