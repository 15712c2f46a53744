"""Frames placed by an image that grows, against the covariance of two frames, and the truth."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pushframe.burst import Simulated
from pushframe.filters import gaussian_blur
from pushframe.registration import register
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver import grow
from pushframe.solver.grow import (
    BLUR_PX,
    FRACTIONS,
    REACH_PX,
    grown_places,
    improbability_at_places,
    paired_places,
)
from pushframe.solver.search import Search
from pushframe.spectral import transfer


def aliased(frames: int, scale: int = 2, count: int = 3, blur_hpx: float = 0.7) -> Simulated:
    """Bursts of a scene that is much aliased."""
    setting = with_options(PRESETS["paper"], size=48, frames=frames, scale=scale)
    random = torch.Generator().manual_seed(1)
    side = setting.source_size
    fine = torch.randn(count, 1, side, side, generator=random)
    fine = gaussian_blur(fine, blur_hpx)[:, 0] if blur_hpx else fine[:, 0]
    return simulate(0.3 + 0.1 * fine / fine.std(), setting, random)


def all_kept(made: Simulated) -> torch.Tensor:
    return torch.ones_like(made.burst.exposure, dtype=torch.bool)


def rmse(found: torch.Tensor, true: torch.Tensor) -> float:
    return float((found - true).square().mean().sqrt())


@pytest.mark.parametrize(("scale", "rows"), [(2, 1), (2, 3), (3, 8)])
def test_a_frame_foretold_is_one_given_the_other(
    scale: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`p(v | w) = p(v, w) / p(w)`, from the 2 x 2 covariance of both, no image in between.

    However many rows of places are worked on together, as a GPU does.
    """
    monkeypatch.setattr(grow, "_rows_at_once", lambda _: rows)
    made = aliased(frames=2, scale=scale, count=1)
    middle = torch.tensor([[0.1, -0.2]])
    search = Search(made.burst, middle[:, None].expand(1, 2, 2), all_kept(made), scale)
    search.kept = torch.tensor([[True, False]])
    search.look()
    found = improbability_at_places(search, middle)[0, 1]
    assert found.shape == (FRACTIONS * (2 * REACH_PX + 1),) * 2

    noise = torch.cat([1 / search.precision[:, :1], search.noise[:, 1:]], 1)[0]
    noise[1] += float(search.lattice.steepness(search.prior)) * BLUR_PX**2
    data = search.data[0].movedim(0, -1)[..., None]

    def expected(row: int, column: int) -> float:
        off_px = torch.tensor([row, column]) / FRACTIONS - REACH_PX
        places = torch.stack([middle[0], middle[0] + off_px])
        both = transfer(places[None], made.burst.shape, scale).whole[0]
        own = torch.einsum("nkac,kac,mkac->acnm", both, search.prior[0] + 0j, both.conj())
        own = own + torch.diag(noise)
        energy = (data.mH @ torch.linalg.solve(own, data))[..., 0, 0].real
        first = own[..., 0, 0].real
        alone = data[..., 0, 0].abs() ** 2 / first + first.log()
        rest = energy + torch.linalg.slogdet(own).logabsdet - alone
        return float((rest * search.lattice.count).sum())

    for row, column in ((0, 0), (35, 40), (37, 30), (71, 3)):
        assert float(found[row, column]) == pytest.approx(expected(row, column), rel=1e-3)
    assert float(found[3, 71]) != pytest.approx(expected(71, 3), rel=1e-3)  # twin: (dx, dy)


def test_a_much_aliased_scene_is_placed_by_what_it_shares() -> None:
    made = aliased(frames=6, blur_hpx=0.5)
    start_px = register(made.burst)
    found = paired_places(made.burst, start_px, all_kept(made), 2)
    assert torch.equal(found[:, 0], start_px[:, 0])
    assert rmse(found, made.flow_px) < 0.85 * rmse(start_px, made.flow_px)
    wrong = 2 * start_px - found  # twin: the other way
    assert rmse(wrong, made.flow_px) > rmse(start_px, made.flow_px)


@pytest.mark.parametrize("anchor", [0, 1, 99])
def test_frames_with_little_in_common_find_each_other(anchor: int) -> None:
    """Two frames half a pixel apart have little in common; others lie between them."""
    made = aliased(frames=12, blur_hpx=0.6)
    start_px = torch.zeros_like(made.flow_px)  # nothing is known
    found = grown_places(made.burst, start_px, all_kept(made), 2, anchor)
    assert not found[:, 0].any()
    assert rmse(found, made.flow_px) < 0.02
    assert rmse(register(made.burst), made.flow_px) > 0.05  # twin: frames in pairs


def test_growing_ends_whatever_it_is_given() -> None:
    """A scene of next to no noise has tables of no numbers."""
    made = aliased(frames=4, count=1)
    burst = dataclasses.replace(made.burst, white_level=100 * made.burst.white_level)
    kept = all_kept(made)
    found = grown_places(burst, register(burst), kept, 2)
    assert bool(torch.isfinite(found).all())


def test_an_anchor_is_a_frame_that_is_kept() -> None:
    made = aliased(frames=12, blur_hpx=0.6)
    kept = all_kept(made)
    kept[:, 6:] = False
    pixels = made.burst.frames.clone()
    pixels[:, 6:] = pixels[:, 6:].flip(-1, -2)
    spoilt = dataclasses.replace(made.burst, frames=pixels)
    start_px = torch.zeros_like(made.flow_px)
    one, other = (grown_places(burst, start_px, kept, 2, 9) for burst in (made.burst, spoilt))
    torch.testing.assert_close(one, other)


def test_batch_mates_do_not_matter() -> None:
    made = aliased(frames=12, count=4, blur_hpx=0.6)
    kept, start_px = all_kept(made), torch.zeros_like(made.flow_px)
    together = grown_places(made.burst, start_px, kept, 2)
    for k in range(4):
        one = torch.tensor([k])
        alone = grown_places(made.burst.part(one), start_px[one], kept[one], 2)
        torch.testing.assert_close(together[one], alone, atol=3e-4, rtol=0)  # of some 0.1 px steps


def test_frames_left_out_have_no_say_and_stay() -> None:
    made = aliased(frames=8, count=1)
    kept = all_kept(made)
    kept[:, 5] = False
    pixels = made.burst.frames.clone()
    pixels[:, 5] = pixels[:, 5].flip(-1, -2)
    start_px = register(made.burst)
    start_px[:, 5] = 3.3
    rest = [k for k in range(8) if k != 5]
    found, other = (
        grown_places(burst, start_px, kept, 2)
        for burst in (made.burst, dataclasses.replace(made.burst, frames=pixels))
    )
    assert torch.equal(found[:, 5], start_px[:, 5])
    torch.testing.assert_close(found, other)
    assert rmse(found[:, rest], made.flow_px[:, rest]) < 0.02
