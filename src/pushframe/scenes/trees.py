"""Trees: woods and scattered trees by density, crowns as clusters of domes."""

import numpy as np

from pushframe.scenes.canvas import PX_PER_M, Canvas
from pushframe.scenes.noise import smooth_field


def sow(canvas: Canvas, cover: dict[int, float], pitch_m: float) -> None:
    """Plant trees on a jittered lattice with a chance given by each district's cover and by noise.

    cover maps a district's index to the share of its ground under crowns. The noise gathers
    trees in clumps, so that a cover of one half is woods and clearings and not a lawn of dots.
    """
    rng, (rows, cols) = canvas.rng, canvas.zone.shape
    width, height = canvas.extent_m
    grid = np.meshgrid(np.arange(0, width, pitch_m), np.arange(0, height, pitch_m))
    x, y = (axis.ravel() + rng.uniform(-0.6, 0.6, axis.size) * pitch_m for axis in grid)
    row, col = canvas.pixel(x, y)
    share = np.zeros(max(cover, default=0) + 2)
    for index, value in cover.items():
        share[index] = value
    zone = canvas.zone[row, col]
    wanted = np.where(zone >= 0, share[np.clip(zone, 0, len(share) - 1)] * (zone < len(share)), 0)
    clump = smooth_field((rows, cols), 40 * PX_PER_M, rng)[row, col]
    clump += 0.6 * smooth_field((rows, cols), 14 * PX_PER_M, rng)[row, col]
    threshold = -2.2 + 4.4 * (1 - wanted)
    chance = np.where(wanted > 0, np.clip(0.95 * (clump - threshold + 0.3), 0.04 * wanted, 0.97), 0)
    open_ground = canvas.height[row, col] < 12
    kept = (rng.random(x.size) < chance) & open_ground
    x, y, chance = x[kept], y[kept], chance[kept]
    # Trees inside a clump stand taller than those at its edge or alone.
    radius = pitch_m * rng.lognormal(np.log(0.5), 0.32, x.size) * (0.55 + 0.5 * chance)
    tone = rng.uniform(0.17, 0.23) * np.exp(rng.normal(0, 0.2, x.size))
    canvas.plant(x, y, np.clip(radius, 0.5, 6.5), tone)


def scatter_bushes(canvas: Canvas, zones: list[int]) -> None:
    """Bushes and tussocks a pixel or two across, on the open ground of the given districts."""
    rng = canvas.rng
    width, height = canvas.extent_m
    count = int(width * height / 14)
    x, y = rng.uniform(0, width, count), rng.uniform(0, height, count)
    row, col = canvas.pixel(x, y)
    share = np.clip(0.35 + 0.45 * canvas.mottle[row, col], 0, 1) * rng.uniform(0.2, 1)
    kept = np.isin(canvas.zone[row, col], zones) & (rng.random(count) < share)
    radius = rng.lognormal(np.log(0.55), 0.4, int(kept.sum())).clip(0.3, 1.6)
    canvas.plant(x[kept], y[kept], radius, rng.uniform(0.16, 0.26, radius.size), 1.0)


def _clusters(trees: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each crown as a main dome and smaller ones around it: leaves gather at branch ends."""
    parts = [trees * [1, 1, 0.82, 1, 1]]
    for _ in range(7):
        angle, reach = rng.uniform(0, 2 * np.pi, len(trees)), rng.uniform(0.3, 0.8, len(trees))
        part = trees.copy()
        part[:, 0] += trees[:, 2] * reach * np.cos(angle)
        part[:, 1] += trees[:, 2] * reach * np.sin(angle)
        part[:, 2] *= rng.uniform(0.2, 0.45, len(trees))
        part[:, 3] *= 1.08 - 0.45 * reach + rng.normal(0, 0.06, len(trees))
        part[:, 4] *= np.exp(rng.normal(0, 0.1, len(trees)))
        parts.append(part)
    return np.concatenate(parts)


def draw_trees(canvas: Canvas) -> None:
    """Height = the highest dome over each pixel; albedo = that dome's.

    All domes of a size class are evaluated together and scattered with a maximum.
    """
    if not canvas.trees:
        return
    rng, (rows, cols) = canvas.rng, canvas.zone.shape
    domes = _clusters(np.concatenate(canvas.trees), rng).astype(np.float32)
    crown = np.zeros(rows * cols, np.float32)
    tone = np.zeros(rows * cols, np.float32)
    pixels = np.ceil(domes[:, 2] * PX_PER_M).astype(int) + 1
    order = np.argsort(pixels, kind="stable")
    for batch in np.split(order, np.flatnonzero(np.diff(pixels[order])) + 1):
        reach = int(pixels[batch[0]])
        offset = np.arange(-reach, reach + 1)
        dx, dy = (axis.ravel() for axis in np.meshgrid(offset, offset))
        disc = dx**2 + dy**2 <= reach**2
        dx, dy = dx[disc], dy[disc]
        for part in np.array_split(domes[batch], 1 + len(batch) * dx.size // 2_000_000):
            _scatter(part, dx, dy, (rows, cols), crown, tone)
    covered = crown > 0
    crown, tone = crown.reshape(rows, cols), tone.reshape(rows, cols)
    crown += 0.4 * canvas.grain * covered.reshape(rows, cols)
    higher = crown > np.maximum(canvas.height, 0.1)
    leaves = tone * (1 + 0.22 * canvas.grain)
    canvas.albedo = np.where(higher, leaves, canvas.albedo)
    canvas.height = np.where(higher, crown, canvas.height)


def _scatter(
    domes: np.ndarray,
    dx: np.ndarray,
    dy: np.ndarray,
    shape: tuple[int, int],
    crown: np.ndarray,
    tone: np.ndarray,
) -> None:
    """Merge domes of one size class into the flat crown and tone rasters."""
    rows, cols = shape
    column, row = domes[:, 0] * PX_PER_M, domes[:, 1] * PX_PER_M
    at_col = np.floor(column).astype(np.int64)[:, None] + dx
    at_row = np.floor(row).astype(np.int64)[:, None] + dy
    # Distances are to each dome's own centre, which falls between pixel centres.
    away_x = dx - (column % 1 - 0.5)[:, None]
    away_y = dy - (row % 1 - 0.5)[:, None]
    squared = (away_x**2 + away_y**2) / (domes[:, 2:3] * PX_PER_M) ** 2
    height = domes[:, 3:4] * (0.45 + 0.55 * np.sqrt(np.maximum(1 - squared, 0)))
    seen = (squared < 1) & (at_col >= 0) & (at_col < cols) & (at_row >= 0) & (at_row < rows)
    index = (at_row * cols + at_col)[seen]
    height = height[seen].astype(np.float32)
    colour = np.broadcast_to(domes[:, 4:5], seen.shape)[seen]
    np.maximum.at(crown, index, height)
    wins = crown[index] == height
    tone[index[wins]] = colour[wins]
