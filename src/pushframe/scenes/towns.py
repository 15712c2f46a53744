"""Built districts: blocks between streets, filled with houses, city buildings or halls."""

from itertools import pairwise

import numpy as np

from pushframe.scenes.buildings import car, flat_roof, house, pitched_roof, pool, roof_tone, shed
from pushframe.scenes.canvas import Canvas
from pushframe.scenes.districts import District
from pushframe.scenes.parcels import Parcel, Rect, parcels, split, whole

ASPHALT = 0.21


def _lay_streets(canvas: Canvas, district: District) -> None:
    """Asphalt over the whole district, worn and patched; the blocks are laid on top."""
    reach = district.radius_m * 1.45
    window = canvas.window(district.frame.x, district.frame.y, reach, reach)
    own = (canvas.zone[window] == district.index).astype(np.float32)
    tone = ASPHALT * canvas.rng.uniform(0.85, 1.3) * (1 + 0.12 * canvas.mottle[window])
    canvas.paint(window, own, tone, 0.07)
    canvas.height[window] *= 1 - own


def _lay_block(canvas: Canvas, parcel: Parcel, ground: float, rough: float) -> None:
    """Pavement around a block, and its ground inside."""
    rng = canvas.rng
    canvas.paint(parcel.window, parcel.cover, rng.uniform(0.3, 0.42), 0.06)
    inner = parcel.cover * np.clip((parcel.inside_m - 1.6) * 2, 0, 1)
    stains = 1 + 0.18 * canvas.mottle[parcel.window]
    canvas.paint(parcel.window, inner, ground * stains, rough)


def _park_along(canvas: Canvas, district: District, rect: Rect, share: float) -> None:
    """Cars at the kerb on all four sides of a block."""
    rng, frame = canvas.rng, district.frame
    for side in range(4):
        length = rect.size[side % 2]
        for step in np.arange(8, length - 8, 6.2):
            if rng.random() > share:
                continue
            out = 1.3 + rng.normal(0, 0.12)
            along = step + rng.normal(0, 0.5)
            if side % 2 == 0:
                u, v = rect.u0 + along, (rect.v0 - out if side == 0 else rect.v1 + out)
                turn = 0.0
            else:
                u, v = (rect.u0 - out if side == 1 else rect.u1 + out), rect.v0 + along
                turn = np.pi / 2
            x, y = frame.to_image(u, v)
            if canvas.owner(x, y) == district.index:
                angle = turn + frame.heading(v) + rng.choice([0, np.pi]) + rng.normal(0, 0.03)
                car(canvas, x, y, angle)


def _park_rows(canvas: Canvas, district: District, rect: Rect, filled: float) -> None:
    """A car park: pairs of rows of marked bays, some taken."""
    rng, frame = canvas.rng, district.frame
    (u, v), (width, height) = rect.centre, rect.size
    x, y = frame.to_image(u, v)
    angle = frame.heading(v)
    canvas.box(x, y, angle, width / 2, height / 2, ASPHALT * rng.uniform(0.9, 1.4), 0.0, 0.06)
    lorries = rng.random() < 0.15
    pitch, depth = (3.6, 14.0) if lorries else (2.7, 5.4)
    for row_v in np.arange(-height / 2 + depth / 2 + 0.6, height / 2 - depth / 2, depth + 3.4):
        for bay_u in np.arange(-width / 2 + pitch, width / 2 - pitch, pitch):
            at = frame.to_image(u + bay_u, v + row_v)
            if canvas.owner(*at) != district.index:
                continue
            line = frame.to_image(u + bay_u + pitch / 2, v + row_v)
            canvas.box(*line, angle, 0.09, depth / 2, 0.6)
            if rng.random() < filled:
                turn = angle + rng.choice([-1, 1]) * np.pi / 2 + rng.normal(0, 0.03)
                car(canvas, *at, turn, rng.uniform(8, 13) if lorries else rng.uniform(3.9, 4.9))


