"""The convolutional parts of the networks: residual blocks without normalisation layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """`x + conv(relu(conv(x)))`, (B, C, H, W)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first = conv(features, features)
        self.second = conv(features, features)
        with torch.no_grad():  # a deep chain starts near the identity
            self.second.weight.mul_(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(x)))


class Trunk(nn.Sequential):
    """Convolution to `features` channels, then `blocks` residual blocks; zeros beyond the edge."""

    def __init__(self, channels: int, features: int, blocks: int) -> None:
        super().__init__(
            conv(channels, features), *(ResidualBlock(features) for _ in range(blocks))
        )


def conv(channels: int, features: int) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size, initialised for the ReLU, without bias to start."""
    layer = nn.Conv2d(channels, features, 3, padding=1)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    set_bias(layer, torch.zeros(features))
    return layer


@torch.no_grad()
def set_bias(layer: nn.Conv2d, values: Tensor) -> None:
    """Start a layer with this bias."""
    assert layer.bias is not None
    layer.bias.copy_(values)
