"""A burst on disk, opened but not read: the rules that make bursts of its windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from ..burst import Burst, GeoRef, NoiseLaw
from ..checks import (
    check_exposure,
    check_frames,
    check_noise,
    check_positive,
    check_window,
    require,
)
from ..geometry import crop_georef, middle_of
from ..raw import raw_step, whole_numbers
from .black_level import estimated_black
from .defects import (
    Defects,
    levels_off,
    saturation_of,
    thinned,
    zeros_in_blocks,
)
from .detector import Detector
from .frames import ALL, Frame, read_window, spread_windows
from .placement import Placement
from .white_level import WHITE_PERCENTILE, estimated_white

BLACK_PX = 256  # side of the window in which a black level is looked for
SAMPLE_PX, SAMPLES = 512, 3  # windows in which levels are looked up: side, number along each axis


@dataclass(frozen=True, eq=False)
class BurstSource:
    """The frames of a burst and all that is known of them, its pixels still on disk.

    frames: in the order of the files; reference: index of the reference among them; chosen:
    whether the files name it. masks: a frame each, non-zero where valid. stated_exposure: (N,), or
    None to estimate it. scalars: white and black level and noise law, those that were given.
    placements: where each frame lies against the reference; as they come, if empty. days: whether
    they are of different days. clean: whether saturated and stuck pixels are marked already; else
    they are looked for. window: the part of the reference's grid that is the burst, all of it
    unless given. detector: what the frames as they were opened say of its stuck pixels; of these
    frames unless given.
    """

    frames: tuple[Frame, ...]
    stated_exposure: np.ndarray | None
    scalars: Mapping[str, float] = field(default_factory=dict)
    masks: tuple[Frame, ...] = ()
    reference: int = 0
    chosen: bool = False
    said: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    days: bool = False
    clean: bool = False
    window: tuple[slice, slice] | None = None
    detector: Detector | None = None

    def __post_init__(self) -> None:
        require(
            0 <= self.reference < self.count,
            f"a reference from 0 to {self.count - 1}",
            self.reference,
            "correct `reference`",
        )
        if self.stated_exposure is not None:
            stated = torch.from_numpy(self.stated_exposure.astype(np.float64))
            check_exposure(stated, self._file_names)
        if self.detector is None and not self.clean:
            object.__setattr__(self, "detector", Detector(self.frames, self.masks, self.days))

    # --- what can be asked without reading a pixel ---------------------------------------------

    @property
    def count(self) -> int:
        """The number of frames, N."""
        return len(self.frames)

    @property
    def shape(self) -> tuple[int, int]:
        """The size of the burst, (H, W): that of the reference, or of the window of it."""
        rows, columns = self._grid
        return rows.stop - rows.start, columns.stop - columns.start

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the frames, the reference first."""
        return tuple(self._file_names[index] for index in self.order)

    @property
    def order(self) -> list[int]:
        """Indices of the frames in the files, the reference first, the others as they were."""
        return [self.reference, *(i for i in range(self.count) if i != self.reference)]

    @property
    def georef(self) -> GeoRef | None:
        """Where the burst lies: the georeference of the reference, moved to the window."""
        georef = self.frames[self.reference].georef
        rows, columns = self._grid
        return None if georef is None else crop_georef(georef, rows.start, columns.start)

    @property
    def _file_names(self) -> tuple[str, ...]:
        return tuple(frame.name for frame in self.frames)

    @property
    def _grid(self) -> tuple[slice, slice]:
        height, width = self.frames[self.reference].shape
        return self.window or (slice(0, height), slice(0, width))

    # --- parts of it ---------------------------------------------------------------------------

    def crop(self, rows: slice, columns: slice) -> BurstSource:
        """The burst of a part of the grid, `rows` and `columns` counted from its own corner."""
        return dataclasses.replace(self, window=self._in_file(rows, columns))

    def keep(self, index: Sequence[int]) -> BurstSource:
        """The burst of the frames `index` (of the files), the reference among them."""
        stated = self.stated_exposure
        return dataclasses.replace(
            self,
            frames=tuple(self.frames[i] for i in index),
            masks=tuple(self.masks[i] for i in index) if self.masks else (),
            placements=tuple(self.placements[i] for i in index) if self.placements else (),
            stated_exposure=None if stated is None else stated[list(index)],
            reference=list(index).index(self.reference),
        )

    # --- pixels --------------------------------------------------------------------------------

    def raw(self, index: int, rows: slice, columns: slice) -> np.ndarray:
        """A window of frame `index` of the files, (h, w) float32 DN, NaN where invalid.

        Rows and columns are those of the burst; the frame's own are moved by its placement.
        """
        return self._without_saturated(self._as_stored(index, rows, columns))

    def _as_stored(self, index: int, rows: slice, columns: slice) -> np.ndarray:
        """The same, saturated pixels among them, stuck ones not."""
        rows, columns = self._in_file(rows, columns)
        if self.placements:
            down, right = self.placements[index].offset_px(rows, columns)
            rows = slice(rows.start + down, rows.stop + down)
            columns = slice(columns.start + right, columns.stop + right)
        pixels = read_window(self.frames[index], rows, columns)
        if self.masks:
            mask = read_window(self.masks[index], rows, columns)
            pixels = np.where((mask != 0) & ~np.isnan(mask), pixels, np.nan)
        if self.detector is not None:
            pixels = np.where(self.detector.stuck(rows, columns), np.nan, pixels)
        return pixels

    def _in_file(self, rows: slice, columns: slice) -> tuple[slice, slice]:
        """A window of the burst as one of the reference's file."""
        check_window(rows, columns, self.shape)
        height, width = self.shape
        rows, columns = slice(*rows.indices(height)[:2]), slice(*columns.indices(width)[:2])
        top, left = (part.start for part in self._grid)
        return (
            slice(rows.start + top, rows.stop + top),
            slice(columns.start + left, columns.stop + left),
        )

    def moved_px(self, rows: slice, columns: slice) -> torch.Tensor:
        """Whole px from a window to what `tile` gives of each frame, (N, 2)."""
        window = self._in_file(rows, columns)
        places = [self.placements[i].offset_px(*window) for i in self.order if self.placements]
        return torch.tensor(places or [(0, 0)] * self.count, dtype=torch.float32)

    def _without_saturated(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels with NaN from the saturation level on."""
        level = self.saturation_level
        if level is None:
            return pixels
        return np.where((pixels < level) | np.isinf(pixels), pixels, np.nan)  # told of elsewhere

    def _all_as_stored(self, rows: slice, columns: slice) -> np.ndarray:
        """A window of all frames as they are stored, (N, h, w), NaN where invalid or stuck."""
        return np.stack([self._as_stored(i, rows, columns) for i in range(self.count)])

    def _believable(self, rows: slice, columns: slice) -> np.ndarray:
        """A window of all frames, (N, h, w) float32 DN, NaN where invalid, saturated or stuck."""
        return self._without_saturated(self._all_as_stored(rows, columns))

    def tile(self, rows: slice, columns: slice) -> Burst:
        """A window of the burst as a batch of one, (1, N, h, w), the reference first.

        A batch, since a tile may lie outside some frames or be masked in them, as a burst may not.
        """
        frames = torch.from_numpy(self._believable(rows, columns)[self.order])
        for frame, name in zip(frames, self.names, strict=True):
            require(
                not bool(torch.isinf(frame).any()),
                f"finite values in {name}",
                f"{int(torch.isinf(frame).sum())} infinite pixels",
                "mark bad pixels as NaN or in the valid mask",
            )
        exposure = torch.from_numpy(self.exposure[self.order].astype(np.float32))
        black = torch.tensor(self.black_level)
        frames = (frames - black) / (exposure * self.white_level)[:, None, None]
        return Burst(
            frames[None],
            exposure[None],
            torch.tensor([self.white_level]),
            noise=None if self.noise is None else self.noise.map(lambda x: x[None]),
            black_level=black[None],
            step_dn=torch.tensor([self.step_dn]),
            georef=self.crop(rows, columns).georef,
            names=self.names,
            notes=self.notes,
            days=self.days,
        )

    def read(self) -> Burst:
        """The whole burst, (N, H, W), each frame checked."""
        frames = self._believable(ALL, ALL)
        # checked here on raw DN and in the order of the files, so that messages speak of both
        check_frames(
            torch.from_numpy(frames), torch.from_numpy(~np.isnan(frames)), self._file_names
        )
        burst = Burst.from_dn(
            frames, self.exposure, self.white_level, self.black_level,
            noise=self.noise, names=self._file_names, notes=self.notes, days=self.days,
        )  # fmt: skip
        # the georeference is already that of the frame that becomes the reference
        return dataclasses.replace(burst.select(self.order), georef=self.georef)

    # --- levels --------------------------------------------------------------------------------

    @cached_property
    def black_level(self) -> float:
        """Raw DN of no light: given, or else told by frames of different exposures; else 0."""
        if "black_level" in self.scalars:
            return self.scalars["black_level"]
        if self.days:  # whose light changes, too
            return 0.0
        looked_at = self._believable(*middle_of(self.shape, BLACK_PX))
        return estimated_black(looked_at, self.stated_exposure)

    @cached_property
    def saturation_level(self) -> float | None:
        """Raw DN from which pixels are saturated: given, or found; None if nowhere."""
        if "saturation_level" not in self.scalars:
            return self._defects.saturation
        check_positive("saturation_level", torch.tensor(self.scalars["saturation_level"]))
        return self.scalars["saturation_level"]

    @cached_property
    def _defects(self) -> Defects:
        """What is wrong in the windows looked at."""
        if self.clean:
            return Defects()
        counts: list[int] = []
        zeros: list[float] = []
        thin: list[np.ndarray] = []

        def stacks() -> Iterator[np.ndarray]:
            for part in self._sampled:
                frames = self._all_as_stored(*part)
                if self.detector is not None:
                    counts.append(int(self.detector.stuck(*self._in_file(*part)).sum()))
                zeros.append(zeros_in_blocks(frames))
                thin.append(thinned(frames))
                yield frames

        level, uneven = saturation_of(stacks()), False
        if "saturation_level" in self.scalars:
            level = None
        elif level is None and not self.days:
            level = levels_off(np.concatenate(thin, 1))
            uneven = level is not None
        return Defects(level, uneven, sum(counts), float(np.mean(zeros)))

    @cached_property
    def exposure(self) -> np.ndarray:
        """Exposures (N,) in the order of the files: stated, or else those that the frames tell."""
        return self._estimated_exposure() if self.stated_exposure is None else self.stated_exposure

    @cached_property
    def white_level(self) -> float:
        """Raw DN above black of radiance 1 at exposure 1: given, or else of the reference."""
        if "white_level" in self.scalars:
            check_positive("white_level", torch.tensor(self.scalars["white_level"]))
            return self.scalars["white_level"]
        parts = (stack[self.reference] for stack in self._samples())
        seen = np.concatenate([part[np.isfinite(part)] for part in parts])
        return estimated_white(seen, float(self.exposure[self.reference]), self.black_level)

    @cached_property
    def step_dn(self) -> float:
        """The least by which raw pixels differ: 1 where those looked at are whole numbers."""
        integer = all(np.issubdtype(frame.dtype, np.integer) for frame in self.frames)
        whole = integer or all(map(whole_numbers, self._samples()))
        return raw_step(whole, self.white_level)

    @cached_property
    def noise(self) -> NoiseLaw | None:
        """The law var = a * dn + b of the raw pixels, None where it was not given."""
        got = [key for key in ("noise_a", "noise_b") if key in self.scalars]
        if not got:
            return None
        require(
            len(got) == 2,
            "noise_a and noise_b",
            f"{got[0]} alone",
            "give both, of var = noise_a * dn + noise_b; one of them may be 0",
        )
        a, b = (torch.tensor(self.scalars[key]) for key in got)
        check_noise(a, b)
        return NoiseLaw(a, b)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was assumed in reading, in sentences."""
        notes = list(self.said)
        if self.stated_exposure is None:
            notes.append(
                "No exposures were given: they were estimated from the brightness of the frames."
            )
        if "white_level" not in self.scalars:
            notes.append(
                f"No white_level was given: {self.white_level:.6g} DN was taken, 3400/2400 of the "
                f"{WHITE_PERCENTILE}th percentile of the reference frame."
            )
        if "black_level" not in self.scalars and self.black_level:
            notes.append(
                f"No black_level was given: {self.black_level:g} DN was taken, which the frames "
                "would show without any light, by their means and contrasts. If that is wrong, "
                "give black_level."
            )
        notes += self._defects.notes()
        if self.noise is None:
            notes.append("No noise law was given (noise_a, noise_b).")
        return tuple(dict.fromkeys(notes))

    def valid_share(self) -> float:
        """The share of valid pixels, of all frames; in windows of them where they are large."""
        return float(np.mean([np.mean(~np.isnan(stack)) for stack in self._samples()]))

    def _samples(self) -> Iterator[np.ndarray]:
        """Windows of all frames, (N, h, w), spread over the burst; all of it where it is small."""
        return (self._believable(*part) for part in self._sampled)

    @property
    def _sampled(self) -> list[tuple[slice, slice]]:
        return spread_windows(self.shape, SAMPLE_PX, SAMPLES)

    def _estimated_exposure(self) -> np.ndarray:
        """Brightness of each frame over that of the reference, where both are valid, (N,)."""
        ours, theirs = np.zeros((2, self.count))
        for stack in self._samples():
            first = stack[self.reference]
            both = np.isfinite(stack) & np.isfinite(first)
            above = stack.astype(np.float64) - self.black_level
            theirs += np.where(both, above, 0).sum((1, 2))
            ours += np.where(both, above[self.reference], 0).sum((1, 2))
        # a frame without a common pixel has no say in anything
        told = (theirs > 0) & (ours > 0)
        return np.where(told, theirs, 1.0) / np.where(told, ours, 1.0)