def _lots(block: Rect, width_m: float, rng: np.random.Generator) -> list[tuple[Rect, int]]:
    """Two rows of lots back to back; the sign says on which side of v the street lies."""
    middle = block.centre[1]
    lots = []
    for side, (v0, v1) in ((-1, (block.v0, middle)), (1, (middle, block.v1))):
        edges = [block.u0]
        while edges[-1] + 1.5 * width_m < block.u1:
            edges.append(edges[-1] + width_m * rng.uniform(0.85, 1.25))
        edges.append(block.u1)
        lots += [(Rect(a, b, v0, v1), side) for a, b in pairwise(edges)]
    return lots


def _furnish_lot(canvas: Canvas, district: District, lot: Rect, street: int) -> None:
    """One garden: lawn, drive, house behind a setback, perhaps a pool, a shed, trees, a fence."""
    rng, frame = canvas.rng, district.frame
    (u, v), (width, depth) = lot.centre, lot.size
    angle = frame.heading(v)
    x, y = frame.to_image(u, v)
    if canvas.owner(x, y) != district.index:
        return
    half_u, half_v = rng.uniform(0.3, 0.4) * width, rng.uniform(0.18, 0.24) * depth
    half_u, half_v = min(half_u, 9.0), min(half_v, 6.5)
    house_v = v + street * (depth / 2 - half_v - rng.uniform(4.5, 8))
    house_u = u + rng.normal(0, 0.04) * width
    house_at = frame.to_image(house_u, house_v)
    if not canvas.fits(*house_at, angle, half_u + 1, half_v + 1, district.index):
        _plant_garden(canvas, district, lot, street)
        return
    lawn = rng.choice([0.2, 0.26, 0.33, 0.45]) * rng.uniform(0.9, 1.1)
    canvas.box(x, y, angle, width / 2, depth / 2 - 2, lawn, 0.0, 0.16)
    drive_v = v + street * (depth / 4 + 1)
    drive_u = house_u + rng.choice([-0.75, 0.75]) * half_u
    drive_at = frame.to_image(drive_u, drive_v)
    canvas.box(*drive_at, angle, rng.uniform(1.5, 2.8), depth / 4 + 1, rng.uniform(0.3, 0.62))
    if rng.random() < 0.5:
        patio = frame.to_image(house_u, house_v - street * (half_v + 1.5))
        canvas.box(*patio, angle, 0.6 * half_u, 2.5, rng.uniform(0.4, 0.7))
    if rng.random() < 0.2:
        at = frame.to_image(u + rng.uniform(-0.2, 0.2) * width, v - street * depth * 0.22)
        pool(canvas, *at, angle + rng.choice([0, np.pi / 2]))
    if rng.random() < 0.35:
        at = frame.to_image(u + 0.33 * width, v - street * depth * 0.38)
        pitched_roof(canvas, *at, angle, 2.2, 1.6, 2.2, roof_tone(rng, 0.15), False)
    if rng.random() < 0.6:
        fence_at = frame.to_image(lot.u1, v)
        canvas.box(*fence_at, angle, 0.15, depth / 2 - 4, rng.uniform(0.2, 0.6), 1.7)
        back_at = frame.to_image(u, v - street * depth / 2)
        canvas.box(*back_at, angle, width / 2, 0.15, rng.uniform(0.2, 0.6), 1.7)
    if rng.random() < 0.55:
        at = frame.to_image(drive_u, v + street * (depth / 2 - rng.uniform(3.2, 5)))
        car(canvas, *at, angle + np.pi / 2 * street)
    house(canvas, *house_at, angle + rng.normal(0, 0.02), half_u, half_v)
    _plant_garden(canvas, district, lot, street)


