"""Images to deterministic bursts: every non-overlapping window, each with its own seed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import torch

from .burst import Simulated
from .simulate import Simulation, simulate_one


def window_corners(shape: tuple[int, int], setting: Simulation) -> list[tuple[int, int]]:
    """Upper left corners (row, column) of the windows of one burst each, source px.

    A window is the truth with its margin; windows share no pixel, so bursts are independent.
    """
    side = setting.source_size
    rows, columns = (range(0, length - side + 1, side) for length in shape)
    return [(row, column) for row in rows for column in columns]


def window_seed(seed: int, name: str, corner: tuple[int, int]) -> int:
    """A seed for one window, whatever else is evaluated beside it."""
    entropy = [seed, zlib.crc32(name.encode()), *corner]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


def simulate_windows(
    image: np.ndarray, name: str, setting: Simulation, seed: int
) -> Iterator[Simulated]:
    """One burst from each window of an image (H, W) in DN; windows with NaN are left out."""
    side = setting.source_size
    for row, column in window_corners((image.shape[0], image.shape[1]), setting):
        window = image[row : row + side, column : column + side]
        if np.isfinite(window).all():
            source = torch.from_numpy(np.ascontiguousarray(window)) / setting.white_level
            yield simulate_one(source, setting, window_seed(seed, name, (row, column)))
