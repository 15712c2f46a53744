"""Motion of the frames, by name: of the solver, Lucas-Kanade, a network, or the simulator."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from ..burst import Burst
from ..checks import require
from ..errors import UsageError
from ..registration import register
from ..solver.motion import fit_motion
from ..solver.outliers import agreeing_frames, foreign_pixels
from ..solver.solve import MAX_FOREIGN
from .network import Motion, Network

MotionKind = Literal["solver", "lucas_kanade", "network", "true"]


def find_motion(
    network: Network, burst: Burst, kind: MotionKind, true_px: Tensor | None = None
) -> tuple[Burst, Motion]:
    """As `estimate_motion`, with the network's own motion, and its gradient, for "network"."""
    if kind != "network":
        return estimate_motion(burst, network.scale, kind, true_px)
    motion = network.own_motion(burst)
    require(
        motion is not None,
        "a network that finds motion",
        "one that does not",
        "use model.finds_motion = true, or another motion",
        UsageError,
    )
    assert motion is not None
    return burst, motion


@torch.no_grad()
def estimate_motion(
    burst: Burst, scale: int, kind: MotionKind = "solver", true_px: Tensor | None = None
) -> tuple[Burst, Motion]:
    """The motion of a batch, reference included, and the batch less what does not belong.

    true_px: (B, N, 2[, H, W]), what the simulator knows, for kind "true" alone.
    """
    if kind == "true":
        require(
            true_px is not None,
            "bursts with their true motion",
            "none",
            'use motion = "solver"',
            UsageError,
        )
        assert true_px is not None
        return burst, Motion(true_px, torch.ones_like(burst.exposure))
    start_px = register(burst)
    if kind == "lucas_kanade":
        return burst, Motion(start_px, torch.ones_like(burst.exposure))
    return solver_motion(burst, start_px, scale)


def solver_motion(burst: Burst, start_px: Tensor, scale: int) -> tuple[Burst, Motion]:
    """Shifts and gains as the solver finds them; what it leaves out becomes invalid."""
    kept = agreeing_frames(burst, start_px)
    foreign = foreign_pixels(burst, start_px)
    kept = kept & (foreign.to(burst.frames).mean((-1, -2)) < MAX_FOREIGN)
    kept[:, 0] = True
    burst = dataclasses.replace(burst, valid=burst.valid & ~foreign)
    fit = fit_motion(burst, start_px, kept, scale)
    good = burst.valid & ~fit.outlier & fit.kept[..., None, None]
    return dataclasses.replace(burst, valid=good), Motion(fit.flow_px, fit.gain)
