"""The command line as a user meets it: results, files, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pushframe import read_burst
from pushframe.cli import app, main
from pushframe.cli.info import OPTIONAL
from pushframe.io import read_product, read_simulated, write_burst, write_product
from pushframe.product import Product
from pushframe.scenes import procedural_scene

SMALL = ["--size", "24", "--frames", "4"]


def run(*arguments: object) -> str:
    """Standard output of a command that must succeed."""
    done = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="pushframe")
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refused(capsys: pytest.CaptureFixture, monkeypatch, *arguments: object) -> tuple[int, str]:
    """Exit code and standard error of a command through the real entry point."""
    monkeypatch.setattr(sys, "argv", ["pushframe", *(str(a) for a in arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, capsys.readouterr().err


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for seed in (1, 2):
        np.save(folder / f"town_{seed}.npy", procedural_scene((150, 150), seed))
    return folder


def test_help_teaches_by_example() -> None:
    assert "Exit codes: 0 good, 1 checked and not good, 2 wrong use" in run("--help")
    for command in ("demo", "run", "train", "simulate", "evaluate", "info", "validate"):
        text = run(command, "--help")
        assert f"pushframe {command}" in text
        assert "Examples" in text


def test_help_says_what_the_shipped_files_need_and_are_called() -> None:
    """The shipped configurations hold out groups that a user's images do not have."""
    assert "--set 'data.validation_groups=[" in run("train", "--help")
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", run("evaluate", "--help")).split())
    assert "or weights: base, small, or a .safetensors file" in words


