"""Motion of the frames, by name: the solver's, Lucas-Kanade's, a network's, the simulator's.

"translations" is the solver's, bends and heavy masks left aside: many times faster.
"rough_translations" leaves in the frames what its windows do to them, too little to matter to a
network that makes its image itself.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import torch
from torch import Tensor

from ..burst import Burst
from ..checks import require
from ..errors import UsageError
from ..registration import register
from ..solver import Belief, locate, locate_translations
from .network import Motion, Network

MotionKind = Literal[
    "solver", "translations", "rough_translations", "lucas_kanade", "network", "true"
]


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
    burst: Burst,
    scale: int,
    kind: MotionKind = "solver",
    true_px: Tensor | None = None,
    known: Tensor | Belief | None = None,
) -> tuple[Burst, Motion]:
    """The motion of a batch, reference included, and the batch less what does not belong.

    true_px: (B, N, 2[, H, W]), what the simulator knows, for kind "true" alone; it knows exposures
    too. known: flows, or what is believed of them, for kind "solver"; gains are found in any case.
    """
    alone = [name for name in get_args(MotionKind) if name != "network"]
    require(
        kind in alone,
        f"a motion of {', '.join(alone)}",
        repr(kind),
        "choose one, or use find_motion for that of a network",
        UsageError,
    )
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
    if kind == "lucas_kanade":
        return burst, Motion(register(burst), torch.ones_like(burst.exposure))
    if kind == "solver":
        found = locate(burst, scale, known)
    else:
        found = locate_translations(burst, scale, unbiased=kind == "translations")
    # what the solver leaves out becomes invalid
    motion = Motion(found.flow_px, found.gain, found.covariance)
    return dataclasses.replace(burst, valid=found.used), motion
