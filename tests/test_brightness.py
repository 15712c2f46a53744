"""Wrong exposures: corrected and said, of the frame that is wrong, be it the reference."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from conftest import sources
from test_validate import one, verdicts

from pushframe import Burst, write_burst
from pushframe.brightness import brightness_fault, corrected_notes, reference_excess, with_outcome
from pushframe.deliver import Order, deliver
from pushframe.infer import Reconstruction
from pushframe.registration import agreement, register
from pushframe.simulate import PRESETS, simulate_one


def brighter(burst: Burst, frame: int, times: float) -> Burst:
    frames = burst.frames.clone()
    frames[frame] *= times
    return dataclasses.replace(burst, frames=frames)


def made_of(burst: Burst, method: str = "solver") -> dict[str, str]:
    making = Reconstruction(burst, method=method)
    making.product()
    return making.provenance()


@pytest.mark.parametrize("method", ["solver", "base"])
@pytest.mark.parametrize("times", [1.05, 0.92])
def test_a_corrected_exposure_is_said_and_in_the_tags(method: str, times: float) -> None:
    made = made_of(brighter(one(), 3, times), method)
    said = f"frame 3 is {times:.2f} times as bright as its stated exposure says"
    assert made["notes"] == f"{said}; corrected in the product."
    gains = [float(text) for text in made["gains"].split(", ")]
    assert gains == pytest.approx([1, 1, 1, times, 1], abs=0.01)


def test_small_errors_and_other_methods_say_nothing() -> None:
    assert made_of(brighter(one(), 3, 1.02))["notes"] == ""
    assert "gains" not in made_of(brighter(one(), 3, 1.05), "bicubic")
    days = made_of(dataclasses.replace(brighter(one(), 3, 1.05), days=True))
    assert "as bright" not in days["notes"]
    assert "gains" not in days


@pytest.mark.parametrize("preset", ["paper", "affine", "continuous"])
def test_right_exposures_are_not_noted(preset: str) -> None:
    for seed in range(3):
        setting = dataclasses.replace(PRESETS[preset], size=40, frames=5)
        burst = simulate_one(sources(setting, 1, seed)[0], setting, seed).burst
        assert made_of(burst)["notes"] == ""


def test_it_is_the_reference_that_most_others_contradict() -> None:
    assert reference_excess([0.8, 0.8, 0.81, 1.0]) == pytest.approx(1.25, rel=0.01)
    assert reference_excess([0.8, 0.8, 0.5, 1.2]) == 1  # no more than half
    assert reference_excess([0.7, 0.8, 0.9, 1.4]) == 1  # nor alike
    assert reference_excess([0.8, 0.8]) == 1  # too few to tell
    assert reference_excess([0.95, 0.95, 0.95]) == 1
    assert reference_excess([1.099, 1.101, 1.1, 1.098]) == pytest.approx(0.91, abs=0.001)
    (note,) = made_of(brighter(one(), 0, 1.05))["notes"].split(". ")
    assert note.startswith("frame 0: the reference is 1.05 times as bright as the others say")
    (bad,) = verdicts(brighter(one(), 0, 1.3), "bad")
    assert bad.startswith("frame 0: the reference is 1.30 times as bright as the others say")
    assert verdicts(brighter(one(), 0, 1.3), "note") == []
    both = verdicts(brighter(brighter(one(), 0, 1.3), 2, 1.3), "bad")
    assert [text[:7] for text in both] == ["frame 0", "frame 2"]
    assert "frame 2: 1.30 times" in both[1]


def test_a_reference_below_black_is_said_instead_of_gains_that_mean_nothing() -> None:
    burst = one()
    dark = dataclasses.replace(burst, frames=burst.frames - 1.01 * burst.frames[0].mean())
    (bad,) = verdicts(dark, "bad")
    assert bad == "frame 0: the mean of the reference lies below black; correct `black_level`"
    batch = dark.batched()
    assert bool(agreement(batch, register(batch))[0][0, 1:].isnan().any())
    lit = dataclasses.replace(burst, frames=burst.frames - 0.5 * burst.frames[0].mean())
    assert all("times as bright" in text for text in verdicts(lit, "bad"))  # twin


def test_gains_within_their_errors_are_not_said() -> None:
    labels, gain = ["a", "b", "c", "d"], [1.0, 1.05, 1.0, 1.0]
    assert len(corrected_notes(labels, gain, [0, 0.005, 0.005, 0.005])) == 1
    assert corrected_notes(labels, gain, [0, 0.02, 0.005, 0.005]) == []
    assert corrected_notes(labels, gain, [0, 0.005, 0.005, 0.005], told=[1]) == []
    assert corrected_notes(labels, [1, math.nan, 1, 1], [0.0] * 4) == []
    assert corrected_notes(labels, [1, 0.9, 0.9, 0.9], [0.05] * 4) == []


def test_report_tags_and_item_tell_gains_and_say_each_once(tmp_path: Path) -> None:
    for package in ("jinja2", "PIL", "matplotlib", "rasterio"):
        pytest.importorskip(package)
    burst = brighter(brighter(one(), 3, 1.05), 2, 1.13)
    write_burst(burst, tmp_path / "b.npz")
    made = deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", method="solver"))
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    gains = re.findall(r'data-label="Gain">([^<]+)<', text)
    assert [float(gain) for gain in gains] == pytest.approx([1, 1, 1.13, 1.05, 1], abs=0.01)
    item = json.loads((tmp_path / "p.json").read_text())["properties"]
    assert item["pushframe:gains"] == made.provenance["gains"]
    notes = made.provenance["notes"]
    assert len(re.findall(r"frame 2 is 1\.1\d times as bright", notes)) == 1
    assert notes.count("frame 3 is 1.05 times as bright") == 1


@pytest.mark.parametrize("times", [1 / 1.1, 1.09])
def test_a_reference_off_by_a_tenth_is_not_put_on_the_others(times: float, tmp_path: Path) -> None:
    """Seen from it frames differ by 1.1, some by a little more, others by a little less."""
    burst = brighter(one(), 0, times)
    (bad,) = verdicts(burst, "bad")
    assert bad.startswith("frame 0: the reference is ")
    write_burst(burst, tmp_path / "b.npz")
    made = deliver(Order(tmp_path / "b.npz", tmp_path / "p.npz", method="solver"))
    assert made.provenance["notes"].count("times as bright") == 1


@pytest.mark.parametrize(
    ("method", "became"),
    [
        ("solver", "It was corrected in the product (gain 1.40)."),
        ("shift_and_add", "The product takes exposures as they are stated."),
    ],
)
def test_run_says_what_became_of_a_wrong_exposure(method: str, became: str, tmp_path: Path) -> None:
    write_burst(brighter(one(), 3, 1.4), tmp_path / "b.npz")
    made = deliver(Order(tmp_path / "b.npz", tmp_path / "p.npz", method=method))
    said = "frame 3 is 1.40 times as bright as its exposure says; correct `exposure` or"
    assert made.provenance["notes"] == f"{said} `black_level`. {became}"


def test_run_says_that_it_is_the_reference(tmp_path: Path) -> None:
    write_burst(brighter(one(), 0, 1.3), tmp_path / "b.npz")
    made = deliver(Order(tmp_path / "b.npz", tmp_path / "p.npz", method="solver"))
    notes = made.provenance["notes"]
    (bad,) = verdicts(brighter(one(), 0, 1.3), "bad")
    became = "In the product the other frames were brought to its brightness."
    assert notes == f"{bad}. {became}"  # in the words of `validate`
    assert bad.endswith(
        "1.30 times as bright as the others say; correct `exposure` or `black_level`"
    )


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        ([1, 1, 1, 1.4, 1], "It was corrected in the product (gain 1.40)."),
        # the reference is 1.3 times as bright as the others say, and frame 3 against them
        ([1, 1 / 1.3, 1 / 1.3, 1.4 / 1.3, 1 / 1.3], "It was corrected in the product (gain 1.40)."),
        ([1, 1, 1, 1.01, 1], "The product takes its exposure as it is stated."),
        ([1, math.nan, math.nan, math.nan, math.nan], "as its exposure says; correct"),
    ],
)
def test_what_became_of_an_exposure_is_said_as_the_fault_is(gain: list[float], said: str) -> None:
    note = f"c is {brightness_fault(1.4)}."
    assert said in with_outcome(note, ["r", "a", "b", "c", "d"], gain)
