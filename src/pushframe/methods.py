"""Every way to reconstruct, by name: what `evaluate`, `demo` and `super_resolve` offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .baselines import bicubic, map_estimate, shift_and_add
from .burst import Burst
from .checks import require
from .config import suggestion
from .errors import UsageError
from .gaussian import far_from_samples
from .model import Network, estimate_motion
from .posterior import Posterior
from .registration import register
from .solver import Belief, solve
from .weights import SUFFIX, load_weights, read_card, shipped_weights, to_device

MAP_SAMPLES = 16


class Estimate(NamedTuple):
    """A posterior and the motion it was made with; None where a method uses no motion.

    used: (B, N, H, W) bool, the pixels that entered; None for all valid ones. kept: (B, N) bool,
    the frames that agree with the others; None where nothing was judged. gain: (B, N) true over
    stated exposure, the reference's as the unit, and gain_error: its standard deviation.
    """

    posterior: Posterior
    flow_px: Tensor | None
    used: Tensor | None = None
    kept: Tensor | None = None
    gain: Tensor | None = None
    gain_error: Tensor | None = None

    def part(self, index: int) -> Estimate:
        """That of one burst of the batch, on the CPU."""
        some = slice(index, index + 1)
        mean, var = self.posterior.mean[some].cpu(), self.posterior.var
        posterior = Posterior(mean, None if var is None else var[some].cpu())
        return Estimate(posterior, *(None if x is None else x[some].cpu() for x in self[1:]))


@dataclass(frozen=True)
class Method:
    """`run(burst, scale, motion)` for a batch; motion None means: estimate it.

    weighs_noise: needs the noise law. believes: takes a `Belief` as motion, to begin from and to
    weigh against what the frames tell.
    """

    about: str
    run: Callable[[Burst, int, Any], Estimate]  # motion: Tensor | None, or Belief if it believes
    weighs_noise: bool = True
    believes: bool = False


def _registered(reconstruct: Callable[[Burst, Tensor, int], Posterior]) -> Callable[..., Estimate]:
    """A reconstruction from known motion, with Lucas-Kanade where the motion is not given."""

    def run(burst: Burst, scale: int, flow_px: Tensor | None) -> Estimate:
        motion = register(burst) if flow_px is None else flow_px
        return Estimate(reconstruct(burst, motion, scale), motion)

    return run


def _solved(burst: Burst, scale: int, motion: Tensor | Belief | None) -> Estimate:
    solved = solve(burst, scale, motion)
    error = gain_error(solved.covariance)
    return Estimate(*solved[:2], solved.used, solved.kept, solved.gain, error)


def gain_error(covariance: Tensor) -> Tensor:
    """Standard deviations (B, N) of gains, by the covariance (B, 3N, 3N) of (dy, dx, gain)."""
    return covariance.diagonal(dim1=-2, dim2=-1)[:, 2::3].clamp(min=0).sqrt()


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
        believes=True,
    ),
}
DEFAULT_WEIGHTS = "base"


def best_method(scale: int) -> str:
    """The method to use unless told otherwise: the shipped weights if they fit, else `solver`."""
    return DEFAULT_WEIGHTS if read_card(DEFAULT_WEIGHTS)["scale"] == scale else "solver"


def method_names() -> list[str]:
    """Every name that `find_methods` knows: built-in methods, then shipped weights."""
    return [*METHODS, *shipped_weights()]


def check_methods(names: Sequence[str], scale: int | None = None) -> None:
    """UsageError where a name is unknown, or weights are of another scale; cards alone are read.

    An unknown name is an error that suggests the nearest. scale: the zoom, if it is known.
    """
    if not names:
        known = ", ".join(method_names())
        raise UsageError(f"expected at least one method of {known}, got none: name it")
    for name in names:
        if name in METHODS:
            continue
        if name not in shipped_weights() and not name.endswith(SUFFIX):
            raise UsageError(
                f"expected methods of {', '.join(method_names())}, or a {SUFFIX} file, got "
                f"{name!r}: {suggestion(name, method_names())}"
            )
        own = read_card(name)["scale"]
        if scale is not None:
            _check_scale(scale, own, name)


def find_methods(names: Sequence[str], scale: int | None = None) -> dict[str, Method]:
    """The named methods, in order, each checked as by `check_methods`.

    A name of shipped weights, or a file of weights, is a network.
    """
    check_methods(names, scale)
    return {name: METHODS[name] if name in METHODS else _from_weights(name) for name in names}


def _from_weights(name: str) -> Method:
    network, card = load_weights(name)
    return Method(f"network {card['network']}", partial(run_network, network), believes=True)


def _check_scale(scale: int, own: int, name: str = "") -> None:
    require(
        scale == own,
        f"scale {own}, that of the weights{f' {name}' if name else ''}",
        scale,
        "change --scale, or choose another method, such as solver",
        UsageError,
    )


@torch.no_grad()
def run_network(
    network: Network, burst: Burst, scale: int, known: Tensor | Belief | None
) -> Estimate:
    """The posterior of a network, with its own motion or the solver's where it is not given."""
    _check_scale(scale, network.scale)
    to_device(network, burst.frames.device)
    motion, used = None if isinstance(known, Tensor) else network.own_motion(burst), burst
    if motion is None:
        used, motion = estimate_motion(burst, scale, known=known)
    posterior = network(used, motion)
    unknown = far_from_samples(used.valid, motion.flow_px, scale)
    kept = used.valid.any(-1).any(-1)
    posterior = posterior.without(unknown)
    if motion.covariance is None:  # the network's own, which estimates no gains
        return Estimate(posterior, motion.flow_px, used.valid, kept)
    error = gain_error(motion.covariance)
    return Estimate(posterior, motion.flow_px, used.valid, kept, motion.gain, error)
