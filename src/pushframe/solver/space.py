"""Flows of few coefficients fitted in space: from a start, or a belief, to what is to be known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..burst import Burst
from ..registration import brightness
from .belief import FIRST_JITTER_PX, Belief, Evidence, first_jitter
from .bend import lucas_kanade_bent
from .draws import doubt
from .joint import ITERATIONS, Joint
from .joint_certainty import covariance, evidence

BENT_JITTER_PX = 0.4  # what bends, Lucas-Kanade's or none, may be off at the start
STEPS = 10
FEW_STEPS = 5  # from where motion is believed to be
CONVERGED_PX, CONVERGED_GAIN = 0.005, 0.0005  # changes that end the steps
LATE_ITERATIONS = 48  # of the steps that only hard bursts come to
SETTLED = 2  # steps after which residuals tell of the frames, not of the motion
GAIN_STEPS = 3  # of gains alone
LOOKS = 3  # in which the spectrum of the image and the outliers become known


class Bent(NamedTuple):
    """What is known of a batch of bursts besides their images.

    flow_px: (B, N, 2[, H, W]); gain: (B, N); knots: (B, TERMS).
    kept: (B, N) frames that belong; good: (B, N, H, W) pixels to use.
    covariance: (B, 3N, 3N) of each frame's (dy, dx, gain), its mean displacement. doubt: as
    `draws.doubt`, worked out when it is asked for: only error bars need it.
    """

    flow_px: Tensor
    gain: Tensor
    knots: Tensor
    kept: Tensor
    good: Tensor
    covariance: Tensor
    doubt: Callable[[], tuple[Tensor, Tensor]]


def fit_in_space(
    burst: Burst,
    kept: Tensor,
    start_px: Tensor,
    scale: int,
    basis: Tensor,
    moving: bool = True,
    belief: Belief | None = None,
    knots: Tensor | None = None,
    common_gain: Tensor | None = None,
) -> Bent:
    """Flows, gains and spectrum of a batch; kept: (B, N) bool, frames to use.

    start_px: (B, N, 2) translations; basis: (K, H, W), what flows are made of; belief: of their
    coefficients; knots: (B, TERMS), the image's log power to begin with; common_gain: (B,), what
    gains are about, if not 1. With `moving` False the
    translations stay, and the basis is the constant alone.
    Flows that bend are never less likely than those begun from, nor than the translations.
    """
    theta = first_coefficients(burst, start_px, basis, belief)
    joint = Joint(burst, kept, theta, basis, scale, moving, belief, common_gain=common_gain)
    joint.knots = joint.knots if knots is None else knots
    guessed = len(basis) > 1 and belief is None
    usual_px = BENT_JITTER_PX if guessed else FIRST_JITTER_PX
    joint.jitter_px = first_jitter(start_px, belief, usual_px) * moving
    still = torch.zeros_like(theta)
    still[..., 0] = start_px
    if guessed:
        joint.keep_the_best(still)
    _converge(joint)
    joint.jitter_px = 0 * joint.jitter_px
    joint.look()
    joint.judge()
    again = joint.expel().nonzero()[:, 0]  # not before: a frame still to be moved surprises too
    if len(again):
        part = joint.part(again)
        _converge(part)
        joint.put_back(again, part)
    joint.look()
    if len(basis) > 1:
        joint.keep_the_best(theta, still)
    found = (joint.flow_px, joint.gain, joint.knots, joint.kept, joint.good)
    return Bent(*found, covariance(joint), cache(partial(doubt, joint)))


def fit_gains(burst: Burst, flow_px: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """Gains (B, N) and spectrum (B, TERMS) under flows (B, N, 2, H, W) that are known."""
    kept = burst.valid.any(-1).any(-1)
    still, basis = torch.zeros_like(flow_px[..., :1, 0]), torch.ones_like(flow_px[0, 0, :1])
    joint = Joint(burst, kept, still, basis, scale, moving=False, known_px=flow_px)
    joint.gain = brightness(burst, flow_px)
    for _ in range(GAIN_STEPS):
        joint.look()
        joint.learn_prior()
        joint.step()
    return joint.gain, joint.knots


def _converge(joint: Joint) -> None:
    """Gauss-Newton steps, each burst's until they are small."""
    known = joint.coefficient_prior.belief is not None
    settled = 1 if known else SETTLED
    left, place = joint, torch.arange(len(joint.theta), device=joint.theta.device)
    for count in range(FEW_STEPS if known else STEPS):
        left.look()
        if count >= 1:
            left.learn_prior()
        if count >= settled:
            left.judge()
        moved_px, scaled = left.step(ITERATIONS if count <= settled + 1 else LATE_ITERATIONS)
        left.jitter_px = left.jitter_px / 2
        if left is not joint:
            joint.put_back(place, left)
        if count > settled:
            index = ((moved_px >= CONVERGED_PX) | (scaled >= CONVERGED_GAIN)).nonzero()[:, 0]
            if not len(index):
                break
            left, place = left.part(index), place[index]


def first_coefficients(
    burst: Burst, start_px: Tensor, basis: Tensor, belief: Belief | None
) -> Tensor:
    """Coefficients (B, N, 2, K) to begin from: what is believed for sure, or else Lucas-Kanade's.

    start_px: (B, N, 2) translations.
    """
    if len(basis) == 1:
        return start_px[..., None]
    if belief is not None and bool(belief.sure().all()):
        return belief.coefficients()
    found = lucas_kanade_bent(burst, start_px, basis)
    if belief is None:
        return found
    return torch.where(belief.sure()[..., None, None], belief.coefficients(), found)


def measure_in_space(
    burst: Burst, kept: Tensor, start_px: Tensor, scale: int, basis: Tensor, belief: Belief
) -> Evidence:
    """What bursts tell of coefficients and gains, from where those are believed to be."""
    theta = first_coefficients(burst, start_px, basis, belief)
    joint = Joint(burst, kept, theta, basis, scale, belief=belief)
    joint.jitter_px = first_jitter(start_px, belief, FIRST_JITTER_PX)
    for _ in range(LOOKS):
        joint.look()
        joint.learn_prior()
        joint.judge()
        joint.expel()
    joint.look()
    return evidence(joint)