@pytest.mark.parametrize(
    "words",
    [
        ["info", "none.npz"],
        ["validate", "none.npz"],
        ["run", "none.npz", "--out", "x.tif"],
        ["run", "none.npz", "--out", "x.tif", "--method", "nothing"],
        ["evaluate", "none", "--out", "x"],
        ["simulate", "none.npy", "--out", "x"],
        ["train", "--config", "none.toml", "--out", "x"],
        ["demo", "--frames", "0"],
        ["info", "--nothing"],
        ["run"],
        ["run", "x.npz"],
        ["demo", "--frames", "x"],
    ],
)
def test_errors_are_json_where_json_was_asked_for(
    words: list[str], tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in (["--json"], []):
        monkeypatch.setattr(sys, "argv", ["pushframe", *words, *more])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        told = capsys.readouterr()
        assert told.err
        if more:
            (error,) = json.loads(told.out).values()
            assert len(error) > 10
            assert list(json.loads(told.out)) == ["error"]
        else:
            assert told.out == ""


def test_version() -> None:
    assert run("--version").startswith("pushframe 0.")


def test_simulate_writes_bursts_with_truth(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "bursts"
    listed = json.loads(run("simulate", images, "--out", out, *SMALL, "--json"))["bursts"]
    assert len(listed) == 8  # four windows of 72 px an image
    assert sorted(map(str, out.iterdir())) == sorted(listed)
    made = read_simulated(Path(listed[0]))
    assert made.burst.frames.shape == (4, 24, 24)
    assert made.truth.shape == (48, 48)
    image = np.load(images / "town_1.npy")
    truth_dn = made.truth.numpy() * float(made.burst.white_level)
    np.testing.assert_allclose(truth_dn, image[12:60, 12:60], rtol=1e-5)


@pytest.mark.parametrize("kind", ["npz", "folder", "stack"])
def test_simulate_formats_hold_the_same_burst(kind: str, tmp_path: Path) -> None:
    for name, chosen in (("a", "npz"), ("b", kind)):
        run("simulate", "scene:3", "-o", tmp_path / name, *SMALL, "--format", chosen, "--count", 1)
    first = read_burst(tmp_path / "a" / "scene_3_0000.npz")
    other = next(p for p in sorted((tmp_path / "b").iterdir()) if p.suffix != ".toml")
    np.testing.assert_allclose(read_burst(other).frames, first.frames, rtol=1e-5)


def test_count_beyond_the_windows_draws_again(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", procedural_scene((72, 72), 4))
    out = tmp_path / "bursts"
    run("simulate", tmp_path / "one.npy", "-o", out, *SMALL, "--count", 3)
    made = [read_simulated(path) for path in sorted(out.iterdir())]
    assert len(made) == 3
    assert np.array_equal(made[0].truth, made[2].truth)
    assert not np.array_equal(made[0].burst.frames, made[2].burst.frames)


def test_evaluate_writes_its_three_files(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    methods = "bicubic,shift_and_add,map"
    run("evaluate", images, "--out", out, "--methods", methods, *SMALL)
    result = json.loads((out / "evaluation.json").read_text())
    assert result["schema"] == "pushframe-evaluation/1"
    assert (result["bursts"], result["frames"], result["scale"]) == (8, 4, 2)
    assert result["border_hpx"] == 8
    assert len(result["levels"]) == 99
    assert list(result["methods"]) == methods.split(",")
    expected = {"psnr_db", "psnr_pooled_db", "rmse", "rmse_per_burst", "v_rmse"}
    expected |= {"v_rmse_per_burst", "calibration_error", "calibration_error_per_burst"}
    expected |= {"coverage", "sharpness", "mean_z2", "nll", "crps", "flow_rmse_px"}
    for figures in result["methods"].values():
        assert expected <= set(figures["all"])
        assert len(figures["subgrids"]) == len(figures["subgrids"][0]) == 2
    psnr = [m["all"]["psnr_db"] for m in result["methods"].values()]
    assert psnr == sorted(psnr)
    assert result["methods"]["bicubic"]["all"]["calibration_error"] is None
    tables = (out / "tables.md").read_text()
    assert "## Table 1" in tables
    assert "## Table 2" in tables
    assert "| | bicubic | shift_and_add | map |" in tables
    assert (out / "coverage.png").read_bytes().startswith(b"\x89PNG")


def test_evaluating_images_equals_evaluating_their_bursts(images: Path, tmp_path: Path) -> None:
    options = ["--methods", "shift_and_add", "--json"]
    from_images = json.loads(run("evaluate", images, "-o", tmp_path / "a", *SMALL, *options))
    run("simulate", images, "--out", tmp_path / "bursts", *SMALL)
    from_files = json.loads(run("evaluate", tmp_path / "bursts", "-o", tmp_path / "b", *options))
    first, second = (r["methods"]["shift_and_add"]["all"] for r in (from_images, from_files))
    assert first["psnr_db"] == pytest.approx(second["psnr_db"], abs=1e-3)
    assert first["crps"] == pytest.approx(second["crps"], rel=1e-4)


def test_true_motion_helps(images: Path, tmp_path: Path) -> None:
    results = [
        json.loads(
            run(
                "evaluate",
                images,
                "-o",
                tmp_path,
                *SMALL,
                "--json",
                "--methods",
                "map",
                "--motion",
                motion,
            )
        )["methods"]["map"]["all"]
        for motion in ("true", "estimated")
    ]
    assert results[0]["flow_rmse_px"] == 0
    assert results[0]["psnr_db"] > results[1]["psnr_db"]


@pytest.mark.parametrize(
    ("options", "better"),
    [
        (["--scale", "3"], "map"),
        (["--scale", "3", "--motion", "true"], "map"),  # whole sub-grids of holes in shift-and-add
        (["--preset", "continuous"], "map"),
        (["--set", "motion=affine"], "shift_and_add"),
    ],
)
def test_other_scales_and_presets(options: list[str], better: str, tmp_path: Path) -> None:
    result = json.loads(run("evaluate", "scene:1", "-o", tmp_path, "--json", *SMALL, *options))
    psnr = {name: m["all"]["psnr_db"] for name, m in result["methods"].items()}
    assert psnr[better] > psnr["bicubic"]


def test_small_images_are_named_not_hidden(images: Path, tmp_path: Path) -> None:
    np.save(images / "tiny.npy", procedural_scene((40, 40), 3))
    result = json.loads(
        run("evaluate", images, "-o", tmp_path / "out", *SMALL, "--methods", "bicubic", "--json")
    )
    assert result["skipped"] == ["tiny.npy"]
    assert result["bursts"] == 8


def test_demo_leaves_a_product_and_a_page(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    result = json.loads(run("demo", "--out", out, "--size", 32, "--frames", 6, "--json"))
    assert {p.name for p in out.iterdir()} == {
        "burst.npz",
        "product.tif",
        "evaluation.json",
        "index.html",
    }
    product = read_product(out / "product.tif")
    assert product.mean.shape == (64, 64)
    assert np.isfinite(product.std).all()
    made = read_simulated(out / "burst.npz")
    truth_dn = made.truth.numpy() * float(made.burst.gain[0])
    error = (product.mean - truth_dn)[8:-8, 8:-8] / float(made.burst.gain[0])
    best = max(m["all"]["psnr_db"] for m in result["methods"].values())
    assert -10 * np.log10((error**2).mean()) == pytest.approx(best, abs=0.01)


def test_run_makes_a_product(tmp_path: Path) -> None:
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 1)
    burst = tmp_path / "b" / "scene_3_0000.npz"
    said = json.loads(run("run", burst, "--out", tmp_path / "sharp.tif", "--json"))
    assert said["size"] == [48, 48]
    assert said["method"] == "base"
    product = read_product(tmp_path / "sharp.tif")
    made = read_simulated(burst)
    gain = float(made.burst.gain[0])
    error = (product.mean / gain - made.truth.numpy())[8:-8, 8:-8]
    assert np.sqrt((error**2).mean()) < 0.04
    assert np.isfinite(product.std).all()
    run("run", burst, "--out", tmp_path / "plain.npz", "--method", "bicubic", "--scale", 3)
    assert read_product(tmp_path / "plain.npz").mean.shape == (72, 72)


def test_info_of_everything(images: Path, tmp_path: Path) -> None:
    run("demo", "--out", tmp_path, "--size", 24, "--frames", 3)
    assert json.loads(run("info", "--json"))["presets"] == ["paper", "affine", "continuous"]
    assert json.loads(run("info", tmp_path / "burst.npz", "--json"))["frames"] == 3
    assert json.loads(run("info", tmp_path / "product.tif", "--json"))["kind"] == "product"
    assert json.loads(run("info", images / "town_1.npy", "--json"))["size"] == [150, 150]
    assert "exposure" in run("info", tmp_path / "burst.npz")


def test_info_of_a_folder_names_its_bursts(tmp_path: Path, capsys, monkeypatch) -> None:
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 3)
    named = [str(tmp_path / "b" / f"scene_3_000{k}.npz") for k in range(3)]
    told = json.loads(run("info", tmp_path / "b", "--json"))
    assert told == {"kind": "folder of bursts", "holds": "3 bursts", "bursts": named}
    assert "3 bursts" in run("info", tmp_path / "b")
    for path in named[1:]:
        Path(path).unlink()
    alone = json.loads(run("info", tmp_path / "b", "--json"))
    assert (alone["kind"], alone["burst"], alone["frames"]) == ("burst", named[0], 4)
    (tmp_path / "nothing").mkdir()
    code, err = refused(capsys, monkeypatch, "info", tmp_path / "nothing")
    assert (code, "expected a burst or a folder of bursts, got neither" in err) == (2, True)


def test_info_of_a_large_product_reads_an_overview(tmp_path: Path) -> None:
    side = 2600
    ramp = np.broadcast_to(np.linspace(0, 1000, side, dtype=np.float32), (side, side))
    write_product(Product(ramp, 0 * ramp + 7, 0 * ramp + 3, 2), tmp_path / "p.tif")
    tracemalloc.start()
    told = json.loads(run("info", tmp_path / "p.tif", "--json"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ramp.nbytes  # a third of the product; NumPy's memory is traced
    assert told["size"] == [2600, 2600]
    assert told["median of mean, DN"] == pytest.approx(500, abs=2)
    assert (told["median of std, DN"], told["median of samples"]) == (7, 3)


def test_info_of_a_product_without_a_finite_pixel(tmp_path: Path) -> None:
    empty = np.full((8, 8), np.nan, np.float32)
    write_product(Product(empty, empty, empty, 2), tmp_path / "p.npz")
    told = json.loads(run("info", tmp_path / "p.npz", "--json"))
    assert told["median of mean, DN"] is told["median of samples"] is None
    assert re.search(r"median of mean, DN +unknown", run("info", tmp_path / "p.npz"))


def test_info_knows_every_optional_package() -> None:
    """Those of the extras, which `all` holds, by the names under which they are imported."""
    path = Path(__file__).parents[1] / "pyproject.toml"
    extras = tomllib.loads(path.read_text())["project"]["optional-dependencies"]
    asked = [word for name in extras if name not in ("all", "test") for word in extras[name]]
    names = {re.split(r"[><=]", word)[0].replace("pillow", "PIL") for word in asked}
    assert set(OPTIONAL) == names
    (everything,) = extras["all"]
    assert set(re.findall(r"\w+", everything)) == {"pushframe", *extras} - {"all", "test"}


@pytest.mark.parametrize("name", ["frames", "plain.tif", "pages.tif"])
def test_info_of_frames_without_a_side_car(name: str, tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 1)
    burst, path = read_burst(tmp_path / "b" / "scene_3_0000.npz"), tmp_path / name
    if name == "pages.tif":
        tifffile.imwrite(path, burst.raw_dn().numpy(), photometric="minisblack")
    else:
        write_burst(burst, path)
        (path / "burst.toml" if path.is_dir() else path.with_suffix(".toml")).unlink()
    told = json.loads(run("info", path, "--json"))
    assert (told["kind"], told["frames"]) == ("burst", burst.count)
    assert told["exposure"] is None
    assert "unknown" in run("info", path)


def test_info_of_a_single_band_is_an_image(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "image.tif", procedural_scene((40, 48), 1))
    assert json.loads(run("info", tmp_path / "image.tif", "--json"))["kind"] == "image"


def test_validate_good_bad_and_unreadable(tmp_path: Path, capsys, monkeypatch) -> None:
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 1)
    path = tmp_path / "b" / "scene_3_0000.npz"
    assert json.loads(run("validate", path, "--json"))["fit"] is True
    with np.load(path) as data:
        held = dict(data)
    np.savez(tmp_path / "bad.npz", **{**held, "exposure": [1, 0, 1, 1]})
    code, _ = refused(capsys, monkeypatch, "validate", tmp_path / "bad.npz")
    assert code == 1
    (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:500])
    code, err = refused(capsys, monkeypatch, "validate", tmp_path / "cut.npz")
    assert code == 2
    assert "cut.npz" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "nowhere", "--out", "x"], "no such file"),
        (["simulate", "scene:x", "--out", "x"], "scene:7"),
        (["simulate", "scene:1", "--out", "x", "--preset", "papr"], "preset of paper"),
        (["simulate", "scene:1", "--out", "x", "--scale", "5"], "scale of 2, 3, 4"),
        (["simulate", "scene:1", "--out", "x", "--set", "moton=drift"], "did you mean 'motion'"),
        (["simulate", "scene:1", "--out", "x", "--set", "white_level=0"], "white_level above 0"),
        (["simulate", "scene:1", "--out", "x", "--set", "white_level=-3.0"], "white_level above"),
        (["simulate", "scene:1", "--out", "x", "--set", "noise_std_dn=[18,5]"], "18 to 5"),
        (["simulate", "scene:1", "--out", "x", "--set", "noise_std_dn=[-1,5]"], "not negative"),
        (["evaluate", "scene:1", "--out", "x", "--set", "gamma=[1.4,1.2]"], "1.4 to 1.2"),
        (["simulate", "scene:1", "--out", "x", "--format", "zip"], "--format npz"),
        (["simulate", "scene:1", "--out", "x", "--count", "0"], "--count of at least 1"),
        (["evaluate", "scene:1", "--out", "x", "--methods", "bicubi"], "did you mean 'bicubic'"),
        (["evaluate", "scene:1", "--out", "x", "--methods", ","], "at least one method"),
        (["evaluate", "scene:1", "--out", "x", "--motion", "guess"], "estimated or true"),
        (["evaluate", "scene:1", "--out", "x", "--device", "cuda:7"], "device"),
        (["info", "nowhere.tif"], "no such file"),
        (["validate", "nowhere.npz"], "nowhere.npz"),
        (["demo", "--size", "2"], "size of at least 8"),
        (["run", "nowhere.npz", "--out", "x.tif"], "nowhere.npz"),
        (["run", "nowhere.npz", "--out", "x.jpg"], "change the suffix"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(
    arguments: list[str], message: str, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, err = refused(capsys, monkeypatch, *arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_unwritable_and_occupied_outputs(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "file").write_text("here")
    for command in ("simulate", "evaluate"):
        out = tmp_path / "file" / "below"
        code, err = refused(capsys, monkeypatch, command, "scene:1", "--out", out, *SMALL)
        assert code == 2
        assert str(tmp_path / "file") in err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("keep me")
    code, err = refused(
        capsys, monkeypatch, "simulate", "scene:1", "--out", tmp_path / "full", *SMALL
    )
    assert code == 2
    assert "new or empty folder" in err
    assert (tmp_path / "full" / "note.txt").read_text() == "keep me"


def test_a_bad_burst_in_a_folder_is_named(tmp_path: Path, capsys, monkeypatch) -> None:
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 2)
    victim = tmp_path / "b" / "scene_3_0001.npz"
    victim.write_bytes(victim.read_bytes()[:-900])
    code, err = refused(capsys, monkeypatch, "evaluate", tmp_path / "b", "-o", tmp_path / "out")
    assert code == 2
    assert "scene_3_0001.npz" in err
    assert not (tmp_path / "out").exists()


def test_bursts_without_truth_cannot_be_evaluated(tmp_path: Path, capsys, monkeypatch) -> None:
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 1)
    burst = read_burst(tmp_path / "b" / "scene_3_0000.npz")
    write_burst(burst, tmp_path / "plain.npz")
    code, err = refused(
        capsys, monkeypatch, "evaluate", tmp_path / "plain.npz", "-o", tmp_path / "out"
    )
    assert code == 2
    assert "truth" in err


@pytest.mark.parametrize(
    "how", [["-c", "from pushframe.cli import main; main()"], ["-m", "pushframe"]]
)
def test_the_installed_command_runs(how: list[str]) -> None:
    command = [sys.executable, *how, "info", "--json"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout)["device"] == "cpu"


def test_a_module_is_named_like_the_command() -> None:
    command = [sys.executable, "-m", "pushframe", "info", "nowhere.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("error: expected a burst")) == (2, True)
    usage = subprocess.run(command[:3], capture_output=True, text=True, check=False)
    assert "Usage: pushframe " in usage.stdout + usage.stderr


def test_a_folder_of_stacks_can_be_evaluated(tmp_path: Path) -> None:
    run("simulate", "scene:3", "-o", tmp_path / "b", *SMALL, "--count", 2, "--format", "stack")
    result = json.loads(
        run("evaluate", tmp_path / "b", "-o", tmp_path / "o", "--methods", "bicubic", "--json")
    )
    assert result["bursts"] == 2


def test_nothing_is_overwritten_by_mistake(tmp_path: Path, capsys, monkeypatch) -> None:
    run("simulate", "scene:3", "--out", tmp_path / "b", *SMALL, "--count", 1)
    burst = tmp_path / "b" / "scene_3_0000.npz"
    before = burst.read_bytes()
    code, err = refused(capsys, monkeypatch, "run", burst, "--out", burst)
    assert code == 2
    assert "other than the burst" in err
    assert burst.read_bytes() == before
    twins = tmp_path / "twins"
    twins.mkdir()
    for suffix in ("a.npy", "a.tif.npy"):
        np.save(twins / suffix, procedural_scene((80, 80), 1))
    (twins / "a.tif.npy").rename(twins / "a.tiff")
    code, err = refused(capsys, monkeypatch, "simulate", twins, "-o", tmp_path / "s", *SMALL)
    assert code == 2
    assert "'a' twice" in err


def test_frames_too_small_to_register(tmp_path: Path, capsys, monkeypatch) -> None:
    dn = np.random.default_rng(0).uniform(100, 900, (2, 1, 40)).astype(np.float32)
    np.savez(
        tmp_path / "row.npz", frames=dn, exposure=[1, 1], white_level=3400, noise_a=0, noise_b=9
    )
    code, err = refused(
        capsys, monkeypatch, "run", tmp_path / "row.npz", "--out", tmp_path / "row.tif"
    )
    assert code == 2
    assert "at least 8x8 px" in err
    code, _ = refused(capsys, monkeypatch, "validate", tmp_path / "row.npz")
    assert code == 1


def test_info_names_a_burst_that_shows_nothing(tmp_path: Path, capsys, monkeypatch) -> None:
    path = tmp_path / "b.npz"
    np.savez(path, frames=np.full((3, 20, 20), np.inf, np.float32))
    code, told = refused(capsys, monkeypatch, "info", path)
    assert code == 2
    assert str(path) in told
    assert "every pixel is NaN, infinite or masked" in told
