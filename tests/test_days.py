"""Frames of different days: one low-pass for all of them, the rest of each frame untouched."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from pushframe import Burst, NoiseLaw, days, heldout, read_burst, super_resolve
from pushframe.burst import Simulated
from pushframe.data import DataConfig, read_bursts
from pushframe.errors import BurstError
from pushframe.evaluate import Case, evaluate
from pushframe.filters import gaussian_blur
from pushframe.forward import forward_model
from pushframe.io import open_burst, write_burst
from pushframe.methods import find_methods
from pushframe.solver import peaks
from pushframe.solver.judge import judge_residuals
from pushframe.solver.motion import Task

WHITE_DN, SIDE, COUNT = 3000.0, 64, 7
EDGE = 8


def scene(shape, seed):
    """A random image with the spectrum of landscapes, radiance around 0.4, (h, w)."""
    fy, fx = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])
    white = np.random.default_rng(seed).normal(size=shape)
    image = np.fft.irfft2(np.fft.rfft2(white) / (fy**2 + fx**2 + 1e-3) ** 0.6, shape)
    return torch.from_numpy(0.4 + 0.08 * image / image.std()).float()


def bursts(haze=0.02, noise=0.001, seed=0):
    """A batch of one of frames of different days, the same without days, and the motion.

    Each day adds an offset and a smooth field of `haze` rms.
    """
    generator = torch.Generator().manual_seed(seed)
    flow_px = torch.rand(1, COUNT, 2, generator=generator) * 1.6 - 0.8
    flow_px[:, 0] = 0
    margin = 16
    image = scene((2 * SIDE + 2 * margin, 2 * SIDE + 2 * margin), seed)[None]
    clean = forward_model(flow_px, (SIDE, SIDE), 2, margin).forward(image)
    clean = clean + noise * torch.randn(clean.shape, generator=generator)
    field = gaussian_blur(torch.randn(clean.shape, generator=generator), 6.0)
    field = haze * field / field.std((-1, -2), keepdim=True)
    offset = 0.1 * torch.rand(1, COUNT, 1, 1, generator=generator)
    same = Burst(
        clean, torch.ones(1, COUNT), torch.tensor([WHITE_DN]), days=True,
        noise=NoiseLaw(torch.zeros(1), torch.tensor([(noise * WHITE_DN) ** 2])),
    )  # fmt: skip
    return dataclasses.replace(same, frames=clean + field + offset), same, flow_px


def disagreement(found, same):
    """Rms by which what was added to the frames differs between them, at large and in detail."""
    added = (found.frames - same.frames)[..., EDGE:-EDGE, EDGE:-EDGE]
    added = added - added.mean((-1, -2), keepdim=True)
    low = gaussian_blur(added, 2.0)
    return float((low - low.mean(1)).square().mean().sqrt()), float((added - low).std())


def test_frames_are_given_one_low_pass_and_keep_their_detail():
    hazy, same, _ = bursts()
    before, _ = disagreement(hazy, same)
    after, detail = disagreement(days.reconciled(hazy).burst, same)
    assert before > 0.01
    assert after < 0.25 * before
    assert detail < 0.25 * before


def test_twin_frames_moved_the_other_way_do_not_agree(monkeypatch):
    hazy, same, flow_px = bursts()
    monkeypatch.setattr(days, "register", lambda _: flow_px)
    right = disagreement(days.reconciled(hazy).burst, same)
    monkeypatch.setattr(days, "register", lambda _: -flow_px)
    wrong = disagreement(days.reconciled(hazy).burst, same)
    assert wrong[1] > 3 * right[1]


def test_the_reference_keeps_its_brightness():
    hazy, _, _ = bursts()
    found = days.reconciled(hazy).burst
    off = (found.frames - hazy.frames)[:, 0].median()
    assert abs(float(off)) < 0.005
    # the others, up to 0.1 brighter or darker, are brought to it
    level = found.frames.mean((-1, -2))[0]
    assert float((level - level[0]).abs().max()) < 0.02


def test_what_days_changed_is_measured_and_counts_as_noise():
    hazy, _, _ = bursts(haze=0.02)
    found = days.reconciled(hazy)
    # against the mean of the others, which is off itself: 1 + 1/6 of the variance
    assert float(found.var.median()) == pytest.approx(0.02**2 * 7 / 6, rel=0.3)
    told = days.with_law(hazy, 2)
    expected = float(found.var.median()) * WHITE_DN**2
    assert float(told.noise.b) == pytest.approx(expected + 3.0**2, rel=1e-3)
    assert "different days" in told.notes[-1]
    bare = days.with_law(dataclasses.replace(hazy, noise=None), 2)
    assert float(bare.noise.b) == pytest.approx(expected, rel=0.1)


def test_a_frame_of_another_season_is_left_out_but_never_the_reference():
    hazy, _, _ = bursts()
    odd = hazy.frames.clone()
    season = scene((SIDE, SIDE), 99) - 0.4
    odd[:, 3] += 0.8 * season
    found = days.reconciled(dataclasses.replace(hazy, frames=odd)).burst
    assert found.valid.flatten(2).any(2)[0].tolist() == [True] * 3 + [False] + [True] * 3
    odd = hazy.frames.clone()
    odd[:, 0] += 0.8 * season
    assert bool(days.reconciled(dataclasses.replace(hazy, frames=odd)).burst.valid[:, 0].all())


def test_invalid_pixels_have_no_say():
    hazy, _, _ = bursts()
    valid = hazy.valid.clone()
    valid[:, 2, 10:30, 10:30] = False
    valid[:, 5, 40:, :] = False
    results = []
    for fill in (0.0, 9.0):
        frames = torch.where(valid, hazy.frames, fill)
        results.append(days.reconciled(dataclasses.replace(hazy, frames=frames, valid=valid)))
    one, other = (found.burst.frames[valid] for found in results)
    torch.testing.assert_close(one, other)


def test_two_frames_are_left_as_they_are():
    hazy, _, _ = bursts()
    pair = hazy.select([0, 1])
    assert torch.equal(days.reconciled(pair).burst.frames, pair.frames)


def test_products_of_different_days_are_better_and_say_so():
    hazy, _, _ = bursts(haze=0.03, noise=0.002)
    image = scene((2 * SIDE + 32, 2 * SIDE + 32), 0)[16:-16, 16:-16]
    inner = (slice(2 * EDGE, -2 * EDGE), slice(2 * EDGE, -2 * EDGE))

    def detail_error(product):
        off = torch.from_numpy(product.mean / WHITE_DN) - image
        off = off - gaussian_blur(off[None, None], 4.0)[0, 0]
        return float(off[inner].std())

    one = Burst(
        hazy.frames[0], hazy.exposure[0], hazy.white_level[0], days=True,
        noise=NoiseLaw(torch.tensor(0.0), torch.tensor(36.0)),
    )  # fmt: skip
    found = super_resolve(one, method="map")
    assert "different days" in found.provenance["notes"]
    naive = super_resolve(dataclasses.replace(one, days=False), method="map")
    assert "different days" not in naive.provenance["notes"]
    assert detail_error(found) < 0.8 * detail_error(naive)


@pytest.mark.parametrize("name", ["b.npz", "folder", "stack.tif"])
def test_the_key_days_goes_with_the_files(tmp_path, name):
    if name != "b.npz":
        pytest.importorskip("rasterio")
    frames = 100 + np.random.default_rng(0).uniform(0, 50, (3, 20, 24))
    burst = Burst.from_dn(frames, torch.ones(3), 3000.0, days=True)
    write_burst(burst, tmp_path / name)
    assert read_burst(tmp_path / name).days
    assert open_burst(tmp_path / name).tile(slice(0, 9), slice(0, 9)).days
    write_burst(dataclasses.replace(burst, days=False), tmp_path / name)
    assert not read_burst(tmp_path / name).days
    np.savez(tmp_path / "x.npz", frames=frames, days=3)
    with pytest.raises(BurstError, match="days as true or false"):
        read_burst(tmp_path / "x.npz")


def test_what_changed_between_days_stays_out_and_is_no_other_peak(monkeypatch):
    free = torch.full((1, 6), 0.4)
    residual = 0.6 * torch.randn(1, 6, 32, 32, generator=torch.Generator().manual_seed(0))
    outlier = torch.zeros_like(residual, dtype=torch.bool)
    outlier[:, 2, 10:16, 10:16] = True
    residual[outlier] = 10.0
    ones = torch.ones_like(residual)
    given = {"used": ones > 0, "outlier": outlier, "noise_var": ones, "mismatch": torch.zeros(1)}
    of_days, of_one = (
        judge_residuals(residual, ones, **given, free=free, days=days) for days in (True, False)
    )
    assert torch.equal(of_days.outlier, outlier)
    assert not of_one.outlier.any()  # twin: the image was not shown them, and may be wrong there
    monkeypatch.setattr(peaks, "doubtful", lambda task, _: task.kept.any(1))
    monkeypatch.setattr(peaks, "_grown", lambda *_: pytest.fail("images are grown"))
    burst, _, flow_px = bursts()
    kept = torch.ones(1, COUNT, dtype=torch.bool)
    task = Task(burst, flow_px, kept, 2)
    fit = task.settled()
    assert peaks.highest_peak(task, fit) is fit
    task = dataclasses.replace(task, burst=dataclasses.replace(burst, days=False))  # twin
    with pytest.raises(pytest.fail.Exception):
        peaks.highest_peak(task, fit)


def test_evaluate_treats_days_as_run_does(monkeypatch):
    hazy, _, flow_px = bursts()
    burst = dataclasses.replace(hazy.part(0), noise=None)
    truth = scene((2 * SIDE + 32, 2 * SIDE + 32), 0)[16:-16, 16:-16]
    cases = [Case("hazy", Simulated(burst, truth, flow_px[0]))]
    mean = torch.from_numpy(super_resolve(burst, method="map").mean) / WHITE_DN
    rms = float((mean - truth)[EDGE:-EDGE, EDGE:-EDGE].square().mean().sqrt())
    found = evaluate(cases, ["map"])
    psnr_db = found["methods"]["map"]["all"]["psnr_db"]
    assert psnr_db == pytest.approx(-20 * np.log10(rms), abs=0.01)
    assert "different days" in found["notes"][0]
    monkeypatch.setattr("pushframe.evaluate.as_of_one_day", lambda burst: burst)
    twin = evaluate(cases, ["map"])["methods"]["map"]["all"]["psnr_db"]
    assert abs(twin - psnr_db) > 1


def test_a_frame_held_out_has_no_say_in_what_the_days_agree_on(monkeypatch):
    hazy, _, flow_px = bursts()
    bright = hazy.frames.clone()
    bright[:, 3] += 0.3 * scene((SIDE, SIDE), 5)
    both = [hazy, dataclasses.replace(hazy, frames=bright)]
    method, rest = find_methods(["solver"])["solver"], [k for k in range(COUNT) if k != 3]
    predicted = [next(heldout._without(batch, method, 2, flow_px, [3])).mean for batch in both]
    torch.testing.assert_close(*predicted)
    others = [days.reconciled(batch).burst.frames[:, rest] for batch in both]
    assert not torch.allclose(*others, atol=1e-3)  # twin: reconciled with it
    monkeypatch.setattr(heldout, "as_of_one_day", lambda burst: burst)
    apart = next(heldout._without(hazy, method, 2, flow_px, [3])).mean
    assert not torch.allclose(apart, predicted[0], atol=1e-3)  # twin: not reconciled at all


def test_frames_are_held_out_as_they_were_taken(monkeypatch):
    """Not as the day that they agree on, to which they have contributed."""
    burst, without, given = bursts()[0].part(0), heldout._without, []

    def watched(batch, *rest):
        given.append(batch.frames)
        return without(batch, *rest)

    monkeypatch.setattr(heldout, "_without", watched)
    assert isinstance(heldout.check_held_out(burst, 2, "solver"), heldout.HeldOut)
    assert torch.equal(given[0][0], burst.frames)


def test_training_takes_no_frames_of_different_days(tmp_path):
    hazy, same, _ = bursts()
    config = DataConfig(bursts=str(tmp_path), frames=(4, 7), size=32)
    write_burst(dataclasses.replace(same.part(0), days=False), tmp_path / "a.npz")
    assert len(read_bursts(tmp_path, config, 2)) == 1
    write_burst(hazy.part(0), tmp_path / "b.npz")
    with pytest.raises(BurstError, match="frames of one day"):
        read_bursts(tmp_path, config, 2)


def test_days_of_which_nothing_is_seen_are_refused():
    """A law that is no number would make a product of nothing."""
    hazy, _, _ = bursts()
    unseen = torch.zeros_like(hazy.valid)
    with pytest.raises(BurstError, match="frames of different days that show the middle"):
        days.with_law(dataclasses.replace(hazy, valid=unseen), 2)
