"""Foreign pixels: found where they are, and nowhere else."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Simulated
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver.motion import fit_motion
from pushframe.solver.outliers import foreign_pixels
from pushframe.solver.search import Search


@pytest.fixture(scope="module")
def clean() -> Simulated:
    setting = with_options(PRESETS["paper"], size=48, frames=12)
    return simulate(sources(setting, 8), setting, torch.Generator().manual_seed(0))


def test_clean_bursts_have_no_foreign_pixels(
    clean: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One false alarm sends a burst through every detour that is made for clouds."""
    assert not foreign_pixels(clean.burst, clean.flow_px).any()
    monkeypatch.setattr("pushframe.solver.outliers.FOREIGN_MARGIN_PX", -9.0)
    alarm = foreign_pixels(clean.burst, clean.flow_px)  # twin: values repeated beyond borders count
    assert alarm.any()
    assert not alarm[..., 8:-8, 8:-8].any()


@pytest.mark.parametrize(("y", "x"), [(24, 20), (3, 20), (24, 44), (2, 2)])
def test_a_bright_object_is_found_up_to_the_border(clean: Simulated, y: int, x: int) -> None:
    rows, columns = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    blob = 0.5 * torch.exp(-((rows - y) ** 2 + (columns - x) ** 2) / 18)
    frames = clean.burst.frames.clone()
    frames[:, 6] += blob
    foreign = foreign_pixels(dataclasses.replace(clean.burst, frames=frames), clean.flow_px)
    assert foreign[:, 6, blob > 0.2].all()
    foreign[:, 6] = False
    assert not foreign.any()


def outliers(batch: Simulated) -> torch.Tensor:
    kept = torch.ones(batch.burst.frames.shape[:2], dtype=torch.bool)
    return fit_motion(batch.burst, batch.flow_px, kept, 2).outlier


def test_clean_bursts_have_no_outliers_where_the_window_falls(
    clean: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outliers(clean)
    monkeypatch.setattr(Search, "_surprises", lambda _, residual, var: residual / var.sqrt())
    alarm = outliers(clean)  # twin: errors of the window, magnified, count as the frames'
    assert alarm.sum() > 50
    assert not alarm[..., 6:-6, 6:-6].any()
    assert found.sum() < alarm.sum() / 20


def test_a_bright_pixel_is_an_outlier_also_where_the_window_falls(clean: Simulated) -> None:
    frames = clean.burst.frames.clone()
    frames[:, 5, 4, 20] += 0.3
    found = outliers(
        dataclasses.replace(clean, burst=dataclasses.replace(clean.burst, frames=frames))
    )
    assert found[:, 5, 4, 20].all()


def test_frames_far_apart_are_not_cut_off_by_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = with_options(PRESETS["paper"], size=48, frames=10, shift_px=4.0, margin_hpx=20)
    far = simulate(sources(setting, 3), setting, torch.Generator().manual_seed(0))
    kept = torch.ones(3, 10, dtype=torch.bool)

    def error_px() -> float:
        fit = fit_motion(far.burst, far.flow_px, kept, 2)
        return float((fit.flow_px - far.flow_px)[:, 1:].square().mean().sqrt())

    assert error_px() < 0.004
    monkeypatch.setattr(
        "pushframe.solver.moving_window.UNNOTICED_PX", 9.0
    )  # twin: the whole window
    assert error_px() > 0.008
