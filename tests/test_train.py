"""Training: killed and resumed, in company, without the truth, and when it goes wrong."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import sources
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from training import config, loss_curve, settings, write_images

from pushframe.burst import Burst
from pushframe.data import Batch, ImageStream
from pushframe.errors import FileError, TrainingError, UsageError
from pushframe.io import atomic_path, write_burst
from pushframe.loss import supervised_nll
from pushframe.model import HdrDsp, HdrDspConfig, Motion, Network, OnSolver, OnSolverConfig
from pushframe.posterior import Posterior
from pushframe.simulate import PRESETS, simulate, simulate_one, with_options
from pushframe.train import checkpoint, train
from pushframe.train.checkpoint import NAME, clear_leftovers, read_state
from pushframe.train.config import ScheduleConfig, TrainConfig, load_train_config
from pushframe.train.step import (
    Desk,
    loss_of,
    make_ready,
    reference_loss,
    registered,
    without_lost,
    without_reference,
)
from pushframe.train.team import Team
from pushframe.weights import load_weights

PROGRAM = Path(__file__).with_name("training.py")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"))


def start(
    overrides: list[str], run: Path, *words: str, **environment: str
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(overrides), str(run), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stderr=subprocess.PIPE,
    )


def finish(code: int, *processes: subprocess.Popen[bytes]) -> None:
    said = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [code] * len(said), "\n".join(said)


def same(one: Path, other: Path) -> bool:
    a, b = load_file(one / NAME), load_file(other / NAME)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def losses(run: Path) -> list[tuple[int, float]]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


@pytest.mark.parametrize("moment", ["kill=4", "torn=6", "kill=2"])
def test_killed_at_any_moment_it_resumes_bit_for_bit(
    moment: str, images: Path, tmp_path: Path
) -> None:
    """Between checkpoints, while one is being written, and (kill=2) before the first is due."""
    overrides = settings(images)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(config(images), whole)
    finish(-signal.SIGKILL, start(overrides, cut, moment))
    assert read_state(cut)[0].step == (0 if moment == "kill=2" else 3)
    assert not same(whole, cut)
    finish(0, start(overrides, cut, "resume"))
    assert not list(cut.glob(".*"))  # drafts are gone
    assert read_state(cut)[0].step == 8
    assert same(whole, cut)
    assert [step for step, _ in losses(cut)] == [2, 4, 6, 8]
    assert losses(cut)[-1] == losses(whole)[-1]
    assert (cut / "weights.safetensors").exists()


def test_drafts_of_a_process_that_lives_are_left_alone(tmp_path: Path) -> None:
    """Another program may be writing its product into the folder of the run."""
    with atomic_path(tmp_path / "product.tif") as draft:
        draft.write_text("half")
        clear_leftovers(tmp_path)
        assert draft.read_text() == "half"
    assert (tmp_path / "product.tif").exists()


def test_parts_of_a_run_are_the_run(images: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(config(images), whole)
    steps = [train(config(images), parts, stop_after_minutes=0).progress.step]
    while steps[-1] < 8:
        state = train(config(images), parts, resume=True, stop_after_minutes=0)
        steps.append(state.progress.step)
    assert steps == list(range(1, 9))
    assert same(whole, parts)


POOLED = {
    "network": "on_solver",
    "model__proposal_blocks": 1,
    "model__verdict_blocks": 1,
    "motion": "true",
    "data__batch": 4,
    "data__parts": 2,
    "data__pool": 2,
    "data__uses": 2,
    "schedule__optimiser": "muon",
    "model__features": 16,
}


def pooled(images: Path, **changes: object) -> TrainConfig:
    """The tiniest run of our network, from pools of two batches, each used twice."""
    overrides = [
        line for line in settings(images, **(POOLED | changes)) if "coder_blocks" not in line
    ]
    return load_train_config(None, overrides)


def test_a_pooled_run_resumes_bit_for_bit(images: Path, tmp_path: Path) -> None:
    """Stopped in the middle of a pool, and of its second use; momenta and all."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(pooled(images), whole)
    step = train(pooled(images), parts, stop_after_minutes=0).progress.step
    while step < 8:
        step = train(pooled(images), parts, resume=True, stop_after_minutes=0).progress.step
    assert same(whole, parts)


