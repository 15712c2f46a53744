"""The window through which frames are compared, which moves with the scene, and what it does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..filters import tukey
from ..folding import to_folded
from ..forward import per_axis
from ..gaussian import GaussianProblem
from ..spectral import Transfer, transfer

TAPER = 1 / 8  # share of the frame's width over which the window falls to zero, at each side
UNNOTICED_PX = 1.0  # by which a frame may miss the end of the window


def unseen_margin(shape: tuple[int, int], flow_px: Tensor) -> Tensor:
    """What frames so far apart do not all show of the reference at its ends, (2, B, 1, 1) px.

    At most as wide as the window's slope.
    """
    apart_px = (flow_px.abs().amax(1) - UNNOTICED_PX).clamp(min=0).unbind(-1)
    margin_px = [px.clamp(max=TAPER * size) for px, size in zip(apart_px, shape, strict=True)]
    return torch.stack(margin_px)[..., None, None]


def moving_window(
    shape: tuple[int, int], flow_px: Tensor, margin_px: Tensor, scale: int = 1
) -> Sequence[Tensor] | Tensor:
    """A Tukey window of unit power that moves with the scene, zero in its margin.

    Its factors along rows and columns, (B, N, s*H) and (B, N, s*W), on a grid `scale` times finer.

    A window fixed to the frames would make a shifted scene differ by more than its shift, and one
    that reached beyond a frame would cut it off.
    """

    def window(size: int, shift_px: Tensor, margin_px: Tensor) -> Tensor:
        pixel = torch.arange(scale * size, device=shift_px.device) / scale
        place = pixel + shift_px[..., None] + 0.5
        axis = tukey((place - margin_px) / (1 - 2 * margin_px / size) - 0.5, size, TAPER)
        return axis / axis.square().mean(-1, True).sqrt().clamp(min=1e-6)

    return per_axis(window, shape, flow_px.movedim(-1, 0), margin_px)


class Placed:
    """Frames at their shifts (B, N, 2): what they see of an image, and the windows they have there.

    margin_px: as of `unseen_margin`. see: of the image's spectrum under periodic borders. window:
    (B, N, H, W); waves: the spectra of its factors, (B, N, a, 1) and (B, N, 1, c).
    """

    def __init__(
        self, shape: tuple[int, int], flow_px: Tensor, margin_px: Tensor, scale: int
    ) -> None:
        self.flow_px, self.margin_px = flow_px, margin_px
        self.see = transfer(flow_px, shape, scale)
        tall, wide = moving_window(shape, flow_px, margin_px)
        self.window = tall[..., :, None] * wide[..., None, :]
        self.waves = (
            torch.fft.fft(tall, norm="ortho")[..., :, None],
            torch.fft.rfft(wide, norm="ortho")[..., None, :],
        )


def windowed_scene(
    problem: GaussianProblem, scene: Tensor, see: Transfer, margin_px: Tensor
) -> Tensor:
    """The frames of a windowed image under periodic borders, (B, N, H, W).

    scene: (B, h, w), a canvas of the problem; see: shifts under such borders. The windowed frames
    of the image differ from them where a shift's response changes faster than the window's spectrum
    is wide: near the image's Nyquist frequency, which folds onto the frames' mean.
    """
    shape = (problem.precision.shape[-2], problem.precision.shape[-1])
    at_rest = torch.zeros_like(problem.flow_px[:, :1])
    tall, wide = moving_window(shape, at_rest, margin_px, problem.scale)
    windowed = problem.crop(scene) * tall[:, 0, :, None] * wide[:, 0, None]
    meant = see.predict(to_folded(windowed, problem.scale))
    return torch.fft.irfft2(meant, s=shape, norm="ortho")
