"""Draws of the joint posterior of image, motion and gains, and what they tell of error bars."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..filters import gaussian_blur
from ..linear import conjugate_gradients
from .joint import Joint
from .variance import noise_variance

DRAWS = 6
RATIO_SMOOTHING_PX = 1.5


def doubt(joint: Joint) -> tuple[Tensor, Tensor]:
    """Draws of what errors of motion and gain do to the frames, (B, D, N, H, W), and how much
    more of the image noise and prior leave unknown than `noise_variance` says, (B, s*H, s*W).

    From draws of the joint posterior: solutions for a right side whose covariance is that of
    the normal equations. Less its answer to the frames' displacement, the image of a draw is
    one for known motion; a few of those tell a smooth ratio on each sub-grid.
    """
    problem, normal, free = joint.problem, joint.normal(), joint.free()
    root = torch.linalg.cholesky(joint.coefficient_prior.precision())
    stated = noise_variance(problem)
    generator = torch.Generator(stated.device).manual_seed(0)
    misplaced, ratio = [], torch.zeros_like(stated)
    for _ in range(DRAWS):
        # the same for each burst: none must depend on the others of its batch
        noise, scene, other = (
            torch.randn(shape[1:], generator=generator, device=stated.device).expand(shape)
            for shape in (joint.residual.shape, joint.image.shape, joint.tangent.shape[:3])
        )
        told = normal.seen(problem.precision.sqrt() * noise)
        known = problem.filter(scene, problem.prior.rsqrt())
        believed = torch.where(free, (root @ other[..., None])[..., 0], 0)
        right = told + normal.pack(known, believed)
        image, error = normal.unpack(conjugate_gradients(normal, right, 5e-2, max_steps=100))
        misplaced.append(normal.moved(error))
        alone = problem.crop(image + problem.solve(misplaced[-1], None, 5e-2))
        ratio += alone**2 / (DRAWS * stated)
    grids = F.pixel_unshuffle(ratio[:, None], joint.scale)
    smooth = F.pixel_shuffle(gaussian_blur(grids, RATIO_SMOOTHING_PX), joint.scale)
    return torch.stack(misplaced, 1), smooth[:, 0]
