"""What the files of a burst hold, whatever their layout, and the rules that make it a Burst."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..burst import Burst, GeoRef, NoiseLaw, Simulated
from ..checks import SCALES, check_exposure, check_frames, check_positive, counted, require
from ..errors import BurstError

SCALARS = ("white_level", "black_level", "noise_a", "noise_b")
KEYS = ("frames", "exposure", *SCALARS, "valid", "reference", "truth", "flow_px", "notes")

# A burst without a white level is given the headroom of the paper's data, where scenes whose
# bright end lies near 2400 DN are normalised by 3400 DN.
WHITE_PERCENTILE = 99.5
WHITE_OVER_BRIGHT = 3400 / 2400


@dataclass(frozen=True, eq=False)
class Contents:
    """The arrays of a burst in the order of its files, before normalisation.

    frames: (N, H, W) float32 raw DN, NaN where invalid; exposure: (N,); scalars: those of
    SCALARS that were given; valid: bool (N, H, W); reference: index of the reference frame;
    truth: (s*H, s*W) DN at exposure 1 above black; flow_px: (N, 2) or (N, 2, H, W).
    """

    frames: np.ndarray
    names: tuple[str, ...]
    exposure: np.ndarray
    scalars: Mapping[str, float] = field(default_factory=dict)
    valid: np.ndarray | None = None
    reference: int = 0
    georef: GeoRef | None = None
    notes: tuple[str, ...] = ()
    truth: np.ndarray | None = None
    flow_px: np.ndarray | None = None

    def order(self) -> list[int]:
        """The indices of the frames with the reference first, the others as they were."""
        count = len(self.frames)
        require(
            0 <= self.reference < count,
            f"a reference from 0 to {count - 1}",
            self.reference,
            "correct `reference`",
        )
        return [self.reference, *(i for i in range(count) if i != self.reference)]


def check_keys(keys: Iterable[str], known: tuple[str, ...]) -> None:
    """BurstError on a key that is not known, with the nearest one that is."""
    for key in keys:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise BurstError(
                f"expected keys among {', '.join(known)}, got '{key}': did you mean '{nearest}'?"
            )


def numbers(key: str, value: Any, kinds: str = "uif") -> np.ndarray:
    """`value` as an array of numbers, its dtype kind among `kinds`."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of uneven lengths
        array = np.empty(0, dtype=object)
    require(
        array.dtype.kind in kinds,
        f"{key} in {'integers' if kinds == 'ui' else 'numbers'}",
        array.dtype.name if isinstance(value, np.ndarray) else repr(value)[:60],
        f"correct `{key}`",
    )
    return array


def number(key: str, value: Any, kinds: str = "uif") -> float:
    """`value` as one finite number."""
    array = numbers(key, value, kinds)
    require(array.size == 1, f"one number for {key}", f"{array.size}", f"correct `{key}`")
    require(bool(np.isfinite(array).all()), f"a finite {key}", array.item(), f"correct `{key}`")
    return float(array.item())


def exposures(value: Any, count: int, do: str) -> np.ndarray:
    """The exposures (N,), one for each of `count` frames; `do` says where to write them."""
    require(
        value is not None,
        f"`exposure`, one for each of {counted(count, 'frame')} found",
        "none",
        do,
    )
    array = numbers("exposure", value)
    require(
        array.shape == (count,),
        f"{counted(count, 'exposure')}, one for each frame",
        f"{array.size}" if array.ndim == 1 else f"the shape {array.shape}",
        "correct `exposure`",
    )
    return array


def to_float32(pixels: np.ndarray) -> np.ndarray:
    """Pixels of any real dtype as float32; what float32 cannot hold becomes infinite."""
    with np.errstate(over="ignore"):
        return pixels.astype(np.float32, copy=False)


