"""A prior that knows where detail lies, and which way it runs.

Under the stationary prior the whitened image `w = S^-1/2 u` is white. Here its power `a^2(x)`
differs from place to place, and that of its Riesz transform `r = (R_y w, R_x w)`, whose filters
are the cosines of a frequency's direction, is a matrix `T(x)`:

    P = S^-1/2 (1/2 a^-2 + 1/2 R' T^-1 R) S^-1/2

With `a = 1` and `T = 1` this is `S^-1`: the squares of the cosines add up to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .linear import sum_of_products
from .once import made_once


@dataclass(frozen=True, eq=False)
class LocalPrior:
    """The precision of what `analyse` shows of an image, place by place.

    root: (B, h, w // 2 + 1) `S^-1/2` at the frequencies of the canvas. precision: (B, 4, h, w),
    that of w, and the entries yy, yx, xx of that of r.
    """

    root: Tensor
    precision: Tensor

    @classmethod
    def of_power(cls, root: Tensor, plain: Tensor, turned: Tensor) -> LocalPrior:
        """From `a^2` (B, h, w), and T (B, 3, h, w) as its entries yy, yx, xx."""
        yy, yx, xx = turned.unbind(1)
        determinant = yy * xx - yx**2
        inverse = [xx / determinant, -yx / determinant, yy / determinant]
        return cls(root, torch.stack([1 / plain, *inverse], 1) / 2)

    def part(self, index: Tensor) -> LocalPrior:
        """That of some entries of the batch."""
        return LocalPrior(self.root[index], self.precision[index])

    def apply(self, image: Tensor) -> Tensor:
        """`P u`, (B, h, w)."""
        canvas = (image.shape[-2], image.shape[-1])
        return torch.fft.irfft2(self.apply_to_spectrum(torch.fft.rfft2(image)), s=canvas)

    def apply_to_spectrum(self, spectrum: Tensor) -> Tensor:
        """The spectrum (B, h, w // 2 + 1) of `P u`, of that of u."""
        canvas = (self.precision.shape[-2], self.precision.shape[-1])
        plain, yy, yx, xx = self.precision.unbind(1)
        w, down, right = _analysed(spectrum * self.root, canvas).unbind(1)
        turned = [torch.addcmul(yy * down, yx, right), torch.addcmul(yx * down, xx, right)]
        spectra = torch.fft.rfft2(torch.stack([plain * w, *turned], 1))
        back = sum_of_products(spectra, _directions(canvas, spectrum.device)[None].conj(), 1)
        return back * self.root

    def power(self) -> Tensor:
        """The local power of the image over the spectrum's, (B, h, w), a mean over directions.

        In the direction e it is `1 / (e' Q e)` with `Q = (a^-2 + T^-1) / 2`, and the mean of that
        over the circle is `det(Q)^-1/2`.
        """
        plain, yy, yx, xx = self.precision.unbind(1)
        return ((plain + yy) * (plain + xx) - yx**2).rsqrt()


def analyse(image: Tensor, root: Tensor) -> Tensor:
    """The whitened image and its Riesz transform, (B, 3, h, w), of an image (B, h, w)."""
    return _analysed(torch.fft.rfft2(image) * root, (image.shape[-2], image.shape[-1]))


def _analysed(whitened: Tensor, canvas: tuple[int, int]) -> Tensor:
    """The same of the whitened spectrum, (B, h, w // 2 + 1)."""
    return torch.fft.irfft2(whitened[:, None] * _directions(canvas, whitened.device), s=canvas)


@made_once
def _directions(canvas: tuple[int, int], device: torch.device) -> Tensor:
    """1 and the cosines of each frequency's direction, (3, h, w // 2 + 1), the latter times i.

    Where a frequency is its own mirror along an axis, that cosine stays real: an imaginary one
    would be lost in a real image.
    """
    fy = torch.fft.fftfreq(canvas[0], device=device)[:, None]
    fx = torch.fft.rfftfreq(canvas[1], device=device)
    radius = torch.sqrt(fy**2 + fx**2)
    turned = []
    for frequency in torch.broadcast_tensors(fy, fx):
        cosine = torch.where(radius > 0, frequency / radius, math.sqrt(0.5))
        mirror = (frequency.abs() == 0.5) | (radius == 0)
        turned.append(torch.where(mirror, cosine.abs() + 0j, 1j * cosine))
    return torch.stack([torch.ones_like(turned[0]), *turned])
