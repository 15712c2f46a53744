"""The nouns: what a burst is, where it lies on Earth, what is inferred."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .checks import (
    check_exposure,
    check_frames,
    check_noise,
    check_positive,
    check_shape,
    check_transform,
    check_window,
    require,
)
from .errors import UsageError
from .raw import FINEST_STEP, raw_step, whole_numbers

LEVELS = ("white_level", "black_level", "step_dn")


def _set(instance: object, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(instance, name, value)


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """Noise variance of a raw pixel, `var = a * dn + b`, dn counted from the black level.

    a: DN, b: DN^2; scalars for one burst, (B,) for a batch.
    """

    a: Tensor
    b: Tensor

    def __post_init__(self) -> None:
        _set(self, a=torch.as_tensor(self.a, dtype=torch.float32))
        _set(self, b=torch.as_tensor(self.b, dtype=torch.float32))

    def map(self, change: Callable[[Tensor], Tensor]) -> NoiseLaw:
        """The law with `change` applied to both coefficients."""
        return NoiseLaw(change(self.a), change(self.b))

    def __str__(self) -> str:
        """The law of one burst in words."""
        return f"var = {float(self.a):.4g} * dn + {float(self.b):.4g} DN^2"


@dataclass(frozen=True)
class GeoRef:
    """Where an image lies on Earth: a map projection, or rational polynomial coefficients.

    Convention: `transform` is (a, b, c, d, e, f) with x = a*col + b*row + c and
    y = d*col + e*row + f, where (col, row) = (0, 0) is the outer corner of the first pixel.
    `rpc` holds GDAL's keys (LINE_OFF, LINE_NUM_COEFF, ...); its (0, 0) is the *centre* of
    the first pixel.
    """

    crs: str | None = None
    transform: tuple[float, float, float, float, float, float] | None = None
    rpc: Mapping[str, float | tuple[float, ...]] | None = None

    def __post_init__(self) -> None:
        if self.transform is not None:
            require(
                len(self.transform) == 6,
                "a transform of 6 numbers (a, b, c, d, e, f)",
                f"{len(self.transform)} numbers",
                "give the first two rows of the affine matrix",
            )
            _set(self, transform=tuple(float(value) for value in self.transform))
            check_transform(self.transform)


@dataclass(frozen=True, eq=False)
class Burst:
    """A burst of frames in normalised radiance, `frame = (dn - black) / (exposure * white)`.

    frames: (N, H, W), or (B, N, H, W) for a batch, float32; frame 0 is the reference. NaN marks
        an invalid pixel; it becomes `valid = False` and its value means nothing.
    exposure: (N,) or (B, N), in any unit.
    white_level: raw DN that stands for radiance 1 at exposure 1; black_level: raw DN of no light.
    step_dn: the least by which raw pixels differ, DN: 1 where they are whole numbers.
    noise: law of the raw pixels, or None where it is not known.
    valid: bool, shape of `frames`.
    georef: of the reference frame. names: one a frame, for messages and reports.
    notes: what was assumed on reading, in sentences; they go into the product's provenance.
    days: whether frames are of different days, see `days`.
    """

    frames: Tensor
    exposure: Tensor
    white_level: Tensor
    noise: NoiseLaw | None = None
    valid: Tensor = None  # type: ignore[assignment]  # all pixels that are not NaN
    black_level: Tensor = 0.0  # type: ignore[assignment]
    georef: GeoRef | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    days: bool = False
    step_dn: Tensor = None  # type: ignore[assignment]  # by the white level

    def __post_init__(self) -> None:
        frames = torch.as_tensor(self.frames)
        require(
            frames.is_floating_point(),
            "frames of normalised radiance in floating point",
            str(frames.dtype),
            "use Burst.from_dn for raw integers",
        )
        require(
            frames.ndim in (3, 4) and min(frames.shape) > 0,
            "frames of shape (N, H, W) or (B, N, H, W)",
            tuple(frames.shape),
            "stack single-band frames of one size",
        )
        count, device = frames.shape[-3], frames.device
        known = ~torch.isnan(frames)
        valid = known if self.valid is None else torch.as_tensor(self.valid, device=device)
        check_shape("valid", valid, tuple(frames.shape))
        names = tuple(self.names) or tuple(f"frame {index}" for index in range(count))
        require(len(names) == count, f"{count} names", len(names), "name each frame once")
        _set(
            self,
            frames=torch.nan_to_num(frames.float(), nan=0.0, posinf=torch.inf, neginf=-torch.inf),
            valid=valid.bool() & known,
            names=names,
            exposure=torch.as_tensor(self.exposure, dtype=torch.float32, device=device),
        )
        if self.step_dn is None:
            _set(self, step_dn=FINEST_STEP * torch.as_tensor(self.white_level))
        for name in LEVELS:
            value = torch.as_tensor(getattr(self, name), dtype=torch.float32, device=device)
            _set(self, **{name: value.expand(frames.shape[:-3]) if value.ndim == 0 else value})
        if self.noise is not None:
            _set(self, noise=self.noise.map(lambda x: x.to(device).expand(frames.shape[:-3])))
        self._check()

    def _check(self) -> None:
        check_shape("exposure", self.exposure, tuple(self.frames.shape[:-2]))
        for name in LEVELS:
            check_shape(name, getattr(self, name), tuple(self.frames.shape[:-3]))
        if self.frames.ndim == 4:  # a batch is made by code: its values are not a user's mistake
            return
        check_frames(self.frames, self.valid, self.names)
        check_exposure(self.exposure, self.names)
        check_positive("white_level", self.white_level)
        if self.noise is not None:
            check_noise(self.noise.a, self.noise.b)

    @classmethod
    def from_dn(
        cls, dn: Any, exposure: Any, white_level: float, black_level: float = 0.0, **rest: Any
    ) -> Burst:
        """A burst from raw pixels: `frame = (dn - black_level) / (exposure * white_level)`.

        dn: (N, H, W), any real dtype; exposure: (N,); the rest as in `Burst`.
        """
        raw = torch.as_tensor(np.asarray(dn, dtype=np.float32))
        times = torch.as_tensor(np.asarray(exposure, dtype=np.float32))
        require(raw.ndim == 3, "dn of shape (N, H, W)", tuple(raw.shape), "stack the frames")
        check_shape("exposure", times, (raw.shape[0],))
        names = tuple(rest.get("names") or (f"frame {index}" for index in range(len(raw))))
        require(len(names) == len(raw), f"{len(raw)} names", len(names), "name each frame once")
        check_exposure(times, names)
        check_positive("white_level", torch.as_tensor(float(white_level)))
        frames = (raw - black_level) / (times * white_level)[:, None, None]
        white, black = torch.tensor(float(white_level)), torch.tensor(float(black_level))
        step = torch.tensor(raw_step(whole_numbers(raw.numpy()), float(white_level)))
        return cls(frames, times, white, black_level=black, step_dn=step, **rest)

    @property
    def gain(self) -> Tensor:
        """Raw DN above black for one unit of radiance, `exposure * white_level`, (..., N)."""
        return self.exposure * self.white_level[..., None]

    @property
    def count(self) -> int:
        """The number of frames, N."""
        return self.frames.shape[-3]

    @property
    def shape(self) -> tuple[int, int]:
        """The size of a frame, (H, W)."""
        return self.frames.shape[-2], self.frames.shape[-1]

    def raw_dn(self) -> Tensor:
        """The raw pixels again, NaN where invalid: `frame * gain + black`."""
        black = self.black_level[..., None, None, None]
        dn = self.frames * self.gain[..., None, None] + black
        return dn.masked_fill(~self.valid, torch.nan)

    def batched(self) -> Burst:
        """The same burst as a batch of one; a batch is returned as it is."""
        return self if self.frames.ndim == 4 else stack([self])

    def select(self, index: Sequence[int]) -> Burst:
        """The burst of the frames `index`, in that order; the first becomes the reference.

        The georeference is the old reference's, and goes with it.
        """
        order = list(index)
        return dataclasses.replace(
            self,
            frames=self.frames[..., order, :, :],
            valid=self.valid[..., order, :, :],
            exposure=self.exposure[..., order],
            names=tuple(self.names[i] for i in order),
            georef=self.georef if order[0] == 0 else None,
        )

    def part(self, index: Tensor | int) -> Burst:
        """Some bursts of a batch; or one of them, no batch any more."""
        return dataclasses.replace(
            self,
            frames=self.frames[index],
            valid=self.valid[index],
            **self._facts(lambda x: x[index]),
        )

    def _facts(self, take: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Exposures, levels and noise law with something taken of them."""
        noise = None if self.noise is None else self.noise.map(take)
        return {name: take(getattr(self, name)) for name in ("exposure", *LEVELS)} | {
            "noise": noise
        }

    def tile(self, rows: slice, columns: slice) -> Burst:
        """A window of all frames, low-res px, as a batch of one.

        A batch, because a part may be masked in some frames, as a burst may not.
        """
        check_window(rows, columns, self.shape)
        batch = (None,) * (4 - self.frames.ndim)
        part = (*batch, ..., rows, columns)
        return dataclasses.replace(
            self,
            frames=self.frames[part],
            valid=self.valid[part],
            **self._facts(lambda x: x[(*batch, ...)]),
        )

    def moved_px(self, rows: slice, columns: slice) -> Tensor:  # noqa: ARG002 as files have it
        """Whole px from a window to what `tile` gives of each frame, (N, 2): none."""
        return torch.zeros(self.count, 2)

    def split_reference(self) -> tuple[Burst, Burst]:
        """(frames 1 to N-1, the reference alone): the one place where v_1 leaves the input."""
        require(
            self.count > 1, "at least 2 frames", self.count, "a reference needs frames beside it"
        )
        return self.select(range(1, self.count)), self.select([0])

    def to(self, device: torch.device | str) -> Burst:
        """The same burst on another device."""
        return dataclasses.replace(
            self,
            frames=self.frames.to(device),
            valid=self.valid.to(device),
        )