def burst_of(contents: Contents) -> Burst:
    """The Burst, reference first: rules for white level, noise law and invalid pixels applied."""
    frames, names, given = contents.frames, contents.names, contents.scalars
    order = contents.order()
    known = ~np.isnan(frames)
    valid = known if contents.valid is None else contents.valid & known
    # Checked here on raw DN and in the order of the files, so that messages speak of both.
    check_frames(torch.from_numpy(frames), torch.from_numpy(valid), names)
    check_exposure(torch.from_numpy(contents.exposure.astype(np.float64)), names)
    notes = list(contents.notes)
    black = given.get("black_level", 0.0)
    if "white_level" in given:
        white = given["white_level"]
    else:
        first = contents.reference
        seen = frames[first][valid[first]]
        white = estimated_white(seen, float(contents.exposure[first]), black)
        notes.append(
            f"No white_level was given: {white:.6g} DN was taken, 3400/2400 of the "
            f"{WHITE_PERCENTILE}th percentile of the reference frame."
        )
    noise = _noise_law(given, notes)
    burst = Burst.from_dn(
        frames, contents.exposure, white, black, valid=valid, noise=noise,
        georef=contents.georef, names=names, notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip
    # the georeference is already that of the frame that becomes the reference
    return dataclasses.replace(burst.select(order), georef=contents.georef)


def estimated_white(seen_dn: np.ndarray, exposure: float, black: float) -> float:
    """3400/2400 of the 99.5th percentile of `(dn - black) / exposure` over the valid pixels."""
    bright = np.percentile((seen_dn.astype(np.float64) - black) / exposure, WHITE_PERCENTILE)
    require(
        bool(bright > 0),
        "a reference frame brighter than black_level",
        f"a 99.5th percentile of {bright:.6g} DN above it",
        "correct `black_level` or give `white_level`",
    )
    return float(bright) * WHITE_OVER_BRIGHT


def _noise_law(given: Mapping[str, float], notes: list[str]) -> NoiseLaw | None:
    """The law var = a * dn + b, or None with a note where it was not given."""
    got = [key for key in ("noise_a", "noise_b") if key in given]
    if not got:
        notes.append("No noise law was given (noise_a, noise_b).")
        return None
    require(
        len(got) == 2,
        "noise_a and noise_b",
        f"{got[0]} alone",
        "give both, of var = noise_a * dn + noise_b; one of them may be 0",
    )
    for key in got:
        check_positive(key, torch.tensor(given[key]), zero_allowed=True)
    return NoiseLaw(torch.tensor(given["noise_a"]), torch.tensor(given["noise_b"]))


def simulated_of(contents: Contents) -> Simulated:
    """The Burst with its truth, `truth / white_level`, and its flows, reference first."""
    burst, truth = burst_of(contents), contents.truth
    if truth is None:
        raise BurstError(
            "expected a simulated burst with `truth`, got none: give one that `pushframe simulate` "
            "wrote; `pushframe run` and `pushframe validate` need no truth"
        )
    image = torch.from_numpy(to_float32(truth)) / burst.white_level
    return Simulated(burst, check_truth(image, burst), known_flow(contents, burst))


def known_flow(contents: Contents, burst: Burst) -> torch.Tensor | None:
    """The flows of the files, checked, reference first; None where there are none."""
    if contents.flow_px is None:
        return None
    flow_px = torch.from_numpy(to_float32(contents.flow_px))
    check_flow(flow_px, burst)
    return flow_px[contents.order()]


def check_truth(truth: torch.Tensor, burst: Burst) -> torch.Tensor:
    """The truth, an image of finite values and a whole number of times the size of a frame."""
    require(truth.ndim == 2, "truth of shape (s*H, s*W)", tuple(truth.shape), "correct `truth`")
    scale = Simulated(burst, truth).scale
    require(
        scale in SCALES,
        f"a truth of {', '.join(map(str, SCALES))} times the size of a frame",
        f"{scale} times",
        "correct `truth`",
    )
    require(bool(torch.isfinite(truth).all()), "a finite truth", "NaN or inf", "correct `truth`")
    return truth


def check_flow(flow_px: torch.Tensor, burst: Burst) -> None:
    """Flows are finite, of shape (N, 2) or (N, 2, H, W)."""
    spread = (burst.count, 2, *burst.shape)
    require(
        tuple(flow_px.shape) in (spread[:2], spread),
        f"flow_px of shape {spread[:2]} or {spread}",
        tuple(flow_px.shape),
        "correct `flow_px`",
    )
    require(
        bool(torch.isfinite(flow_px).all()), "finite flow_px", "NaN or inf", "correct `flow_px`"
    )
