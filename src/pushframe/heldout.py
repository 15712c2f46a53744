"""Are the error bars right on these very data? Each frame held out in turn and predicted.

A frame `v_k` that took no part is a new, noisy look at the same scene: under the posterior of
the others, `v_k - g_k A_k u_hat` has variance `g_k^2 nu + R_k`, where `nu` is the square of the
error bar and `R_k` the frame's noise by the law. No truth is needed. The image is reconstructed
on the grid of the held-out frame, so that `A_k` only subsamples: between its pixels the variance
of a reconstruction is not the mean of theirs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from .burst import Burst, stack
from .days import as_of_one_day
from .geometry import pixel_grid, sample_at, subsample
from .infer import Source, believed, facts_of, tiled_batch
from .methods import Method, find_methods
from .metrics import HALF_WIDTHS, LEVELS
from .motion_table import mean_shift
from .noise import normalised_noise_var, rounding_var
from .noise_law import OVERSTATED
from .posterior import Posterior
from .scene_motion import SceneMotion
from .seams import spread_tiles, tiles_at_once
from .uneven import Pattern

MAX_FRAMES = 6
MAX_BENT_FRAMES = 3  # where motion bends: each takes many times as long
BEND_PX = 0.02  # motion that differs by less over a tile is a translation
BORDER_PX = 6  # of a tile, where a reconstruction is worse than inside it
MIN_FRAMES = 3
MIN_PIXELS = 500
AGREEING, FAR_OFF = 0.02, 0.05  # calibration errors: up to which bars agree, beyond which far off
TELLING = 0.1  # share of the bars in the predicted variance below which little can be said


@dataclass(frozen=True)
class HeldOutFrame:
    """One frame predicted from the others.

    coverage: share of its pixels within each central interval of `LEVELS`. mean_z2: 1 is ideal.
    bar_share: share of the error bars in the predicted variance; the rest is the frame's noise.
    """

    name: str
    pixels: int
    coverage: tuple[float, ...]
    mean_z2: float
    bar_share: float


@dataclass(frozen=True)
class HeldOut:
    """What held-out frames say of the error bars: the median of the frames, figure by figure.

    The median, since one frame with a passing car or a wrong exposure says nothing of the bars.
    overstated: whether the noise law was estimated, and frames are much smoother than it says.
    """

    frames: tuple[HeldOutFrame, ...]
    tiles: int
    overstated: bool = False

    @property
    def coverage(self) -> tuple[float, ...]:
        """Share of pixels within each central interval of `LEVELS`."""
        return tuple(map(median, zip(*(frame.coverage for frame in self.frames), strict=True)))

    @property
    def mean_z2(self) -> float:
        """Squared error over predicted variance; 1 is ideal, more is overconfident."""
        return median(frame.mean_z2 for frame in self.frames)

    @property
    def bar_share(self) -> float:
        """Share of the error bars in the predicted variance."""
        return median(frame.bar_share for frame in self.frames)

    @property
    def pixels(self) -> int:
        """Pixels compared, of all frames."""
        return sum(frame.pixels for frame in self.frames)

    @property
    def calibration_error(self) -> float:
        """Mean distance of stated and measured coverage."""
        pairs = zip(LEVELS, self.coverage, strict=True)
        return sum(abs(level - share) for level, share in pairs) / len(LEVELS)

    def _at(self, level: float) -> float:
        return self.coverage[LEVELS.index(level)]

    @property
    def at_90(self) -> float:
        """Share of the pixels within their 90 % interval."""
        return self._at(0.9)

    @property
    def verdict(self) -> str:
        """What to think of the error bars, in one sentence."""
        seen = (
            f"Of {len(self.frames)} frames held out in turn, {100 * self.at_90:.1f}% of the pixels "
            "lie in the 90% interval predicted for them"
        )
        if self.overstated:
            return (
                f"{seen}, but the noise law that was estimated is much larger than the frames' own "
                "noise: it hides what is not modelled, and the error bars are not to be trusted."
            )
        off = self.calibration_error
        if off <= AGREEING and self.bar_share < TELLING:
            noisier = math.sqrt(1 / self.bar_share - 1)
            return (
                f"{seen}: noise law and error bars agree with the data, but the noise of a frame "
                f"is {noisier:.0f} times an error bar, so that bars somewhat off would not show."
            )
        if off <= AGREEING:
            return f"{seen}: the error bars agree with data that they have not seen."
        if self._at(0.5) > 0.5 + AGREEING and self._at(0.99) < 0.99 - AGREEING:
            return (
                f"{seen}, but most are nearer and some much farther off than the error bars say: "
                "something in these frames is not modelled, such as clipped pixels, shadows, "
                "moving objects."
            )
        much = "" if off > FAR_OFF else "a little "
        length = "long" if self.at_90 > 0.9 else "short"
        return f"{seen}: error bars or noise law are {much}too {length} for these data."


@dataclass(frozen=True)
class Unchecked:
    """Why there was no check."""

    why: str

    @property
    def verdict(self) -> str:
        """What to think of the error bars, in one sentence."""
        return f"The error bars were not checked: {self.why}."


def check_held_out(
    source: Source,
    scale: int,
    method: str | Method,
    device: torch.device | str = "cpu",
    on_frame: Callable[[int, int], None] = lambda *_: None,
    facts: Burst | None = None,
    scene: SceneMotion | None = None,
    pattern: Pattern | None = None,
) -> HeldOut | Unchecked:
    """The check on up to 2 tiles and 6 frames, spread evenly, or why it cannot be made.

    Motion comes from all frames; image and error bar from all but the one held out, what frames
    of different days agree on, too. facts: levels and noise law, scene: motion, where they are
    known already. pattern: of the detector, whose frames `source` gives without it.
    """
    chosen = method if isinstance(method, Method) else find_methods([method], scale)[method]
    facts = facts or facts_of(source, scale, chosen.weighs_noise)
    if facts.count < MIN_FRAMES:
        return Unchecked(f"it takes at least {MIN_FRAMES} frames, not {facts.count}")
    tiles = spread_tiles(source.shape)
    batch = tiled_batch(source, tiles, facts).to(device)
    of_one_day = as_of_one_day(batch)
    whole = chosen.run(of_one_day, scale, believed(scene, source, tiles, device))
    if whole.posterior.var is None:
        return Unchecked("the method gives none")
    if whole.flow_px is None:
        return Unchecked("the method estimates no motion")
    if batch.noise is None:
        return Unchecked("the noise law is not known, give noise_a and noise_b")
    used = of_one_day.valid if whole.used is None else whole.used
    batch = dataclasses.replace(batch, valid=used)  # clouds are no fault of the bars either
    flow_px, bends = _simplest(whole.flow_px)
    motion_var = _motion_variance(batch, chosen, scale, whole.posterior.var, flow_px)
    if pattern is not None:
        motion_var = motion_var + pattern.variance_in(whole.posterior.mean).nan_to_num()
    kept = used.flatten(2).any(-1).all(0)
    most = MAX_BENT_FRAMES if bends else MAX_FRAMES
    held = evenly([k for k in range(facts.count) if bool(kept[k])], most)
    at_once = max(tiles_at_once(torch.device(device), facts.count, scale) // len(tiles), 1)
    found = []
    for first in range(0, len(held), at_once):
        some = held[first : first + at_once]
        for k, posterior in zip(some, _without(batch, chosen, scale, flow_px, some), strict=True):
            parts = _residual(batch, posterior, scale, flow_px, motion_var, k)
            found.append(_figures(facts.names[k], *parts))
            on_frame(len(found), len(held))
    frames = tuple(frame for frame in found if frame is not None)
    if not frames:
        return Unchecked(
            f"it takes {MIN_PIXELS} pixels of a frame, {BORDER_PX} px or more from the border, "
            "and no frame has so many"
        )
    return HeldOut(frames, len(tiles), OVERSTATED in facts.notes)


def _simplest(flow_px: Tensor) -> tuple[Tensor, bool]:
    """Flows as translations (B, N, 2) unless they bend, and whether they do."""
    shift = mean_shift(flow_px)
    if flow_px.ndim == 3 or float((flow_px - shift[..., None, None]).abs().max()) < BEND_PX:
        return shift, False
    return flow_px, True


def _motion_variance(
    batch: Burst, method: Method, scale: int, var: Tensor, flow_px: Tensor
) -> Tensor:
    """What estimating the motion adds to the error bars, (B, s*H, s*W)."""
    known = method.run(as_of_one_day(batch), scale, flow_px).posterior.var
    assert known is not None
    return (var - known).nan_to_num().clamp(min=0)


def evenly(items: Sequence[int], most: int) -> list[int]:
    """Up to `most` of the items, spread over all of them."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def _without(
    batch: Burst, method: Method, scale: int, flow_px: Tensor, held: Sequence[int]
) -> Iterator[Posterior]:
    """The posteriors of a batch without each of the frames `held`, on the grid of that frame.

    flow_px: (B, N, 2[, H, W]) of all frames. A flow onto the frame is the difference of two onto
    the reference, where they bend to first order in the bend.
    """
    # the fullest first: methods compare the others with it
    share = batch.valid.float().mean((0, 2, 3)).tolist()
    bursts, flows = [], []
    for k in held:
        others = sorted((n for n in range(batch.count) if n != k), key=lambda n: -share[n])
        bursts.append(batch.select(others))
        flows.append((flow_px - flow_px[:, k : k + 1])[:, others])
    posterior = method.run(as_of_one_day(stack(bursts)), scale, torch.cat(flows)).posterior
    assert posterior.var is not None
    size = len(batch.frames)
    pairs = zip(posterior.mean.split(size), posterior.var.split(size), strict=True)
    return (Posterior(mean, var) for mean, var in pairs)


