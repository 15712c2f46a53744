"""Paths and scene names to images and bursts with truth, as `simulate` and `evaluate` take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .burst import Simulated
from .errors import FileError, UsageError
from .evaluate import Case
from .io import is_burst, read_image, read_simulated
from .io.image import IMAGE_SUFFIXES
from .scenes import procedural_scene
from .simulate import Simulation
from .windows import simulate_windows, window_corners

SCENE_PREFIX = "scene:"


@dataclass(frozen=True)
class ImageSource:
    """One image to simulate from: a file, or a procedural scene named `scene:SEED`."""

    name: str
    path: Path | None

    def read(self, setting: Simulation, bursts: int) -> np.ndarray:
        """The image (H, W) in DN; a procedural scene is made as large as `bursts` windows."""
        if self.path is not None:
            return read_image(self.path)
        side = int(np.ceil(np.sqrt(bursts))) * setting.source_size
        return procedural_scene((side, side), int(self.name.removeprefix(SCENE_PREFIX)))


def find_sources(text: str) -> list[ImageSource]:
    """The images behind one argument: `scene:SEED`, a file, or a folder of images."""
    if text.startswith(SCENE_PREFIX):
        if not text.removeprefix(SCENE_PREFIX).isdecimal():
            raise UsageError(f"expected scene:SEED, got {text!r}: write for example scene:7")
        return [ImageSource(text, None)]
    path = Path(text)
    if not path.exists():
        raise FileError(f"expected an image or a folder, got {path}: no such file; check the path")
    if path.is_file():
        return [ImageSource(path.name, path)]
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise FileError(
            f"expected images ({', '.join(IMAGE_SUFFIXES)}) in {path}, got none: check the folder"
        )
    return [ImageSource(file.name, file) for file in found]


def find_bursts(text: str) -> list[Path]:
    """The bursts behind one argument, empty where it names images instead."""
    path = Path(text)
    if text.startswith(SCENE_PREFIX) or not path.exists():
        return []
    # an npz that cannot be read must be named, not taken for something else
    if is_burst(path) or (path.is_file() and path.suffix.lower() == ".npz"):
        return [path]
    if not path.is_dir():
        return []
    inside = sorted(path.iterdir())
    kinds = {p: p.suffix.lower() for p in inside}
    found = [p for p in inside if kinds[p] == ".npz" or (kinds[p] != ".toml" and is_burst(p))]
    beside = tuple(f"{p.stem}_" for p in found)  # truth and flow of a stack
    images = [
        p
        for p in inside
        if kinds[p] in IMAGE_SUFFIXES and p not in found and not p.name.startswith(beside)
    ]
    if found and images:
        raise UsageError(
            f"expected images or bursts in {path}, got both ({images[0].name}, {found[0].name}): "
            "keep them in folders of their own"
        )
    return found


def read_cases(paths: list[Path]) -> Iterator[Case]:
    """Bursts with their truth from files, each its own group."""
    for path in paths:
        yield Case(path.name, read_simulated(path))


@dataclass
class SimulatedCases:
    """The deterministic bursts of images; images too small for one window are named apart."""

    sources: list[ImageSource]
    setting: Simulation
    seed: int

    def __post_init__(self) -> None:
        self.skipped: list[str] = []

    def __iter__(self) -> Iterator[Case]:
        for source in self.sources:
            image = source.read(self.setting, bursts=1)
            found = False
            for simulated in simulate_windows(image, source.name, self.setting, self.seed):
                found = True
                yield Case(source.name, simulated)
            if not found:
                self.skipped.append(source.name)


def simulate_count(
    source: ImageSource, setting: Simulation, seed: int, count: int | None
) -> Iterator[Simulated]:
    """`count` bursts of one image: each window once, then again with other draws; None is once."""
    image = source.read(setting, count or 1)
    if not window_corners((image.shape[0], image.shape[1]), setting):
        raise UsageError(
            f"expected an image of at least {setting.source_size} px a side, got "
            f"{image.shape[0]}x{image.shape[1]} ({source.name}): lower --size or --scale"
        )
    made = 0
    while count is None or made < count:
        for simulated in simulate_windows(image, source.name, setting, seed):
            if made == count:
                return
            made += 1
            yield simulated
        if made == 0:
            raise UsageError(
                f"expected a window of {setting.source_size} px without nodata in {source.name}, "
                "got none: lower --size or fill the nodata"
            )
        if count is None:
            return
        seed += 1
