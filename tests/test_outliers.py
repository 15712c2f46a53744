"""Foreign pixels: found where they are, and nowhere else."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import sources

from pushframe.burst import Burst, Simulated
from pushframe.registration import register
from pushframe.simulate import PRESETS, simulate, with_options
from pushframe.solver import judge
from pushframe.solver.fit import Fit
from pushframe.solver.outliers import foreign_pixels, on_reference_grid
from pushframe.solver.peaks import fit_motion
from pushframe.solver.search import Search


@pytest.fixture(scope="module")
def clean() -> Simulated:
    setting = with_options(PRESETS["paper"], size=48, frames=12)
    return simulate(sources(setting, 8), setting, torch.Generator().manual_seed(0))


def foreign(burst: Burst, flow_px: torch.Tensor) -> torch.Tensor:
    return foreign_pixels(burst, flow_px, on_reference_grid(burst, flow_px))


def test_clean_bursts_have_no_foreign_pixels(
    clean: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One false alarm sends a burst through every detour that is made for clouds."""
    assert not foreign(clean.burst, clean.flow_px).any()
    monkeypatch.setattr("pushframe.solver.outliers.FOREIGN_MARGIN_PX", -9.0)
    alarm = foreign(clean.burst, clean.flow_px)  # twin: values repeated beyond borders count
    assert alarm.any()
    assert not alarm[..., 8:-8, 8:-8].any()


@pytest.mark.parametrize(("y", "x"), [(24, 20), (3, 20), (24, 44), (2, 2)])
def test_a_bright_object_is_found_up_to_the_border(clean: Simulated, y: int, x: int) -> None:
    rows, columns = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    blob = 0.5 * torch.exp(-((rows - y) ** 2 + (columns - x) ** 2) / 18)
    frames = clean.burst.frames.clone()
    frames[:, 6] += blob
    found = foreign(dataclasses.replace(clean.burst, frames=frames), clean.flow_px)
    assert found[:, 6, blob > 0.2].all()
    found[:, 6] = False
    assert not found.any()


@pytest.fixture(scope="module")
def far() -> Simulated:
    """Frames far apart, of so little noise that nothing hides what windows do to them."""
    setting = with_options(
        PRESETS["paper"], size=48, frames=10, shift_px=4.0, margin_hpx=20, noise_std_dn=(1.0, 1.0)
    )
    return simulate(sources(setting, 3), setting, torch.Generator().manual_seed(0))


def fitted(batch: Simulated) -> Fit:
    kept = torch.ones(batch.burst.frames.shape[:2], dtype=torch.bool)
    return fit_motion(batch.burst, register(batch.burst), kept, 2)


def error_px(batch: Simulated) -> float:
    return float((fitted(batch).flow_px - batch.flow_px)[:, 1:].square().mean().sqrt())


def gain_error(batch: Simulated) -> float:
    return float((fitted(batch).gain - 1).square().mean().sqrt())


def test_clean_bursts_have_no_outliers_where_the_window_falls(
    far: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fitted(far).outlier
    monkeypatch.setattr(judge, "in_sigmas", lambda residual, var, _: residual / var.sqrt())
    alarm = fitted(far).outlier  # twin: errors of the window, magnified, count as the frames'
    assert alarm.sum() > 10
    assert not alarm[..., 12:-12, 12:-12].any()
    assert found.sum() == 0


def test_what_the_window_does_to_frames_is_taken_out(
    far: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error_px(far) < 0.00025
    assert gain_error(far) < 2e-4
    learn = Search.unbias

    def in_vain(search: Search) -> None:
        learn(search)
        search.whole.bias = 0 * search.whole.bias

    monkeypatch.setattr(Search, "unbias", in_vain)  # twin
    assert error_px(far) > 0.0003
    monkeypatch.setattr(Search, "look_closely", lambda _: None)  # which reads gains elsewhere
    assert gain_error(far) > 5e-4


def test_a_bright_pixel_is_an_outlier_also_where_the_window_falls(clean: Simulated) -> None:
    frames = clean.burst.frames.clone()
    frames[:, 5, 4, 20] += 0.3
    spoilt = dataclasses.replace(clean.burst, frames=frames)
    assert fitted(dataclasses.replace(clean, burst=spoilt)).outlier[:, 5, 4, 20].all()


def test_frames_far_apart_are_not_cut_off_by_their_ends(
    far: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error_px(far) < 0.0003
    # twin: the whole window
    monkeypatch.setattr("pushframe.solver.moving_window.UNNOTICED_PX", 9.0)
    assert error_px(far) > 0.01