@pytest.mark.parametrize("make", [config, pooled], ids=["adam", "muon"])
def test_a_step_that_was_not_taken_is_not_counted(
    make, images: Path, tmp_path, monkeypatch
) -> None:
    """Else Adam would take other steps once the run is resumed."""
    original = Desk.loss

    def broken(self: Desk, step: int, shard: int) -> Tensor:
        return original(self, step, shard) * (torch.nan if step == 2 else 1)

    monkeypatch.setattr(Desk, "loss", broken)

    def stop(line: dict, _: float) -> None:
        if line["step"] == 6:
            raise KeyboardInterrupt

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    chosen = make(images, log_every=3, checkpoint_every=4)
    train(chosen, whole)
    with pytest.raises(KeyboardInterrupt):
        train(chosen, cut, on_log=stop)
    assert read_state(cut)[0].step == 4
    train(chosen, cut, resume=True)
    assert same(whole, cut)
    counts = {float(x) for name, x in load_file(cut / NAME).items() if name.startswith("step.")}
    assert counts == {7}  # of 8


def test_a_checkpoint_without_counts_goes_on(images: Path, tmp_path: Path) -> None:
    """As they were written before; a run that took all its steps goes on as it would have."""
    train(config(images), tmp_path / "whole")
    run = tmp_path / "old"
    train(config(images), run, stop_after_minutes=0)
    with safe_open(run / NAME, "pt") as file:
        facts = file.metadata()
    tensors = {k: x for k, x in load_file(run / NAME).items() if not k.startswith("step.")}
    save_file(tensors, run / NAME, metadata=facts)
    train(config(images), run, resume=True)
    assert same(tmp_path / "whole", run)


class CountedStream:
    """Batches whose bursts carry their number in the exposure of their second frame."""

    def __init__(self, stream: ImageStream) -> None:
        self.stream, self.made = stream, 0

    def batch(self, step: int, shard: int) -> Batch:
        batch = self.stream.batch(step, shard)
        exposure = batch.burst.exposure.clone()
        exposure[:, 0] = torch.arange(len(exposure)) + self.made + 1.0
        self.made += len(exposure)
        return batch._replace(burst=dataclasses.replace(batch.burst, exposure=exposure))