def stack(bursts: Sequence[Burst]) -> Burst:
    """Bursts, or batches of them, of one size and frame count as one batch.

    Georeference, names and notes are those of the first.
    """
    shapes = {tuple(burst.frames.shape[-3:]) for burst in bursts}
    require(
        len(shapes) == 1,
        "bursts of one shape",
        sorted(shapes),
        "batch only bursts of the same frame count and size",
        UsageError,
    )
    laws = [burst.noise for burst in bursts]
    known = [law for law in laws if law is not None]
    require(
        len(known) in (0, len(laws)),
        "a noise law in all bursts of a batch or in none",
        f"{len(known)} of {len(laws)}",
        "batch them apart",
        UsageError,
    )
    require(
        len({burst.days for burst in bursts}) == 1,
        "bursts of one day in a batch, or bursts of different days",
        "both",
        "batch them apart",
        UsageError,
    )
    single = [burst.frames.ndim == 3 for burst in bursts]

    def all_of(parts: Iterable[Tensor]) -> Tensor:
        return torch.cat([x[None] if one else x for x, one in zip(parts, single, strict=True)])

    return Burst(
        frames=all_of(burst.frames for burst in bursts),
        exposure=all_of(burst.exposure for burst in bursts),
        **{name: all_of(getattr(burst, name) for burst in bursts) for name in LEVELS},
        noise=NoiseLaw(all_of(x.a for x in known), all_of(x.b for x in known)) if known else None,
        valid=all_of(burst.valid for burst in bursts),
        georef=bursts[0].georef,
        names=bursts[0].names,
        notes=bursts[0].notes,
        days=bursts[0].days,
    )


@dataclass(frozen=True, eq=False)
class Simulated:
    """A burst with what only a simulator knows, kept apart so that no method sees it.

    truth: (..., s*H, s*W) normalised radiance.
    flow_px: (..., N, 2) for translations or (..., N, 2, H, W), frame to reference, low-res px.
    """

    burst: Burst
    truth: Tensor
    flow_px: Tensor | None = None

    @property
    def scale(self) -> int:
        """The zoom from a frame to the truth."""
        (height, width), (tall, wide) = self.burst.shape, self.truth.shape[-2:]
        require(
            tall % height == 0 and tall // height == wide / width,
            "a truth whose size is a whole multiple of the frames'",
            f"truth {tall}x{wide}, frames {height}x{width}",
            "crop the truth to scale times the frame size",
        )
        return tall // height
