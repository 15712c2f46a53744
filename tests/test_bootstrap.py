"""Intervals against brute force and normal theory; pairing; determinism."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from conftest import sources

from pushframe import Posterior
from pushframe.bootstrap import balanced_mean, draw_weights, interval_90
from pushframe.evaluate import Case, evaluate
from pushframe.metrics import Metrics
from pushframe.simulate import PRESETS, simulate_one, with_options
from pushframe.tables import tables_markdown

IMAGES = ("a",) * 3 + ("b",) * 5 + ("c",) + ("d",) * 2


def by_hand(values: Sequence[float], images: Sequence[str], draws: int, seed: int) -> np.ndarray:
    """The bootstrap as its definition reads: a loop over draws, images and bursts."""
    generator = np.random.default_rng(seed)
    held: dict[str, list[float]] = {}
    for value, image in zip(values, images, strict=True):
        held.setdefault(image, []).append(value)
    names = list(held)
    means = []
    for _ in range(draws):
        total = 0.0
        for _ in names:
            bursts = held[names[generator.integers(len(names))]]
            total += sum(bursts[generator.integers(len(bursts))] for _ in bursts) / len(bursts)
        means.append(total / len(names))
    return np.array(means)


def pooled_draws(values: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """The other reading: bursts drawn as if each were an image."""
    generator = np.random.default_rng(seed)
    return values[generator.integers(len(values), size=(draws, len(values)))].mean(1)


def spread_values() -> np.ndarray:
    """Figures that differ more between images than within."""
    generator = np.random.default_rng(5)
    level = {"a": 30.0, "b": 36.0, "c": 45.0, "d": 33.0}
    return np.array([level[image] + generator.normal() for image in IMAGES])


def agrees(found: np.ndarray, other: np.ndarray) -> bool:
    """Two samples of one distribution: mean, spread and tails within five standard errors."""
    error = np.std(other) / math.sqrt(len(other) / 2)
    marks = [np.percentile(x, [5, 25, 50, 75, 95]) for x in (found, other)]
    # the density at the tails of a near-normal is 0.1 / std: 0.22 / 0.1 standard errors
    return bool(np.abs(marks[0] - marks[1]).max() < 5 * 2.2 * error) and bool(
        abs(found.mean() - other.mean()) < 5 * error
    )


def test_draws_are_those_of_the_loop() -> None:
    values, draws = spread_values(), 6000
    found = draw_weights(IMAGES, draws, 0) @ values
    assert agrees(found, by_hand(values, IMAGES, draws, 1))
    assert not agrees(found, pooled_draws(values, draws, 1))  # the twin: bursts as images


def test_weights_are_balanced_means_of_draws() -> None:
    weights = draw_weights(IMAGES, 500, 0)
    np.testing.assert_allclose(weights.sum(1), 1)
    # each draw takes whole images: the weight of an image is a multiple of 1/4
    for name in set(IMAGES):
        share = weights[:, [image == name for image in IMAGES]].sum(1) * 4
        np.testing.assert_allclose(share, share.round(), atol=1e-12)
    assert weights.mean(0) == pytest.approx(
        [1 / (4 * IMAGES.count(image)) for image in IMAGES], abs=5 * 0.3 / math.sqrt(500)
    )


def theory_std(values: np.ndarray, images: Sequence[str]) -> float:
    """The standard deviation of the draws: images' means, and bursts within, over images."""
    groups = [values[[i == name for i in images]] for name in dict.fromkeys(images)]
    within = np.mean([group.var() / len(group) for group in groups])
    return math.sqrt((np.var([group.mean() for group in groups]) + within) / len(groups))


