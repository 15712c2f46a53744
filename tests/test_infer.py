"""Burst to product: units, place, tiles without seams."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from conftest import sources

from pushframe import Burst, GeoRef, Product, super_resolve
from pushframe.errors import UsageError
from pushframe.methods import best_method
from pushframe.seams import tile_corners, tiles_at_once
from pushframe.simulate import PRESETS, simulate_one, with_options


def one(size: int, frames: int = 6):
    setting = dataclasses.replace(PRESETS["paper"], size=size, frames=frames)
    return simulate_one(sources(setting, 1)[0], setting, 3)


def test_the_product_is_in_the_unit_and_place_of_the_reference() -> None:
    made = one(40)
    georef = GeoRef("EPSG:32631", (2.0, 0.0, 500_000.0, 0.0, -2.0, 4_800_000.0))
    product = super_resolve(dataclasses.replace(made.burst, georef=georef, notes=("Assumed x.",)))
    gain = float(made.burst.gain[0])
    error = (product.mean / gain - made.truth.numpy())[8:-8, 8:-8]
    assert np.sqrt((error**2).mean()) < 0.03
    assert product.georef.transform[0] == 1.0
    assert product.georef.transform[2] == 500_000.5
    assert product.provenance["method"] == product.provenance["weights"] == "base"
    assert product.provenance["notes"] == "Assumed x."
    reference = made.burst.raw_dn()[0].numpy()
    assert abs(np.median(product.mean) / np.median(reference) - 1) < 0.05


def test_the_black_level_comes_back() -> None:
    made = one(32)
    raised = dataclasses.replace(made.burst, black_level=torch.tensor(200.0))
    plain, above = (super_resolve(burst) for burst in (made.burst, raised))
    np.testing.assert_allclose(above.mean, plain.mean + 200, rtol=1e-5)
    np.testing.assert_array_equal(above.std, plain.std)


@pytest.mark.parametrize("shape", [(64, 64), (128, 300), (129, 129), (500, 97)])
def test_tiles_cover_every_pixel_and_overlap(shape: tuple[int, int]) -> None:
    seen = np.zeros(shape, int)
    sizes = set()
    for rows, columns in tile_corners(shape):
        seen[rows, columns] += 1
        sizes.add((rows.stop - rows.start, columns.stop - columns.start))
    assert seen.min() >= 1
    assert len(sizes) == 1
    assert max(next(iter(sizes))) <= 128


def test_tiles_leave_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    made = one(100, frames=10)
    whole = super_resolve(made.burst)
    for name, value in (("LARGEST_TILE_PX", 64), ("TILE_PX", 64), ("OVERLAP_PX", 16)):
        monkeypatch.setattr(f"pushframe.seams.{name}", value)
    tiled = super_resolve(made.burst)
    truth = made.truth.numpy() * float(made.burst.gain[0])
    error = {name: np.abs(p.mean - truth) for name, p in (("whole", whole), ("tiled", tiled))}
    inner = slice(8, -8)
    assert np.median(error["tiled"][inner, inner]) < 1.3 * np.median(error["whole"][inner, inner])
    # tiles start at 36 px: a seam would show as a row of larger errors about 72 to 128 high-res px
    rows = error["tiled"][inner, inner].mean(1)
    assert rows.max() < 2.5 * np.median(rows)


def test_a_gpu_works_on_as_many_tiles_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiles(free_gib: float, frames: int, scale: int, cached_gib: float = 0.0) -> int:
        free, held = (int(gib * 2**30) for gib in (free_gib, cached_gib))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free + held))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: held)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
        return tiles_at_once(torch.device("cuda"), frames, scale)

    assert tiles_at_once(torch.device("cpu"), 15, 2) == 8
    assert tiles(140, 15, 2) == 256
    few = tiles(8, 15, 2)
    assert 20 < few < 60
    assert tiles(8, 32, 2) == few // 2
    assert tiles(8, 5, 2) == few  # aliases take what frames do not
    assert tiles(32, 15, 4) == few
    assert tiles(2, 15, 2, cached_gib=6) == few  # what an earlier run left is there to be used
    assert tiles(0.1, 15, 2) == 8


def test_it_does_not_matter_how_many_tiles_are_worked_on_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("LARGEST_TILE_PX", 40), ("TILE_PX", 40)):
        monkeypatch.setattr(f"pushframe.seams.{name}", value)
    burst = one(80, frames=9).burst
    many = super_resolve(burst, method="solver")
    monkeypatch.setattr("pushframe.seams.TILES_AT_ONCE", 2)
    few = super_resolve(burst, method="solver")
    apart = (many.mean - few.mean) / many.std
    assert np.sqrt(np.mean(apart**2)) < 0.05  # as closely as images are solved
    assert np.array_equal(many.samples > 0, few.samples > 0)


def test_a_hole_in_all_frames_stays_a_hole() -> None:
    made = one(40)
    valid = made.burst.valid.clone()
    valid[:, 10:20, 10:20] = False
    product = super_resolve(dataclasses.replace(made.burst, valid=valid))
    assert np.isnan(product.mean[26:34, 26:34]).all()
    assert np.isnan(product.std[26:34, 26:34]).all()
    assert (product.samples[26:34, 26:34] == 0).all()
    assert np.isnan(product.mean).mean() < 0.1


def test_an_unknown_noise_law_is_estimated_and_said() -> None:
    made = one(64, frames=10)
    product = super_resolve(dataclasses.replace(made.burst, noise=None))
    assert "was estimated" in product.provenance["notes"]
    told = super_resolve(made.burst)
    assert np.median(product.std) == pytest.approx(float(np.median(told.std)), rel=0.15)


def test_methods_without_error_bar_or_motion() -> None:
    made = one(32)
    plain = dataclasses.replace(made.burst, noise=None)
    product = super_resolve(plain, method="bicubic")
    assert np.isnan(product.std).all()
    assert product.samples.max() == 1


def test_batches_and_unknown_methods_are_refused() -> None:
    burst: Burst = one(32).burst
    with pytest.raises(UsageError, match="one burst"):
        super_resolve(burst.batched())
    with pytest.raises(UsageError, match="did you mean 'solver'"):
        super_resolve(burst, method="solvr")
    assert torch.is_tensor(burst.frames)


def test_the_solver_stands_in_where_no_weights_fit() -> None:
    assert best_method(2) == "base"
    assert best_method(3) == best_method(4) == "solver"


@pytest.mark.parametrize("stated", [True, False])
def test_the_unit_of_the_pixels_does_not_matter(stated: bool, monkeypatch) -> None:
    """Reflectance of 0 to 1 is as good as DN of 0 to 4095."""
    setting = with_options(PRESETS["paper"], size=32, frames=8)
    burst = simulate_one(sources(setting, 1)[0], setting, 0).burst
    dn, exposure, law = burst.raw_dn().round(), burst.exposure, burst.noise

    def product(unit: float) -> Product:
        noise = law.map(lambda x: x * unit**2) if stated else None
        return super_resolve(
            Burst.from_dn(dn * unit, exposure, 3400 * unit, noise=noise), 2, "solver"
        )

    whole, fine = product(1.0), product(1 / 4095)
    np.testing.assert_allclose(4095 * fine.mean, whole.mean, atol=1.0)
    np.testing.assert_allclose(4095 * fine.std, whole.std, rtol=0.05)
    monkeypatch.setattr("pushframe.burst.raw_step", lambda *_: 1.0)  # twin: rounded to whole DN
    assert np.abs(4095 * product(1 / 4095).mean - whole.mean).max() > 50
