"""A burst on disk, opened but not read: the rules that make bursts of its windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from ..burst import Burst, GeoRef, NoiseLaw
from ..checks import check_exposure, check_frames, check_positive, require
from ..geometry import crop_georef
from .frames import ALL, Frame, read_window, spread_windows

# A burst without a white level is given the headroom of the paper's data, where scenes whose
# bright end lies near 2400 DN are normalised by 3400 DN.
WHITE_PERCENTILE = 99.5
WHITE_OVER_BRIGHT = 3400 / 2400
STILL_PX = 1.5  # a smaller offset is the reconstruction's own to find
SAMPLE_PX, SAMPLES = 512, 3  # windows in which levels are looked up: side, number along each axis


@dataclass(frozen=True)
class Placement:
    """Where a frame lies: `frame px = matrix (reference px - pivot) + pivot + shift`, (y, x)."""

    shift_px: tuple[float, float] = (0.0, 0.0)
    matrix: tuple[tuple[float, float], tuple[float, float]] = ((1.0, 0.0), (0.0, 1.0))
    pivot_px: tuple[float, float] = (0.0, 0.0)

    def at(self, position: np.ndarray) -> np.ndarray:
        """Reference positions (..., 2) as positions in the frame."""
        pivot = np.asarray(self.pivot_px)
        return (position - pivot) @ np.asarray(self.matrix).T + pivot + np.asarray(self.shift_px)

    def offset_px(self, rows: slice, columns: slice) -> tuple[int, int]:
        """Whole pixels from a window of the reference to that of the frame, by its centre.

        Zero for what is nearly still: moving a window costs a line of pixels at the edge.
        """
        centre = np.array([(part.start + part.stop - 1) / 2 for part in (rows, columns)])
        moved = self.at(centre) - centre
        if np.abs(moved).max() <= STILL_PX:
            return 0, 0
        down, right = np.rint(moved).astype(int).tolist()
        return down, right


@dataclass(frozen=True, eq=False)
class BurstSource:
    """The frames of a burst and all that is known of them, its pixels still on disk.

    frames: in the order of the files; reference: index of the reference among them. masks: a
    frame each, non-zero where valid. stated_exposure: (N,), or None to estimate it. scalars: white
    and black level and noise law, those that were given. placements: where each frame lies
    against the reference; as they come, if empty. days: whether they are of
    different days. window: the part of the reference's grid that is the burst, all of it unless
    given.
    """

    frames: tuple[Frame, ...]
    stated_exposure: np.ndarray | None
    scalars: Mapping[str, float] = field(default_factory=dict)
    masks: tuple[Frame, ...] = ()
    reference: int = 0
    said: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    days: bool = False
    window: tuple[slice, slice] | None = None

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
        window = tuple(
            slice(part.start + piece.start, part.start + piece.stop)
            for part, piece in zip(self._grid, (rows, columns), strict=True)
        )
        return dataclasses.replace(self, window=(window[0], window[1]))

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
        rows, columns = self._in_file(rows, columns)
        if self.placements:
            down, right = self.placements[index].offset_px(rows, columns)
            rows = slice(rows.start + down, rows.stop + down)
            columns = slice(columns.start + right, columns.stop + right)
        pixels = read_window(self.frames[index], rows, columns)
        if self.masks:
            mask = read_window(self.masks[index], rows, columns)
            pixels = np.where((mask != 0) & ~np.isnan(mask), pixels, np.nan)
        return pixels

    def _in_file(self, rows: slice, columns: slice) -> tuple[slice, slice]:
        """A window of the burst as one of the reference's file."""
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

    def tile(self, rows: slice, columns: slice) -> Burst:
        """A window of the burst as a batch of one, (1, N, h, w), the reference first.

        A batch, since a tile may lie outside some frames or be masked in them, as a burst may not.
        """
        frames = torch.from_numpy(np.stack([self.raw(i, rows, columns) for i in self.order]))
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
            georef=self.crop(rows, columns).georef,
            names=self.names,
            notes=self.notes,
            days=self.days,
        )

    def read(self) -> Burst:
        """The whole burst, (N, H, W), each frame checked."""
        frames = np.stack([self.raw(i, ALL, ALL) for i in range(self.count)])
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

    @property
    def black_level(self) -> float:
        """Raw DN of no light."""
        return self.scalars.get("black_level", 0.0)

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
        seen = np.concatenate([part[~np.isnan(part)] for part in self._samples(self.reference)])
        return estimated_white(seen, float(self.exposure[self.reference]), self.black_level)

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
        for key in got:
            check_positive(key, torch.tensor(self.scalars[key]), zero_allowed=True)
        return NoiseLaw(*(torch.tensor(self.scalars[key]) for key in got))

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
        if self.noise is None:
            notes.append("No noise law was given (noise_a, noise_b).")
        return tuple(dict.fromkeys(notes))

    def valid_share(self) -> float:
        """The share of valid pixels, of all frames; in windows of them where they are large."""
        parts = [part for index in range(self.count) for part in self._samples(index)]
        return float(np.mean([np.mean(~np.isnan(part)) for part in parts]))

    def _samples(self, index: int) -> list[np.ndarray]:
        """Windows of a frame, spread over the burst; all of it where it is small."""
        return [self.raw(index, *part) for part in spread_windows(self.shape, SAMPLE_PX, SAMPLES)]

    def _estimated_exposure(self) -> np.ndarray:
        """Brightness of each frame over that of the reference, where both are valid, (N,)."""
        first = [part - self.black_level for part in self._samples(self.reference)]
        found = []
        for index in range(self.count):
            pairs = [
                (part[both], other[both])
                for part, sample in zip(first, self._samples(index), strict=True)
                for other in [sample - self.black_level]
                for both in [~np.isnan(part) & ~np.isnan(other)]
            ]
            theirs, ours = (
                sum(float(pair[k].sum(dtype=np.float64)) for pair in pairs) for k in (1, 0)
            )
            # a frame without a common pixel has no say in anything
            found.append(theirs / ours if theirs > 0 and ours > 0 else 1.0)
        return np.asarray(found)


def estimated_white(seen_dn: np.ndarray, exposure: float, black: float) -> float:
    """3400/2400 of the 99.5th percentile of `(dn - black) / exposure` over the valid pixels."""
    require(
        seen_dn.size > 0,
        "valid pixels in the reference frame",
        "none: every pixel is NaN or masked",
        "choose another `reference`",
    )
    bright = np.percentile((seen_dn.astype(np.float64) - black) / exposure, WHITE_PERCENTILE)
    require(
        bool(bright > 0),
        "a reference frame brighter than black_level",
        f"a 99.5th percentile of {bright:.6g} DN above it",
        "correct `black_level` or give `white_level`",
    )
    return float(bright) * WHITE_OVER_BRIGHT


@dataclass(frozen=True, eq=False)
class Verified:
    """What goes with a burst whose truth is known.

    truth: (s*H, s*W) DN at exposure 1 above black; flow_px: (N, 2) or (N, 2, H, W).
    """

    truth: np.ndarray | None = None
    flow_px: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Opened:
    """A burst, and how to read what only a simulator knows of it, unread unless asked for."""

    source: BurstSource
    verified: Callable[[], Verified] = Verified
