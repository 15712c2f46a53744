"""The motion network of HDR-DSP: a frame and the reference to the translation between them."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..burst import Burst
from ..geometry import all_but_the_reference
from .blocks import conv

LARGEST_PX = 5.0
LEAK = 0.2
DOWN = (2, 32, 64, 128)  # channels
UP = (128, 256, 128, 64)


class MotionNet(nn.Module):
    """conv-conv-pool three times, conv-conv-enlarge three times, 5 tanh: 1.74 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(_pair(a, b) for a, b in pairwise(DOWN))
        self.up = nn.ModuleList(_pair(a, b) for a, b in pairwise(UP))
        flow = conv(DOWN[1], 2)
        with torch.no_grad():  # small motion to start with
            flow.weight.mul_(0.1)
        self.last = nn.Sequential(conv(UP[-1], DOWN[1]), nn.LeakyReLU(LEAK), flow)

    def forward(self, pairs: Tensor) -> Tensor:
        """Pairs (B, 2, H, W) to a flow for every pixel, (B, 2, H, W) low-res px."""
        sizes, x = [], pairs
        for part in self.down:
            sizes.append(x.shape[-2:])
            x = F.max_pool2d(part(x), 2)
        for part, size in zip(self.up, reversed(sizes), strict=True):
            x = F.interpolate(part(x), size=size, mode="bilinear", align_corners=False)
        return LARGEST_PX * torch.tanh(self.last(x))


def _pair(channels: int, features: int) -> nn.Sequential:
    leaky = nn.LeakyReLU(LEAK)
    return nn.Sequential(conv(channels, features), leaky, conv(features, features), leaky)


def frame_pairs(burst: Burst) -> Tensor:
    """Each frame beside the reference, both of mean 0 and variance 1, (B * N, 2, H, W)."""
    weight = burst.valid.to(burst.frames)
    share = weight.sum((-1, -2), keepdim=True).clamp(min=1)
    centred = burst.frames - (burst.frames * weight).sum((-1, -2), keepdim=True) / share
    power = (centred**2 * weight).sum((-1, -2), keepdim=True) / share
    unit = centred * weight / power.clamp(min=1e-12).sqrt()
    return torch.stack([unit, unit[:, :1].expand_as(unit)], 2).flatten(0, 1)


def patch_flow(flow: Tensor, burst: Burst) -> Tensor:
    """The mean flow of each frame's valid pixels, (B, N, 2), that of the reference zero."""
    weight = burst.valid.flatten(0, 1)[:, None].to(flow)
    mean = (flow * weight).sum((-1, -2)) / weight.sum((-1, -2)).clamp(min=1)
    moving = all_but_the_reference(burst.count, flow)[:, None]
    return mean.unflatten(0, (-1, burst.count)) * moving
