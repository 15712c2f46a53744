"""What simulated training bursts are drawn from: a setting for each batch, holes for each frame."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..burst import Burst
from ..checks import require
from ..errors import UsageError
from ..geometry import pixel_grid
from ..simulate import PRESETS, Simulation, with_options

if TYPE_CHECKING:
    from .config import DataConfig

DEAD_PIXELS = 1e-3  # share, in a burst that has holes
HOLED_FRAMES = 0.3  # share of its frames
WIDEST_NOISE = 4.0  # of the standard deviations of one batch
SATURATED_STEPS = 2  # of exposure, where frames saturate: longer ones would be white all over


@dataclass(frozen=True)
class Mixture:
    """How likely each kind of burst is. The default is the paper's preset alone.

    paper, affine, continuous: weights of the presets. psf_hpx: of `continuous`, uniform.
    noise_std_dn: in place of the presets' own, one a burst, uniform within a factor of WIDEST_NOISE
    that lies anywhere in the range, evenly in the logarithm. noise_a: in place of that of `affine`,
    uniform. exposure_error: relative rms, uniform, one a batch.
    drifting, saturated, masked: shares of batches; masked ones have holes in some of their frames.
    longest_first: share of batches whose references are their longest exposures: the less noise
    in what a network must predict, the more it learns from it. Not those that saturate.
    bend_px: of drift, uniform.
    """

    paper: float = 1.0
    affine: float = 0.0
    continuous: float = 0.0
    psf_hpx: tuple[float, float] = (0.7, 0.7)
    noise_std_dn: tuple[float, float] | None = None
    noise_a: tuple[float, float] | None = None
    exposure_error: tuple[float, float] = (0.0, 0.0)
    drifting: float = 0.0
    bend_px: tuple[float, float] = (0.0, 0.5)
    saturated: float = 0.0
    masked: float = 0.0
    longest_first: float = 0.0

    def __post_init__(self) -> None:
        weights = (self.paper, self.affine, self.continuous)
        require(
            min(weights) >= 0 and 0 < sum(weights) < math.inf,
            "weights of presets that are finite and not negative, and one above zero",
            list(weights),
            "correct data.mixture",
            UsageError,
        )
        for name in ("drifting", "saturated", "masked", "longest_first"):
            value = getattr(self, name)
            require(
                0 <= value <= 1,
                f"data.mixture.{name} from 0 to 1",
                value,
                "it is a share",
                UsageError,
            )
        for name in ("psf_hpx", "noise_std_dn", "noise_a", "exposure_error", "bend_px"):
            ends = getattr(self, name)
            require(
                ends is None or 0 <= ends[0] <= ends[1] < math.inf,
                f"data.mixture.{name} from low to high, not negative and finite",
                ends and list(ends),
                "give the lower bound first",
                UsageError,
            )


def possible_presets(mix: Mixture) -> list[Simulation]:
    """The presets that a mixture may draw."""
    return [setting for name, setting in PRESETS.items() if getattr(mix, name) > 0]


def check_extremes(config: DataConfig, scale: int) -> None:
    """Refuse a mixture whose largest motion no simulation holds, before it is drawn by chance."""
    mix = config.mixture
    motion = "drift" if mix.drifting > 0 else None
    for setting in possible_presets(mix):
        try:
            with_options(
                setting, size=config.size, scale=scale, motion=motion, bend_px=mix.bend_px[1]
            )
        except UsageError as error:
            raise UsageError(f"data.mixture: {error}") from error


def draw_setting(host: np.random.Generator, config: DataConfig, scale: int) -> Simulation:
    """The setting of one batch."""
    mix = config.mixture
    weights = np.array([mix.paper, mix.affine, mix.continuous])
    name = ("paper", "affine", "continuous")[host.choice(3, p=weights / weights.sum())]
    psf_hpx, noise_a, error, bend_px = (
        None if ends is None else float(host.uniform(*ends))
        for ends in (mix.psf_hpx, mix.noise_a, mix.exposure_error, mix.bend_px)
    )
    drifting, saturated = (host.random() < share for share in (mix.drifting, mix.saturated))
    count = config.draw_count(host)
    longest_first = host.random() < mix.longest_first
    return with_options(
        PRESETS[name],
        frames=count,
        size=config.size,
        scale=scale,
        noise_std_dn=_part_of(mix.noise_std_dn, host),
        noise_a=noise_a if name == "affine" else None,
        psf_hpx=psf_hpx if name == "continuous" else None,
        exposure_error=error,
        motion="drift" if drifting else None,
        bend_px=bend_px if drifting else None,
        saturate=bool(saturated),
        exposure_steps=SATURATED_STEPS if saturated else None,
        longest_first=bool(longest_first and not saturated),
    )


def _part_of(
    ends: tuple[float, float] | None, host: np.random.Generator
) -> tuple[float, float] | None:
    """A range of at most a factor of WIDEST_NOISE, anywhere in a wider one."""
    if ends is None or ends[1] <= WIDEST_NOISE * ends[0]:
        return ends
    lowest = max(ends[0], 1e-3 * ends[1])
    least = float(np.exp(host.uniform(np.log(lowest), np.log(ends[1] / WIDEST_NOISE))))
    return least, WIDEST_NOISE * least


def random_holes(burst: Burst, generator: torch.Generator) -> Burst:
    """The batch with a rectangle or an ellipse masked in some of its frames, and dead pixels.

    Holes are up to 0.35 of the frame from centre to edge.
    """
    shape, device = burst.frames.shape, generator.device

    def uniform(*size: int) -> torch.Tensor:
        return torch.rand(size, generator=generator, device=device).to(burst.frames)

    centre, reach = uniform(*shape[:2], 2), 0.05 + 0.3 * uniform(*shape[:2], 2)
    place = pixel_grid(burst.shape, burst.frames) / max(burst.shape)
    offset = (place - centre[..., None, None]) / reach[..., None, None]
    box, ellipse = offset.abs().amax(2) < 1, (offset**2).sum(2) < 1
    hole = torch.where((uniform(*shape[:2]) < 0.5)[..., None, None], box, ellipse)
    hole = hole & (uniform(*shape[:2]) < HOLED_FRAMES)[..., None, None]
    return dataclasses.replace(burst, valid=burst.valid & ~hole & (uniform(*shape) >= DEAD_PIXELS))
