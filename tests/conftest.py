"""Shared inputs of the tests. Everything is generated; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from pushframe import theory
from pushframe.burst import Simulated
from pushframe.scenes import procedural_scene
from pushframe.simulate import PRESETS, Simulation, simulate, with_options

torch.set_num_threads(1)  # the tests run in parallel processes

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_images() -> Path:
    """The real images, where they are present."""
    if not (SHARED / "hr").is_dir():
        pytest.skip("needs ../shared/data/hr")
    return SHARED / "hr"


def sources(setting: Simulation, count: int, seed: int = 3) -> torch.Tensor:
    """`count` windows of procedural scenes for a setting, normalised radiance (B, S, S)."""
    side = setting.source_size
    scenes = [procedural_scene((side, side), seed + k) for k in range(count)]
    return torch.stack([torch.from_numpy(scene) for scene in scenes]) / setting.white_level


@pytest.fixture(scope="session")
def paper_batch() -> Simulated:
    """Two bursts of the paper's setting, 12 frames of 40x40."""
    setting = with_options(PRESETS["paper"], size=40, frames=12)
    return simulate(sources(setting, 2), setting, torch.Generator().manual_seed(5))


@pytest.fixture
def sabotage(tmp_path: Path) -> Iterator[Callable[[str, str, str], ModuleType]]:
    """Loads a copy of `pushframe.theory` in which one piece of one file reads otherwise."""
    name = "pushframe.theory_sabotaged"

    def load(file: str, right: str, wrong: str) -> ModuleType:
        folder = shutil.copytree(Path(theory.__file__).parent, tmp_path / "theory")
        text = (folder / file).read_text()
        assert text.count(right) == 1, f"{right!r} is {text.count(right)} times in {file}"
        (folder / file).write_text(text.replace(right, wrong))
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for loaded in [key for key in sys.modules if key.startswith(name)]:
        del sys.modules[loaded]
