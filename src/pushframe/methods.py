"""Every way to reconstruct, by name: what `evaluate`, `demo` and `super_resolve` offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import Tensor

from .baselines import bicubic, map_estimate, shift_and_add
from .burst import Burst, Posterior
from .checks import frame_label
from .config import suggestion
from .errors import UsageError
from .registration import register
from .solver import solve

MAP_SAMPLES = 16


class Estimate(NamedTuple):
    """A posterior and the motion it was made with; None where a method uses no motion.

    used: (B, N, H, W) bool, the pixels that entered; None for all valid ones. notes: what a user
    should know of how it was made, in sentences.
    """

    posterior: Posterior
    flow_px: Tensor | None
    used: Tensor | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """`run(burst, scale, flow_px)` for a batch; flow_px None means: estimate the motion.

    weighs_noise: needs the noise law. any_flow: takes a known flow for every pixel, not only one
    translation a frame.
    """

    about: str
    run: Callable[[Burst, int, Tensor | None], Estimate]
    weighs_noise: bool = True
    any_flow: bool = True


def _registered(reconstruct: Callable[[Burst, Tensor, int], Posterior]) -> Callable[..., Estimate]:
    """A reconstruction from known motion, with Lucas-Kanade where the motion is not given."""

    def run(burst: Burst, scale: int, flow_px: Tensor | None) -> Estimate:
        motion = register(burst) if flow_px is None else flow_px
        return Estimate(reconstruct(burst, motion, scale), motion)

    return run


def _solved(burst: Burst, scale: int, flow_px: Tensor | None) -> Estimate:
    posterior, fit, used = solve(burst, scale, flow_px)
    there = burst.valid.any(-1).any(-1)  # a tile may lie outside some frames
    share = ((~fit.kept & there).sum(0) / there.sum(0).clamp(min=1)).tolist()
    notes = tuple(
        f"{frame_label(k, name)} disagrees with the others and was left out"
        f"{'.' if share[k] == 1 else ' in part.'}"
        for k, name in enumerate(burst.names)
        if share[k] > 0
    )
    return Estimate(posterior, fit.flow_px, used, notes)


METHODS = {
    "bicubic": Method(
        "the reference frame, interpolated",
        lambda burst, scale, _: Estimate(bicubic(burst, scale), None),
        weighs_noise=False,
    ),
    "shift_and_add": Method(
        "noise-weighted mean of the registered samples, naive standard error",
        _registered(shift_and_add),
    ),
    "map": Method(
        "Gaussian-prior MAP on registered frames, no error bar",
        _registered(map_estimate),
    ),
    "map_sampled": Method(
        f"the same with a variance from {MAP_SAMPLES} perturb-and-MAP samples (slow)",
        _registered(partial(map_estimate, samples=MAP_SAMPLES)),
    ),
    "solver": Method(
        "motion, gains, prior and image estimated together, with an error bar",
        _solved,
        any_flow=False,
    ),
}
BEST = "solver"


def find_methods(names: Sequence[str]) -> dict[str, Method]:
    """The named methods, in order; an unknown name is an error that suggests the nearest."""
    for name in names:
        if name not in METHODS:
            raise UsageError(
                f"expected methods of {', '.join(METHODS)}, got {name!r}: "
                f"{suggestion(name, list(METHODS))}"
            )
    if not names:
        raise UsageError(f"expected at least one method of {', '.join(METHODS)}, got none: name it")
    return {name: METHODS[name] for name in names}
