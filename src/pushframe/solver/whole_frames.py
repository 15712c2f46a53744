"""What whole frames tell: their image, solved in space without a window, and what it shows."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..gaussian import GaussianProblem
from .moving_window import Placed, windowed_scene

TOLERANCE, ERROR_STD = 2e-4, 0.05  # of the image that tells what a window does
CLOSE_TOLERANCE, CLOSE_ERROR_STD = 2e-6, 0.005  # of the one that gains are read off
FOUND = ("scene", "bias")  # of each burst


class WholeFrames:
    """The image of the whole frames of a batch, what windows do to its frames, how gains fit it.

    scene: (B, h, w) canvas, None until it is solved. bias: (B, N, H, W), what is to be taken out of
    windowed frames. close: whether gains are read off the image; gain_slope: (B, N), the derivative
    of the log likelihood there, for one step, and energy: (B,), that of the image under its prior.
    """

    def __init__(self) -> None:
        self.scene: Tensor | None = None
        self.bias: Tensor | float = 0.0
        self.close = False
        self.gain_slope: Tensor | None = None
        self.energy: Tensor | None = None

    def solve(
        self, problem: GaussianProblem, frames: Tensor, level: Tensor, placed: Placed
    ) -> None:
        """Solve the problem of frames (B, N, H, W) counted from a level (B, 1, 1, 1)."""
        exact = (CLOSE_TOLERANCE, CLOSE_ERROR_STD) if self.close else (TOLERANCE, ERROR_STD)
        self.scene = problem.solve(frames, self.scene, *exact)
        shown = problem.model.forward(self.scene)
        meant = windowed_scene(problem, self.scene, placed.see, placed.margin_px)
        self.bias = placed.window * shown - meant
        if self.close:
            missed = problem.precision * (frames - shown)
            self.gain_slope = (missed * (shown + level)).sum((-1, -2))
            self.energy = problem.prior_energy(self.scene)

    def part(self, index: Tensor) -> WholeFrames:
        """Those of some bursts of the batch."""
        other = copy.copy(self)
        for name in FOUND:
            value = getattr(self, name)
            setattr(other, name, value[index] if isinstance(value, Tensor) else value)
        return other

    def put_back(self, index: Tensor, part: WholeFrames) -> None:
        """What was found for some bursts of the batch."""
        for name in FOUND:
            value = getattr(part, name)
            if isinstance(value, Tensor):
                setattr(self, name, getattr(self, name).index_copy(0, index, value))

    def forget(self, lost: Tensor) -> None:
        """The next image of some bursts, (B,) bool, begins from nothing."""
        if self.scene is not None:
            self.scene = torch.where(lost[:, None, None], 0, self.scene)
