"""Few frames of a scene with more ripples than shapes, such as water.

The spectrum of few frames must not rise while it is open whether they belong together
(`prior.largest_rise`). Where that holds it down, and misleads the shifts, they are to be fitted
once more, when frames to blame have been looked for, as if the others did. In space, where masks
and bends are fitted, it is held down all the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..prior import FEW, KNOTS
from .fit import Fit
from .motion import Task
from .search import Search

HELD = 0.05  # of log power, by which a spectrum would rise at one look, if it might


def held_down(task: Task, fit: Fit) -> Tensor:
    """The bursts of a fit whose spectrum would rise if it might, (B,) bool."""
    held = torch.zeros_like(fit.kept[:, 0])
    count, aliases = fit.kept.sum(1), task.scale**2
    # as many frames as aliases explain any spectrum, wherever they are
    index = ((count > aliases) & (count <= FEW * aliases)).nonzero()[:, 0]
    if not len(index) or task.burst.days:
        return held
    part, found = task.part(index), fit.part(index)
    bound, free = (_next_curve(part, found, belong) for belong in (False, True))
    held[index] = (free - bound).amax(1) > HELD
    return held


def _next_curve(task: Task, fit: Fit, belong: bool) -> Tensor:
    """The radial spectrum after one more look where a fit ended, (B, KNOTS)."""
    burst, belief = task.burst, task.belief
    search = Search(burst, fit.flow_px, fit.kept, task.scale, belief, fit.gain, belong)
    search.knots, search.mismatch = fit.knots, fit.mismatch
    search.outlier, search.judged = fit.outlier, True
    search.look()
    return search.knots[:, :KNOTS]
