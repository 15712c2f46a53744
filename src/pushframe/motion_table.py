"""What became of each frame over all tiles: how it moved, how much of it was used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .brightness import corrected_notes, of_brightness, with_outcome
from .burst import Burst
from .checks import frame_label
from .left_out import LEAST_SHARE, left_out_notes, left_out_pixels, left_out_remark
from .methods import Estimate
from .registration import off_grid, on_grid_note


@dataclass(frozen=True)
class FrameMotion:
    """One frame against the reference.

    shift_px: (dy, dx), low-res px, what brings the frame as it is in its file onto the reference,
    mean over tiles by the pixels used; None where a method uses no motion. spread_px: standard
    deviation of the shift over tiles, both axes together.
    used: share of its valid pixels that entered, None where it has none. bend_px: how far the
    motion fitted to the whole scene differs over it; error_px: its stated error in a tile. Both
    rms, axes together, None where no such motion was fitted. remark: what disagrees in it.
    gain: its true over its stated exposure, the reference's as the unit, None where not estimated.
    """

    name: str
    shift_px: tuple[float, float] | None
    spread_px: float
    used: float | None
    bend_px: float | None = None
    error_px: float | None = None
    remark: str = ""
    gain: float | None = None


class MotionTable:
    """Sums over tiles, so that a scene of any size takes the memory of one row a frame."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.moving = self.compared = False
        self.weight = torch.zeros(len(names), dtype=torch.float64)
        self.shift = torch.zeros(len(names), 2, dtype=torch.float64)
        self.square = torch.zeros_like(self.shift)
        self.off_px = torch.zeros(2)  # from whole-pixel shifts, at most
        self.pixels = torch.zeros(2, len(names), dtype=torch.float64)  # valid, used
        self.gains = torch.zeros(3, len(names), dtype=torch.float64)  # weight, gain, its variance
        self.judged = torch.zeros(2, len(names), dtype=torch.float64)  # pixels, those left out
        self.worst = torch.zeros(len(names), dtype=torch.float64)  # share left out in a tile
        self.tiles = torch.zeros(2, len(names), dtype=torch.long)  # that show a frame, that drop it

    def update(self, burst: Burst, estimate: Estimate, moved_px: Tensor) -> None:
        """Add a batch of tiles.

        moved_px: (B, N, 2), whole px by which the frames of each tile were moved in reading.
        """
        used = burst.valid if estimate.used is None else estimate.used
        if estimate.flow_px is None:  # the reference alone is looked at
            used = used.clone()
            used[:, 1:] = False
        for total, mask in zip(self.pixels, (burst.valid, used), strict=True):
            total += mask.sum((0, 2, 3), dtype=torch.float64).cpu()
        judged, left = (x.sum((2, 3)).double().cpu() for x in left_out_pixels(burst, estimate))
        self.judged += torch.stack([judged, left]).sum(1)
        share = left / (burst.shape[0] * burst.shape[1])  # a corner of a frame tells little
        self.worst = torch.maximum(self.worst, share.amax(0))
        if estimate.gain is not None and not burst.days:  # between days light changes
            weight = used.double().mean((2, 3)).cpu()
            gain = estimate.gain.double().cpu()
            error = torch.zeros_like(gain) if estimate.gain_error is None else estimate.gain_error
            squares = error.double().cpu() ** 2
            self.gains += (weight * torch.stack([torch.ones_like(gain), gain, squares])).sum(1)
        if estimate.kept is not None:
            there = burst.valid.any(-1).any(-1)  # a tile may lie outside some frames
            self.tiles += torch.stack([there, there & ~estimate.kept]).sum(1).cpu()
        if estimate.flow_px is not None:
            # a frame that hardly reaches a tile has little to say of its motion there
            weight = used.double().mean((2, 3)).cpu()
            shift = mean_shift(estimate.flow_px).double().cpu() - moved_px.double().cpu()
            self.moving = True
            off_px = off_grid(estimate.flow_px).reshape(*shift.shape, -1).amax(-1).cpu()
            others = weight[:, 1:] > 0  # the reference is on its own grid
            off_px = off_px[:, 1:].masked_fill(~others[..., None], 0).flatten(0, 1)
            if bool(others.any()):
                self.off_px = torch.maximum(self.off_px, off_px.amax(0)).nan_to_num(0.5)
                self.compared = True
            self.weight += weight.sum(0)
            self.shift += (weight[..., None] * shift).sum(0)
            self.square += (weight[..., None] * shift.square()).sum(0)

    def gain(self) -> tuple[list[float], list[float]]:
        """True over stated exposure and its error in a tile, means over tiles; NaN if unknown."""
        weight, gain, square = self.gains
        mean = (gain / weight).masked_fill(weight == 0, torch.nan)
        return mean.tolist(), (square / weight.clamp(min=1e-12)).sqrt().tolist()

    def gains_tag(self) -> str | None:
        """The gains in the order of the frames, as the product's tag; None where not estimated."""
        gain, _ = self.gain()
        texts = [f"{g:.4f}" if g == g else "unknown" for g in gain]
        return ", ".join(texts) if any(g == g for g in gain) else None

    def notes(self, said: Sequence[str] = ()) -> list[str]:
        """Notes that there are, then frames that were dropped, or in part, gains, a common grid.

        said: what these say of a frame's brightness is not said again, but what became of it.
        """
        labels = [frame_label(k, name) for k, name in enumerate(self.names)]
        dropped = [f"{labels[k]} {why}." for k, why in enumerate(self._dropped()) if why]
        shares, worst = self._left_out()
        left = [f"{text}." for text in left_out_notes(labels, shares, worst)]
        on_grid = on_grid_note(self.off_px) if self.compared else None
        told = [
            k
            for k, name in enumerate(self.names)
            if any(of_brightness(note, name) for note in said)
        ]
        gains = [f"{text}." for text in corrected_notes(labels, *self.gain(), told)]
        said = [with_outcome(note, self.names, self.gain()[0]) for note in said]
        return [*said, *dropped, *left, *gains, *([] if on_grid is None else [on_grid])]

    def _dropped(self) -> list[str]:
        """What to say of each frame that was left out of tiles; nothing of the others."""
        text = "disagrees with the others and was left out"
        return [
            "" if not lost else text if lost == there else f"{text} in part"
            for there, lost in self.tiles.T.tolist()
        ]

    def _left_out(self) -> tuple[list[float], list[float]]:
        """The share of each frame's pixels that disagree, and that of the worst tile."""
        judged, left = self.judged
        return (left / judged.clamp(min=1)).tolist(), self.worst.tolist()

    def _remarks(self) -> list[str]:
        """What the table says of each frame."""
        told = [
            left_out_remark(share, worst) if worst >= LEAST_SHARE else ""
            for share, worst in zip(*self._left_out(), strict=True)
        ]
        return [
            "; ".join(text for text in both if text)
            for both in zip(self._dropped(), told, strict=True)
        ]

    def rows(self) -> list[FrameMotion]:
        """One row a frame, in their order."""
        weight = self.weight.clamp(min=1e-12)[:, None]
        mean = self.shift / weight
        spread = (self.square / weight - mean**2).clamp(min=0).sum(1).sqrt()
        seen, used = self.pixels
        remarks, (gain, _) = self._remarks(), self.gain()
        return [
            FrameMotion(
                name,
                (float(mean[k, 0]), float(mean[k, 1])) if self.moving else None,
                float(spread[k]),
                float(used[k] / seen[k]) if seen[k] > 0 else None,
                remark=remarks[k],
                gain=gain[k] if gain[k] == gain[k] else None,
            )
            for k, name in enumerate(self.names)
        ]


def mean_shift(flow_px: Tensor) -> Tensor:
    """Translations (B, N, 2) of flows (B, N, 2[, H, W])."""
    return flow_px if flow_px.ndim == 3 else flow_px.mean((-1, -2))
