"""Pixels that the solver left out by itself, and what to say of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .burst import Burst
from .forward import forward_model
from .geometry import pixel_grid, sample_at
from .methods import Estimate
from .noise import frame_noise_var
from .solver.outliers import cut_pixels

LEAST_SHARE = 0.003  # of a frame's pixels in a tile: clean frames have none, a spot has 1 to 4 %
FEW = 3  # frames named one by one
WHY = "a cloud, something that moves?"


def left_out_pixels(burst: Burst, estimate: Estimate) -> tuple[Tensor, Tensor]:
    """Pixels of a batch that were judged, and those of them left out, both (B, N, H, W) bool.

    Frames left out as a whole are not judged. What should be near the ceiling of a frame with
    masked pixels was left out for saturation: no disagreement. A cloud is not expected there.
    """
    if estimate.used is None or estimate.flow_px is None:
        return torch.zeros_like(burst.valid), torch.zeros_like(burst.valid)
    kept = estimate.used.any(-1).any(-1) if estimate.kept is None else estimate.kept
    judged = burst.valid & kept[..., None, None]
    left = judged & ~estimate.used
    if burst.noise is not None and bool(left.any()):
        expected, bar_var, _ = expected_frames(burst, estimate)
        std = (frame_noise_var(burst) + bar_var).sqrt()
        left &= ~cut_pixels(burst.frames, burst.valid, expected, 2 * std)
    return judged, left


def expected_frames(burst: Burst, estimate: Estimate) -> tuple[Tensor, Tensor, Tensor]:
    """What an image says of its frames, its variance there, and where it knows, (B, N, H, W)."""
    mean, var = estimate.posterior.mean, estimate.posterior.var
    flow_px, gain = estimate.flow_px, estimate.gain
    assert flow_px is not None
    scale = mean.shape[-1] // burst.shape[1]
    gain = (torch.ones_like(burst.exposure) if gain is None else gain)[..., None, None]
    signal, known = _predicted(mean, flow_px, scale)
    if var is None:
        return signal * gain, torch.zeros_like(signal), known
    flow = flow_px if flow_px.ndim == 5 else flow_px[..., None, None]
    spots = scale * (pixel_grid(burst.shape, mean) + flow).flatten(0, 1)
    many = var.nan_to_num(0).repeat_interleave(burst.count, 0)
    bar_var = sample_at(many, spots.expand(-1, -1, *burst.shape), "bilinear")
    return signal * gain, gain**2 * bar_var.unflatten(0, (-1, burst.count)), known


def _predicted(mean: Tensor, flow_px: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """What an image says of frames, before their gains, and where it knows, (B, N, H, W)."""
    shape = (mean.shape[-2] // scale, mean.shape[-1] // scale)
    model = forward_model(flow_px, shape, scale, 0)
    known = torch.isfinite(mean)
    level = mean.nanmean((-1, -2), keepdim=True).nan_to_num(0)
    predicted = model.forward(torch.where(known, mean - level, 0)) + level[:, None]
    return predicted, model.forward((~known).to(mean)).abs() < 0.01


def percent(share: float) -> str:
    """A share in words, with a decimal where it is small."""
    if share < 0.0005:
        return "under 0.1%"
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def left_out_remark(share: float, worst: float, tense: str = "were") -> str:
    """What to say of a frame; worst: the share in the tile where it is largest."""
    many = f"{percent(share)} of its pixels{_where_most(share, worst)}"
    return f"{many} disagree with the other frames ({WHY}) and {tense} left out"


def _where_most(share: float, worst: float) -> str:
    return "" if worst < 2 * share else f", {percent(worst)} where it is most,"


def left_out_notes(
    labels: Sequence[str], shares: Sequence[float], worst: Sequence[float], tense: str = "were"
) -> list[str]:
    """Without a full stop: one for each frame that lost more than a few pixels, or one for all.

    shares: of the pixels judged, that were left out; worst: in the tile where it is largest.
    """
    told = [k for k in range(len(labels)) if worst[k] >= LEAST_SHARE]
    if len(told) <= FEW:
        return [f"{labels[k]}: {left_out_remark(shares[k], worst[k], tense)}" for k in told]
    least, most = (f(shares[k] for k in told) for f in (min, max))
    span = " to ".join(dict.fromkeys([percent(least), percent(most)]))
    where = _where_most(most, max(worst[k] for k in told))
    return [
        f"In {len(told)} of {len(labels)} frames {span} of the pixels{where} disagree with "
        f"the other frames ({WHY}) and {tense} left out"
    ]
