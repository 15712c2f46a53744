"""Pixels and frames that the solver left out by itself are said, and nothing else is."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import pytest
import torch
from conftest import sources
from test_validate import one, with_blob

from pushframe import Burst, write_burst
from pushframe.deliver import Order, deliver
from pushframe.infer import Reconstruction
from pushframe.left_out import left_out_notes, left_out_pixels
from pushframe.methods import METHODS, Estimate
from pushframe.motion_table import MotionTable
from pushframe.posterior import Posterior
from pushframe.simulate import PRESETS, simulate_one


def notes_of(burst: Burst, method: str = "solver") -> list[str]:
    making = Reconstruction(burst, method=method)
    making.product()
    return making.motion.notes()


@pytest.mark.parametrize("method", ["solver", "base"])
def test_a_cloud_is_said_by_solver_and_network(method: str) -> None:
    (note,) = notes_of(with_blob(one(), 3, 3), method)
    assert re.fullmatch(
        r"frame 3: \d+% of its pixels disagree with the other frames "
        r"\(a cloud, something that moves\?\) and were left out\.",
        note,
    )
    assert notes_of(one(), method) == []
    (note,) = notes_of(with_blob(one(), None, 1.5), method)
    assert note.startswith("In 5 of 5 frames ")


@pytest.mark.parametrize("preset", ["paper", "affine", "continuous"])
def test_clean_bursts_are_not_noted(preset: str) -> None:
    for seed in range(3):
        setting = dataclasses.replace(PRESETS[preset], size=40, frames=6)
        burst = simulate_one(sources(setting, 1, seed)[0], setting, seed).burst
        assert notes_of(burst) == []


def test_masks_of_files_are_not_noted() -> None:
    burst = one()
    valid = burst.valid.clone()
    valid[2, 10:24, 10:24] = False
    assert notes_of(dataclasses.replace(burst, valid=valid)) == []


def saturated() -> Burst:
    """A bright field whose pixels above a ceiling are masked."""
    burst = one()
    top = burst.frames.quantile(0.9)
    return dataclasses.replace(burst, valid=burst.frames < top)


def test_pixels_near_the_ceiling_count_as_saturated(monkeypatch: pytest.MonkeyPatch) -> None:
    burst = saturated().batched()
    estimate = METHODS["solver"].run(burst, 2, None)
    assert bool((burst.valid & ~estimate.used).any())  # left out as too near to it
    assert int(left_out_pixels(burst, estimate)[1].sum()) < 10
    monkeypatch.setattr("pushframe.left_out.cut_pixels", lambda frames, *_: frames > 9)
    assert int(left_out_pixels(burst, estimate)[1].sum()) > 50  # twin


def test_a_cloud_is_left_out_whole_beside_one_masked_pixel() -> None:
    """It is the brightest of its frame, but not expected to be."""
    burst = with_blob(one(), 3, 3)
    valid = burst.valid.clone()
    valid[3, 35, 35] = False
    frames = burst.frames.clone()
    frames[3] = frames[3].clamp(max=float(burst.frames[3].quantile(0.98)))  # a flat top
    flat = dataclasses.replace(burst, frames=frames)
    for masked in (flat, dataclasses.replace(flat, valid=valid)):
        batch = masked.batched()
        estimate = METHODS["solver"].run(batch, 2, None)
        assert estimate.used is not None
        left = left_out_pixels(batch, estimate)[1]
        assert int(left[0, 3].sum()) > 0.95 * int((batch.valid & ~estimate.used)[0, 3].sum()) > 50


def test_shares_are_those_of_all_tiles_and_of_the_worst() -> None:
    table, still = MotionTable(("a", "b")), torch.zeros(2, 2, 2)
    burst = Burst(torch.rand(2, 2, 10, 10), torch.ones(2, 2), torch.ones(2))
    used = torch.ones(2, 2, 10, 10, dtype=torch.bool)
    used[1, 1, :3] = False  # 30 % of one of two tiles
    estimate = Estimate(Posterior(torch.zeros(2, 20, 20)), still, used)
    table.update(burst, estimate, still)
    table.update(burst, estimate._replace(used=None), still)  # nothing was judged
    (note,) = [text for text in table.notes() if text.startswith("frame 1 (b): ")]
    assert "15% of its pixels, 30% where it is most, disagree" in note
    kept = torch.tensor([[True, True], [True, False]])  # expelled as a whole: said as that
    table = MotionTable(("a", "b"))
    table.update(burst, estimate._replace(kept=kept), still)
    assert [row.remark for row in table.rows()] == [
        "", "disagrees with the others and was left out in part",
    ]  # fmt: skip


def test_small_shares_are_not_said_as_none() -> None:
    (one_frame,) = left_out_notes(["a", "b"], [0.0004, 0.0], [0.01, 0.0])
    assert one_frame.startswith("a: under 0.1% of its pixels, 1% where it is most, disagree")
    many, worst = list("abcd"), [0.01, 0.004, 0.01, 0.02]
    (alike,) = left_out_notes(many, [0.0004, 0.0001, 0.0003, 0.00002], worst)
    assert "4 of 4 frames under 0.1% of the pixels, 2% where it is most, disagree" in alike
    (spread,) = left_out_notes(many, [0.0004, 0.0006, 0.013, 0.0003], worst)
    assert "4 of 4 frames under 0.1% to 1% of the pixels disagree" in spread


def test_report_and_tags_say_both(tmp_path: Path) -> None:
    for package in ("jinja2", "PIL", "matplotlib", "rasterio"):
        pytest.importorskip(package)
    burst = with_blob(one(), 3, 3)
    other = one(9).frames[2]
    frames = burst.frames.clone()
    frames[2] = 0.5 * frames[2] + 0.5 * other  # agrees by and large: aligned, expelled
    write_burst(dataclasses.replace(burst, frames=frames), tmp_path / "b.npz")
    made = deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", method="solver"))
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    remarks = [html.unescape(x) for x in re.findall(r'data-label="Remark">([^<]+)<', text)]
    assert remarks[2] == "disagrees with the others and was left out"
    assert "of its pixels disagree with the other frames" in remarks[3]
    assert remarks[1] == remarks[4] == "–"
    item = json.loads((tmp_path / "p.json").read_text())["properties"]
    for notes in (made.provenance["notes"], item["pushframe:notes"]):
        assert "frame 2 disagrees with the others and was left out." in notes
        assert "frame 3: " + remarks[3] + "." in notes
