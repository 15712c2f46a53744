"""Weights say what they come from: each part of a training, and which were averaged."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training import config, write_images
from typer.testing import CliRunner

from pushframe.cli import app
from pushframe.model import HdrDsp, HdrDspConfig
from pushframe.train import train
from pushframe.weights import (
    ancestry,
    digest,
    load_weights,
    read_card,
    save_weights,
    shipped_weights,
)

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import mean_of_weights  # noqa: E402

STEPS = (3, 2, 4)  # of parts that follow each other


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Weights of three parts, each started from those of the one before."""
    place = tmp_path_factory.mktemp("parts")
    images, files = write_images(place / "images"), [""]
    for number, steps in enumerate(STEPS):
        run = place / f"part{number}"
        own = {"schedule__steps": steps, "start": str(files[-1]), "seed": number}
        train(config(images, **own, validate_every=99), run)
        files.append(str(run / "weights.safetensors"))
    return [Path(file) for file in files[1:]]


def test_a_chain_of_parts_is_told_in_full(parts: list[Path]) -> None:
    first, second, third = (read_card(part) for part in parts)
    assert "started_from" not in first
    assert "ancestors" not in first
    known = third["ancestors"]
    assert [one["weights"] for one in known] == [digest(part) for part in parts[:2]]
    assert [one["name"] for one in known] == [str(part) for part in parts[:2]]
    assert [one.get("started_from") for one in known] == [None, digest(parts[0])]
    assert third["started_from"] == digest(parts[1])
    assert [one["steps"] for one in (*known, third)] == list(STEPS)
    assert [one["bursts"] for one in (*known, third)] == [2 * steps for steps in STEPS]
    for one, own in zip(known, (first, second), strict=True):
        for key in ("minutes", "trained_on", "config", "validation", "commit"):
            assert one[key] == own[key]


def test_a_run_that_goes_on_knows_what_it_started_from(parts: list[Path], tmp_path: Path) -> None:
    """Even if that file is gone; and its lineage is that of a run in one go."""
    copy = tmp_path / "start.safetensors"
    copy.write_bytes(parts[1].read_bytes())
    again = config(parts[0].parents[1] / "images", schedule__steps=2, start=str(copy))
    train(again, tmp_path / "run", stop_after_minutes=0)
    copy.unlink()
    train(again, tmp_path / "run", resume=True)
    card = read_card(tmp_path / "run" / "weights.safetensors")
    assert card["steps"] == 2
    assert card["started_from"] == digest(parts[1])
    wanted = [*read_card(parts[1])["ancestors"], ancestry(parts[1])[-1] | {"name": str(copy)}]
    assert card["ancestors"] == wanted


def test_bursts_of_a_pool_that_are_used_again_count_once() -> None:
    data = config(Path("images"), data__batch=8, data__parts=2, data__uses=3).data
    assert [data.different(steps) for steps in (0, 1, 2, 3, 6, 7, 8, 12)] == [
        *(0, 4, 8, 8, 8, 12, 16, 16)
    ]


def test_a_mean_says_of_which_files(parts: list[Path], tmp_path: Path) -> None:
    to, names = tmp_path / "mean.safetensors", [str(part) for part in parts[1:]]
    mean_of_weights.main([*names, "--out", str(to)])
    network, card = load_weights(to)
    states = [load_weights(name)[0].state_dict() for name in names]
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, (states[0][name] + states[1][name]) / 2)
        assert not torch.equal(states[0][name], states[1][name])
    assert card["mean_of"] == [digest(part) for part in parts[1:]]
    assert "steps" not in card
    assert "minutes" not in card
    known = card["ancestors"]  # the first two led to both files, and are told once
    assert [one["weights"] for one in known] == [digest(part) for part in parts]
    assert sum(one["steps"] for one in known) == sum(STEPS)
    assert card["trained_on"] == read_card(parts[0])["trained_on"]
    assert "config" not in card  # which differ
    mean_of_weights.main([*names, "--out", str(tmp_path / "half.safetensors"), "--half"])
    assert {x.dtype for x in load_file(tmp_path / "half.safetensors").values()} == {torch.float16}


def test_only_weights_of_one_network_are_averaged(
    parts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    other = tmp_path / "other.safetensors"
    save_weights(HdrDsp(HdrDspConfig(features=5, encoder_blocks=1, decoder_blocks=1)), other, {})
    to, one = tmp_path / "mean.safetensors", str(parts[0])
    for names, said in (
        ([one, str(other)], "expected weights of the network of"),
        ([one, "base"], "expected weights of the network of"),
        ([one, one], "expected two or more different weights"),
        ([one], "expected two or more different weights"),
        ([one, "none.safetensors"], "no such file"),
    ):
        with pytest.raises(SystemExit) as stop:
            mean_of_weights.main([*names, "--out", str(to)])
        assert stop.value.code == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert not to.exists()


def test_info_tells_a_lineage_in_lines(parts: list[Path], tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["info", str(parts[2])])
    assert shown.exit_code == 0, shown.exception
    known = [digest(part) for part in parts]
    for line in (
        f"{known[0]} ({parts[0]}): from random weights, 3 steps, ",
        f"{known[1]} ({parts[1]}): from {known[0]}, 2 steps, ",
        f"from {known[1]}, 4 steps, ",
        ", 8 bursts, self_supervised",
        "3 trainings, 9 steps, 0.0 minutes",
    ):
        assert line in shown.stdout
    assert "{" not in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["info", str(parts[2]), "--json"]).stdout)
    assert told["ancestors"] == read_card(parts[2])["ancestors"]
    mean_of_weights.main([*map(str, parts[1:]), "--out", str(tmp_path / "mean.safetensors")])
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "mean.safetensors")])
    assert f"ancestors.then              the mean of {known[1]} and {known[2]}\n" in shown.stdout
    assert "3 trainings, 9 steps" in shown.stdout


@pytest.mark.parametrize(("name", "averaged"), [("base", True), ("small", False)])
def test_the_shipped_weights_tell_all_their_parts(name: str, averaged: bool) -> None:
    """As docs/training.md does: minutes and steps of each, and what was averaged."""
    card, column = read_card(name), 1 if name == "base" else 2
    rows = (ROOT / "docs/training.md").read_text().splitlines()
    row = next(row for row in rows if row.startswith("| minutes of training"))
    stated = re.findall(r"([\d.]+), (\d+)", row.split("|")[1 + column])
    trained = [one for one in (*card["ancestors"], card) if "steps" in one]
    assert [one["steps"] for one in trained] == [int(steps) for _, steps in stated]
    assert [one["minutes"] for one in trained] == pytest.approx(
        [float(minutes) for minutes, _ in stated], abs=0.051
    )
    assert len(trained) == 7
    means = [one for one in (*card["ancestors"], card) if "mean_of" in one]
    assert len(means) == 1 + averaged
    assert ("mean_of" in card) == averaged
    known = [one["weights"] for one in card["ancestors"]]
    parents = [one.get("started_from") for one in trained[1:]]
    assert set(parents) | {x for one in means for x in one["mean_of"]} <= set(known)
    shown = CliRunner().invoke(app, ["info", name]).stdout
    assert "7 trainings, " in shown
    assert shipped_weights()[name].is_file()
    assert load_weights(name)[1] == card
