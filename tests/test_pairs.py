"""Frames placed by the reference alone, against the covariance of the two."""

from __future__ import annotations

import pytest
import torch

from pushframe.burst import Simulated
from pushframe.filters import gaussian_blur
from pushframe.registration import register
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver.pairs import _improbability, _lowest, paired_places
from pushframe.spectral import AliasBlocks, half_weight, transfer


def rmse(found: torch.Tensor, true: torch.Tensor) -> float:
    return float((found - true).square().mean().sqrt())


@pytest.mark.parametrize("scale", [2, 3])
def test_a_frame_foretold_is_one_given_the_other(scale: int) -> None:
    """`p(v | w) = p(v, w) / p(w)`, from the 2 x 2 covariance of both, no image in between."""
    lattice, places = (6, 7), 3
    random = torch.Generator().manual_seed(scale)
    half = lattice[1] // 2 + 1
    prior = 0.1 + torch.rand(1, scale**2, lattice[0], half, generator=random)
    flows = torch.rand(1, places, 2, generator=random) - 0.5
    spectra = torch.randn(2, *lattice, generator=random)
    first, second = torch.fft.rfft2(spectra, norm="ortho")
    noise = torch.tensor([0.3, 0.2])
    rest = transfer(torch.zeros(1, 1, 2), lattice, scale)
    blocks = AliasBlocks(rest, 1 / noise[:1, None], prior)
    see, count = transfer(flows, lattice, scale), half_weight(lattice[1], prior)
    mean = blocks.mean(first[None, None])
    found = _improbability(see, blocks, mean, second[None], noise[1:], count)[0]
    assert found.shape == (places, places)

    for row in range(places):
        for column in range(places):
            flow = torch.stack([flows[0, row, 0], flows[0, column, 1]])
            both = transfer(torch.stack([torch.zeros(2), flow])[None], lattice, scale).whole[0]
            own = torch.einsum("nkac,kac,mkac->acnm", both, prior[0] + 0j, both.conj())
            own = own + torch.diag(noise)
            data = torch.stack([first, second], -1)[..., None]
            energy = (data.mH @ torch.linalg.solve(own, data))[..., 0, 0].real
            joint = energy + torch.linalg.slogdet(own).logabsdet
            alone = first.abs() ** 2 / own[..., 0, 0].real + own[..., 0, 0].real.log()
            expected = float(((joint - alone) * count).sum())
            assert float(found[row, column]) == pytest.approx(expected, rel=1e-4)
    assert float(found[0, 1]) != pytest.approx(float(found[1, 0]), rel=1e-3)  # twin: (dx, dy)


def test_the_lowest_place_lies_between_entries() -> None:
    place = torch.arange(9.0)
    table = (place[:, None] - 3.3) ** 2 + 2 * (place - 5.8) ** 2
    torch.testing.assert_close(_lowest(table[None])[0], torch.tensor([3.3, 5.8]))
    falling = (place[:, None] + place)[None]  # lowest in a corner
    assert bool((_lowest(falling) >= 0).all())
    assert bool((_lowest(falling) <= 1).all())


def aliased() -> Simulated:
    """Four frames of a scene that is much aliased."""
    setting = with_options(PRESETS["paper"], size=48, frames=4)
    random = torch.Generator().manual_seed(1)
    side = setting.source_size
    fine = gaussian_blur(torch.randn(3, 1, side, side, generator=random), 0.7)[:, 0]
    return simulate(0.3 + 0.1 * fine / fine.std(), setting, random)


def test_a_much_aliased_scene_is_placed_by_what_it_shares() -> None:
    made = aliased()
    start_px = register(made.burst)
    kept = torch.ones_like(made.burst.exposure, dtype=torch.bool)
    found = paired_places(made.burst, start_px, kept, 2)
    assert torch.equal(found[:, 0], start_px[:, 0])
    assert rmse(found, made.flow_px) < 0.6 * rmse(start_px, made.flow_px)
    wrong = 2 * start_px - found  # twin: the other way
    assert rmse(wrong, made.flow_px) > rmse(start_px, made.flow_px)
