"""What is known of the coefficients and gains of a batch, whatever its frames tell of them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from .belief import Belief
from .bend import COEFFICIENT_PX
from .motion_prior import GAIN_STD, LEAST_GAIN_STD

LEAST_COEFFICIENT_PX = 0.01
TOLD = ("coefficient_px", "gain_std")  # by each burst


class CoefficientPrior:
    """A Gaussian of each frame's unknowns (B, N, P): coefficients along y and x, the gain less one.

    belief: of them. Without one constants may be any, other coefficients are about `coefficient_px`
    (B, K) large, and gains `common_gain` (B,) to within `gain_std` (B,); the burst tells both.
    """

    def __init__(self, belief: Belief | None, theta: Tensor, common_gain: Tensor) -> None:
        self.belief, self.count, self.common_gain = belief, theta.shape[1], common_gain
        self.trust = None if belief is None else belief.precision()
        self.coefficient_px = torch.full_like(theta[:, 0, 0], COEFFICIENT_PX)
        self.gain_std = torch.full_like(theta[:, 0, 0, 0], GAIN_STD)

    def part(self, index: Tensor) -> CoefficientPrior:
        """That of some bursts of the batch."""
        other = copy.copy(self)
        other.common_gain = self.common_gain[index]
        for name in TOLD:
            setattr(other, name, getattr(self, name)[index])
        if self.belief is not None and self.trust is not None:
            other.belief, other.trust = self.belief.part(index), self.trust[index]
        return other

    def put_back(self, index: Tensor, part: CoefficientPrior) -> None:
        """What some bursts of the batch told of their coefficients and exposures."""
        for name in TOLD:
            setattr(self, name, getattr(self, name).index_copy(0, index, getattr(part, name)))

    def precision(self) -> Tensor:
        """Of each frame's unknowns, (B, N, P, P)."""
        if self.trust is not None:
            return self.trust
        axis = self.coefficient_px**-2
        diagonal = torch.cat([axis, axis, self.gain_std[:, None] ** -2], 1)
        diagonal[:, [0, axis.shape[1]]] = 1e-4  # of the constants
        return torch.diag_embed(diagonal)[:, None].expand(-1, self.count, -1, -1)

    def off(self, state: Tensor) -> Tensor:
        """Unknowns less what they are believed to be, (B, N, P)."""
        if self.belief is not None:
            return state - self.belief.mean
        return torch.cat(
            [state[..., :-1], state[..., -1:] + 1 - self.common_gain[:, None, None]], -1
        )

    def pull(self, state: Tensor, free: Tensor) -> Tensor:
        """How the prior holds the unknowns, (B, N, P); none but the free ones, (B, N, P) bool."""
        return torch.where(free, (self.precision() @ self.off(state)[..., None])[..., 0], 0)

    def energy(self, state: Tensor, free: Tensor) -> Tensor:
        """Minus twice the log prior of the free unknowns, up to a constant, (B,)."""
        return (self.off(state) * self.pull(state, free)).sum((1, 2))

    def learn(self, theta: Tensor, gain: Tensor, used: Tensor) -> None:
        """How large coefficients (B, N, 2, K) are, and how far gains (B, N) are apart.

        used: (B, N) bool, the frames that tell of it.
        """
        if self.belief is not None:
            return
        used = used.to(gain)
        count = used.sum(1, keepdim=True)
        size = (theta.square().mean(2) * used[..., None]).sum(1) / (count - 1).clamp(min=1)
        self.coefficient_px = (size + LEAST_COEFFICIENT_PX**2).sqrt()
        # about their mean: a factor common to all frames but a masked reference is no evidence
        mean = (gain * used).sum(1, keepdim=True) / count.clamp(min=1)
        spread = ((gain - mean) ** 2 * used).sum(1, keepdim=True) / count.clamp(min=1)
        self.gain_std = spread[:, 0].sqrt().clamp(LEAST_GAIN_STD, GAIN_STD)
