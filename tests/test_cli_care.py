"""What the commands leave behind and say when something is in the way."""

from __future__ import annotations

import ast
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import sources
from test_cli import SMALL, refused, run
from typer.testing import CliRunner

import pushframe
from pushframe import io, write_burst
from pushframe.cli import app, demo, evaluate, simulate
from pushframe.deliver import Order
from pushframe.errors import FileError, UsageError
from pushframe.methods import METHODS
from pushframe.orders import plan_orders
from pushframe.simulate import PRESETS, simulate_one, with_options
from pushframe.sources import find_bursts


@pytest.fixture
def burst(tmp_path: Path) -> Path:
    """One small burst with truth, alone in a folder."""
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 1)
    return tmp_path / "b" / "scene_3_0000.npz"


def rewritten(path: Path, to: Path, **change: object) -> Path:
    """A burst file with some keys changed; None leaves a key out."""
    with np.load(path) as data:
        held = {**data, **change}
    np.savez(to, **{key: value for key, value in held.items() if value is not None})
    return to


def failing(error: BaseException, after: int = 0):
    """A stand-in for a writer that fails at its call number `after`, and writes before that."""
    calls = []

    def write(made, path: Path, **rest: object) -> None:
        calls.append(path)
        if len(calls) > after:
            raise error
        io.write_burst(made, path, **rest)

    return write


@contextmanager
def careless(path: Path) -> Iterator[Path]:
    """The twin of `atomic_files`: writes straight into the folder."""
    path.mkdir(exist_ok=True)
    yield path


MANY = ["simulate", "scene:1", *SMALL, "--count", "4", "--out"]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (FileError("expected space, got none: make room"), 2, "make room"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
    ],
)
def test_simulate_leaves_all_bursts_or_none(
    error: BaseException, code: int, said: str, exists: bool, tmp_path: Path, capsys, monkeypatch
) -> None:
    out = tmp_path / "bursts"
    if exists:
        out.mkdir()
    monkeypatch.setattr(simulate, "write_burst", failing(error, after=2))
    stopped, err = refused(capsys, monkeypatch, *MANY, out)
    assert stopped == code
    assert said in err
    assert err.count("\n") == 1
    assert [p for p in tmp_path.rglob("*") if p != out] == []
    assert out.exists() == exists
    monkeypatch.setattr(simulate, "write_burst", failing(error, after=2))
    monkeypatch.setattr(simulate, "atomic_files", careless)
    refused(capsys, monkeypatch, *MANY, out)
    assert len(list(out.iterdir())) == 2  # what the twin leaves


def test_simulate_fills_the_very_folder_it_was_given(tmp_path: Path) -> None:
    """A mount, or the folder somebody stands in, cannot be exchanged for another."""
    before = tmp_path.stat().st_ino
    run(*MANY, tmp_path, "--format", "folder")
    assert tmp_path.stat().st_ino == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"scene_1_{k:04d}" for k in range(4)]
    assert io.read_simulated(tmp_path / "scene_1_0003").truth.shape == (48, 48)


