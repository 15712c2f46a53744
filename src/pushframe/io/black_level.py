"""The black level of frames of different exposures that come without one.

The mean of a frame, `exposure * scene + black`, is a straight line in its contrast, which is
`exposure` times that of the scene: where the line has no contrast, the mean is the black level.
Contrasts are told from pairs of frames, as noise and aliases of two frames have nothing in common.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..burst import Burst
from ..filters import gaussian_blur, masked_blur
from ..forward import forward_model
from ..registration import register

LEAST_FRAMES = 5
WELL_SEEN = 0.8  # share of its pixels that a frame must show
SMOOTHING_PX = 2.0
BORDER_PX = 6
LEAST_PIXELS = 256  # that all frames show
ROUNDS = 50  # in which contrasts settle
SPREAD = 0.08  # of the logarithm of contrasts, below which frames are of one exposure
AS_EXPOSED = 0.1  # by which a frame's brightness may differ from that of its exposure, to count
ALIKE = 0.7  # of the spread of brightness over exposure: a black level leaves less
CLIPPED = 0.001  # of the pixels at 0, the least value: the noise of dark ground is cut off there
CLEARLY = 8.0  # in standard errors, which aliases make three times too small
MATTERS = 0.01  # of the mean of the frames: what less does is lost in the noise


def estimated_black(raw_dn: np.ndarray, exposure: np.ndarray | None = None) -> float:
    """The black level that frames (N, H, W) tell, DN, NaN where invalid; 0 where they tell none.

    Frames must differ in exposure, and move by no more than registration can follow.
    exposure: (N,), where it is stated.
    """
    frames = torch.from_numpy(raw_dn)
    seen = (~frames.isnan()).float().mean((-1, -2)) >= WELL_SEEN
    frames = frames[seen]
    stated = None if exposure is None else torch.from_numpy(exposure.astype(np.float64))[seen]
    if len(frames) < LEAST_FRAMES or min(frames.shape[-2:]) < 4 * BORDER_PX or _clipped(frames):
        return 0.0
    if not bool((frames.nanmean((-1, -2)) > 0).all()) or bool(frames.isinf().any()):
        return 0.0
    still = _registered(frames)
    if still.shape[1] < LEAST_PIXELS:
        return 0.0
    mean, contrast = still.mean(1), _contrasts(still)
    if not bool((contrast > 0).all()) or float(contrast.log().std()) < SPREAD:
        return 0.0
    black, error, trusted = _without_contrast(mean, contrast)
    if float(contrast[trusted].log().std()) < SPREAD:  # those of one exposure alone are left
        return 0.0
    clear = abs(black) > max(CLEARLY * error, MATTERS * float(mean.mean()))
    if not clear or not bool((mean > black).all()):
        return 0.0
    if stated is not None and not _as_exposed(mean[trusted], stated[trusted], black):
        return 0.0
    return float(f"{black:.3g}")


def _clipped(frames: Tensor) -> bool:
    """Whether frames are cut off at 0, which makes short ones brighter than they are."""
    seen = frames[~frames.isnan()]
    return bool(seen.min() == 0) and float((seen == 0).float().mean()) > CLIPPED


def _as_exposed(mean: Tensor, exposure: Tensor, black: float) -> bool:
    """Whether a black level brings frames clearly nearer to their stated exposures, but for a few.

    Haze, clouds and shadows change means and contrasts along a line, too.
    """
    before, after = (((mean - level) / exposure).log() for level in (0.0, black))
    right = (after - after.median()).abs() < AS_EXPOSED
    return 2 * int(right.sum()) > len(right) and bool(
        after[right].std() < ALIKE * before[right].std()
    )


def _registered(frames: Tensor) -> Tensor:
    """Low-passed frames (N, H, W) on the first one's grid, the pixels that all show, (N, P)."""
    valid = ~frames.isnan()
    bright = frames.nanmean((-1, -2))
    alike = frames.nan_to_num() / bright[:, None, None]
    burst = Burst(alike[None], bright[None], torch.ones(1), valid=valid[None])
    smooth = masked_blur(burst.frames, burst.valid, SMOOTHING_PX)[0]
    whole = (gaussian_blur(valid.to(smooth)[None], SMOOTHING_PX)[0] > 0.999).to(smooth)
    # frame(x) = first(x + flow), so the frame at x - flow lies on the first one's grid
    onto = forward_model(-register(burst)[0][:, None], burst.shape, 1, 0)
    still, shown = (onto.forward(values)[:, 0] for values in (smooth, whole))
    everywhere = ((shown > 0.999) & onto.inside[:, 0]).all(0)
    inner = everywhere[BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX]
    still = still[:, BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX]
    return (still[:, inner] * bright[:, None]).double()


def _contrasts(still: Tensor) -> Tensor:
    """Contrasts (N,) of frames (N, P), products of which are nearest to their covariances.

    Their own variances, the noise among them, have no say. NaN where no two frames agree.
    """
    size = still.mean(1)
    off = (still - size[:, None]) / size[:, None]
    covariance = (off @ off.T / off.shape[1]).fill_diagonal_(0)
    contrast = torch.ones_like(size)
    for _ in range(ROUNDS):
        power = contrast**2
        contrast = covariance @ contrast / (power.sum() - power)
    return contrast * size


def _without_contrast(mean: Tensor, contrast: Tensor) -> tuple[float, float, Tensor]:
    """The mean of a frame without contrast, its standard error, and the frames that agree on it.

    Contrasts are the less exact; their errors grow with them.
    """
    trusted = torch.ones_like(mean)
    for _ in range(5):
        weight = trusted / contrast**2
        middle, typical = ((weight * x).sum() / weight.sum() for x in (mean, contrast))
        about = mean - middle
        slope = (weight * about * contrast).sum() / (weight * about**2).sum()
        off = (contrast - typical - slope * about) / contrast
        usual = off.abs().median() / 0.6745
        trusted = (off.abs() <= 4 * usual).to(mean)
    var = (trusted * off**2).sum() / (trusted.sum() - 2).clamp(min=1)
    steep = (typical / slope) ** 2 * var / (weight * about**2).sum()
    error = (var / weight.sum() + steep).sqrt() / slope.abs()
    return float(middle - typical / slope), float(error), trusted > 0
