"""How sure a fit in space is of its motion and gains, and what the frames alone tell of them.

From the information where it last looked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..folding import half_weight, image_frequencies
from ..prior import spectral_basis, spectrum_at
from ..spectral import AliasBlocks, transfer
from .belief import Evidence, evidence_of, on_diagonal, unheld
from .joint import Joint


def covariance(joint: Joint) -> Tensor:
    """Covariance of each frame's (dy, dx, gain), (B, 3N, 3N): of its mean displacement.

    Zero where nothing was estimated.
    """
    functions, count = len(joint.basis), joint.burst.count
    free = joint.free().flatten(1)
    both = free[:, :, None] & free[:, None]
    system = _information(joint) + on_diagonal(joint.coefficient_prior.precision().double())
    system = torch.where(both, system, 0) + torch.diag_embed((~free).double())
    inverse = torch.where(both, torch.linalg.inv_ex(system).inverse, 0).to(joint.gain)
    place = [0, functions, 2 * functions]
    chosen = inverse.unflatten(2, (count, -1)).unflatten(1, (count, -1))
    return chosen[:, :, place][..., place].flatten(3).flatten(1, 2)


def evidence(joint: Joint) -> Evidence:
    """What frames tell of coefficients and gains, whatever was believed of them beforehand."""
    free = joint.free().any(-1)
    return evidence_of(joint.state(), _information(joint), joint.slope(), free, len(joint.basis))


def _information(joint: Joint) -> Tensor:
    """Of all unknowns, (B, N*P, N*P) float64.

    Of tangents seen through the blocks of the frames' mean shifts.
    """
    problem, knots, shape = joint.problem, joint.knots, joint.burst.shape
    shift_px = joint.flow_px if joint.flow_px.ndim == 3 else joint.flow_px.mean((-1, -2))
    prior = spectrum_at(knots, spectral_basis(*image_frequencies(shape, joint.scale, knots)))
    weight = problem.typical_precision()
    blocks = AliasBlocks(transfer(shift_px, shape, joint.scale), weight, prior)
    share = (problem.precision / weight.clamp(min=1e-30)[..., None, None]).sqrt()
    places = [0, len(joint.basis)]  # of the constants, along y and x
    tangent = joint.tangent.clone()
    if joint.moving:  # the reference tells where all of them are together
        tangent[:, 0, places] = torch.stack([part[:, 0] for part in joint.answers[:2]], 1)
    change = torch.fft.rfft2(tangent * share[:, :, None], norm="ortho")
    information = blocks.information(change, half_weight(shape[1], knots)).double()
    if not joint.moving:
        return information
    axes = torch.zeros_like(information[0, : tangent.shape[2], :2])
    axes[places, [0, 1]] = 1
    seen = joint.used_frames().repeat_interleave(tangent.shape[2], 1)
    return unheld(information, axes.repeat(tangent.shape[1], 1) * seen[..., None])