def test_a_full_disk_is_told_of_the_folder_that_was_asked_for(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    def full(_: object, path: Path, **__: object) -> None:
        with io.atomic_path(path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(simulate, "write_burst", full)
    code, err = refused(capsys, monkeypatch, *MANY, tmp_path / "bursts")
    assert code == 2
    assert f"{tmp_path / 'bursts' / 'scene_1_0000.npz'}: expected a place" in err
    assert ".pushframe-" not in err


def test_simulate_says_so_in_its_help() -> None:
    assert "leaves nothing" in " ".join(run("simulate", "--help").split())


@pytest.mark.parametrize("module", [evaluate, demo])
def test_ctrl_c_is_one_line_and_130(module, tmp_path: Path, capsys, monkeypatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    name = module.__name__.rpartition(".")[2]
    monkeypatch.setattr(module, "write_json", stop)
    paths = ["scene:1"] if module is evaluate else []
    options = ["--methods", "bicubic"] if module is evaluate else []
    code, err = refused(
        capsys, monkeypatch, name, *paths, "--out", tmp_path / "out", *SMALL, *options
    )
    assert code == 130
    assert err.splitlines() == ["error: stopped by Ctrl-C; nothing half-written was left"]
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_output_is_refused_before_any_work(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr(evaluate, "evaluate", work)
    monkeypatch.setattr(evaluate, "find_bursts", work)
    (tmp_path / "coverage.png").mkdir()
    (tmp_path / "evaluation.json").write_text("old")
    code, err = refused(capsys, monkeypatch, "evaluate", "scene:1", "--out", tmp_path)
    assert code == 2
    assert "coverage.png: expected a file to write, got a folder" in err
    assert (tmp_path / "evaluation.json").read_text() == "old"
    monkeypatch.setattr("pushframe.cli.run.deliver", work)
    (tmp_path / "p.tif").mkdir()
    code, err = refused(capsys, monkeypatch, "run", "b.npz", "--out", tmp_path / "p.tif")
    assert code == 2
    assert "got a folder" in err


def test_evaluate_writes_all_files_or_none(tmp_path: Path, capsys, monkeypatch) -> None:
    out, options = tmp_path / "out", [*SMALL, "--methods", "bicubic"]
    run("evaluate", "scene:1", "--out", out, *options)
    (out / "note.txt").write_text("mine")
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def fail(*_: object) -> None:
        raise FileError("expected a figure, got none: try again")

    monkeypatch.setattr(evaluate, "coverage_png", fail)
    code, _ = refused(capsys, monkeypatch, "evaluate", "scene:2", "--out", out, *options)
    assert code == 2
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    monkeypatch.undo()
    run("evaluate", "scene:2", "--out", out, *options)
    after = {p.name: p.read_bytes() for p in out.iterdir()}
    assert set(after) == set(before)
    assert after["evaluation.json"] != before["evaluation.json"]
    assert after["note.txt"] == b"mine"


def test_evaluate_estimates_an_unknown_noise_law_as_run_does(
    burst: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    blind = rewritten(burst, tmp_path / "blind.npz", noise_a=None, noise_b=None)
    methods = ["--methods", "bicubic,shift_and_add", "--json"]
    result = json.loads(run("evaluate", blind, "-o", tmp_path / "e", *methods))
    said = json.loads(run("run", blind, "-o", tmp_path / "p.npz", "--json"))["notes"]
    assert len(result["notes"]) == 1
    name, _, note = result["notes"][0].partition(": ")
    assert name == "blind.npz"
    assert note.startswith("The noise law var = ")
    assert note in said
    stated = json.loads(run("evaluate", burst, "-o", tmp_path / "e", *methods))
    assert stated["notes"] == []
    assert stated["methods"]["shift_and_add"] != result["methods"]["shift_and_add"]
    assert stated["methods"]["bicubic"] == result["methods"]["bicubic"]
    plain = run("evaluate", blind, "-o", tmp_path / "e", "--methods", "bicubic", "--json")
    assert json.loads(plain)["notes"] == []  # not needed, not estimated
    with np.load(blind) as data:
        two = {"frames": data["frames"][:2], "exposure": data["exposure"][:2]}
    few = rewritten(blind, tmp_path / "few.npz", **two, flow_px=None)
    code, err = refused(capsys, monkeypatch, "evaluate", few, "-o", tmp_path / "f")
    assert code == 2
    assert "few.npz: expected at least 3 frames to estimate their noise from" in err


def test_every_method_takes_a_known_flow_for_every_pixel() -> None:
    setting = with_options(PRESETS["paper"], size=12, frames=3, motion="drift")
    made = simulate_one(sources(setting, 1)[0], setting, 0)
    for name in METHODS.keys() - {"map_sampled"}:  # slow, and takes what `map` takes
        posterior = METHODS[name].run(made.burst.batched(), 2, made.flow_px[None]).posterior
        assert posterior.mean.shape == (1, 24, 24), name


@pytest.mark.parametrize(
    "option",
    ["--scale 2", "--preset paper", "--frames 4", "--size 24", "--seed 0", "--set psf_hpx=1"],
)
def test_options_of_the_simulator_are_refused_for_bursts(
    option: str, burst: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    for path in (burst, burst.parent):
        words = ["evaluate", path, "-o", tmp_path / "o", *option.split()]
        code, err = refused(capsys, monkeypatch, *words)
        assert code == 2
        assert f"with {option.split()[0]}, got bursts" in err
        assert not (tmp_path / "o").exists()


def test_a_truncated_burst_is_called_one(burst: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "cut.npz").write_bytes(burst.read_bytes()[:500])
    code, err = refused(
        capsys, monkeypatch, "evaluate", tmp_path / "cut.npz", "-o", tmp_path / "out"
    )
    assert code == 2
    assert "cut.npz: expected a burst in an .npz archive, got a damaged or truncated one" in err


def names_functions(source: str) -> list[str]:
    """Texts of errors that name a function of ours, which a user of the commands has never met."""
    found = []
    for call in ast.walk(ast.parse(source)):
        name = getattr(getattr(call, "func", None), "id", "")
        if name == "require" or name.endswith("Error"):
            texts = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant)]
            found += [t for t in texts if isinstance(t, str) and any(f in t for f in io.__all__)]
    return found


def test_suffixes_in_capitals_are_suffixes(burst: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    write_burst(io.read_burst(burst), folder / "good.npz")
    (folder / "CUT.NPZ").write_bytes(burst.read_bytes()[:500])  # to be named, not passed over
    assert [path.name for path in find_bursts(str(folder))] == ["CUT.NPZ", "good.npz"]
    (folder / "CUT.NPZ").unlink()
    (folder / "SCENE.NPY").write_bytes(b"")
    with pytest.raises(UsageError, match=r"got both \(SCENE.NPY, good.npz\)"):
        find_bursts(str(folder))


def test_messages_name_commands_not_functions() -> None:
    for path in Path(pushframe.__file__).parent.rglob("*.py"):
        assert names_functions(path.read_text()) == [], path
    assert names_functions('raise BurstError("got none: use read_burst")')
    assert names_functions('require(ok, "a", f"b{c}", "see write_product", UsageError)')


def test_run_says_when_a_method_has_no_error_bar(burst: Path, tmp_path: Path) -> None:
    to = tmp_path / "p.tif"
    assert "mean and samples alone, by bicubic" in run(
        "run", burst, "-o", to, "--method", "bicubic"
    )
    assert "bicubic has no error bar" in io.read_product(to).provenance["notes"]
    said = json.loads(run("run", burst, "-o", to, "--method", "bicubic", "--json"))
    assert "bicubic has no error bar: std is NaN" in said["notes"]
    assert "mean, std and samples, by shift_and_add" in run(
        "run", burst, "-o", to, "--method", "shift_and_add"
    )
    assert "no error bar" not in io.read_product(to).provenance["notes"]


def test_validate_looks_at_truth_and_flow(burst: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    assert "truth of 48x48, scale 2" in run("validate", burst)
    plain = rewritten(burst, tmp_path / "plain.npz", truth=None, flow_px=None)
    assert "truth" not in run("validate", plain)
    spoilt = {
        "truth": {"truth": np.ones((47, 48))},
        "flow_px": {"flow_px": np.zeros((3, 2))},
        "flow_px of": {"truth": None, "flow_px": np.zeros((4, 2, 5, 5))},
    }
    for word, change in spoilt.items():
        bad = rewritten(burst, tmp_path / "bad.npz", **change)
        monkeypatch.setattr("sys.argv", ["pushframe", "validate", str(bad)])
        with pytest.raises(SystemExit) as stop:
            pushframe.cli.main()
        assert stop.value.code == 1
        assert word in capsys.readouterr().out
    run("simulate", "scene:3", "-o", tmp_path / "f", *SMALL, "--count", 1, "--format", "folder")
    (tmp_path / "f" / "scene_3_0000" / "truth.tif").unlink()
    code, err = refused(capsys, monkeypatch, "validate", tmp_path / "f" / "scene_3_0000")
    assert code == 2
    assert "truth.tif" in err


def test_one_is_singular(tmp_path: Path) -> None:
    one = ["--size", "24", "--frames", "1"]
    said = run("simulate", "scene:3", "-o", tmp_path / "b", *one, "--count", 1)
    assert said.startswith("1 burst of 1 frame in ")
    path = tmp_path / "b" / "scene_3_0000.npz"
    alone = CliRunner().invoke(app, ["validate", str(path)])  # nothing to gain from one frame
    assert (alone.exit_code, "1 frame of 24x24" in alone.stdout) == (1, True)
    run("evaluate", path, "-o", tmp_path / "e", "--methods", "bicubic")
    assert "\n1 burst of 1 image, 1 frame, " in (tmp_path / "e" / "tables.md").read_text()


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A folder of four TIFF frames with its side-car; one frame is a link."""
    home = tmp_path / "frames"
    setting = with_options(PRESETS["paper"], size=16, frames=4)
    write_burst(simulate_one(sources(setting, 1)[0], setting, 0).burst, home)
    (tmp_path / "store.tif").write_bytes((home / "frame_01.tif").read_bytes())
    (home / "frame_01.tif").unlink()
    (home / "frame_01.tif").symlink_to(tmp_path / "store.tif")
    return home


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("bursts", "out", "got"),
    [
        (["frames"], "frames/frame_00.tif", "one of its files"),
        (["frames"], "store.tif", "one of its files"),
        (["frames"], "frames/sharp.tif", "a file in its folder"),
        (["frames"], "link/sharp.npz", "a file in its folder"),
        (["frames"], "frames/new/sharp.tif", "a file in its folder"),
        (["frames", "stack.tif"], "frames", "a file in its folder"),
        (["frames", "stack.tif"], ".", "one of its files"),
        (["stack.tif"], "stack.tif", "one of its files"),
        (["stack.toml"], "stack.tif", "one of its files"),
        (["stack.tif"], "mask.tif", "one of its files"),
        (["stack.tif"], "page.tif", "one of its files"),
    ],
)
def test_no_output_takes_the_place_of_an_input(
    bursts: list[str], out: str, got: str, listed: bool, frames: Path, capsys, monkeypatch
) -> None:
    place = frames.parent
    monkeypatch.chdir(place)
    write_burst(io.read_burst(frames), place / "stack.tif")
    if not listed:
        (frames / "burst.toml").unlink()
    (place / "link").symlink_to(frames)
    (place / "mask.tif").write_bytes((place / "store.tif").read_bytes())
    with (place / "stack.toml").open("a") as side:
        side.write('valid = "mask.tif"\n')
    (place / "page.html").symlink_to(place / "mask.tif")  # where the report would go
    before = contents(place)
    code, err = refused(capsys, monkeypatch, "run", *bursts, "--out", out)
    assert code == 2
    assert "expected --out other than the burst" in err
    assert f"got {got}" in err
    assert contents(place) == before
    assert not (frames / "new").exists()


def test_an_output_may_lie_beside_its_burst(frames: Path) -> None:
    write_burst(io.read_burst(frames), frames / "inner" / "stack.tif")
    (frames / "inner" / "burst.toml").write_text('frames = "stack.tif"\n')
    for burst, product in (
        (frames, frames.parent / "frames.tif"),
        (frames / "inner" / "stack.tif", frames / "inner" / "sharp.tif"),
        (frames / "inner" / "burst.toml", frames / "inner" / "sharp.tif"),
    ):
        (order,) = plan_orders([burst], Order(burst, product), product)
        assert order.product == product


@pytest.mark.parametrize("product", ["sharp.tif", "sharp.npz"])
def test_a_run_removes_what_a_killed_one_left(product: str, burst: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os; print(os.getpid())"]
    gone = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    draft = tmp_path / "to" / f".pushframe-{socket.gethostname()}-{gone}-0123456789ab"
    draft.mkdir(parents=True)
    (draft / product).write_text("half")
    run("run", burst, "--out", tmp_path / "to" / product, "--no-report", "--method", "bicubic")
    assert (tmp_path / "to" / product).is_file()
    assert not draft.exists()