def _plant_garden(canvas: Canvas, district: District, lot: Rect, street: int) -> None:
    """Trees along the back and the sides, shrubs anywhere, none through the roof."""
    rng = canvas.rng
    (u, v), (width, depth) = lot.centre, lot.size
    count = rng.poisson(9)
    sides, anywhere = 0.45 * rng.choice([-1, 1], count), rng.uniform(-0.45, 0.45, count)
    local_u = u + width * np.where(rng.random(count) < 0.5, sides, anywhere)
    local_v = v - street * depth * rng.uniform(-0.45, 0.48, count)
    points = district.frame.points(local_u, local_v)
    radius = rng.lognormal(np.log(1.5), 0.5, count).clip(0.5, 4.5)
    at = canvas.pixel(points[:, 0], points[:, 1])
    kept = (canvas.zone[at] == district.index) & (canvas.height[at] < 2)
    canvas.plant(
        points[kept, 0], points[kept, 1], radius[kept], rng.uniform(0.15, 0.25, kept.sum())
    )


def suburb(canvas: Canvas, district: District) -> None:
    """Detached houses in gardens along curved streets."""
    rng = canvas.rng
    _lay_streets(canvas, district)
    depth = rng.uniform(52, 66)
    area = whole(district)
    rects = []
    for v0 in np.arange(area.v0, area.v1, depth + 8):
        strip = Rect(area.u0, area.u1, v0, v0 + depth)
        cut = area.u0 - rng.uniform(0, 80)
        while cut < area.u1:
            length = rng.uniform(90, 190)
            rects.append(Rect(cut, cut + length, strip.v0, strip.v1))
            cut += length + 8
    width = rng.uniform(17, 25)
    for parcel in parcels(canvas, district, rects):
        _lay_block(canvas, parcel, rng.uniform(0.22, 0.36), 0.16)
        for lot, street in _lots(parcel.rect, width, rng):
            _furnish_lot(canvas, district, lot, street)
        _park_along(canvas, district, parcel.rect, 0.18)


def _shrink(canvas: Canvas, district: District, lot: Rect) -> float:
    """Largest of a few scales at which a building about the lot's centre stays in its district."""
    (u, v), (width, depth) = lot.centre, lot.size
    at, angle = district.frame.to_image(u, v), district.frame.heading(v)
    for scale in (1.0, 0.85, 0.7, 0.55, 0.42, 0.3):
        if scale * min(width, depth) > 5 and canvas.fits(
            *at, angle, scale * width / 2, scale * depth / 2, district.index
        ):
            return scale
    return 0.0


def _city_building(canvas: Canvas, district: District, lot: Rect, storeys: float) -> None:
    rng, frame = canvas.rng, district.frame
    (u, v), (width, depth) = lot.centre, lot.size
    x, y = frame.to_image(u, v)
    angle = frame.heading(v)
    scale = _shrink(canvas, district, lot)
    if not scale:
        if canvas.owner(x, y) == district.index:
            canvas.plant(np.array([x]), np.array([y]), rng.uniform(2, 4, 1), 0.17)
        return
    width, depth = scale * width, scale * depth
    height = 3.2 * max(rng.poisson(storeys), 1) + 1
    if min(width, depth) < 17 and rng.random() < 0.45:
        turned = angle if width >= depth else angle + np.pi / 2
        long, short = max(width, depth) / 2, min(width, depth) / 2
        pitched_roof(canvas, x, y, turned, long, short, height, roof_tone(rng, 0.04), False)
        return
    flat_roof(canvas, x, y, angle, width / 2, depth / 2, height, roof_tone(rng, 0.12))
    if min(width, depth) > 16 and rng.random() < 0.4:
        # A courtyard or a set-back storey: the same rectangle, smaller, lower or higher.
        inner = rng.uniform(0.3, 0.55)
        court = rng.random() < 0.5
        part = (x, y, angle, inner * width / 2, inner * depth / 2)
        if court:
            patch = canvas.patch(*part)
            canvas.paint(patch.window, patch.cover, rng.uniform(0.15, 0.3), 0.1)
            canvas.height[patch.window] *= patch.cover <= 0.5
        else:
            flat_roof(canvas, *part, height + 3.2 * rng.integers(1, 4), roof_tone(rng, 0.2))


