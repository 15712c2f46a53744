"""`pushframe train` as a user meets it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from training import settings, write_images
from typer.testing import CliRunner

from pushframe.cli import app, main
from pushframe.train.checkpoint import read_state
from pushframe.train.step import Desk


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "own.toml").write_text("[schedule]\nsteps = 4\n")
    changes = [f"--set={x}" for x in settings(write_images(tmp_path / "images"), schedule__steps=4)]
    return [
        "train",
        "--config",
        str(tmp_path / "own.toml"),
        "--out",
        str(tmp_path / "run"),
        *changes,
    ]


def refused(capsys: pytest.CaptureFixture, monkeypatch, words: list[str]) -> str:
    """Standard error of a command that must be refused with one line and exit code 2."""
    monkeypatch.setattr(sys, "argv", ["pushframe", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("error:")
    assert "Traceback" not in said
    return said


def test_it_trains_and_the_weights_serve(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.startswith("done: ")
    assert "step 4" in done.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoint.safetensors",
        "log.jsonl",
        "weights.safetensors",
    ]
    weights = str(tmp_path / "run" / "weights.safetensors")
    small = ["--size", "16", "--frames", "3", "--border", "4"]
    both = ["--methods", f"shift_and_add,{weights}"]
    told = CliRunner().invoke(
        app, ["evaluate", "scene:3", "--out", str(tmp_path / "out"), *both, *small]
    )
    assert told.exit_code == 0, (told.output, told.exception)
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert found["methods"][weights]["all"]["psnr_db"] > 10
    assert CliRunner().invoke(app, ["train", "--help"]).stdout.count("pushframe train") >= 2


def test_parts_and_resume(words: list[str], tmp_path: Path, capsys, monkeypatch) -> None:
    part = CliRunner().invoke(app, [*words, "--stop-after-minutes", "0"])
    assert part.stdout.startswith("stopped at step 1, go on with --resume: ")
    assert "choose another --out, or go on with --resume" in refused(capsys, monkeypatch, words)
    other = [*words, "--resume", "--set=seed=5"]
    assert "expected seed = 0 as the run was started with, got 5" in refused(
        capsys, monkeypatch, other
    )
    longer = [*words, "--resume", "--set=schedule.steps=5", "--json"]
    told = json.loads(CliRunner().invoke(app, longer).stdout)
    assert (told["done"], told["step"]) == (True, 5)
    assert Path(told["weights"]).exists()
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--set=schedule.stepz=3"], "did you mean 'steps'?"),
        (["--set=data.size=1000"], "at least 2024x2024 px, got 96x96 at most"),
        (["--set=data.images=nowhere"], "expected a folder of images, got nowhere"),
        (["--set=network=resnet"], "error: expected a network of hdr_dsp"),
        (["--set=model.features=100000000"], "model.features = 100000000, got less ("),
        (["--resume"], "start without --resume"),
        (["--device=tpu"], "expected a device of this machine"),
        (["--config=none.toml"], "expected a TOML file, got none.toml"),
    ],
)
def test_mistakes_are_one_line(
    change: list[str], message: str, words: list[str], capsys, monkeypatch, tmp_path: Path
) -> None:
    assert message in refused(capsys, monkeypatch, [*words, *change])
    assert not (tmp_path / "run").exists()


def test_a_file_with_a_wrong_key_is_named(words: list[str], capsys, monkeypatch, tmp_path) -> None:
    own = tmp_path / "own.toml"
    for text, said in (("[schedule]\nstepz = 4", "got 'schedule.stepz'"), ('network = "r"', "'r'")):
        own.write_text(f"{text}\n")
        told = refused(capsys, monkeypatch, words)
        assert told.startswith(f"error: {own}: expected ")
        assert said in told


def test_a_batch_beyond_all_memory_is_one_line(words: list[str], capsys, monkeypatch) -> None:
    told = refused(capsys, monkeypatch, [*words, f"--set=data.batch={10**12}"])
    assert f"memory enough for data.batch = {10**12}, data.pool = 1, data.size = 16, " in told
    assert re.search(r"data.frames = \[\d+, \d+\] and model.features = \d+, got less", told)
    assert "(Unable to allocate " in told
    assert told.endswith("lower one of them, for a new folder")


def test_a_gpu_that_is_full_leaves_the_last_checkpoint(
    words: list[str], capsys, monkeypatch, tmp_path: Path
) -> None:
    """Raised as torch would; a RuntimeError of another kind stays what it is."""
    original, errors = Desk.loss, [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")]

    def full(self: Desk, step: int, shard: int) -> torch.Tensor:
        if step == 3:
            raise errors[0]
        return original(self, step, shard)

    monkeypatch.setattr(Desk, "loss", full)
    words = [*words, "--set=log_every=9"]
    told = refused(capsys, monkeypatch, words)
    assert "got less (CUDA out of memory. Tried to allocate): lower one of them" in told
    run = tmp_path / "run"
    assert told.endswith(
        f"the checkpoint of step 3 in {run} is good, go on from it with --resume where there is "
        "more memory"
    )
    errors[0] = RuntimeError("shapes do not match")
    done = CliRunner().invoke(app, [*words, "--resume"])
    assert done.exception is errors[0]
    monkeypatch.undo()
    assert CliRunner().invoke(app, [*words, "--resume"]).exit_code == 0
    assert read_state(run)[0].step == 4


def test_what_is_left_out_is_said(words: list[str], tmp_path: Path) -> None:
    """On stderr, in the log, and as JSON; and nothing where nothing was."""
    spoilt = tmp_path / "images" / "scene1.npy"
    pixels = np.load(spoilt)
    pixels[3, 4] = np.nan
    np.save(spoilt, pixels)
    assert CliRunner().invoke(app, words).exit_code == 1  # BurstError, 2 for `main`
    done = CliRunner().invoke(app, [*words, "--skip-bad", "--json"])
    assert done.exit_code == 0, done.exception
    (said,) = json.loads(done.stdout)["left_out"]
    assert said.startswith("scene1.npy was left out: expected ")
    assert "without nodata, got 1 such pixels" in said
    assert done.stderr.count(f"note: {said}") == 1
    first = (tmp_path / "run" / "log.jsonl").read_text().splitlines()[0]
    assert json.loads(first) == {"step": 0, "left_out": [said]}
    spoilt.unlink()
    whole = CliRunner().invoke(app, [*words, "--skip-bad", "--json", "--resume"])
    assert json.loads(whole.stdout)["left_out"] == []
    assert "note:" not in whole.stderr
