"""Registration: direction, accuracy, large shifts, masks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from conftest import sources
from earth import pushframe_frames
from skimage.registration import phase_cross_correlation

from pushframe import Burst, registration
from pushframe.registration import NEAR_PX, phase_correlation, register
from pushframe.simulate import PRESETS, simulate


def rmse(flow: torch.Tensor, true: torch.Tensor) -> float:
    return float((flow - true)[:, 1:].square().mean().sqrt())


def test_lucas_kanade_finds_the_flow_from_frame_to_reference(paper_batch) -> None:
    flow = register(paper_batch.burst)
    assert rmse(flow, paper_batch.flow_px) < 0.03
    assert bool((flow[:, 0] == 0).all())
    assert rmse(-flow, paper_batch.flow_px) > 0.5  # twin: from reference to frame
    assert rmse(flow.flip(-1), paper_batch.flow_px) > 0.3  # twin: (dx, dy)


def test_large_shifts_are_found_as_by_an_independent_library() -> None:
    setting = dataclasses.replace(PRESETS["paper"], size=64, frames=6, shift_px=9.0, margin_hpx=32)
    made = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(0))
    whole = phase_correlation(made.burst)
    frames = made.burst.frames[0].numpy()
    for k in range(1, 6):
        # skimage gives the shift that registers the frame onto the reference: our flow
        shift, *_ = phase_cross_correlation(frames[0], frames[k], normalization="phase")
        assert (whole[0, k] - torch.tensor(shift)).abs().max() <= 1
    assert (whole - made.flow_px).abs().max() <= 1
    assert rmse(register(made.burst), made.flow_px) < 0.05


def test_invalid_pixels_have_no_say(paper_batch) -> None:
    valid = paper_batch.burst.valid.clone()
    valid[:, 0, 4:10, 20:30] = False
    valid[:, 3, 25:33, 6:18] = False
    flows = [
        register(
            dataclasses.replace(
                paper_batch.burst,
                valid=valid,
                frames=paper_batch.burst.frames.where(valid, torch.tensor(fill)),
            )
        )
        for fill in (0.0, 50.0)
    ]
    torch.testing.assert_close(flows[0], flows[1])
    assert rmse(flows[0], paper_batch.flow_px) < 0.05


def test_a_wrong_exposure_does_not_move_the_frame(paper_batch) -> None:
    burst = paper_batch.burst
    wrong = dataclasses.replace(
        burst, frames=burst.frames * torch.linspace(0.9, 1.1, 12)[:, None, None]
    )
    assert rmse(register(wrong), paper_batch.flow_px) < 0.03


@pytest.mark.parametrize("count", [1, 2])
def test_few_frames(paper_batch, count: int) -> None:
    flow = register(paper_batch.burst.select(range(count)))
    assert flow.shape == (2, count, 2)


def test_a_flat_burst_stays_at_rest() -> None:
    frames = torch.full((1, 3, 16, 16), 0.3)
    flow = register(Burst(frames, torch.ones(1, 3), torch.tensor([1.0])))
    assert bool(torch.isfinite(flow).all())


def test_a_strip_of_a_frame_is_not_led_astray() -> None:
    shifts = np.array([[0, 0], [0.4, 0.4], [-0.3, 0.2], [0.3, -0.4]])
    dn, _ = pushframe_frames((96, 96), shifts)
    misled, found = [], []
    for side in range(4):  # the strip that a frame has in a tile, at each of its edges
        valid = torch.zeros(4, 96, 96, dtype=torch.bool)
        valid[:3] = True
        valid[3, :18] = True
        valid[3] = torch.rot90(valid[3], side)
        burst = Burst.from_dn(dn, np.ones(4), 3400.0, valid=valid).batched()
        found.append((register(burst)[0] - torch.from_numpy(shifts)).abs().max())
        misled.append((phase_correlation(burst)[0] - torch.from_numpy(shifts)).abs().max())
    assert max(found) < 0.2
    assert max(misled) > 5  # twin: what phase correlation says of the strip


def test_a_mask_in_one_burst_moves_no_frame_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign frame, which may be anywhere, is where it would be if its burst were alone."""
    setting = dataclasses.replace(PRESETS["paper"], size=48, frames=5)
    batch = simulate(sources(setting, 4), setting, torch.Generator().manual_seed(2)).burst
    frames, valid = batch.frames.clone(), batch.valid.clone()
    frames[:3, 2] = frames[1:, 3]  # of another scene
    whole = dataclasses.replace(batch, frames=frames)
    valid[3, 1, 20, 20] = False
    # where frames have holes, far ones are taken to lie as they are
    monkeypatch.setattr(registration, "_believable", lambda _, start, far: start * ~far[..., None])
    alone = register(whole.part(torch.arange(3)))
    together = register(dataclasses.replace(whole, valid=valid))[:3]
    assert bool((alone[:, 2].abs() > NEAR_PX).any())  # or else nothing is tested
    torch.testing.assert_close(together, alone, atol=1e-3, rtol=0)
    all_holed = register(dataclasses.replace(whole, valid=valid[[3, 3, 3, 3]]))[:3]
    assert float((all_holed - alone).abs().max()) > 1  # twin: each has a hole of its own
