"""The order of the methods on real satellite images, where they are present."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushframe.evaluate import evaluate
from pushframe.simulate import PRESETS
from pushframe.sources import SimulatedCases, find_sources

METHODS = ["bicubic", "shift_and_add", "map", "solver"]


@pytest.mark.shared_data
@pytest.mark.parametrize("true_motion", [False, True])
def test_each_method_is_better_than_the_last(shared_images: Path, true_motion: bool) -> None:
    image = find_sources(str(shared_images / "test" / "paca_left_0p7m.tif"))
    result = evaluate(SimulatedCases(image, PRESETS["paper"], 0), METHODS, true_motion)
    figures = [result["methods"][name]["all"] for name in METHODS]
    psnr = [row["psnr_db"] for row in figures]
    assert result["bursts"] == 4
    assert psnr[1] > psnr[0] + 2
    assert psnr[2] > psnr[1] + 8
    assert psnr[3] > psnr[2] - 0.3
    assert figures[3]["calibration_error"] < 0.03
    if not true_motion:
        assert psnr[3] > psnr[2] + 1
        assert figures[3]["flow_rmse_px"] < 0.005
