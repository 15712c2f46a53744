"""Water: a sea with its beach and surf, or a river with its banks; piers and boats."""

import numpy as np

from pushframe.scenes.canvas import PX_PER_M, WATER, Canvas
from pushframe.scenes.noise import smooth_field


def _depth(canvas: Canvas, kind: str, angle: float) -> np.ndarray:
    """Metres from the shore, positive in the water; angle points out to sea or across the river."""
    rng, shape = canvas.rng, canvas.albedo.shape
    x, y = canvas.axes((slice(0, shape[0]), slice(0, shape[1])))
    width, height = canvas.extent_m
    ramp = (x - width / 2) * np.float32(np.cos(angle)) + (y - height / 2) * np.float32(
        np.sin(angle)
    )
    ramp = ramp + 26 * smooth_field(shape, 90 * PX_PER_M, rng)
    ramp += 7 * smooth_field(shape, 25 * PX_PER_M, rng) + 0.5 * canvas.mottle
    smaller = min(width, height)
    if kind == "sea":
        return ramp - np.float32(rng.uniform(-0.02, 0.2) * smaller)
    return np.float32(rng.uniform(9, 16)) - np.abs(ramp - rng.uniform(-0.2, 0.2) * smaller)


def flood(canvas: Canvas, kind: str) -> None:
    """Sea on one side ("sea") or a river across ("river"), with a shore, into albedo and zone."""
    rng, shape = canvas.rng, canvas.albedo.shape
    angle = rng.uniform(0, 2 * np.pi)
    depth = _depth(canvas, kind, angle)
    x, y = canvas.axes((slice(0, shape[0]), slice(0, shape[1])))
    swell = angle + rng.normal(0, 0.4)
    phase = (x * np.float32(np.cos(swell)) + y * np.float32(np.sin(swell))) / rng.uniform(3.5, 6)
    waves = np.sin(2 * np.pi * phase + 1.6 * canvas.mottle) * (1 + 0.5 * canvas.grain)
    open_water = rng.uniform(0.03, 0.06) * (1 + 0.07 * waves + 0.09 * canvas.grain)
    shallow = 0.08 * np.exp(-np.maximum(depth, 0) / 14) * (1 + 0.2 * canvas.mottle)
    sand = 0.5 * (1 + 0.08 * canvas.grain + 0.08 * canvas.mottle) * (1 - 0.25 * (depth > -1.5))
    beach = (4 if kind == "sea" else 1.0) * (
        1 + 1.2 * np.abs(smooth_field(shape, 50 * PX_PER_M, rng))
    )
    on_sand = np.clip((depth + beach) * 0.6 + 0.5 + 0.5 * canvas.grain, 0, 1)
    canvas.albedo += on_sand * (sand - canvas.albedo)
    surf = np.exp(-(((depth - 2.5 + 1.2 * canvas.mottle) / 0.9) ** 2)) * (canvas.grain > 0.1)
    water = open_water + shallow + 0.35 * surf * (kind == "sea")
    canvas.albedo += np.clip(depth * PX_PER_M * 0.7 + 0.5, 0, 1) * (water - canvas.albedo)
    canvas.relief *= np.clip(-depth / 12, 0, 1)
    canvas.height *= depth < 0
    canvas.zone[depth > -beach] = WATER
    if kind == "sea":
        _build_piers(canvas, depth, angle)
        _sail(canvas, depth)


def _pixels(canvas: Canvas, where: np.ndarray, count: int) -> list[tuple[float, float]]:
    """count random points (x, y) in metres where a mask holds; none if it holds nowhere."""
    found = np.flatnonzero(where)
    picks = canvas.rng.choice(found, count if found.size else 0)
    row, col = np.divmod(picks, where.shape[1])
    return list(zip((col + 0.5) / PX_PER_M, (row + 0.5) / PX_PER_M, strict=True))


def _boat(canvas: Canvas, x: float, y: float, angle: float) -> None:
    """A hull with a paler cabin."""
    rng = canvas.rng
    length = rng.uniform(4, 11)
    hull = rng.choice([0.3, 0.6, 0.85])
    canvas.box(x, y, angle, length / 2, 0.16 * length, hull, 1.2, 0.02)
    canvas.box(x, y, angle, 0.18 * length, 0.1 * length, rng.uniform(0.2, 1.1), 1.0, 0.0)


def _build_piers(canvas: Canvas, depth: np.ndarray, angle: float) -> None:
    """Piers from the beach out to sea, with boats along them."""
    rng = canvas.rng
    width, height = canvas.extent_m
    count = rng.poisson(1 + width * height / 90_000)
    for x, y in _pixels(canvas, np.abs(depth) < 1, count):
        half, turn = rng.uniform(12, 32), angle + rng.normal(0, 0.25)
        cos, sin = np.cos(turn), np.sin(turn)
        canvas.box(x + half * cos, y + half * sin, turn, half, rng.uniform(0.9, 2), 0.48, 1.4)
        for along in np.arange(0.6 * half, 2 * half - 2, 4.2):
            for side in (-1, 1):
                if rng.random() < 0.6:
                    at = x + along * cos - side * 6 * sin, y + along * sin + side * 6 * cos
                    _boat(canvas, *at, turn + np.pi / 2)


def _sail(canvas: Canvas, depth: np.ndarray) -> None:
    """Boats on open water, some under way with a fading wake."""
    rng = canvas.rng
    count = int((depth > 15).sum() / PX_PER_M**2 / 4000)
    for x, y in _pixels(canvas, (depth > 15) & (depth < 150), count):
        turn = rng.uniform(0, 2 * np.pi)
        if rng.random() < 0.4:
            half = rng.uniform(15, 40)
            patch = canvas.patch(x - half * np.cos(turn), y - half * np.sin(turn), turn, half, 4)
            spread = 0.8 + (half - patch.u) * 0.05
            foam = np.exp(-np.abs(patch.v) / spread) * (patch.u + half) / (2 * half)
            canvas.paint(patch.window, patch.cover * np.clip(0.7 * foam, 0, 1), 0.25, 0.4)
        _boat(canvas, x, y, turn)
