"""Motion, gains and prior of a burst by maximum marginal likelihood, in Fourier space.

The image is integrated out: with covariance `C = sum_k h_k S_k h_k' + noise` of the frames at a
low-res frequency, `v' C^-1 v + log det C` is minimised over the shifts inside `h`, the gains of
the frames and the spectrum `S`. The determinant matters: the energy alone prefers shifts that
let the image explain noise, and with few frames it drives them away from the truth.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..burst import Burst
from .belief import FIRST_JITTER_PX, Belief, first_jitter
from .fit import Fit
from .search import Search

LOOKS = 6  # after which the spectrum of known motion has settled
MASKED_LOOKS = 5  # in which the image grows into masked pixels, before anything else is judged
SETTLED = 3  # steps after which residuals tell of the model, not of the motion
LAST_STEPS = 2  # once the motion is nearly known, and with it what windows do to the frames
FEW = 2  # frames an alias, up to which a likelihood has several peaks
PEAK_JITTER_PX = 0.0125  # what the highest of them may be off


def fit_motion(
    burst: Burst,
    start_px: Tensor,
    kept: Tensor,
    scale: int,
    steps: int = 8,
    moving: bool = True,
    belief: Belief | None = None,
    unbiased: bool = True,
) -> Fit:
    """Shifts, gains, spectrum and model mismatch of a batch.

    start_px: (B, N, 2) within some 0.2 px of the truth; kept: (B, N) bool, frames to use. With
    `moving` False the shifts stay as they are and only the rest is fitted. belief: of translations
    and gains. unbiased: take out what windows do to frames, which matters more to gains than to
    shifts. Never worse than its start: where the likelihood (with the belief, the posterior) ended
    below that of the start, the start is kept.
    """
    jitter_px = first_jitter(start_px, belief, FIRST_JITTER_PX)
    begin_px, few = start_px, (kept.sum(1) <= FEW * scale**2).nonzero()[:, 0]
    if moving and len(few):
        held = None if belief is None else belief.part(few)
        peak_px = _highest_peak(burst.part(few), start_px[few], kept[few], scale, steps, held)
        begin_px = start_px.index_copy(0, few, peak_px)
        jitter_px = jitter_px.index_copy(0, few, jitter_px[few].clamp(max=PEAK_JITTER_PX))
    search = Search(burst, begin_px, kept, scale, belief)
    search.look()
    search.grow_into_masks(MASKED_LOOKS)
    for count in range(steps):
        search.jitter_px = jitter_px / 2**count if moving else 0 * jitter_px
        search.look()
        search.step(moving)
        if count >= SETTLED:
            search.learn_gain_std()
            search.budget()
    search.jitter_px = 0 * jitter_px
    for _ in range(LAST_STEPS):
        if unbiased:
            search.unbias()
        search.look()
        search.step(moving)
        search.learn_gain_std()
        search.budget()
    search.look()
    search.budget()
    search.expel()
    search.look()
    search.step(moving)
    search.look()
    if moving:
        search.keep_the_better(start_px)
    return Fit(
        search.flow_px,
        search.gain,
        search.covariance(moving),
        search.knots,
        search.mismatch,
        search.outlier,
        search.kept,
        *search.likelihood(),
        search.scene,
    )


def _highest_peak(
    burst: Burst, start_px: Tensor, kept: Tensor, scale: int, steps: int, belief: Belief | None
) -> Tensor:
    """The likelier end of two searches, (B, N, 2): one from afar, one that trusts its start.

    Shifts and gains are all that is doubted: a mismatch would excuse any peak.
    """
    ends = []
    for usual_px in (FIRST_JITTER_PX, PEAK_JITTER_PX):
        search = Search(burst, start_px, kept, scale, belief)
        jitter_px = first_jitter(start_px, belief, usual_px)
        search.look()
        search.grow_into_masks(MASKED_LOOKS)
        for count in range(steps):
            search.jitter_px = jitter_px / 2**count
            search.look()
            search.step(moving=True)
        search.jitter_px = 0 * jitter_px
        search.look()
        search.look()
        ends.append((search.flow_px, search.energy().nan_to_num(torch.inf)))
    (far_px, far), (near_px, near) = ends
    best_px = torch.where((near < far)[:, None, None], near_px, far_px)
    return torch.where(torch.isfinite(best_px), best_px, start_px)


def spectrum_of_translations(burst: Burst, flow_px: Tensor, gain: Tensor, scale: int) -> Tensor:
    """Log power at the knots, (B, KNOTS), of the image of a burst whose motion is known."""
    search = Search(burst, flow_px, burst.valid.any(-1).any(-1), scale, gain=gain)
    for _ in range(LOOKS):
        search.look()
    return search.knots
