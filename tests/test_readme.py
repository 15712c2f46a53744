"""The README stays true: its example runs, its commands parse, its pictures are there."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import sources
from test_docs import blocks, parse_commands

from pushframe.cli import app
from pushframe.io import read_product, write_burst
from pushframe.simulate import preset, simulate_one, with_options

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text()


def pictures(text: str) -> list[Path]:
    """The files of all images of a page."""
    return [
        ROOT / "".join(m)
        for m in re.findall(r"!\[[^]]*\]\(([^)]+)\)|<img[^>]+src=\"([^\"]+)", text)
    ]


def is_png(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(b"\x89PNG\r\n")


def run_example(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Run the Python of a page in `folder`, beside a small demo/burst.npz; its variables."""
    setting = with_options(preset("paper"), size=16, frames=4)
    made = simulate_one(sources(setting, 1)[0], setting, 0)
    write_burst(made.burst, folder / "demo" / "burst.npz")
    monkeypatch.chdir(folder)
    space: dict = {}
    exec(blocks(text, "python"), space)
    return space


def test_the_python_example_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    space = run_example(TEXT, tmp_path, monkeypatch)
    assert capsys.readouterr().out == "(32, 32) (32, 32)\n"
    written = read_product(tmp_path / "sharp.tif")
    np.testing.assert_array_equal(written.mean, space["product"].mean)
    assert np.isfinite(written.std).all()


def test_every_command_is_shown_and_parses() -> None:
    assert parse_commands(TEXT) >= 8
    shown = set(re.findall(r"^pushframe (\w+)", blocks(TEXT, "bash"), re.M))
    assert shown >= {
        command.callback.__module__.rpartition(".")[2] for command in app.registered_commands
    }


def test_make_targets_exist() -> None:
    named = re.findall(r"^make (\w+)", blocks(TEXT, "bash"), re.M)
    assert named == ["demo", "test"]
    rules = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(named) <= set(rules)


def test_pictures_are_there() -> None:
    assert pictures(TEXT) == [ROOT / "docs/images/readme.png"]
    assert all(is_png(path) for path in pictures(TEXT))
    width, _ = struct.unpack(">II", pictures(TEXT)[0].read_bytes()[16:24])
    assert 1000 <= width <= 1600


def test_the_speed_is_that_of_the_benchmark() -> None:
    result = json.loads((ROOT / "benchmarks/results/simulator_cpu.json").read_text())
    rates = [row["bursts_per_s"] for row in result["speed"] if row["case"] == "paper"]
    stated = re.search(r"makes (\d+) to (\d+) such bursts a second", TEXT)
    assert stated
    assert [int(x) for x in stated.groups()] == [round(min(rates)), round(max(rates))]
    assert {"device", "threads", "torch", "commit"} <= set(result)
    assert all(row["noise_over_error"] > 20 for row in result["accuracy"])


def test_what_is_wrong_is_caught(tmp_path: Path, monkeypatch) -> None:
    assert not any(map(is_png, pictures('![a](docs/no.png) <img src="README.md">')))
    with pytest.raises(AttributeError, match="super_resolv"):
        run_example(TEXT.replace("super_resolve(", "super_resolv("), tmp_path, monkeypatch)
    with pytest.raises(Exception, match="metods"):
        parse_commands(TEXT.replace("--methods", "--metods"))
