"""Where each frame lies against the reference: phase correlation, then Lucas-Kanade."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from .burst import Burst
from .checks import require
from .filters import highest_near, masked_blur
from .forward import Translations, forward_model
from .geometry import all_but_the_reference
from .noise import frame_noise_var
from .ops import bilinear

ROUNDS = 3  # of phase correlation
SMOOTHING_PX = 1.0  # of Lucas-Kanade
STEPS = 5  # of Lucas-Kanade
MAX_GAIN = 2.0  # and its inverse: farther from 1 gains begin at the ratio of means
BORDER_PX = 4  # around what is invalid, left out by Lucas-Kanade
AGREEMENT_SMOOTHING_PX = 1.5
FILL_SIGMA_PX = 4.0
MIN_SIDE_PX = 8
BRIGHTNESS_BORDER_PX = 4  # by which a flow may differ from its mean
WELL_SEEN = 0.8  # share of its pixels that a frame must show to be compared with
ON_GRID_PX = 0.05  # from a whole-pixel shift, within which a frame shows nothing new
NEAR_PX = 2.0  # a jump further than this needs the images to agree, where they have holes


def register(burst: Burst) -> Tensor:
    """Translations from each frame to the reference, (B, N, 2) low-res px; the first is zero.

    Convention: `frame(x) = reference(x + flow)`.
    """
    require(
        min(burst.shape) >= MIN_SIDE_PX,
        f"frames of at least {MIN_SIDE_PX}x{MIN_SIDE_PX} px to register",
        f"{burst.shape[0]}x{burst.shape[1]}",
        "give larger frames",
    )
    anchor = _anchor(burst)
    moved = burst if anchor is None else reordered(burst, anchor)
    start = phase_correlation(moved)
    masked = moved.valid.to(start).mean((-1, -2)) < WELL_SEEN
    if bool(masked.any()):
        start = torch.where(masked[..., None], masked_match(moved), start)
    far = (start.abs() > NEAR_PX).any(-1) & ~moved.valid.flatten(1).all(1, keepdim=True)
    if bool(far.any()):
        start = _believable(moved, start, far)
    shift = lucas_kanade(moved, start)
    if anchor is None:
        return shift
    # frame(x) = anchor(x + a) and reference(x) = anchor(x + b) make frame(x) = reference(x + a - b)
    shift = shift.gather(1, anchor[..., None].argsort(1).expand_as(shift))
    return shift - shift[:, :1]


def _anchor(burst: Burst) -> Tensor | None:
    """An order of the frames (B, N) that begins with one fit to be compared with the others.

    The reference, unless much of it is masked: then the longest exposure that is well seen.
    None where the reference serves throughout.
    """
    seen = burst.valid.to(burst.frames).mean((-1, -2))
    if bool((seen[:, 0] >= WELL_SEEN).all()):
        return None
    score = torch.where(seen >= WELL_SEEN, burst.exposure, seen - 1)
    best = torch.where(seen[:, 0] >= WELL_SEEN, 0, score.argmax(1))
    place = torch.arange(burst.count, device=seen.device)
    return torch.where(place == best[:, None], -1, place).argsort(1)


def reordered(burst: Burst, order: Tensor) -> Burst:
    """Each burst of a batch with its frames in an order of its own, (B, N)."""
    entry = torch.arange(len(order), device=order.device)[:, None]
    return dataclasses.replace(
        burst,
        frames=burst.frames[entry, order],
        valid=burst.valid[entry, order],
        exposure=burst.exposure[entry, order],
    )


def _believable(burst: Burst, start_px: Tensor, far: Tensor) -> Tensor:
    """The translations, but none for a far frame that agrees better with the reference as it lies.

    far: (B, N) bool. Of a frame that has but a strip in a tile, phase correlation sees little
    beside the fill.
    """
    as_it_lies = start_px * ~far[..., None]
    here, there = (agreement(burst, flow_px)[1] for flow_px in (as_it_lies, start_px))
    return torch.where((there > here)[..., None], start_px, as_it_lies)


def phase_correlation(burst: Burst) -> Tensor:
    """Whole-pixel translations that maximise the phase correlation with the burst, (B, N, 2).

    The first round compares with the reference, the others with the mean of the frames as the
    round before aligned them: it is less noisy than any frame, and outvotes a mistaken one.
    """
    height, width = burst.shape
    window = torch.outer(
        *(torch.hann_window(size, periodic=False).to(burst.frames) for size in burst.shape)
    )
    spectrum = torch.fft.rfft2(_flattened(burst) * window)
    fy = torch.fft.fftfreq(height, device=window.device)[:, None]
    fx = torch.fft.rfftfreq(width, device=window.device)
    target = spectrum[:, :1]
    for _ in range(ROUNDS):
        cross = target * spectrum.conj()  # peak at the shift from frame to target
        power = cross.abs()
        floor = power.flatten(2).median(-1).values[..., None, None]  # mostly noise
        peak = torch.fft.irfft2(cross / (power + 3 * floor).clamp(min=1e-20), s=(height, width))
        best = peak.flatten(2).argmax(-1)
        row, column = best // width, best % width
        shift = torch.stack([_wrap(row, height), _wrap(column, width)], -1).to(burst.frames)
        cycles = fy * shift[..., 0, None, None] + fx * shift[..., 1, None, None]
        aligned = spectrum * torch.polar(torch.ones_like(cycles), -2 * torch.pi * cycles)
        target = (aligned * burst.exposure[..., None, None] ** 2).sum(1, keepdim=True)
    return shift - shift[:, :1]


def masked_match(burst: Burst) -> Tensor:
    """Whole-pixel translations of least mean squared difference from the first frame, (B, N, 2).

    Over the pixels that both frames show, up to a quarter of the frame away; a mask is an edge to
    phase correlation, and the same edge is elsewhere in every frame. Zero without any overlap.
    """
    height, width = burst.shape
    seen = burst.valid.to(burst.frames)
    smooth = masked_blur(burst.frames, burst.valid, 1.0) * seen
    size = (2 * height, 2 * width)
    mask, value, square = (torch.fft.rfft2(x, s=size) for x in (seen, smooth, smooth**2))

    def sums(target: Tensor, frame: Tensor) -> Tensor:
        """`sum_x target(x + shift) frame(x)` for every shift."""
        return torch.fft.irfft2(target[:, :1] * frame.conj(), s=size)

    overlap = sums(mask, mask)
    gap = sums(square, mask) - 2 * sums(value, value) + sums(mask, square)
    enough = overlap > (0.5 * overlap.amax((-1, -2), keepdim=True)).clamp(min=MIN_SIDE_PX**2)
    place = [_wrap(torch.arange(side, device=seen.device), side) for side in size]
    near = (place[0].abs() <= height // 4)[:, None] & (place[1].abs() <= width // 4)
    score = (gap / overlap.clamp(min=1)).masked_fill(~(enough & near), torch.inf).flatten(2)
    best = score.argmin(-1)
    shift = torch.stack([place[0][best // size[1]], place[1][best % size[1]]], -1)
    return shift.to(seen) * torch.isfinite(score.amin(-1))[..., None]


def lucas_kanade(burst: Burst, start_px: Tensor) -> Tensor:
    """Sub-pixel translations by Gauss-Newton on `frame(x) = gain * reference(x + flow)`.

    start_px: (B, N, 2) translations to begin from. Both images are low-passed, since
    their aliases do not move with the scene. The gain absorbs an inexact exposure.
    """
    smooth = masked_blur(burst.frames, burst.valid, SMOOTHING_PX)
    flow = start_px
    reference = torch.stack([*torch.gradient(smooth[:, 0], dim=(-2, -1)), smooth[:, 0]], 1)
    seen = _overlap(burst, start_px, BORDER_PX).to(smooth)
    frames = seen * smooth
    first = frames.sum((2, 3)) / (seen * smooth[:, :1]).sum((2, 3)).clamp(min=1e-12)
    beyond = (first > MAX_GAIN) | ((first > 0) & (first < 1 / MAX_GAIN))
    first = gain = torch.where(beyond, first, 1)[..., None]
    for _ in range(STEPS):
        moved = seen[:, :, None] * Translations(flow, burst.shape, 1, 0).forward_each(reference)
        residual = frames - gain[..., None] * moved[:, :, 2]
        answers = torch.cat([moved, residual[:, :, None]], 2).flatten(3)
        products = answers[:, :, :3] @ answers.mT
        tangent = torch.cat([gain, gain, torch.ones_like(gain)], -1)
        normal = products[..., :3] * tangent[..., None] * tangent[..., None, :]
        ridge = 1e-6 * normal.diagonal(dim1=-2, dim2=-1) + 1e-9  # no overlap: no change
        system = normal + torch.diag_embed(ridge)
        change = torch.linalg.solve_ex(system, products[..., 3] * tangent).result
        flow = flow + change[..., :2].clamp(-0.5, 0.5)
        gain = (gain + change[..., 2:]).clamp(first / MAX_GAIN, first * MAX_GAIN)
    return flow * all_but_the_reference(burst.count, flow)[:, None]


def brightness(burst: Burst, flow_px: Tensor) -> Tensor:
    """Each frame's mean over the reference's, where both show the same, (B, N).

    flow_px: (B, N, 2, H, W) from frame to reference. 1 where next to nothing is shown by both.
    """
    smooth = masked_blur(burst.frames, burst.valid, AGREEMENT_SMOOTHING_PX)
    shown = _overlap(burst, flow_px.mean((-1, -2)), BRIGHTNESS_BORDER_PX).to(smooth)
    reference = forward_model(flow_px, burst.shape, 1, 0).forward(smooth[:, 0])
    of_frame, of_reference = ((shown * image).sum((-1, -2)) for image in (smooth, reference))
    enough = (shown.sum((-1, -2)) >= MIN_SIDE_PX**2) & (of_reference > 0)
    return torch.where(enough, of_frame / of_reference.clamp(min=1e-12), 1)


def _overlap(burst: Burst, shift_px: Tensor, border_px: int) -> Tensor:
    """Pixels with nothing invalid within `border_px`, in the frame and in the reference."""
    unseen = F.pad((~burst.valid).to(burst.frames), [border_px] * 4, value=1.0)
    near_all = highest_near(unseen, border_px)[..., border_px:-border_px, border_px:-border_px]
    moved = forward_model(shift_px.round(), burst.shape, 1, 0)
    return (near_all == 0) & moved.inside & (moved.forward(near_all[:, 0]) < 0.5)


def _flattened(burst: Burst) -> Tensor:
    """Frames less their mean, invalid pixels filled from those around them, (B, N, H, W).

    A zero in their place would be an edge, and masks differ from frame to frame.
    """
    around = masked_blur(burst.frames, burst.valid, FILL_SIGMA_PX)
    filled = torch.where(burst.valid, burst.frames, around)
    return filled - filled.mean((-1, -2), keepdim=True)


def _wrap(index: Tensor, size: int) -> Tensor:
    return torch.where(index > size // 2, index - size, index)


def agreement(burst: Burst, flow_px: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gain, correlation and contrast over noise of each frame against the moved reference.

    Each (B, N). Contrast is that of the smoothed frame, in standard deviations of its noise. The
    gain is NaN where the reference is not brighter than black.
    """
    smooth = masked_blur(burst.frames, burst.valid, AGREEMENT_SMOOTHING_PX)
    apart = flow_px - flow_px[:, :1]  # the reference's own flow is zero on its own grid only
    reference = forward_model(apart, burst.shape, 1, 0).forward(smooth[:, 0])
    # the pixels around a position weigh as much as one if they are valid and there
    rows, columns = bilinear(apart, burst.shape, 1)
    seen = rows @ burst.valid[:, :1].to(smooth) @ columns.mT > 0.999
    weight = (seen & burst.valid).to(smooth)

    def mean(values: Tensor) -> Tensor:
        return (values * weight).sum((-1, -2)) / weight.sum((-1, -2)).clamp(min=1)

    mean_frame, mean_reference = mean(smooth), mean(reference)
    a, b = smooth - mean_frame[..., None, None], reference - mean_reference[..., None, None]
    power_a, power_b, cross = mean(a * a), mean(b * b), mean(a * b)
    correlation = cross / (power_a * power_b).sqrt().clamp(min=1e-20)
    gain = mean_frame / mean_reference.masked_fill(mean_reference <= 0, torch.nan)
    if burst.noise is None:
        return gain, correlation, torch.full_like(gain, torch.inf)
    left = 1 / (
        4 * torch.pi * AGREEMENT_SMOOTHING_PX**2
    )  # share of white noise that the low-pass leaves
    noise = left * mean(frame_noise_var(burst))
    return gain, correlation, (power_a / (noise + noise[:, :1])).sqrt() / 2


def on_grid_note(off_px: Tensor) -> str | None:
    """A sentence where frames lie on the reference's own grid; None where they lie between.

    off_px: how far a frame lies from a whole-pixel shift at most, rows and columns, (2,).
    Two frames `d` px apart tell an alias from what it hides under with an error of
    `1 / (2 sin(pi d))` times their noise: 3 times and more within ON_GRID_PX.
    """
    near = {
        name: off
        for name, off in zip(("rows", "columns"), off_px.tolist(), strict=True)
        if off < ON_GRID_PX
    }
    if not near:
        return None
    axes = " and ".join(near)
    return (
        f"All frames lie within {max(0.01, *near.values()):.2f} px of whole {axes}: they show "
        "hardly any detail between these, and the product gains little there but less noise."
    )


def off_grid(shift_px: Tensor) -> Tensor:
    """Distance of translations from whole-pixel ones, of the same shape, at most 0.5."""
    return (shift_px - shift_px.round()).abs()
