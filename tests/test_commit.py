"""The commit that weights and benchmarks state: of this code, or none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from training import config, write_images

from pushframe.train import material, train
from pushframe.weights import read_card

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import record  # noqa: E402

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def committed(root: Path) -> Path:
    """A repository with one commit."""
    root.mkdir()
    git(root, "init")
    git(root, "commit", "--allow-empty", "--message", "first")
    return root


def commit_of(package: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What is told of a package that lies there."""
    (package / "train").mkdir(parents=True)
    monkeypatch.setattr(material, "__file__", str(package / "train" / "material.py"))
    return material._commit()


@needs_git
def test_a_working_copy_states_its_commit(tmp_path: Path, monkeypatch) -> None:
    root = committed(tmp_path / "copy")
    assert commit_of(root / "src" / "pushframe", monkeypatch) == git(root, "rev-parse", "HEAD")


@needs_git
def test_an_installed_package_states_no_commit_of_the_repository_around_it(
    tmp_path: Path, monkeypatch
) -> None:
    theirs = committed(tmp_path / "theirs")
    package = theirs / ".venv" / "lib" / "python3" / "site-packages" / "pushframe"
    assert commit_of(package, monkeypatch) is None


def test_training_and_benchmarks_do_without_git(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".git").mkdir()
    package = tmp_path / "src" / "pushframe"
    assert commit_of(package, monkeypatch) is None
    train(config(write_images(tmp_path / "images"), schedule__steps=1), tmp_path / "run")
    assert read_card(tmp_path / "run" / "weights.safetensors")["commit"] is None
    assert record.circumstances()["commit"] is None