def test_each_burst_of_a_pool_is_used_as_often_in_steps_that_mix_batches(
    images: Path, monkeypatch
) -> None:
    chosen = pooled(images, data__uses=3, data__frames=[3, 6])
    stream = CountedStream(
        ImageStream([np.load(p) for p in sorted(images.iterdir())], chosen.data, 2, 0, "cpu")
    )
    seen: list[list[int]] = []

    def noted(_network, ready, _loss) -> Tensor:
        seen.append([int(x) for x in ready.target.exposure[:, 0]])
        return torch.zeros(())

    monkeypatch.setattr("pushframe.train.step.loss_of", noted)
    desk = Desk(OnSolver(chosen.model), stream, chosen)
    for step in range(24):
        desk.loss(step, 0)
    assert stream.made == 16
    for number, steps in enumerate((seen[:12], seen[12:])):
        own = list(range(8 * number + 1, 8 * number + 9))
        for use in range(3):
            once = steps[4 * use : 4 * use + 4]
            assert sorted(burst for step in once for burst in step) == own
        assert steps[:4] != steps[4:8]  # in another order
        halves = [{(burst - 1) // 4 for burst in step} for step in steps]
        assert any(len(batches) == 2 for batches in halves)


def test_frames_themselves_cannot_be_pooled_in_different_numbers(
    images: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"as many frames.*got 3 to 9 frames: use data\.pool = 1"):
        config(images, data__pool=4, data__frames=[3, 9])
    assert pooled(images, data__frames=[3, 9]).data.pool == 2  # images of any number can be
    alike = config(images, data__pool=2, data__frames=[3, 3], schedule__steps=2)
    assert train(alike, tmp_path / "alike").progress.step == 2


def test_the_loss_curve_is_the_golden_one(tmp_path: Path) -> None:
    """A refactor shows the same losses; `python tests/training.py golden` writes them anew."""
    text = (PROGRAM.parent / "golden" / "hdr_dsp_losses.txt").read_text()
    golden = [float(line) for line in text.split()]
    assert len(golden) == 20
    assert loss_curve(tmp_path) == pytest.approx(golden, abs=2e-3)


def test_another_seed_is_another_run(images: Path, tmp_path: Path) -> None:
    train(config(images), tmp_path / "one")
    train(config(images, seed=1), tmp_path / "other")
    assert not same(tmp_path / "one", tmp_path / "other")


def test_two_processes_are_one_with_the_same_batch(images: Path, tmp_path: Path) -> None:
    overrides = settings(images, data__shards=2)
    train(config(images, data__shards=2), tmp_path / "alone")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    team = [
        start(
            overrides,
            tmp_path / "both",
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank in (0, 1)
    ]
    finish(0, *team)
    alone, both = (load_file(tmp_path / name / NAME) for name in ("alone", "both"))
    for name, value in alone.items():
        torch.testing.assert_close(both[name], value, atol=2e-5, rtol=1e-3)
    assert losses(tmp_path / "both")[-1][1] == pytest.approx(
        losses(tmp_path / "alone")[-1][1], rel=1e-4
    )
    # the tolerance can tell: half the batch is another gradient
    train(config(images, data__batch=1), tmp_path / "half")
    half = load_file(tmp_path / "half" / NAME)
    assert any(
        not torch.allclose(half[name], value, atol=2e-5, rtol=1e-3) for name, value in alone.items()
    )


def test_shards_must_fit_the_team() -> None:
    with pytest.raises(UsageError, match=r"multiple of the 2 processes.*data\.shards=2"):
        Team(0, 2).shards(1)


@pytest.mark.parametrize("network", ["hdr_dsp", "on_solver"])
@pytest.mark.parametrize("kind", ["self_supervised", "mse", "supervised"])
def test_self_supervised_training_cannot_see_the_truth(
    kind: str, network: str, images: Path, tmp_path: Path, monkeypatch
) -> None:
    """With the truth replaced by NaN, and the true motion too, the weights are the same bits."""
    make = config
    if network == "on_solver":
        make = partial(pooled, motion="solver", data__uses=1, schedule__steps=4)
    plain = make(images, loss__kind=kind)
    train(plain, tmp_path / "plain")
    original = ImageStream.batch

    def poisoned(self: ImageStream, step: int, shard: int) -> Batch:
        batch = original(self, step, shard)
        nothing = [torch.full_like(x, torch.nan) for x in (batch.truth, batch.flow_px)]
        return batch._replace(truth=nothing[0], flow_px=nothing[1])

    monkeypatch.setattr(ImageStream, "batch", poisoned)
    if kind == "supervised":  # which does see it
        with pytest.raises(TrainingError, match="got nan"):
            train(plain, tmp_path / "poisoned")
        return
    train(plain, tmp_path / "poisoned")
    assert same(tmp_path / "plain", tmp_path / "poisoned")


@pytest.fixture(scope="module")
def moved() -> tuple[Burst, Motion]:
    """Bursts whose motion is known, however it was found."""
    setting = with_options(PRESETS["paper"], size=24, frames=5)
    made = simulate(sources(setting, 2), setting, torch.Generator().manual_seed(0))
    return made.burst, Motion(made.flow_px, torch.ones_like(made.burst.exposure))


@pytest.mark.parametrize(
    "network",
    [
        HdrDsp(HdrDspConfig(features=8, encoder_blocks=1, decoder_blocks=1)),
        OnSolver(OnSolverConfig(features=8, proposal_blocks=1, verdict_blocks=1)),
    ],
    ids=["hdr_dsp", "on_solver"],
)
@pytest.mark.parametrize("spoil", [torch.nan, None], ids=["nan", "noise"])
def test_self_supervised_training_cannot_see_the_reference(
    spoil: float | None, network: Network, moved: tuple[Burst, Motion]
) -> None:
    """Whatever its pixels are, the prediction is the same bits; only what it must meet differs."""
    burst, motion = moved
    torch.manual_seed(3)
    other = burst.frames.clone()
    other[:, 0] = torch.rand_like(other[:, 0]) if spoil is None else spoil
    spoilt, tau = dataclasses.replace(burst, frames=other), torch.tensor([[1, 0], [0, 1]])

    def predicted(case: Burst) -> Posterior:
        return network.conclude(without_reference(network, case, motion, tau).given)

    with torch.no_grad():
        plain, blind = predicted(burst), predicted(spoilt)
        fed, seeing = (network(case, motion.shifted(tau, 2)) for case in (burst, spoilt))
    for name in ("mean", "var"):
        one, other_one, whole, other_whole = (
            getattr(posterior, name) for posterior in (plain, blind, fed, seeing)
        )
        assert bool(torch.isfinite(one).all())
        assert torch.equal(one, other_one)
        assert not torch.equal(whole, other_whole)  # twin: fed with the reference
    target = without_reference(network, spoilt, motion, tau).target
    assert target is not None
    assert torch.equal(target.frames[:, 0].nan_to_num(), other[:, 0].nan_to_num())


@pytest.mark.parametrize("value", [torch.nan, 1e6])
def test_a_loss_gone_wrong_stops_with_the_last_good_checkpoint(
    value: float, images: Path, tmp_path: Path, monkeypatch
) -> None:
    from pushframe.train import step as module

    count, original = [0], module.batch_loss

    def broken(*args: object) -> Tensor:
        count[0] += 1
        loss = original(*args)
        return loss + value if count[0] >= 5 else loss

    monkeypatch.setattr(module, "batch_loss", broken)
    with pytest.raises(
        TrainingError, match=r"expected a loss .* at step 6: lower .*step 3.*resume"
    ):
        train(config(images), tmp_path / "run")
    assert read_state(tmp_path / "run")[0].step == 3
    weights = load_file(tmp_path / "run" / NAME)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def test_a_full_disk_loses_nothing(images: Path, tmp_path: Path, monkeypatch) -> None:
    original, room = checkpoint.save, [2]  # that of the start, and the first one

    def full(tensors: dict, metadata: dict) -> bytes:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        return original(tensors, metadata)

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(FileError, match="No space left on device"):
        train(config(images), tmp_path / "run")
    monkeypatch.undo()
    assert read_state(tmp_path / "run")[0].step == 3
    train(config(images), tmp_path / "run", resume=True)
    train(config(images), tmp_path / "whole")
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_damaged_checkpoint_is_named(images: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="start without --resume"):
        train(config(images), tmp_path / "run", resume=True)
    train(config(images), tmp_path / "run")
    path = tmp_path / "run" / NAME
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FileError, match=r"checkpoint\.safetensors: expected a checkpoint"):
        train(config(images), tmp_path / "run", resume=True)


def test_another_network_does_not_resume(images: Path, tmp_path: Path) -> None:
    train(config(images), tmp_path / "run")
    with pytest.raises(FileError, match="network of this configuration"):
        train(config(images, model__features=5), tmp_path / "run", resume=True)


def test_it_learns_and_says_what_it_did(images: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    told: list[float] = []
    train(
        config(images, schedule__steps=60, data__batch=4, log_every=20, validate_every=60),
        run,
        on_log=lambda _, share: told.append(share),
    )
    curve = [loss for _, loss in losses(run)]
    assert curve[-1] < curve[0] - 0.3
    assert told[-1] == 1
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert {"loss", "samples_per_s", "learning_rate", "gradient_norm", "minutes"} < set(lines[0])
    wanted = {"psnr_db", "nll", "calibration_error", "mean_z2", "flow_rmse_px"}
    assert set(lines[-1]["validation"]["paper:3"]) == wanted
    network, card = load_weights(run / "weights.safetensors", scale=2)
    assert card["steps"] == 60
    assert card["trained_on"]["held_out_groups"] == ["scene2"]
    assert card["validation"] == lines[-1]["validation"]
    averaged = load_file(run / NAME)
    assert torch.equal(network.head.bias, averaged["average.head.bias"])
    assert not torch.equal(network.head.bias, averaged["network.head.bias"])


def test_a_schedule_by_minutes_counts_over_parts(images: Path, tmp_path: Path) -> None:
    long = config(images, schedule__steps=0, schedule__minutes=1e-4)
    state = train(long, tmp_path / "run")
    assert state.progress.seconds >= 60e-4
    before = state.progress.step
    assert train(long, tmp_path / "run", resume=True).progress.step == before  # it is done


def test_the_rate_rises_then_falls_to_zero() -> None:
    schedule = ScheduleConfig(steps=100, learning_rate=1.0, warmup=0.1)
    rates = [schedule.rate(share / 100) for share in range(101)]
    assert max(rates) == pytest.approx(1.0)
    assert rates.index(max(rates)) == 10
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0, abs=1e-9)


@pytest.fixture
def bursts(tmp_path: Path, images: Path) -> Path:
    setting = with_options(PRESETS["paper"], size=24, frames=4)
    for k in range(3):
        scene = torch.from_numpy(np.load(images / f"scene{k}.npy"))[:72, :72] / 3400
        write_burst(simulate_one(scene, setting, k).burst, tmp_path / "bursts" / f"b{k}.npz")
    return tmp_path / "bursts"


def test_bursts_without_truth_are_enough(bursts: Path, images: Path, tmp_path: Path) -> None:
    only = {"data__images": "", "data__bursts": str(bursts), "data__validation_groups": ["b2"]}
    train(config(images, **only), tmp_path / "run")
    lines = [json.loads(x) for x in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert set(lines[-1]["validation"]["held_out"]) == {"nll"}


def test_an_unreadable_burst_is_named_and_skipped_only_if_told(
    bursts: Path, images: Path, tmp_path: Path
) -> None:
    (bursts / "b1.npz").write_bytes(b"PK broken")
    only = {"data__images": "", "data__bursts": str(bursts), "data__validation_groups": []}
    with pytest.raises(FileError, match=r"b1\.npz"):
        train(config(images, **only), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    state = train(config(images, **only), tmp_path / "run", skip_bad=True)
    assert state.progress.step == 8
    lines = [json.loads(x) for x in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0
    assert "b1.npz was left out: " in "".join(lines[0]["left_out"])
    assert [line for line in lines[1:] if "left_out" in line] == []
    for name in ("b0", "b2"):
        (bursts / f"{name}.npz").unlink()
    with pytest.raises(FileError, match=r"got none in .*bursts; b1\.npz was left out: "):
        train(config(images, **only), tmp_path / "none", skip_bad=True)


def test_drifting_bursts_are_registered_as_such(images: Path) -> None:
    """Taken for translations they would teach a blur; what is made ready of them is finite."""
    drifting = {"paper": 1.0, "drifting": 1.0, "bend_px": [0.4, 0.4]}
    wanted = {f"data__mixture__{name}": value for name, value in drifting.items()}
    setting = config(images, data__batch=1, data__size=32, data__frames=[8, 8], **wanted)
    network = OnSolver(OnSolverConfig(features=8, proposal_blocks=1, verdict_blocks=1))
    stream = ImageStream([np.load(images / "scene0.npy")], setting.data, 2, 0, "cpu")
    batch = stream.batch(0, 0)
    assert batch.bends
    assert batch.flow_px is not None

    def error_px(flow_px: Tensor) -> float:
        wide = flow_px if flow_px.ndim == 5 else flow_px[..., None, None]
        return float((wide - batch.flow_px)[:, 1:].square().mean().sqrt())

    _, bent = registered(network, batch, "translations")
    _, rigid = registered(network, batch._replace(bends=False), "translations")
    assert error_px(bent.flow_px) < 0.3 * error_px(rigid.flow_px)
    config_of = dataclasses.replace(setting, network="on_solver", motion="translations")
    loss = loss_of(network, make_ready(network, batch, config_of), setting.loss)
    assert bool(torch.isfinite(loss))


@pytest.mark.parametrize("kind", ["self_supervised", "supervised"])
def test_a_burst_whose_motion_was_lost_teaches_nothing(kind: str, images: Path) -> None:
    """The loss and its gradient are those of the other bursts alone."""
    setting = config(images, data__batch=3, loss__kind=kind, motion="true")
    network = HdrDsp(setting.model)
    stream = ImageStream([np.load(images / "scene0.npy")], setting.data, 2, 0, "cpu")
    slopes = []
    for spoil in (torch.nan, 50.0):  # whatever is there
        batch = stream.batch(0, 0)
        burst, motion = batch.burst, Motion(batch.flow_px, torch.ones_like(batch.burst.exposure))
        motion.gain[1] = torch.nan
        motion.flow_px[1] = spoil
        burst, motion = without_lost(burst, motion)
        assert not bool(burst.valid[1].any())
        assert bool(burst.valid[::2].all())
        tau = torch.zeros(3, 2, dtype=torch.long)
        if kind == "supervised":
            seen = torch.tensor([True, False, True])
            loss = supervised_nll(network(burst, motion), batch.truth, seen=seen)
            pair = network(burst, motion)
            alone = Posterior(pair.mean[::2], pair.var[::2])
            assert torch.allclose(loss, supervised_nll(alone, batch.truth[::2]))
        else:
            loss = reference_loss(network, burst, motion, tau, setting.loss)
        network.zero_grad()
        loss.backward()
        slopes.append(network.head.weight.grad.clone())
    assert bool(torch.isfinite(slopes[0]).all())
    assert torch.equal(*slopes)
