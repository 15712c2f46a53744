"""The forward model in Fourier space, where it falls apart into small blocks.

Sampling on every s-th pixel adds up s*s frequencies of the image, its aliases, on each low-res
frequency. For translated frames under periodic boundaries nothing else is mixed: at each
low-res frequency the N frames are N linear equations in s*s unknowns. Solving those blocks
exactly costs little more than the Fourier transforms, and is an excellent preconditioner where
borders, masks and signal-dependent noise break the symmetry.

Convention: transforms are orthonormal. "Folded" tensors end in (K, a, c): alias, K = s*s, then
low-res frequency (rows, then the non-negative half of the columns). Frequencies come last, so
that the small sums over frames and aliases are sums of whole arrays, not small products.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import torch
from torch import Tensor

from .folding import half_places, half_weight, taken
from .forward import per_axis
from .kernel import HALF_WIDTH, sinc_slopes, sinc_taps, split_position
from .linear import small_inverse, sum_of_products
from .once import made_once
from .ops.fused import kernels

LOW_ROWS = 3  # frequencies along an axis up to which `typical_rows` are all
OTHER_ROWS = 3  # of which one stands for all beyond


@dataclass(frozen=True, eq=False)
class Transfer:
    """What each frame sees of each alias, `v_t(l) = sum_k h_t(l, k) u(k)`, a product of two axes.

    At the low-res frequency (a, c) and the alias (i, j), `h_t = rows_t(i, a) columns_t(j, c)`.
    rows: (B, N, s, a); columns: (B, N, s, c).
    """

    rows: Tensor
    columns: Tensor
    width: int  # low-res columns, of which `columns` keeps the non-negative half

    @cached_property
    def whole(self) -> Tensor:
        """h, (B, N, K, a, c)."""
        product = self.rows[:, :, :, None, :, None] * self.columns[:, :, None, :, None, :]
        return product.flatten(2, 3)

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """`conj(h_k) h_k'` of each axis, (B, N, s*s*a) and (B, N, s*s*c)."""
        return _pairs(self.rows, self.rows), _pairs(self.columns, self.columns)

    def part(self, index: Tensor) -> Transfer:
        """That of some bursts of the batch."""
        return Transfer(self.rows[index], self.columns[index], self.width)

    def predict(self, image: Tensor) -> Tensor:
        """What the frames would be, (B, N, a, c), of an image (B, K, a, c)."""
        if fused := _fused(self.rows):
            return fused.predict(self.rows, self.columns, image)
        return sum_of_products(self.whole, image[:, None], 2)

    def adjoint(self, frames: Tensor) -> Tensor:
        """`sum_t conj(h_t) v_t`, (B, K, a, c), of frames (B, N, a, c)."""
        return (self.whole * frames.conj_physical()[:, :, None]).sum(1).conj_physical()


def transfer(flow_px: Tensor, lattice: tuple[int, int], scale: int) -> Transfer:
    """What frames moved by flow_px (B, N, 2) see; the kernel is that of `forward`, exactly."""
    rows, columns = _response(sinc_taps, flow_px, lattice, scale)
    return Transfer(rows, columns, lattice[1])


def transfer_slopes(flow_px: Tensor, lattice: tuple[int, int], scale: int) -> tuple[Tensor, Tensor]:
    """How the rows of `transfer` change with the flow along y, its columns along x, a low-res px.

    Exactly: the kernel is no ideal shift near the image's Nyquist frequency.
    """
    rows, columns = _response(sinc_slopes, flow_px, lattice, scale)
    return scale * rows, scale * columns


def _response(
    kernel: Callable[[Tensor], Tensor], flow_px: Tensor, lattice: tuple[int, int], scale: int
) -> tuple[Tensor, Tensor]:
    """Of taps at a fraction of a pixel, rows (B, N, s, a) and columns (B, N, s, c)."""
    whole, fraction = split_position(scale * flow_px.movedim(-1, 0))
    taps = kernel(fraction)
    taps = torch.complex(taps, torch.zeros_like(taps))

    def seen(size: int, whole: Tensor, taps: Tensor) -> Tensor:
        frequency, waves = _waves(scale * size, flow_px.dtype, flow_px.device)
        turned = torch.exp(whole[..., None] * (2j * math.pi * frequency))
        return (taps @ waves).mul_(turned).unflatten(-1, (scale, size))

    rows, columns = per_axis(seen, lattice, whole, taps)
    return rows / scale, columns[..., : lattice[1] // 2 + 1]


@made_once
def _waves(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Frequencies (size,) in cycles per px, and their waves at the kernel's taps, (24, size)."""
    frequency = torch.fft.fftfreq(size, dtype=dtype, device=device)
    position = torch.arange(1 - HALF_WIDTH, HALF_WIDTH + 1, device=device)
    return frequency, _unit(frequency * position[:, None])


def _unit(cycles: Tensor) -> Tensor:
    """Complex numbers of modulus 1."""
    return torch.polar(torch.ones_like(cycles), 2 * math.pi * cycles)


