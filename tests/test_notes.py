"""Notes: in the order of what they change, each on a line of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_brightness import brighter
from test_cli import refused, run
from test_validate import one
from typer.testing import CliRunner

from pushframe import read_burst, write_burst
from pushframe.cli import app
from pushframe.infer import ALONE
from pushframe.notes import in_order

CONSTANT, COPY, BRIGHT = (
    "b.tif is the reference instead.",
    "x was left out: copy.",
    "times as bright",
)


def test_what_changes_the_product_comes_first() -> None:
    rest = ["No white_level was given.", "3% of its pixels disagree and were left out."]
    dropped = "frame 2 disagrees with the others and was left out."
    noted = [rest[0], BRIGHT, dropped, rest[1], COPY, CONSTANT]
    assert in_order(noted) == (CONSTANT, dropped, COPY, BRIGHT, *rest)


def spoilt(path: Path) -> Path:
    """A constant reference, a copy, a wrong exposure, and levels that are not stated."""
    burst = brighter(one(), 3, 1.4)
    dn = burst.raw_dn().numpy()
    dn[0], dn[4] = 700.0, dn[1]
    np.savez(path, frames=dn, exposure=burst.exposure.numpy(), noise_a=0.0, noise_b=200.0)
    return path


@pytest.mark.parametrize("many", [False, True])
def test_another_reference_is_the_first_line_of_the_result(many: bool, tmp_path: Path) -> None:
    path = spoilt(tmp_path / "b.npz")
    to = ["-o", str(tmp_path / "out")] if many else ["-o", str(tmp_path / "p.npz")]
    done = CliRunner().invoke(app, ["run", str(path), *to, "--method", "solver", "--no-report"])
    assert done.exit_code == 0, done.output
    said = "frame 0 was left out: all its pixels are 700; frame 1 is the reference instead."
    if many:
        assert done.stdout.splitlines()[1] == f"b.npz: {said}"
        return
    assert done.stdout.splitlines()[0] == said
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert "frame 4 was left out: it is an exact copy" in notes[0]
    assert "frame 3 is 1.40 times as bright" in notes[1]
    assert notes[2].startswith("note: No white_level was given")
    assert said not in done.stderr


def test_a_burst_without_notes_prints_none(tmp_path: Path) -> None:
    write_burst(one(), tmp_path / "b.npz")
    assert read_burst(tmp_path / "b.npz").notes == ()
    to = str(tmp_path / "p.npz")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "b.npz"), "-o", to])
    assert done.exit_code == 0
    assert "note:" not in done.stderr


def test_a_single_frame_says_what_its_bars_rest_on(tmp_path: Path) -> None:
    for count in (1, 2):
        write_burst(one().select(list(range(count))), tmp_path / "b.npz")
        done = CliRunner().invoke(
            app, ["run", str(tmp_path / "b.npz"), "-o", str(tmp_path / "p.npz")]
        )
        assert done.exit_code == 0, done.output
        assert (f"note: {ALONE}" in done.stderr) == (count == 1)


def test_a_folder_that_is_made_is_said(tmp_path: Path) -> None:
    write_burst(one(), tmp_path / "b.npz")
    to = tmp_path / "products" / "here" / "p.npz"
    words = ["run", str(tmp_path / "b.npz"), "-o", str(to), "--method", "bicubic"]
    told = [CliRunner().invoke(app, words).stderr for _ in range(2)]
    assert [f"making the folder {to.parent}" in text for text in told] == [True, False]
    assert to.is_file()


def test_a_window_too_small_is_told_as_such(tmp_path: Path, capsys, monkeypatch) -> None:
    write_burst(one(), tmp_path / "b.npz")
    to = tmp_path / "p.npz"
    words = ("run", tmp_path / "b.npz", "-o", to, "--window")
    code, err = refused(capsys, monkeypatch, *words, "10,10,2,9")
    assert code == 2
    assert "a window of at least 8x8 px of the reference, got 2x9: choose a larger one" in err
    run(*words, "10,10,8,8", "--method", "shift_and_add")


@pytest.mark.parametrize("suffix", [".tif", ".npz"])
@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_product_is_no_burst(
    command: str, suffix: str, tmp_path: Path, capsys, monkeypatch
) -> None:
    pytest.importorskip("rasterio")
    write_burst(one(), tmp_path / f"b{suffix}")
    product = tmp_path / f"p{suffix}"
    run("run", tmp_path / f"b{suffix}", "-o", product, "--method", "bicubic", "--no-report")
    more = ["-o", tmp_path / "q.npz"] if command == "run" else []
    code, err = refused(capsys, monkeypatch, command, product, *more)
    assert code == 2
    assert f"p{suffix}: expected a burst, got a product of pushframe" in err
    assert "`pushframe info` describes a product" in err
    assert "bicubic" in run("info", product)
