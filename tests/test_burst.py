"""The nouns refuse what cannot be meant, and say why."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pushframe import Burst, GeoRef, NoiseLaw, Posterior, Product, Simulated
from pushframe.burst import stack
from pushframe.errors import BurstError, UsageError


def raw(count: int = 3, height: int = 6, width: int = 5) -> np.ndarray:
    return np.random.default_rng(0).uniform(100, 2000, (count, height, width)).astype(np.float32)


def test_from_dn_normalises_by_exposure_white_and_black() -> None:
    dn = raw()
    burst = Burst.from_dn(dn, [1.0, 2.0, 0.5], white_level=3400, black_level=60)
    expected = (dn - 60) / (np.array([1, 2, 0.5])[:, None, None] * 3400)
    np.testing.assert_allclose(burst.frames.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(burst.raw_dn().numpy(), dn, rtol=1e-5)
    assert burst.gain.tolist() == [3400, 6800, 1700]


def test_nan_is_an_invalid_pixel_and_comes_back_as_nan() -> None:
    dn = raw()
    dn[1, 2, 3] = np.nan
    burst = Burst.from_dn(dn, [1, 1, 1], 3400)
    assert not burst.valid[1, 2, 3]
    assert int((~burst.valid).sum()) == 1
    assert torch.isfinite(burst.frames).all()
    assert np.isnan(burst.raw_dn().numpy()[1, 2, 3])


def test_it_cannot_be_changed_but_can_be_replaced() -> None:
    burst = Burst.from_dn(raw(), [1, 1, 1], 3400, names=("a", "b", "c"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        burst.names = ()  # type: ignore[misc]
    other = dataclasses.replace(burst, georef=GeoRef(crs="EPSG:32631"))
    assert other.names == ("a", "b", "c")
    assert other.georef is not None


def test_select_and_split_keep_everything_in_step() -> None:
    dn = raw()
    dn[2, 0, 0] = np.nan
    burst = Burst.from_dn(dn, [1, 2, 4], 3400, noise=NoiseLaw(0.1, 9.0), names=("a", "b", "c"))
    inputs, target = burst.split_reference()
    assert inputs.names == ("b", "c")
    assert target.names == ("a",)
    assert inputs.exposure.tolist() == [2, 4]
    assert not inputs.valid[1, 0, 0]
    assert float(inputs.noise.b) == 9.0
    with pytest.raises(BurstError, match="at least 2 frames"):
        target.split_reference()


def test_stack_makes_a_batch() -> None:
    one = Burst.from_dn(raw(), [1, 2, 4], 3400, noise=NoiseLaw(0.1, 9.0))
    two = Burst.from_dn(raw() + 5, [1, 1, 1], 2000, noise=NoiseLaw(0.0, 4.0))
    batch = stack([one, two])
    assert batch.frames.shape == (2, 3, 6, 5)
    assert batch.white_level.tolist() == [3400, 2000]
    assert batch.noise.b.tolist() == [9, 4]
    assert one.batched().frames.shape == (1, 3, 6, 5)
    assert batch.batched() is batch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exposure": [1, 0, 1]}, r"positive, finite exposure for frame 1 \(b\.tif\), got 0"),
        ({"exposure": [1, -2, 1]}, r"frame 1 \(b\.tif\), got -2"),
        ({"exposure": [1, float("nan"), 1]}, r"frame 1 \(b\.tif\), got nan"),
        ({"exposure": [1, 1]}, r"exposure of shape \(3,\), got \(2,\)"),
        ({"white_level": 0.0}, "white_level above zero"),
        ({"noise": NoiseLaw(-1.0, 2.0)}, "noise_a not negative"),
        ({"noise": NoiseLaw(0.0, 0.0)}, "a noise law above zero"),
        ({"names": ("a.tif",)}, "3 names, got 1"),
        ({"valid": np.ones((3, 6, 4), bool)}, r"valid of shape \(3, 6, 5\)"),
        (
            {"dn": np.where(np.arange(3)[:, None, None] == 2, 7.0, raw())},
            r"frame 2 \(c\.tif\), got the constant",
        ),
        (
            {"dn": np.where(np.arange(3)[:, None, None] == 2, np.nan, raw())},
            r"frame 2 \(c\.tif\), got none",
        ),
        ({"dn": np.where(raw() > 1990, np.inf, raw())}, "infinite pixels"),
        ({"dn": raw()[0]}, r"dn of shape \(N, H, W\)"),
        ({"valid": np.arange(90).reshape(3, 6, 5) < 60}, r"valid pixels in frame 2 \(c\.tif\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict, message: str) -> None:
    given = {"dn": raw(), "exposure": [1, 1, 1], "white_level": 3400.0}
    given |= {"names": ("a.tif", "b.tif", "c.tif")} | change
    with pytest.raises(BurstError, match=message) as caught:
        Burst.from_dn(**given)
    assert "\n" not in str(caught.value)


def test_raw_integers_are_sent_to_from_dn() -> None:
    with pytest.raises(BurstError, match=r"use Burst\.from_dn"):
        Burst(torch.ones(3, 4, 4, dtype=torch.int16), torch.ones(3), torch.tensor(1.0))


def test_one_frame_is_a_burst() -> None:
    assert Burst.from_dn(raw(1), [1], 3400).count == 1


def test_batches_of_unlike_bursts_are_refused() -> None:
    one, two = Burst.from_dn(raw(), [1, 1, 1], 1.0), Burst.from_dn(raw(2), [1, 1], 1.0)
    with pytest.raises(UsageError, match="one shape"):
        stack([one, two])


def test_truth_must_be_a_multiple_of_the_frames() -> None:
    burst = Burst.from_dn(raw(), [1, 1, 1], 3400)
    assert Simulated(burst, torch.zeros(18, 15)).scale == 3
    with pytest.raises(BurstError, match="whole multiple"):
        _ = Simulated(burst, torch.zeros(12, 11)).scale


def test_posterior_and_product_check_their_shapes() -> None:
    with pytest.raises(BurstError, match="var of shape"):
        Posterior(torch.zeros(4, 4), torch.zeros(4, 5))
    with pytest.raises(BurstError, match="std of the shape of mean"):
        Product(np.zeros((4, 4)), np.zeros((4, 5)), np.zeros((4, 4)), 2)
    with pytest.raises(BurstError, match="6 numbers"):
        GeoRef(transform=(1.0, 2.0))  # type: ignore[arg-type]


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor that was worked on had, views aside."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view:
            self.numbers = max(self.numbers, result.numel())
        return result


def test_a_tile_is_a_batch_of_one_and_costs_no_more_than_itself() -> None:
    dn = raw(3, 60, 50)
    dn[1, 10:, :] = np.nan
    burst = Burst.from_dn(dn, [1, 2, 4], 3400, noise=NoiseLaw(0.1, 9.0), names=("a", "b", "c"))
    with Largest() as seen:
        tile = burst.tile(slice(5, 15), slice(20, 40))
    assert seen.numbers <= 3 * 10 * 20
    with Largest() as seen:
        burst.batched()  # twin: the whole burst is copied
    assert seen.numbers == 3 * 60 * 50
    assert torch.equal(tile.frames[0], burst.frames[:, 5:15, 20:40])
    assert torch.equal(tile.valid[0], burst.valid[:, 5:15, 20:40])
    assert tile.exposure.tolist() == [[1, 2, 4]]
    assert tile.gain.tolist() == [[3400, 6800, 13600]]
    assert tile.noise.b.tolist() == [9.0]
    again = tile.tile(slice(0, 5), slice(0, 5))  # of a batch
    assert torch.equal(again.frames, tile.frames[..., :5, :5])


def test_days_are_not_mixed_in_a_batch() -> None:
    burst = Burst.from_dn(np.random.default_rng(0).uniform(100, 200, (3, 8, 8)), torch.ones(3), 1e3)
    other = dataclasses.replace(burst, days=True)
    assert stack([other, other]).days
    with pytest.raises(UsageError, match="batch them apart"):
        stack([burst, other])


def test_whole_numbers_stay_whole_and_others_fine() -> None:
    dn = np.random.default_rng(0).integers(0, 4095, (3, 8, 8))
    burst = Burst.from_dn(dn, torch.tensor([1.0, 0.7, 1.3]), 3412.7, 64.0)
    assert float(burst.step_dn) == 1
    again = Burst.from_dn(burst.raw_dn(), burst.exposure, 3412.7, 64.0)
    assert float(again.step_dn) == 1  # though float32 has rounded them
    for fine in (Burst.from_dn(dn / 4095, torch.ones(3), 1.0), Burst(burst.frames, [1.0] * 3, 1.0)):
        assert float(fine.step_dn) == pytest.approx(1 / 3400)
        assert float(fine.tile(slice(0, 4), slice(0, 4)).step_dn) == pytest.approx(1 / 3400)