def city(canvas: Canvas, district: District) -> None:
    """Blocks cut into lots, each built up to its edges, between car parks and small squares."""
    rng = canvas.rng
    _lay_streets(canvas, district)
    storeys = rng.uniform(2, 5.5)
    rects = split(whole(district), rng.uniform(65, 105), rng.uniform(9, 12), rng)
    for parcel in parcels(canvas, district, rects):
        _lay_block(canvas, parcel, rng.uniform(0.25, 0.42), 0.1)
        for lot in split(parcel.rect.inset(3), rng.uniform(16, 34), rng.choice([0, 0, 2.5]), rng):
            draw = rng.random()
            if draw < 0.1 and min(lot.size) > 12 and _shrink(canvas, district, lot) == 1:
                _park_rows(canvas, district, lot.inset(1), rng.uniform(0.3, 0.9))
            elif draw < 0.2:
                _square(canvas, district, lot)
            else:
                _city_building(canvas, district, lot.inset(rng.uniform(0, 1.2)), storeys)
        _park_along(canvas, district, parcel.rect, 0.5)


def _square(canvas: Canvas, district: District, lot: Rect) -> None:
    """A green between buildings: lawn, a path, trees."""
    rng = canvas.rng
    (u, v), (width, depth) = lot.centre, lot.size
    x, y = district.frame.to_image(u, v)
    if canvas.owner(x, y) != district.index:
        return
    angle = district.frame.heading(v)
    canvas.box(x, y, angle, width / 2, depth / 2, rng.uniform(0.2, 0.34), 0.0, 0.18)
    canvas.box(x, y, angle + rng.normal(0, 0.2), width / 2, 1.2, 0.5)
    count = max(int(width * depth / 45), 1)
    local_u, local_v = rng.uniform(-0.46, 0.46, (2, count))
    points = district.frame.points(u + local_u * width, v + local_v * depth)
    radius, tone = rng.uniform(1.2, 4, count), rng.uniform(0.14, 0.22, count)
    canvas.plant(points[:, 0], points[:, 1], radius, tone)


def industry(canvas: Canvas, district: District) -> None:
    """Halls, yards of containers and car parks on wide plots."""
    rng = canvas.rng
    _lay_streets(canvas, district)
    rects = split(whole(district), rng.uniform(90, 140), rng.uniform(11, 15), rng)
    for parcel in parcels(canvas, district, rects):
        _lay_block(canvas, parcel, rng.uniform(0.22, 0.5), 0.12)
        for lot in split(parcel.rect.inset(4), rng.uniform(45, 80), rng.uniform(4, 9), rng):
            (u, v), (width, depth) = lot.centre, lot.size
            x, y = district.frame.to_image(u, v)
            angle, draw = district.frame.heading(v), rng.random()
            scale = _shrink(canvas, district, lot)
            if not scale:
                continue
            width, depth = scale * width, scale * depth
            if draw < 0.58:
                tone = min(roof_tone(rng, 0.4), 0.8)
                shed(canvas, x, y, angle, width / 2, depth / 2, rng.uniform(6, 12), tone)
            elif draw < 0.78 and scale == 1:
                _park_rows(canvas, district, lot, rng.uniform(0.4, 0.95))
            else:
                _stack_containers(canvas, district, lot)


def _stack_containers(canvas: Canvas, district: District, lot: Rect) -> None:
    """A yard: rows of containers, stacked up to three high, with aisles between."""
    rng = canvas.rng
    (u, v), (width, depth) = lot.centre, lot.size
    angle = district.frame.heading(v)
    for row_u in np.arange(-width / 2 + 7, width / 2 - 6, 14.5):
        for row_v in np.arange(-depth / 2 + 2, depth / 2 - 2, 2.7):
            if rng.random() < 0.22:
                continue
            at = district.frame.to_image(u + row_u + rng.normal(0, 0.15), v + row_v)
            tone = rng.choice([0.12, 0.25, 0.4, 0.65, 1.0], p=[0.2, 0.3, 0.25, 0.15, 0.1])
            tone *= rng.uniform(0.8, 1.2)
            canvas.box(*at, angle, 6.05, 1.22, tone, 2.6 * rng.integers(1, 4), 0.04)
