"""A detector whose pixels do not answer alike: found, taken out, and what is left of it told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from conftest import sources
from torch import Tensor

from pushframe import super_resolve, uneven
from pushframe.burst import Burst
from pushframe.gaussian import folded_basis
from pushframe.infer import Reconstruction
from pushframe.prior import spectrum_at
from pushframe.seams import Tile
from pushframe.simulate import PRESETS, simulate, simulate_one, with_options
from pushframe.solver import pattern as evidence
from pushframe.spectral import transfer
from pushframe.uneven import find_pattern

SIDE, FRAMES = 96, 12
SETTING = with_options(PRESETS["paper"], size=SIDE, frames=FRAMES)


@pytest.fixture(scope="module")
def scene():
    return simulate_one(sources(SETTING, 1)[0], SETTING, 0)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def response(burst: Burst) -> Burst:
    """Pixels that differ by 1 %, columns by 1 %."""
    return dataclasses.replace(
        burst, frames=burst.frames * (1 + 0.01 * noise(SIDE, SIDE) + 0.01 * noise(1, SIDE))
    )


def offset(burst: Burst) -> Burst:
    """Columns that differ by 15 DN, whatever the exposure."""
    dark = 15 * noise(1, SIDE) / burst.gain[..., None, None]
    return dataclasses.replace(burst, frames=burst.frames + dark)


def accuracy(product, truth: Tensor, gain: float) -> tuple[float, float]:
    """RMSE over brightness 1, and mean z^2."""
    off = (torch.from_numpy(product.mean) / gain - truth)[8:-8, 8:-8]
    z = off * gain / torch.from_numpy(product.std)[8:-8, 8:-8]
    return float(off.square().nanmean().sqrt()), float(z.square().nanmean())


@pytest.mark.parametrize("change", [response, offset])
def test_it_is_taken_out_and_what_is_left_is_in_the_bars(
    scene, change: Callable[[Burst], Burst], monkeypatch: pytest.MonkeyPatch
) -> None:
    burst, gain = change(scene.burst), float(scene.burst.gain[0])
    product = super_resolve(burst, method="solver")
    error, z2 = accuracy(product, scene.truth, gain)
    assert 0.8 < z2 < 1.25
    assert "The detector is uneven" in product.provenance["notes"]
    monkeypatch.setattr("pushframe.infer.find_pattern", lambda *_: None)  # twin
    plain, plain_z2 = accuracy(super_resolve(burst, method="solver"), scene.truth, gain)
    assert plain_z2 > max(1.25, z2)
    assert error < 0.8 * plain


def test_an_even_detector_is_left_alone(scene) -> None:
    made = Reconstruction(scene.burst, method="solver")
    assert made.pattern is None
    assert made.source is scene.burst


def test_how_uneven_it_is(scene) -> None:
    made = Reconstruction(response(scene.burst), method="solver")
    assert made.pattern is not None
    own, columns, rows = made.pattern.variance[0].sqrt().tolist()
    assert own == pytest.approx(0.01, rel=0.2)
    assert columns == pytest.approx(0.01, rel=0.35)
    assert rows < 0.003
    assert "its response by" in made.pattern.note(3400, 3400)


class Moving:
    """A source whose frames were moved: by `moved` px, over a detector of its own size."""

    def __init__(self, made, moved: Tensor, change: Tensor) -> None:
        self.burst, self.moved, self.change = made.burst, moved, change

    def cut(self, tiles: list[Tile]) -> Burst:
        frames = self.burst.frames[None].clone()
        assert len(tiles) == 1
        for k, (down, right) in enumerate(self.moved.tolist()):
            frames[0, k] *= self.change[40 + down :, 40 + right :][:SIDE, :SIDE]
        return dataclasses.replace(self.burst.batched(), frames=frames)

    def moves(self, tiles: list[Tile]) -> Tensor:
        return self.moved[None].float().expand(len(tiles), -1, -1)


def found_and_true(source: Moving) -> Tensor:
    """Correlation of the map found with the true one."""
    found = find_pattern((SIDE, SIDE), source.cut, source.moves, 2)
    if found is None:
        return torch.zeros(())
    top, left = (40 + first for first in found.origin)
    height, width = found.defective.shape
    true = source.change[top : top + height, left : left + width] - 1
    return torch.corrcoef(torch.stack([found.maps[0].flatten(), true.flatten()]))[0, 1]


def test_it_stays_with_the_detector(scene) -> None:
    """Where frames move far, nearly all of it can be told."""
    moved = torch.randint(-30, 31, (FRAMES, 2), generator=torch.Generator().manual_seed(1))
    moved[0] = 0
    source = Moving(scene, moved, 1 + 0.02 * noise(SIDE + 80, SIDE + 80))
    assert float(found_and_true(source)) > 0.7
    source.moves = lambda tiles: -moved[None].float().expand(len(tiles), -1, -1)  # twin
    assert float(found_and_true(source)) < 0.3


def test_a_tile_at_the_edge_of_the_maps_stays_on_them() -> None:
    """Whole px by which frames were moved differ by one from tile to tile."""
    tile = (slice(0, 8), slice(2, 12))
    assert uneven._place(tile, (-1.0, 0.0), (0, 0), (8, 12)) == (slice(0, 8), slice(2, 12))
    assert uneven._place(tile, (0.0, 1.0), (0, 0), (9, 12)) == (slice(0, 8), slice(2, 12))
    assert uneven._place(tile, (1.0, -1.0), (-2, 0), (12, 12)) == (slice(3, 11), slice(1, 11))


def test_the_unit_of_exposures_does_not_matter(scene) -> None:
    burst = offset(scene.burst)
    other = dataclasses.replace(
        burst, exposure=1000 * burst.exposure, white_level=burst.white_level / 1000
    )
    found, same = (Reconstruction(one, method="solver").pattern for one in (burst, other))
    torch.testing.assert_close(same.maps, found.maps, rtol=0.02, atol=1e-4)
    assert "its offset by" in same.note(3400, 3400)


def test_a_tile_that_shows_nothing_says_nothing(scene) -> None:
    tiles = [(slice(0, SIDE), slice(0, SIDE)), (slice(0, SIDE), slice(SIDE, 2 * SIDE))]
    burst = response(scene.burst)
    seen = evidence.pattern_evidence(burst.batched(), 2, torch.zeros(1, FRAMES, 2))
    dark = evidence.pattern_evidence(
        dataclasses.replace(burst.batched(), valid=torch.zeros(1, *burst.valid.shape).bool()),
        2,
        torch.zeros(1, FRAMES, 2),
    )
    told = uneven._Told(uneven._blank(tiles, torch.zeros(2, FRAMES, 2), 2), tiles)
    told.add(tiles[:1], seen, torch.zeros(1, FRAMES, 2))
    share = told.share.clone()
    told.add(tiles[1:], dark, torch.zeros(1, FRAMES, 2))
    torch.testing.assert_close(told.share, share)
    assert told.clearest() == 0


def test_a_detector_too_large_to_map_is_left_alone(scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uneven, "LARGEST", SIDE**2 - 1)
    made = Reconstruction(response(scene.burst), method="solver")
    assert made.pattern is None


@pytest.mark.parametrize("scale", [2, 3])
def test_any_shape_and_scale(scale: int) -> None:
    setting = with_options(PRESETS["paper"], size=60, frames=10, scale=scale)
    burst = simulate_one(sources(setting, 1)[0], setting, 0).burst
    part = burst.tile(slice(0, 60), slice(0, 45)).part(0)
    uneven_part = dataclasses.replace(part, frames=part.frames * (1 + 0.03 * noise(60, 45)))
    product = super_resolve(uneven_part, scale, method="solver")
    assert "The detector is uneven" in product.provenance["notes"]
    assert product.mean.shape == (60 * scale, 45 * scale)


def test_a_defective_column_is_left_out(scene) -> None:
    frames = scene.burst.frames.clone()
    frames[..., 40] = 0.1 + 0.003 * noise(FRAMES, SIDE)
    made = Reconstruction(dataclasses.replace(scene.burst, frames=frames), method="solver")
    assert made.pattern is not None
    assert bool(made.pattern.defective[4:-4, 40].all())
    assert float(made.pattern.defective.float().mean()) < 0.05
    assert not bool(made.source.tile(slice(0, SIDE), slice(0, SIDE)).valid[0, :, 4:-4, 40].any())


def test_information_is_what_dense_algebra_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share and answer, frequency by frequency, from the frames' covariance."""
    monkeypatch.setattr(evidence, "LATTICE", 8)
    setting = with_options(PRESETS["paper"], size=32, frames=6)
    burst = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(0)).burst
    moved = torch.tensor([[[0, 0], [1, 2], [0, 3], [5, 1], [2, 2], [3, 0]]]).float()
    kept: list = []
    of_piece = evidence._of_piece
    monkeypatch.setattr(
        evidence, "_of_piece", lambda *given: kept.append(given) or of_piece(*given)
    )
    told = evidence.pattern_evidence(burst, 2, moved)
    piece = kept[0][0]
    made = piece.made
    noise_var = made.noise_var + made.mismatch[:, None, None, None]
    weight = (made.problem.model.inside / noise_var).mean((-1, -2))[0].double()
    see = transfer(piece.flow_px.double(), (8, 8), 2).whole[0]  # (N, K, a, c)
    basis = folded_basis((8, 8), 2, weight.device).double()
    prior = spectrum_at(piece.knots.double(), basis)[0]
    for kind, size in enumerate(
        [torch.ones(6), 1 / (burst.exposure / burst.exposure[:, :1] * piece.gain)[0]]
    ):
        for a, c in ((0, 1), (3, 2), (5, 4)):
            cycles = torch.fft.fftfreq(8)[a] * moved[0, :, 0] + c / 8 * moved[0, :, 1]
            turn = torch.polar(torch.ones(6), 2 * torch.pi * cycles).to(torch.complex128)
            pattern = size.double() * turn
            h, s = see[..., a, c], torch.diag(prior[:, a, c]).to(torch.complex128)
            covariance = h @ s @ h.mH + torch.diag(1 / weight).to(torch.complex128)
            inverse = torch.linalg.inv(covariance)
            left = (pattern.conj() @ inverse @ pattern).real / (weight * pattern.abs() ** 2).sum()
            assert float(told.share[0, kind, a, c]) == pytest.approx(float(left), rel=2e-3)
            image = s @ h.mH @ inverse @ pattern
            torch.testing.assert_close(
                told.answer[0, kind, :, a, c].to(torch.complex128), image, rtol=5e-3, atol=5e-3
            )


def test_variances_are_those_of_the_spectrum() -> None:
    """Pixels of variance 1: of a doubt without structure, as much on each sub-grid."""
    tiles = [(slice(0, 64), slice(0, 64))]
    told = uneven._Told(uneven._blank(tiles, torch.zeros(1, 4, 2), 2), tiles)
    lattice = (evidence.LATTICE, evidence.LATTICE // 2 + 1)
    told.information += 1  # of which nothing is left: no pattern can be told
    answer = torch.zeros(1, 2, 4, *lattice, dtype=torch.complex64)
    answer[:, :, 0] = 2.0  # an image twice as large
    told.answers = answer
    doubt = told._doubt(0, torch.tensor([1.0, 1.0, 1.0]).double(), torch.ones(64, 33).double())
    # 4 aliases on 4 sub-grids: the image of one alias has a quarter of its power on each pixel
    torch.testing.assert_close(doubt, torch.full((2, 2), float(doubt[0, 0])).double())
    assert float(doubt[0, 0]) == pytest.approx(4 / 4, rel=1e-2)
