"""Shared inputs of the tests. Everything is generated; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

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