def _residual(
    batch: Burst, posterior: Posterior, scale: int, flow_px: Tensor, motion_var: Tensor, held: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Residuals of frame `held`, the bars' and the noise's share of their variance, flat.

    posterior: that of the others, on the grid of the frame. flow_px: (B, N, 2[, H, W]) of all
    frames; motion_var: what its error, and a detector's pattern, add to the bars, (B, s*H, s*W) on
    the reference's grid.
    """
    assert posterior.var is not None
    predicted, bar = (subsample(image, scale) for image in (posterior.mean, posterior.var))
    own = flow_px[:, held] if flow_px.ndim == 5 else flow_px[:, held, :, None, None]
    place = pixel_grid(batch.shape, predicted) + own
    bar = bar + sample_at(motion_var, scale * place, "bilinear")
    good = batch.valid[:, held] & torch.isfinite(predicted) & torch.isfinite(bar)
    for axis, size in enumerate(batch.shape):
        good &= (place[:, axis] >= BORDER_PX) & (place[:, axis] <= size - 1 - BORDER_PX)
    frame, predicted = batch.frames[:, held], predicted.nan_to_num()
    power = (good * predicted**2).sum((1, 2)).clamp(min=1e-30)
    gain = ((good * frame * predicted).sum((1, 2)) / power)[:, None, None]
    signal = gain * predicted  # an exposure may be off by a percent: no fault of the bars
    assert batch.noise is not None
    noise = normalised_noise_var(batch.noise, signal[:, None], batch.gain[:, held : held + 1])[:, 0]
    noise = noise.clamp(min=float(rounding_var(batch)[0] / batch.gain[0, held] ** 2))
    residual = frame - signal
    if batch.days:  # nor is the haze of a day
        off = residual.masked_fill(~good, torch.nan).flatten(1).nanmedian(1).values
        residual = residual - off[:, None, None]
    return residual[good], (gain**2 * bar)[good], noise[good]


def _figures(name: str, residual: Tensor, bar: Tensor, noise: Tensor) -> HeldOutFrame | None:
    """What the pixels of one held-out frame say, None where they are too few."""
    if residual.numel() < MIN_PIXELS:
        return None
    residual, bar, noise = (x.double().cpu() for x in (residual, bar, noise))
    z2 = residual**2 / (bar + noise)
    within = [float((z2 <= half**2).double().mean()) for half in HALF_WIDTHS.tolist()]
    share = float((bar / (bar + noise)).mean())
    return HeldOutFrame(name, z2.numel(), tuple(within), float(z2.mean()), share)
