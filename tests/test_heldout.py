"""The check that needs no truth: it says what the truth says, and sees wrong bars and laws."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import sources

from pushframe import heldout
from pushframe.burst import Burst, NoiseLaw
from pushframe.heldout import (
    HeldOut,
    HeldOutFrame,
    Unchecked,
    _simplest,
    check_held_out,
    evenly,
    spread_tiles,
)
from pushframe.methods import METHODS, Estimate, Method
from pushframe.metrics import LEVELS, Metrics
from pushframe.noise_law import OVERSTATED
from pushframe.posterior import Posterior
from pushframe.simulate import PRESETS, Simulated, simulate_one, with_options

SOLVER = METHODS["solver"]


@pytest.fixture(scope="module")
def made() -> Simulated:
    """Frames of a finer image: nobody reconstructs with the simulator's own kernel."""
    setting = with_options(PRESETS["continuous"], size=64, frames=8)
    return simulate_one(sources(setting, 1, 11)[0], setting, 11)


@pytest.fixture(scope="module")
def found(made: Simulated) -> HeldOut:
    check = check_held_out(made.burst, 2, "solver")
    assert isinstance(check, HeldOut)
    return check


def test_it_says_without_the_truth_what_the_truth_says(made: Simulated, found: HeldOut) -> None:
    estimate = METHODS["solver"].run(made.burst.batched(), 2, None)
    metrics = Metrics(2, 8)
    metrics.update(estimate.posterior, made.truth[None], ["scene"])
    true = metrics.compute()["all"]
    assert found.mean_z2 == pytest.approx(true["mean_z2"], abs=0.15)
    assert found.calibration_error == pytest.approx(true["calibration_error"], abs=0.02)
    assert [frame.name for frame in found.frames] == [f"frame {k}" for k in (0, 1, 3, 4, 6, 7)]
    assert found.pixels > 6 * 2000


def with_bars(factor: float) -> Method:
    """The solver with error bars `factor` times as long."""

    def run(burst: Burst, scale: int, flow_px: torch.Tensor | None) -> Estimate:
        estimate = SOLVER.run(burst, scale, flow_px)
        mean, var = estimate.posterior.mean, estimate.posterior.var
        return estimate._replace(posterior=Posterior(mean, factor**2 * var))

    return Method("for the test", run)


@pytest.mark.parametrize(("factor", "said"), [(0.3, "too short"), (3.0, "too long")])
def test_wrong_bars_are_seen(made: Simulated, monkeypatch, factor: float, said: str) -> None:
    monkeypatch.setitem(METHODS, "solver", with_bars(factor))
    check = check_held_out(made.burst, 2, "solver")
    assert said in check.verdict


@pytest.mark.parametrize(("factor", "said"), [(0.2, "too short"), (5.0, "too long")])
def test_a_wrong_noise_law_is_seen(made: Simulated, factor: float, said: str) -> None:
    law = made.burst.noise
    wrong = NoiseLaw(law.a * factor, law.b * factor)
    check = check_held_out(dataclasses.replace(made.burst, noise=wrong), 2, "solver")
    assert said in check.verdict


def test_right_bars_are_not_blamed(found: HeldOut) -> None:
    assert found.calibration_error < 0.05
    assert "too short" not in found.verdict
    assert found.verdict.count(".") == 2  # one figure, one full stop


def test_a_naive_error_bar_is_caught(made: Simulated) -> None:
    """That of shift-and-add takes a bilinear neighbour for the pixel itself: far too short."""
    check = check_held_out(made.burst, 2, "shift_and_add")
    assert check.verdict.endswith("are too short for these data.")


