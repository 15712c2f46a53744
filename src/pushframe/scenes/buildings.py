"""Single buildings and small things: roofs, what stands on them, cars, pools."""

import numpy as np

from pushframe.scenes.canvas import Canvas


def roof_tone(rng: np.random.Generator, bright_share: float) -> float:
    """Albedo of a roof: tiles, slate, gravel or membrane, now and then bare metal in the sun."""
    if rng.random() < bright_share:
        return float(np.clip(rng.lognormal(np.log(0.8), 0.25), 0.6, 1.6))
    return float(np.clip(rng.lognormal(np.log(0.38), 0.36), 0.12, 0.7))


def pitched_roof(
    canvas: Canvas,
    x: float,
    y: float,
    angle: float,
    half_u: float,
    half_v: float,
    eaves_m: float,
    albedo: float,
    hipped: bool,
) -> None:
    """A gable or hip roof, its ridge along u: height = eaves + slope * distance to the eaves."""
    patch = canvas.patch(x, y, angle, half_u, half_v)
    slope = 0.45
    rise = half_v - np.abs(patch.v)
    if hipped:
        rise = np.minimum(rise, half_u - np.abs(patch.u))
    inside = patch.cover > 0.5
    roof = np.where(inside, eaves_m + slope * rise, 0)
    below = canvas.height[patch.window]
    higher = roof > below
    courses = 0.05 * np.sin(2 * np.pi * rise / 0.9)
    canvas.paint(patch.window, patch.cover * (higher | ~inside), albedo * (1 + courses), 0.07)
    canvas.height[patch.window] = np.maximum(below, roof)


def flat_roof(
    canvas: Canvas,
    x: float,
    y: float,
    angle: float,
    half_u: float,
    half_v: float,
    height_m: float,
    albedo: float,
) -> None:
    """A flat roof: membrane stained by weather, a parapet around it, plant and hatches on it."""
    rng = canvas.rng
    patch = canvas.patch(x, y, angle, half_u, half_v)
    stains = 1 + 0.08 * canvas.mottle[patch.window]
    edge = np.minimum(half_u - np.abs(patch.u), half_v - np.abs(patch.v))
    parapet = (edge < 0.6) & (patch.cover > 0.5)
    tone = albedo * stains * np.where(parapet, 1.25, 1)
    if min(half_u, half_v) > 6 and rng.random() < 0.5:  # seams between sheets of membrane
        seams = np.abs(patch.u % rng.uniform(2, 5) - 0.5) < 0.22
        tone = tone * np.where(seams, rng.choice([0.82, 1.15]), 1)
    canvas.paint(patch.window, patch.cover, tone, 0.06)
    standing = height_m + 0.7 * parapet
    canvas.height[patch.window] = np.where(patch.cover > 0.5, standing, canvas.height[patch.window])
    cos, sin = np.cos(angle), np.sin(angle)
    area = 4 * half_u * half_v
    for _ in range(rng.poisson(min(area / 45, 14))):
        u = rng.uniform(-0.8, 0.8) * half_u
        v = rng.uniform(-0.8, 0.8) * half_v
        size = np.minimum(rng.lognormal(np.log(0.8), 0.5, 2), 0.3 * min(half_u, half_v))
        unit = rng.choice([0.15, 0.35, 0.6, 0.9, 1.4], p=[0.22, 0.28, 0.25, 0.17, 0.08])
        at = x + u * cos - v * sin, y + u * sin + v * cos
        canvas.box(*at, angle, size[0], size[1], unit, rng.uniform(0.5, 2.5))


