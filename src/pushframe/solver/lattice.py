"""The frequencies of frames and of the aliases that fold onto them."""

from __future__ import annotations

import math

from torch import Tensor

from ..folding import axis_frequencies, half_weight, image_frequencies
from ..gaussian import folded_basis
from ..prior import counted_basis
from ..spectral import Transfer


class Lattice:
    """What depends on the frames' shape and the scale alone.

    count: (c,) how many frequencies each column stands for. turn: of each axis, and folded_turn:
    (K, a, c) of each alias, the factors that a shift of a low-res px is differentiated by. basis:
    (K, a, c, TERMS), the knots' weights; counted_basis: the same, counted.
    """

    def __init__(self, shape: tuple[int, int], scale: int, like: Tensor) -> None:
        fy, fx = image_frequencies(shape, scale, like)
        # The derivative of an ideal shift. That of the kernel differs near the Nyquist frequency,
        # where its response, not the scene, changes with the fraction of a pixel; following it
        # gains nothing at many frames and leads astray at few.
        rows, columns = axis_frequencies(shape, scale, like)
        self.turn = (2j * math.pi * scale * rows, 2j * math.pi * scale * columns)
        self.folded_turn = [2j * math.pi * scale * f for f in (fy, fx)]
        self.count = half_weight(shape[1], like)
        share = self.count / (self.count.sum() * shape[0])
        self.steep = (2 * math.pi * scale) ** 2 * (fy**2 + fx**2) / 2 * share
        self.basis = folded_basis(shape, scale, like.device).to(like)
        self.counted_basis = counted_basis(self.basis, self.count[:, None])
        self.aliases = scale**2

    def shifted(self, see: Transfer) -> tuple[Tensor, Tensor]:
        """As `spectral.transfer_slopes`, were shifts ideal."""
        return see.rows * self.turn[0], see.columns * self.turn[1]

    def steepness(self, prior: Tensor) -> Tensor:
        """Mean squared slope along an axis, a low-res px, of frames of a spectrum, (B, 1).

        prior: (B, K, a, c), power of the image.
        """
        return (prior.flatten(1) @ self.steep.flatten())[:, None] / self.aliases