def test_where_it_cannot_be_made_it_says_why(
    made: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def still(burst: Burst, scale: int, _: object) -> Estimate:
        return METHODS["shift_and_add"].run(burst, scale, None)._replace(flow_px=None)

    monkeypatch.setitem(METHODS, "still", Method("for the test", still))
    burst = made.burst
    small = burst.tile(slice(0, 32), slice(0, 32)).part(0)
    cases = [
        (burst, "map", "the method gives none"),
        (burst, METHODS["bicubic"], "the method gives none."),
        (burst, "still", "the method estimates no motion"),
        (burst.select([0, 1]), "solver", "it takes at least 3 frames, not 2"),
        (small, "solver", "it takes 500 pixels of a frame"),
    ]
    for given, method, why in cases:
        check = check_held_out(given, 2, method)
        assert isinstance(check, Unchecked)
        assert check.verdict.startswith(f"The error bars were not checked: {why}")
        assert check.verdict.endswith(".")


def stub(share: float, bars: float) -> HeldOut:
    """All levels covered by `share` more than stated."""
    coverage = tuple(float(np.clip(level + share, 0, 1)) for level in LEVELS)
    return HeldOut((HeldOutFrame("a", 1000, coverage, 1.0, bars),), 1)


@pytest.mark.parametrize(
    ("share", "bars", "said"),
    [
        (0.0, 0.5, "the error bars agree with data that they have not seen"),
        (0.0, 0.01, "the noise of a frame is 10 times an error bar"),
        (0.03, 0.5, "a little too long"),
        (-0.03, 0.5, "a little too short"),
        (-0.2, 0.5, "law are too short"),
    ],
)
def test_the_verdict_is_one_sentence(share: float, bars: float, said: str) -> None:
    verdict = stub(share, bars).verdict
    assert said in verdict
    assert verdict.endswith(".")


def test_a_frame_that_hardly_reaches_the_tile_does_not_lead(made: Simulated) -> None:
    """The second frame, half covered, would be what the others are compared with."""
    valid = made.burst.valid.clone()
    valid[1, 4:] = False
    check = check_held_out(dataclasses.replace(made.burst, valid=valid), 2, "solver")
    first = check.frames[0]
    assert first.name == "frame 0"
    assert first.pixels > 2000
    assert 0.6 < first.mean_z2 < 1.4


def test_one_odd_frame_does_not_decide() -> None:
    good, odd = stub(0.0, 0.5).frames[0], stub(-0.4, 0.5).frames[0]
    assert "agree" in HeldOut((good, odd, good), 1).verdict


def test_a_law_that_swallowed_errors_gives_no_reassurance(made: Simulated) -> None:
    facts = dataclasses.replace(made.burst.batched(), notes=(OVERSTATED,))
    source = made.burst
    assert "agree" in check_held_out(source, 2, "solver", facts=made.burst.batched()).verdict
    verdict = check_held_out(source, 2, "solver", facts=facts).verdict
    assert "the error bars are not to be trusted" in verdict
    assert "agree" not in verdict


def test_motion_is_a_translation_unless_it_bends() -> None:
    shift = torch.tensor([[[0.0, 0.0], [0.3, -0.4]]])
    field = shift[..., None, None].expand(-1, -1, -1, 8, 8).clone()
    for still in (shift, field):
        found, bends = _simplest(still)
        assert not bends
        assert torch.allclose(found, shift)
    field[0, 1, 0, 3, 3] += 0.1
    found, bends = _simplest(field)
    assert bends
    assert found is field


def test_tiles_and_frames_are_spread() -> None:
    assert spread_tiles((64, 80)) == [(slice(0, 64), slice(0, 80))]
    assert spread_tiles((3000, 96)) == [
        (slice(968, 1064), slice(0, 96)),
        (slice(1936, 2032), slice(0, 96)),
    ]
    for side in (96, 200, 300, 384, 500):
        places = [range(*part[0].indices(side)) for part in spread_tiles((side, side))]
        assert all(set(a).isdisjoint(b) for a, b in pairwise(places))
    assert len(places) == 2
    assert evenly(range(15), 6) == [0, 3, 6, 8, 11, 14]
    assert evenly([2, 5], 6) == [2, 5]


def test_frames_are_held_out_one_by_one_or_together(
    made: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for most in (1, 64):
        monkeypatch.setattr("pushframe.heldout.tiles_at_once", lambda *_, most=most: most)
        found.append(check_held_out(made.burst, 2, "solver"))
    without = heldout._without
    monkeypatch.setattr(heldout, "_without", lambda *given: reversed(list(without(*given))))
    mixed = check_held_out(made.burst, 2, "solver")  # twin: each judged by another's prediction
    for one, other, wrong in zip(*(check.frames for check in (*found, mixed)), strict=True):
        assert (one.name, one.pixels) == (other.name, other.pixels)
        assert one.mean_z2 == pytest.approx(other.mean_z2, rel=0.02)
        assert wrong.mean_z2 > 3 * one.mean_z2


def test_tails_are_told_from_bars_that_are_too_long() -> None:
    """Most pixels nearer than stated and some far off is neither too long nor too short."""
    levels = np.array(LEVELS)
    heavy = 0.94 * levels**0.8
    frames = tuple(HeldOutFrame("f", 900, tuple(heavy.tolist()), 3.0, 0.3) for _ in range(3))
    assert "something in these frames is not modelled" in HeldOut(frames, 1).verdict
    assert "too short" in stub(-0.1, 0.3).verdict  # twin
    assert "too long" in stub(0.1, 0.3).verdict