def shed(
    canvas: Canvas,
    x: float,
    y: float,
    angle: float,
    half_u: float,
    half_v: float,
    height_m: float,
    albedo: float,
) -> None:
    """A hall of sheet metal: ribs across u, bays of different tone, strips of skylights."""
    rng = canvas.rng
    patch = canvas.patch(x, y, angle, half_u, half_v)
    ribs = 0.05 * np.sin(2 * np.pi * patch.u / rng.uniform(1.3, 2.2))
    bay = rng.uniform(9, 16)
    tones = rng.uniform(0.8, 1.15, int(2 * half_u / bay) + 2)
    bays = tones[np.clip((patch.u + half_u) / bay, 0, len(tones) - 1).astype(int)]
    canvas.paint(patch.window, patch.cover, albedo * bays * (1 + ribs), 0.05)
    span = half_v / rng.integers(1, 4)
    ridge = span - np.abs((patch.v + half_v) % (2 * span) - span)
    standing = np.where(patch.cover > 0.5, height_m + 0.14 * ridge, canvas.height[patch.window])
    canvas.height[patch.window] = standing
    if rng.random() < 0.7:
        strip_v = np.abs(np.abs(patch.v) - half_v * rng.uniform(0.2, 0.7)) < rng.uniform(0.5, 1)
        strip_u = np.abs((patch.u + half_u) % bay - bay / 2) < bay * rng.uniform(0.15, 0.4)
        strips = strip_v if rng.random() < 0.4 else strip_u & (np.abs(patch.v) < 0.75 * half_v)
        canvas.paint(patch.window, patch.cover * strips, rng.choice([0.1, 0.16, 1.1]), 0.03)


def car(canvas: Canvas, x: float, y: float, angle: float, length_m: float = 4.4) -> None:
    """A car or a lorry: body, and dark glass across it; body tones from black to white."""
    rng = canvas.rng
    body = rng.choice([0.07, 0.18, 0.35, 0.6, 0.95, 1.5], p=[0.24, 0.18, 0.2, 0.16, 0.18, 0.04])
    tall = 1.4 if length_m < 6 else 3.2
    canvas.box(x, y, angle, length_m / 2, 0.95 if length_m < 6 else 1.3, body, tall, 0.02)
    if length_m < 6:
        shift = 0.15 * length_m
        at = x + shift * np.cos(angle), y + shift * np.sin(angle)
        canvas.box(*at, angle, 0.4, 0.7, 0.08, 0.0, 0.0)
    else:
        shift = 0.42 * length_m
        at = x + shift * np.cos(angle), y + shift * np.sin(angle)
        canvas.box(*at, angle, 0.9, 1.2, rng.uniform(0.1, 1.0), 0.0, 0.0)


def house(canvas: Canvas, x: float, y: float, angle: float, half_u: float, half_v: float) -> None:
    """A house: main roof, perhaps a wing across it, chimney and dormers as small boxes."""
    rng = canvas.rng
    tone, hipped = roof_tone(rng, 0.05), rng.random() < 0.45
    cos, sin = np.cos(angle), np.sin(angle)
    eaves = rng.choice([3.2, 3.5, 5.8])
    if rng.random() < 0.6:
        side = rng.choice([-1, 1])
        u, v = side * rng.uniform(0.2, 0.6) * half_u, rng.choice([-1, 1]) * 0.6 * half_v
        wing_u, wing_v = rng.uniform(0.6, 0.95) * half_v, rng.uniform(0.35, 0.5) * half_u
        at = x + u * cos - v * sin, y + u * sin + v * cos
        pitched_roof(canvas, *at, angle + np.pi / 2, wing_u, wing_v, eaves - 0.2, tone, hipped)
    pitched_roof(canvas, x, y, angle, half_u, half_v, eaves, tone, hipped)
    for _ in range(rng.integers(1, 4)):
        u, v = rng.uniform(-0.7, 0.7) * half_u, rng.uniform(-0.6, 0.6) * half_v
        at = x + u * cos - v * sin, y + u * sin + v * cos
        half, tone = rng.uniform(0.3, 0.8), rng.choice([0.12, 0.5, 0.9])
        canvas.box(*at, angle, half, rng.uniform(0.3, 0.8), tone, 0.7)


def pool(canvas: Canvas, x: float, y: float, angle: float) -> None:
    """A pool: pale coping around water, which a panchromatic band sees mid-grey."""
    half_u, half_v = canvas.rng.uniform(2.2, 4.5), canvas.rng.uniform(1.4, 2.4)
    canvas.box(x, y, angle, half_u + 0.9, half_v + 0.9, canvas.rng.uniform(0.4, 0.62))
    canvas.box(x, y, angle, half_u, half_v, canvas.rng.uniform(0.18, 0.34), 0.0, 0.02)