def test_interval_is_that_of_normal_theory() -> None:
    generator = np.random.default_rng(2)
    images = [str(k // 6) for k in range(300)]
    values = np.repeat(generator.normal(50, 3, 50), 6) + generator.normal(0, 2, 300)
    low, high = interval_90(values, images, draws=20000)
    mean, std = values.mean(), theory_std(values, images)
    # a percentile of 20000 draws has a standard error of 0.015 std; skewness adds a little
    assert (low - mean) / std == pytest.approx(-1.645, abs=0.08)
    assert (high - mean) / std == pytest.approx(1.645, abs=0.08)
    # the twin: without images the interval is far too short
    alone = interval_90(values, [str(k) for k in range(300)])
    assert alone[1] - alone[0] < 0.6 * (high - low)


@pytest.mark.parametrize(("count", "expected"), [(8, 0.83), (40, 0.89)])
def test_how_often_the_truth_is_inside(count: int, expected: float) -> None:
    """As documented: 90 % with many images, 83 % with eight that differ in all but name."""
    generator = np.random.default_rng(3)
    images = tuple(str(k) for k in range(count))
    weights = draw_weights(images, 2000, 0)
    trials = 3000
    means = weights @ generator.normal(size=(count, trials))
    low, high = np.percentile(means, [5, 95], axis=0)
    inside = ((low <= 0) & (high >= 0)).mean()
    assert inside == pytest.approx(expected, abs=0.03)  # 4 standard errors of the trials


def test_same_seed_same_interval_other_seed_another() -> None:
    values = spread_values()
    draw_weights.cache_clear()
    first = interval_90(values, IMAGES)
    draw_weights.cache_clear()
    assert interval_90(values, IMAGES) == first
    assert interval_90(values, IMAGES, seed=1) != first


def test_what_has_no_number_is_left_out() -> None:
    values = spread_values()
    missing = values.copy()
    missing[[0, 8]] = np.nan  # one of image a, all of image c
    kept = ~np.isnan(missing)
    images = [image for image, known in zip(IMAGES, kept, strict=True) if known]
    assert balanced_mean(missing, IMAGES) == pytest.approx(balanced_mean(values[kept], images))
    assert interval_90(missing, IMAGES) == interval_90(values[kept], images)
    assert balanced_mean(np.full(11, np.nan), IMAGES) is None
    assert interval_90(np.full(11, np.nan), IMAGES) is None
    assert interval_90(np.array([3.0]), ["a"]) is None  # one burst says nothing of others


@pytest.fixture(scope="module")
def evaluation() -> dict:
    setting = with_options(PRESETS["paper"], size=20, frames=4)
    made = [simulate_one(source, setting, k) for k, source in enumerate(sources(setting, 6))]
    cases = [Case("ab"[k // 4], simulated) for k, simulated in enumerate(made)]
    return evaluate(cases, ["bicubic", "shift_and_add", "map"])


def test_figures_lie_in_their_intervals(evaluation: dict) -> None:
    assert (evaluation["bursts"], evaluation["images"]) == (6, 2)
    assert evaluation["bootstrap"] == {"draws": 2000, "seed": 0}
    for name, method in evaluation["methods"].items():
        for figures in (method["all"], method["subgrids"][1][0]):
            assert set(figures["interval_90"]) == set(figures["image_balanced"])
            for key, interval in figures["interval_90"].items():
                mean = figures["image_balanced"][key]
                assert (interval is None) == (mean is None)
                assert mean is None or interval[0] < mean < interval[1], (name, key)
    balanced = evaluation["methods"]["shift_and_add"]["all"]["image_balanced"]
    assert all(value is not None for value in balanced.values())


def test_pairing_takes_the_bursts_own_difficulty_out(evaluation: dict) -> None:
    paired, methods = evaluation["paired"], evaluation["methods"]
    assert paired["against"] == "map"
    assert set(paired["psnr_db"]) == {"bicubic", "shift_and_add"}
    reached = {name: m["all"]["image_balanced"]["psnr_db"] for name, m in methods.items()}
    for name, gain in paired["psnr_db"].items():
        assert gain == pytest.approx(reached[name] - reached["map"])
        low, high = paired["interval_90"][name]
        assert low < gain < high


def test_a_constant_gain_is_certain() -> None:
    """Paired intervals see the difference alone: none, where one method is always 2 dB better."""
    values = spread_values()
    low, high = interval_90((values + 2) - values, IMAGES)
    assert (low, high) == pytest.approx((2, 2))
    unpaired = interval_90(values, IMAGES)
    assert unpaired[1] - unpaired[0] > 4  # the twin: unpaired it would drown


def test_without_map_the_first_method_is_the_base() -> None:
    setting = with_options(PRESETS["paper"], size=20, frames=4)
    made = simulate_one(sources(setting, 1)[0], setting, 0)
    paired = evaluate([Case("a", made)], ["shift_and_add", "bicubic"])["paired"]
    assert paired["against"] == "shift_and_add"
    assert paired["interval_90"] == {"bicubic": None}
    assert math.isfinite(paired["psnr_db"]["bicubic"])


def test_motion_error_stays_with_its_burst() -> None:
    """Bursts without a known motion leave a gap, they do not shift the others'."""
    metrics = Metrics(2, 0)
    image = torch.zeros(1, 8, 8)
    still, off = torch.zeros(1, 3, 2), torch.full((1, 3, 2), 0.1)
    for group, true in (("a", None), ("b", off), ("b", still)):
        metrics.update(Posterior(image), image + 1, [group], still, true)
    figures = metrics.compute()["all"]
    assert figures["image_balanced"]["flow_rmse_px_per_burst"] == pytest.approx(0.05)
    assert figures["flow_rmse_px"] == pytest.approx(0.1 / math.sqrt(2))


def test_the_table_shows_intervals_and_gains(evaluation: dict) -> None:
    lines = tables_markdown(evaluation).splitlines()
    assert any(
        line.startswith("6 bursts of 2 images, 4 frames, estimated motion") for line in lines
    )
    start = next(k for k, line in enumerate(lines) if line.startswith("| PSNR, image-balanced"))
    figures = evaluation["methods"]["map"]["all"]
    low, high = figures["interval_90"]["psnr_db"]
    assert f"| {figures['image_balanced']['psnr_db']:.2f} |" in lines[start]
    assert lines[start + 1].startswith("| - 90 % interval |")
    assert lines[start + 1].endswith(f"| {low:.2f} to {high:.2f} |")
    low, high = evaluation["paired"]["interval_90"]["bicubic"]
    gain = evaluation["paired"]["psnr_db"]["bicubic"]
    assert lines[start + 2].startswith(f"| PSNR less that of map (dB) | {gain:+.2f} |")
    assert lines[start + 2].endswith("| - |")
    assert lines[start + 3].startswith(f"| - 90 % interval | {low:+.2f} to {high:+.2f} |")
