"""What frames tell of a pattern that stays with the detector, whatever scene they show.

Frames are `v_t = F_t u + c_t p + n_t`: p is what their pixels have in common, `c_t` the scene where
pixels differ in response, one over the exposure where they differ in offset. With the image
integrated out, the slope of the log likelihood at p = 0 is `c' W r` for the residuals r of the
image, and the information on p at a frequency is `c' C^-1 c`: without the image it would be
`c' W c`, and the share that is left says how far frames that move tell a pattern from a scene.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..burst import Burst
from ..gaussian import folded_basis
from ..prior import spectrum_at
from ..spectral import AliasBlocks, transfer
from .piece import Piece
from .pieces import in_pieces

LATTICE = 64  # frequencies along each axis at which shares are worked out
MOST = 3.0  # standard deviations of noise that a residual counts for
MOSTLY = 0.5  # share of frames from which what disagrees at a pixel is the pixel, no cloud or car


@dataclass(frozen=True, eq=False)
class PatternEvidence:
    """What a batch tells of patterns, the response's and the offset's.

    slope, information: (B, 2, N, H, W) of each pixel of each frame, the latter as if the image were
    known. share: (B, 2, L, L // 2 + 1), of the information that is left with the image unknown, of
    patterns of so many cycles per px. answer: (B, 2, K, L, L // 2 + 1), the image's aliases that a
    unit of such a pattern feigns; of a response, in a scene of brightness 1.
    """

    slope: Tensor
    information: Tensor
    share: Tensor
    answer: Tensor


def pattern_evidence(burst: Burst, scale: int, moved_px: Tensor) -> PatternEvidence:
    """Of a batch whose frames were moved by moved_px (B, N, 2) whole px."""
    pieces, excess = in_pieces(burst, scale, None)
    order = torch.cat([piece.index for piece in pieces]).argsort()
    parts = [
        _of_piece(piece, burst.part(piece.index), scale, excess[piece.index], moved_px[piece.index])
        for piece in pieces
    ]
    return PatternEvidence(*(torch.cat(several)[order] for several in zip(*parts, strict=True)))


def _of_piece(
    piece: Piece, burst: Burst, scale: int, excess: Tensor, moved_px: Tensor
) -> tuple[Tensor, ...]:
    made = piece.made
    used = burst.valid & piece.kept[..., None, None] & made.problem.model.inside
    disagreeing = used & ~piece.good
    still = (moved_px == moved_px[:, :1]).all(-1).all(-1)  # one pixel of the detector in all frames
    mostly = (disagreeing.sum(1) > MOSTLY * used.sum(1)) & still[:, None, None]
    used = used & (piece.good | mostly[:, None])
    noise = made.noise_var + made.mismatch[:, None, None, None]
    signal = made.problem.model.forward(made.image) + made.level
    # radiance at the reference's exposure: offsets of raw pixels weigh more in a shorter one
    relative = burst.exposure / burst.exposure[:, :1]
    offset = 1 / (relative * piece.gain * excess)[..., None, None]
    weight = used / noise
    kinds = torch.stack([signal, offset.expand_as(signal)], 1)  # (B, 2, N, H, W)
    most = MOST * noise.sqrt()
    slope = kinds * (weight * made.residual.clamp(-most, most))[:, None]
    information = kinds.square() * weight[:, None]

    flow_px = piece.flow_px if piece.flow_px.ndim == 3 else piece.flow_px.mean((-1, -2))
    lattice = (LATTICE, LATTICE)
    see = transfer(flow_px, lattice, scale)
    typical = weight.mean((-1, -2))
    blocks = AliasBlocks(
        see, typical, spectrum_at(piece.knots, folded_basis(lattice, scale, flow_px.device))
    )
    shares, answers = [], []
    for size in (torch.ones_like(typical), offset[..., 0, 0]):
        turned = (size * typical)[..., None, None] * _turn(moved_px.to(flow_px), lattice)
        met = see.adjoint(turned)
        answer = blocks.solve(met)
        whole = (size.square() * typical).sum(1)[:, None, None]
        shares.append(1 - (met.conj() * answer).sum(1).real / whole.clamp(min=1e-30))
        answers.append(answer)
    return slope, information, torch.stack(shares, 1), torch.stack(answers, 1)


def _turn(moved_px: Tensor, lattice: tuple[int, int]) -> Tensor:
    """What whole px make of a spectrum, (B, N, a, c): frame t shows `p(x + moved_t)`."""
    fy, fx = torch.fft.fftfreq(lattice[0]), torch.fft.rfftfreq(lattice[1])
    cycles = moved_px[..., :1, None] * fy.to(moved_px)[:, None] + moved_px[..., 1:, None] * fx.to(
        moved_px
    )
    return torch.polar(torch.ones_like(cycles), 2 * math.pi * cycles)
