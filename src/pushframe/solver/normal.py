"""The normal equations of an image and of what else is unknown of its frames, together.

A motion that all frames share moves the image along with them, and the reference alone objects:
frames and image, each preconditioned by itself, find it last. So it has a part of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..gaussian import CANVAS_PAD_PX, GaussianProblem

DAMPING = 1e-3  # share of the diagonals added to them


class NormalEquations:
    """Positive systems (a `linear.System`) in image and unknowns, packed as (B, 1, h*w + N*P).

    tangent: (B, N, P, H, W), what a unit of each unknown does to its frame, zero for those that are
    not free; prior: (B, N, P, P), their precision beforehand.
    """

    def __init__(
        self, problem: GaussianProblem, tangent: Tensor, prior: Tensor, common: CommonMotion
    ) -> None:
        self.problem, self.tangent, self.prior, self.common = problem, tangent, prior, common
        own = _information(tangent, problem.precision) + prior.double()
        self.root = torch.linalg.cholesky(_damped(own))

    def part(self, index: Tensor) -> NormalEquations:
        """Those of some bursts of the batch."""
        other = copy.copy(self)
        other.problem, other.common = self.problem.part(index), self.common.part(index)
        other.tangent, other.prior = self.tangent[index], self.prior[index]
        other.root = self.root[index]
        return other

    def pack(self, image: Tensor, unknown: Tensor) -> Tensor:
        """An image (B, h, w) and unknowns (B, N, P) as one vector, (B, 1, h*w + N*P)."""
        return torch.cat([image.flatten(1), unknown.flatten(1)], 1)[:, None]

    def unpack(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """The image and the unknowns of a vector."""
        canvas, unknowns = self.problem.canvas, self.tangent.shape[1:3]
        image, unknown = both[:, 0].split([canvas[0] * canvas[1], unknowns.numel()], 1)
        return image.unflatten(1, canvas), unknown.unflatten(1, unknowns)

    def moved(self, unknown: Tensor) -> Tensor:
        """What unknowns (B, N, P) do to the frames, (B, N, H, W)."""
        return torch.einsum("bnphw,bnp->bnhw", self.tangent, unknown)

    def seen(self, weighted: Tensor) -> Tensor:
        """What weighted frames (B, N, H, W) say of image and unknowns: the transposed model."""
        told = torch.einsum("bnphw,bnhw->bnp", self.tangent, weighted)
        return self.pack(self.problem.model.adjoint(weighted), told)

    def normal(self, both: Tensor) -> Tensor:
        """The systems applied."""
        image, unknown = self.unpack(both)
        frames = self.problem.model.forward(image) + self.moved(unknown)
        smooth = self.problem.filter(image, self.problem.stiffness)
        held = (self.prior @ unknown[..., None])[..., 0]
        return self.seen(self.problem.precision * frames) + self.pack(smooth, held)

    def precondition(self, both: Tensor) -> Tensor:
        """Approximate inverses for the image, each frame's unknowns, and the motion in common."""
        image, unknown = self.unpack(both)
        own = torch.cholesky_solve(unknown.double()[..., None], self.root)[..., 0].to(unknown)
        moved, shared = self.common.solve(image, unknown)
        return self.pack(self.problem.precondition(image) + moved, own + shared)

    def dot(self, one: Tensor, other: Tensor) -> Tensor:
        """The product of two vectors, (B, 1, 1)."""
        return (one * other).sum(2, keepdim=True, dtype=torch.float64).to(one)


