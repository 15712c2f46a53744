"""The curve of the solver shows the figures and intervals of `evaluate`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from test_cli import run

from pushframe.scenes import procedural_scene

ROOT = Path(__file__).parents[1]
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("curve", ROOT / "examples/solver_curve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curve")
    for seed in (1, 2):
        (folder / "images").mkdir(exist_ok=True)
        np.save(folder / "images" / f"town_{seed}.npy", procedural_scene((64, 64), seed))
    for frames in (3, 5):
        options = ["--size", 16, "--frames", frames]
        run("evaluate", folder / "images", "-o", folder / f"est{frames}", *options)
    return folder


def test_points_and_bands_are_those_of_the_evaluations(
    example: ModuleType, evaluations: Path, tmp_path: Path
) -> None:
    summary = example.summarise(evaluations)
    example.draw(summary, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    found = [json.loads((evaluations / f"est{n}" / "evaluation.json").read_text()) for n in (3, 5)]
    counts, means, low, high = example.band(summary, "solver", "psnr_db")
    figures = [e["methods"]["solver"]["all"] for e in found]
    assert counts == [3, 5]
    assert means == [f["image_balanced"]["psnr_db"] for f in figures]
    edges = [tuple(f["interval_90"]["psnr_db"]) for f in figures]
    assert list(zip(low, high, strict=True)) == edges
    assert all(a < b < c for a, b, c in zip(low, means, high, strict=True))
    counts, means, low, high = example.band(summary, "solver", "gain_db")
    assert means == [e["paired"]["psnr_db"]["solver"] for e in found]
    assert list(zip(low, high, strict=True)) == [
        tuple(e["paired"]["interval_90"]["solver"]) for e in found
    ]


def test_evaluations_of_different_settings_are_not_mixed(
    example: ModuleType, evaluations: Path, tmp_path: Path
) -> None:
    for n in (3, 5):
        (tmp_path / f"est{n}").mkdir()
        result = json.loads((evaluations / f"est{n}" / "evaluation.json").read_text())
        result["simulation"]["seed"] = n
        (tmp_path / f"est{n}" / "evaluation.json").write_text(json.dumps(result))
    with pytest.raises(SystemExit, match="differ in frames alone"):
        example.summarise(tmp_path)


def test_the_published_curve_has_its_intervals() -> None:
    published = json.loads((ROOT / "benchmarks/results/solver_curve.json").read_text())
    for row in published["frames"].values():
        low, high = row["solver"]["interval_90"]["psnr_db"]
        assert low < row["solver"]["image_balanced"]["psnr_db"] < high
