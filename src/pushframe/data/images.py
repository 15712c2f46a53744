"""Sharp images to simulated bursts: cut, turned and exposed on the training device."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..burst import Simulated
from ..checks import LEFT_OUT, check_scale, require
from ..errors import FileError, PushframeError, UsageError
from ..io import read_image
from ..io.image import IMAGE_SUFFIXES
from ..simulate import preset, simulate, with_options
from ..windows import simulate_windows
from .config import Batch, DataConfig, draws
from .mixture import draw_setting, possible_presets, random_holes

WHITE_LEVEL = 3400.0


class NamedImage(NamedTuple):
    """An image (H, W) in DN, its file's name, the group it belongs to and its licence."""

    name: str
    pixels: np.ndarray
    group: str
    licence: str


def read_images(folder: Path, left_out: list[str] | None = None) -> list[NamedImage]:
    """All images of a folder, in the order of their names, without nodata.

    left_out: takes a note on each that cannot be used; None: stop at the first.
    """
    require(folder.is_dir(), "a folder of images", folder, "correct data.images", FileError)
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    manifest, found = _manifest(folder), []
    for path in files:
        try:
            pixels = read_image(path)
            require(
                bool(np.isfinite(pixels).all()),
                f"{path} without nodata",
                f"{int((~np.isfinite(pixels)).sum())} such pixels",
                "crop the image, or leave it out with --skip-bad",
            )
        except PushframeError as error:
            if left_out is None:
                raise
            left_out.append(f"{path.name} {LEFT_OUT} {error}")
            continue
        row = manifest.get(path.name, {})
        group, licence = row.get("group") or path.stem, row.get("licence") or ""
        found.append(NamedImage(path.name, pixels, group, licence))
    got = "; ".join([f"none in {folder}", *(left_out or [])[:1]])
    require(bool(found), f"images ({', '.join(IMAGE_SUFFIXES)})", got, "add some")
    return found


def _manifest(folder: Path) -> dict[str, dict[str, str]]:
    """File name to row of MANIFEST.csv, in the folder or the one above it; or nothing."""
    folder = folder.resolve()
    for place, prefix in ((folder, ""), (folder.parent, f"{folder.name}/")):
        if (place / "MANIFEST.csv").is_file():
            rows = {row["file"] or "": row for row in _rows(place / "MANIFEST.csv")}
            inside = [name for name in rows if name.startswith(prefix)]
            return {name.removeprefix(prefix): rows[name] for name in inside}
    return {}


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a manifest; it must have a column `file`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            rows, columns = list(reader), reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(
            f"expected a table, got {path} ({error}): correct it, or take it away"
        ) from error
    require(
        "file" in columns,
        f"{path} with a column `file`",
        f"columns {', '.join(columns)}" if columns else "none",
        "name the column of the images' files so, or take the table away",
        FileError,
    )
    return rows


class ImageStream:
    """Bursts simulated on the fly from windows cut at random, flipped and transposed."""

    def __init__(
        self, images: Sequence[np.ndarray], config: DataConfig, scale: int, seed: int, device: str
    ) -> None:
        self.config, self.scale, self.seed = config, check_scale(scale), seed
        self.shapes = np.array([image.shape for image in images])
        self._check_size()
        self.starts = np.concatenate([[0], np.cumsum(self.shapes.prod(1))[:-1]])
        flat = np.concatenate([image.ravel() for image in images])
        self.flat = torch.from_numpy(flat).to(device) / WHITE_LEVEL

    def batch(self, step: int, shard: int) -> Batch:
        """One shard of simulated bursts; setting and frame count are those of the whole step."""
        host, _ = draws(self.seed, step)
        setting = draw_setting(host, self.config, self.scale)
        holed = host.random() < self.config.mixture.masked
        host, seed = draws(self.seed, step, shard)
        generator = torch.Generator(self.flat.device).manual_seed(seed)
        count = self.config.batch // self.config.shards
        made = simulate(self._windows(host, count, setting.source_size), setting, generator)
        burst = random_holes(made.burst, generator) if holed else made.burst
        return Batch(burst, made.truth, made.flow_px, generator, setting.motion == "drift")

    def _check_size(self) -> None:
        """Each kind of burst that may be drawn fits into some image."""
        kinds = possible_presets(self.config.mixture)
        sizes = [with_options(kind, size=self.config.size, scale=self.scale) for kind in kinds]
        side, largest = max(kind.source_size for kind in sizes), self.shapes.min(1).argmax()
        require(
            self.shapes[largest].min() >= side,
            f"an image of at least {side}x{side} px",
            f"{self.shapes[largest][0]}x{self.shapes[largest][1]} at most",
            "lower data.size or add larger images",
            UsageError,
        )

    def _windows(self, host: np.random.Generator, count: int, side: int) -> Tensor:
        """Windows (count, side, side), an image by the root of its area, any corner."""
        fits = np.flatnonzero(self.shapes.min(1) >= side)
        # by its root: large images have more to show, but small ones are other places
        chance = np.sqrt(self.shapes[fits].prod(1))
        which = fits[host.choice(len(fits), count, p=chance / chance.sum())]
        corner = host.integers(0, self.shapes[which] - side + 1)
        flips = host.integers(0, 2, (3, count))
        along = np.arange(side)
        rows, columns = (
            corner[:, k, None] + np.where(flips[k, :, None], side - 1 - along, along)
            for k in (0, 1)
        )
        starts = self.starts[which, None] + rows * self.shapes[which, 1:]
        row, column = (torch.from_numpy(x).to(self.flat.device) for x in (starts, columns))
        window = self.flat[row[:, :, None] + column[:, None, :]]
        turned = torch.from_numpy(flips[2]).to(window.device)[:, None, None] > 0
        return torch.where(turned, window.mT, window)


def validation_cases(
    images: Sequence[NamedImage], config: DataConfig, scale: int
) -> dict[str, list[tuple[str, Simulated]]]:
    """For each validation setting, bursts with truth of held-out images, the same every time."""
    cases = {}
    for name in config.validation:
        kind, _, frames = name.partition(":")
        require(
            frames.isdecimal() and int(frames) > 0,
            "data.validation entries preset:frames",
            name,
            "write for example paper:15",
            UsageError,
        )
        setting = with_options(preset(kind), frames=int(frames), size=config.size, scale=scale)
        rows = [
            [(image.name, made) for made in simulate_windows(image.pixels, image.name, setting, 0)]
            for image in images
        ]
        # image after image, a window of each, so that few bursts still show all of them
        mixed = [
            row[k] for k in range(max(map(len, rows), default=0)) for row in rows if k < len(row)
        ]
        require(
            bool(mixed) or not images,
            f"a held-out image of at least {setting.source_size}x{setting.source_size} px to "
            f"validate on {name}",
            "none",
            "hold out larger images, lower data.size or shorten data.validation",
            UsageError,
        )
        cases[name] = mixed[: config.validation_bursts]
    return cases