class CommonMotion:
    """Changes of all free frames' unknowns alike, the image following: P of them a burst.

    follows: (B, P, h, w), what the image does so that the frames stay nearly as they were; left:
    (B, N, P, H, W), what they change for all that; free: (B, N, P).
    """

    def __init__(
        self, problem: GaussianProblem, follows: Tensor, left: Tensor, free: Tensor, prior: Tensor
    ) -> None:
        self.free = free.to(follows)
        some = self.free.amax(1)  # (B, P)
        self.follows = follows * some[..., None, None]
        left = left * some[:, None, :, None, None]
        spectrum = torch.fft.rfft2(self.follows) * problem.stiffness[:, None]
        stiff = torch.fft.irfft2(spectrum, s=problem.canvas)
        held = (prior * self.free[..., None] * self.free[..., None, :]).sum(1)
        cost = self.follows.flatten(2) @ stiff.flatten(2).mT + held
        cost = cost.double() + _information(left, problem.precision).sum(1)
        self.root = torch.linalg.cholesky(_damped(cost + torch.diag_embed(1 - some)))

    def part(self, index: Tensor) -> CommonMotion:
        """Those of some bursts of the batch."""
        other = copy.copy(self)
        other.free, other.follows = self.free[index], self.follows[index]
        other.root = self.root[index]
        return other

    def solve(self, image: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
        """The image (B, h, w) and the unknowns (B, N, P) of the best such change."""
        # the two nearly cancel
        own = (unknown * self.free).sum(1, dtype=torch.float64)
        right = own + (self.follows * image[:, None]).sum((2, 3), dtype=torch.float64)
        size = torch.cholesky_solve(right[..., None], self.root).to(image)  # (B, P, 1)
        return (self.follows * size[..., None]).sum(1), self.free * size[..., 0][:, None]


def common_motion(
    problem: GaussianProblem,
    image: Sequence[Tensor],
    frames: Sequence[Tensor],
    basis: Tensor,
    free: Tensor,
    prior: Tensor,
) -> CommonMotion:
    """That of flows made of functions `basis` (K, H, W), and of gains.

    image: its slopes along y and x, a low-res px, and itself with its level, each (B, h, w);
    frames: the same of what it predicts, each (B, N, H, W). A function moved by as much as the
    frames are on the mean, to the image's place, is within their spread of each frame's.
    """
    weight = problem.typical_precision()[..., None]
    flow_px = problem.flow_px if problem.flow_px.ndim == 5 else problem.flow_px[..., None, None]
    mean_px = (flow_px.mean((-1, -2)) * weight).sum(1) / weight.sum(1).clamp(min=1e-30)
    steep = torch.stack(torch.gradient(basis, dim=(1, 2)))  # (2, K, H, W)
    there = torch.einsum(
        "bc,ckhw->bkhw", -mean_px, _on_canvas(steep.flatten(0, 1), problem).unflatten(0, (2, -1))
    )
    there = (_on_canvas(basis, problem) + there)[:, None]
    slopes = torch.stack(tuple(image[:2]), 1)[:, :, None]
    follows = -torch.cat([(slopes * there).flatten(1, 2), image[2][:, None]], 1)
    off_px = (flow_px - mean_px[:, None, :, None, None]).expand(-1, -1, -1, *basis.shape[1:])
    off = torch.einsum("bnchw,ckhw->bnkhw", off_px, steep)
    alike = free.to(basis)[..., None, None]
    bends = torch.stack(tuple(frames[:2]), 2)[:, :, :, None]
    bends = (bends * (alike[:, :, :1] * basis - basis - off)[:, :, None]).flatten(2, 3)
    whole = frames[2][:, :, None] * (alike[:, :, -1:] - 1)
    return CommonMotion(problem, follows, torch.cat([bends, whole], 2), free, prior)


def _on_canvas(functions: Tensor, problem: GaussianProblem) -> Tensor:
    """Functions of a frame's pixels (K, H, W) on the canvas around it, nearly, (K, h, w)."""
    wide = F.pad(functions[None], [CANVAS_PAD_PX] * 4, mode="replicate")
    return F.interpolate(wide, size=problem.canvas, mode="bilinear", align_corners=False)[0]


def _information(tangent: Tensor, precision: Tensor) -> Tensor:
    """What each frame tells of its unknowns, were the image known, (B, N, P, P) float64."""
    columns = tangent.flatten(3)
    return ((columns * precision.flatten(2)[:, :, None]) @ columns.mT).double()


def _damped(matrix: Tensor) -> Tensor:
    return matrix + torch.diag_embed(DAMPING * matrix.diagonal(dim1=-2, dim2=-1))