class AliasBlocks:
    """The posterior of an image given translated frames, block by block (periodic, stationary).

    see: from `transfer`; precision: one over the noise variance of each frame, (B, N); prior:
    (B, K, a, c) image spectrum.

    The noise is white, so the normal matrices of all frequencies, `sum_t w_t conj(h_t) h_t'`,
    are one matrix product a burst of the axes' pairs: (s*s*a, N) by (N, s*s*c).
    """

    def __init__(self, see: Transfer, precision: Tensor, prior: Tensor) -> None:
        self.see, self.precision = see, precision
        self.scale, self.width = see.rows.shape[2], see.width
        if fused := _fused(see.rows):
            self.covariance, self.log_det = fused.covariance(
                see.rows, see.columns, precision, prior
            )
            return
        rows, columns = see.pairs
        normal = self._from_axes((rows * precision[..., None]).mT @ columns)
        normal.diagonal(dim1=1, dim2=2).add_((1 / prior).movedim(1, -1))
        self.covariance, self.log_det = small_inverse(normal)

    def part(self, index: Tensor) -> AliasBlocks:
        """Those of some bursts of the batch."""
        other = copy.copy(self)
        other.see, other.precision = self.see.part(index), self.precision[index]
        other.covariance, other.log_det = self.covariance[index], self.log_det[index]
        return other

    def _from_axes(self, product: Tensor) -> Tensor:
        """(B, s*s*a, s*s*c) to (B, K, K, a, c)."""
        s = self.scale
        product = product.unflatten(2, (s, s, -1)).unflatten(1, (s, s, -1))
        return product.permute(0, 1, 4, 2, 5, 3, 6).reshape(
            -1, s * s, s * s, product.shape[3], product.shape[6]
        )

    def _to_axes(self, blocks: Tensor) -> Tensor:
        """(B, K, K, a, c) to (B, s*s*a, s*s*c)."""
        s = self.scale
        parts = blocks.unflatten(2, (s, s)).unflatten(1, (s, s)).permute(0, 1, 3, 5, 2, 4, 6)
        return parts.flatten(4).flatten(1, 3)

    def mean(self, data: Tensor) -> Tensor:
        """The posterior mean (B, K, a, c) of frames' spectra (B, N, a, c)."""
        if fused := _fused(self.see.rows):
            see = self.see
            return fused.mean(see.rows, see.columns, self.precision, data, self.covariance)
        return self.solve(self.see.adjoint(self.precision[..., None, None] * data))

    def solve(self, right: Tensor) -> Tensor:
        """The normal equations at each frequency, (B, K, a, c)."""
        return sum_of_products(self.covariance, right[:, None], 2)

    def solve_image(self, spectrum: Tensor) -> Tensor:
        """The same for the half spectrum of a real image, (B, s*a, s*b // 2 + 1)."""
        if fused := _fused(self.see.rows):
            return fused.solve(spectrum, self.covariance, self.width)
        size = (spectrum.shape[-2], self.scale * self.width)
        fold, unfold = half_places(size, self.scale, spectrum.device)
        folded = taken(spectrum.flatten(1), *fold).view(len(spectrum), *self.covariance.shape[2:])
        return taken(self.solve(folded).flatten(1), *unfold).view(spectrum.shape)

    def subgrid_variance(self) -> Tensor:
        """Mean variance of the image's pixels on each sub-grid, (B, s, s)."""
        return subgrid_variance(self.covariance, self.width, self.scale)

    def leverage(self, count: Tensor) -> Tensor:
        """What the posterior mean takes up of each frame, `sum_l h_t M^-1 h_t' w_t`, (B, N).

        count: (c,) how many frequencies each column stands for. Again one product of pairs.
        """
        rows, columns = self.see.pairs
        return ((rows @ self._counted(count)) * columns).sum(-1).real * self.precision

    def determinant_slope(self, count: Tensor, slopes: tuple[Tensor, Tensor]) -> Tensor:
        """Half the slope of `sum_l log det M` in each frame's shift (dy, dx) and gain, (B, N, 3).

        `Re sum_l d_t M^-1 h_t' w_t` for d_t the derivatives of h_t. slopes: that of the rows in dy,
        that of the columns in dx, of `transfer_slopes` or of an ideal shift.
        """
        rows, columns = self.see.pairs
        down = _pairs(slopes[0], self.see.rows)
        right = _pairs(slopes[1], self.see.columns)
        plain, turned = (torch.cat([rows, down], 1) @ self._counted(count)).chunk(2, 1)
        sums = [(turned * columns).sum(-1), (plain * right).sum(-1), (plain * columns).sum(-1)]
        return torch.stack(sums, -1).real * self.precision[..., None]

    def _counted(self, count: Tensor) -> Tensor:
        """`M^-1` transposed (it meets conjugate pairs), each column as often as it counts."""
        return self._to_axes((self.covariance * count).transpose(1, 2))

    def answers(self, change: Tensor) -> Tensor:
        """How the posterior mean answers to changes of a frame, `M^-1 h_t' w_t d_t`.

        change: (B, N, P, a, c). Returns (B, N, P, K, a, c).
        """
        weighted = change * self.precision[..., None, None, None]
        return self._couple(weighted, None)[1].conj_physical()

    def _couple(self, change: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Conjugates of `h_t' d_t` and `M^-1 h_t' d_t`, each (B, N, P, K, a', c).

        change: (B, N, P, a', c), at the rows of frequencies `rows` (a',); None for all.
        """
        if fused := _fused(self.see.rows):
            see, chosen = self.see, _all_rows(change) if rows is None else rows
            return fused.couple(see.rows, see.columns, change, self.covariance, chosen)
        whole, covariance = self.see.whole, self.covariance
        if rows is not None:
            whole, covariance = whole[..., rows, :], covariance[..., rows, :]
        aliases = range(covariance.shape[1])
        reach = torch.stack(
            [sum_of_products(whole, covariance[:, None, :, k], 2) for k in aliases], 2
        )
        change = change.conj_physical()[:, :, :, None]
        return whole[:, :, None] * change, reach[:, :, None] * change

    def information(self, change: Tensor, count: Tensor, roughly: bool = False) -> Tensor:
        """What the frames tell of unknowns beside the image, with the image unknown too.

        change: (B, N, P, a, c), how each frame answers to P unknowns of its own; count: (c,);
        roughly: let `typical_rows` stand for all. Returns (B, N*P, N*P): `change' C^-1 change`,
        where `C^-1 = W - W h M^-1 h' W` is the inverse covariance of the frames.
        """
        rows: Tensor | None = None
        if roughly:
            rows, times = typical_rows(change.shape[-2], change.device)
            change, count = change[..., rows, :], times[:, None] * count
        counted = change * count.sqrt()
        own = _flat_real(counted, 3)
        own = own @ own.mT  # (B, N, P, P)
        seen, answer = (_flat_real(part.flatten(1, 2), 2) for part in self._couple(counted, rows))
        weight = self.precision.repeat_interleave(change.shape[2], 1)
        alone = torch.diag_embed(self.precision)[:, :, None, :, None]
        full = (own[:, :, :, None] * alone).flatten(3).flatten(1, 2)
        return full - (seen @ answer.mT) * (weight[:, :, None] * weight[:, None])


def subgrid_variance(covariance: Tensor, width: int, scale: int) -> Tensor:
    """Mean variance on each sub-grid, (B, s, s), of images whose aliases covary so.

    covariance: (B, K, K, a, c). Summed over frequency with the phases of the sub-grid `tau`:
    `var(tau) = mean_l e_tau' C e_tau / s^2`. width: low-res columns.
    """
    count = half_weight(width, covariance)
    total = count.sum() * covariance.shape[-2] * scale**2
    mixed = (covariance * count).sum((-1, -2)) / total
    # aliases differ by whole multiples of 1/s, so their phases on a sub-grid, `e_k conj(e_k')`,
    # are the same at every frequency
    step = torch.arange(scale, device=count.device, dtype=count.dtype) / scale
    fy, fx = (f.flatten() for f in torch.meshgrid(step, step, indexing="ij"))
    tau = scale * torch.stack([fy, fx], -1)
    phase = _unit(tau @ torch.stack([fy, fx]))  # (s*s, K)
    var = torch.einsum("tk,bkl,tl->bt", phase, mixed, phase.conj())
    return var.real.unflatten(1, (scale, scale))


def _pairs(one: Tensor, other: Tensor) -> Tensor:
    """`conj(one_k) other_k'` along an axis, (B, N, s*s*a), of two (B, N, s, a)."""
    return (one.conj()[:, :, :, None] * other[:, :, None]).flatten(2)


def _all_rows(change: Tensor) -> Tensor:
    """Every row of spectra (..., a, c), (a,)."""
    return torch.arange(change.shape[-2], device=change.device)


@made_once
def typical_rows(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of a spectrum that can stand for all of it, (a',), and for how many each does, (a',).

    The lowest stand for themselves: there lies what frames show of their gains.
    """
    row = torch.arange(size, device=device)
    low = torch.minimum(row, size - row) <= LOW_ROWS
    lowest, others = row[low], row[~low]
    some = others[::OTHER_ROWS]
    times = torch.ones(len(lowest) + len(some), device=device)
    times[len(lowest) :] = len(others) / max(len(some), 1)
    return torch.cat([lowest, some]), times


def _fused(rows: Tensor) -> ModuleType | None:
    """The kernels of `ops.alias_kernels` where they run: on a GPU, with Triton, at scale 2.

    They know single precision alone.
    """
    single = rows.is_cuda and rows.dtype == torch.complex64
    return kernels("alias") if single and rows.shape[2] == 2 else None


def _flat_real(values: Tensor, start: int) -> Tensor:
    """Complex numbers as pairs of real ones, flat from an axis on: `a @ b.mT` is `Re a b'`."""
    return torch.view_as_real(values).flatten(start)
