"""HDR-DSP (Nguyen et al. 2022) with a variance: the paper's network.

Frames are split in base and detail; a shared encoder reads detail, frame and noise of each frame;
its features are shifted and pooled on the high-res grid; a decoder turns them into mean and
log-variance of the detail. The base is the noise-weighted mean of the registered bases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..burst import Burst
from ..checks import check_scale, require
from ..errors import UsageError
from ..filters import masked_blur
from ..geometry import pixel_grid, sample_at
from ..noise import frame_noise_var
from ..ops import Pool, frame_sums
from ..posterior import Posterior
from .blocks import Trunk, conv, set_bias
from .motion_net import MotionNet, frame_pairs, patch_flow
from .network import Motion, Network

BASE_SIGMA_PX = 1.0
FRAMES_AT_ONCE = 4  # at inference: memory does not grow with the number of frames
LOG_VAR_RANGE = (-16.0, 6.0)  # against the variance of the details
FIRST_LOG_VAR = -1.0


@dataclass(frozen=True)
class HdrDspConfig:
    """Sizes of the released network. scale: zoom, 2 to 4. finds_motion: with a motion network."""

    scale: int = 2
    features: int = 64
    encoder_blocks: int = 4
    decoder_blocks: int = 10
    finds_motion: bool = False

    def __post_init__(self) -> None:
        check_scale(self.scale)
        for name in ("features", "encoder_blocks", "decoder_blocks"):
            value = getattr(self, name)
            require(value >= 1, f"model.{name} of at least 1", value, "raise it", UsageError)


class Given(NamedTuple):
    """What the network reads of a batch, and what it adds to.

    inputs: (B, N, 3, H, W), in units of the details `unit` (B, 1, 1); valid: (B, N, H, W); flow_px:
    (B, N, 2[, H, W]); base: (B, s*H, s*W).
    """

    inputs: Tensor
    valid: Tensor
    flow_px: Tensor
    base: Tensor
    unit: Tensor

    def part(self, rows: Tensor) -> Given:
        """Some bursts of the batch."""
        return Given(*(part[rows] for part in self))

    def with_flow(self) -> Given:
        """The same with a flow for every pixel."""
        flow_px = self.flow_px if self.flow_px.ndim == 5 else self.flow_px[..., None, None]
        return self._replace(flow_px=flow_px.expand(-1, -1, -1, *self.valid.shape[-2:]))

    @classmethod
    def joined(cls, several: Sequence[Given]) -> Given:
        """Several batches as one, all of as many frames; translations are flows beside flows."""
        if len({given.flow_px.ndim for given in several}) > 1:
            several = [given.with_flow() for given in several]
        return cls(*(torch.cat(parts) for parts in zip(*several, strict=True)))


class HdrDsp(Network):
    """The paper's network; any number of frames from 1, any order, masks for each pixel."""

    Config = HdrDspConfig

    def __init__(self, config: HdrDspConfig) -> None:
        super().__init__(config)
        features = config.features
        self.encoder = Trunk(3, features, config.encoder_blocks)
        self.decoder = Trunk(3 * features + 1, features, config.decoder_blocks)
        self.head = conv(features, 2)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        set_bias(self.head, torch.tensor([0.0, FIRST_LOG_VAR]))
        self.motion_net = MotionNet() if config.finds_motion else None

    def heavy_parts(self) -> Sequence[nn.Module]:
        return self.encoder, self.decoder

    def own_motion(self, burst: Burst) -> Motion | None:
        if self.motion_net is None:
            return None
        pairs = frame_pairs(burst).contiguous(memory_format=torch.channels_last)
        with self.fast(pairs):
            flow = self.motion_net(pairs)
        return Motion(patch_flow(flow.float(), burst), torch.ones_like(burst.exposure))

    def prepare(self, burst: Burst, motion: Motion) -> Given:
        gain = motion.gain[..., None, None]
        noise_var = frame_noise_var(burst) / gain**2  # a gain on pixels is a gain on the law
        burst = dataclasses.replace(burst, frames=burst.frames / gain)
        base = masked_blur(burst.frames, burst.valid, BASE_SIGMA_PX)
        detail = (burst.frames - base) * burst.valid
        unit = detail_unit(detail, burst.valid, noise_var)
        inputs = torch.stack([detail, burst.frames * burst.valid, noise_var.sqrt()], 2) / unit
        inputs[:, :, 1] *= 0.1  # radiance is some ten times its detail
        mean = registered_base(base, burst.valid / noise_var, motion.flow_px, self.scale)
        return Given(inputs, burst.valid, motion.flow_px, mean, unit[:, 0, 0])

    def conclude(self, given: Given) -> Posterior:
        pooled = self.pool(given.inputs, given.valid, given.flow_px)
        with self.fast(pooled):
            features = self.decoder(pooled)
        out = self.head(features.to(self.head.weight.dtype))
        log_var = out[:, 1].clamp(*LOG_VAR_RANGE)
        mean = given.base + given.unit * out[:, 0]
        return Posterior(mean, given.unit**2 * log_var.exp())

    def pool(self, inputs: Tensor, valid: Tensor, flow_px: Tensor) -> Tensor:
        """Frames (B, N, 3, H, W) to pooled features (B, 3 C + 1, s*H, s*W)."""
        count = valid.shape[1]
        step = count if self.training else FRAMES_AT_ONCE
        pool = Pool()
        for first in range(0, count, step):
            chunk = slice(first, first + step)
            flat = inputs[:, chunk].flatten(0, 1).contiguous(memory_format=torch.channels_last)
            with self.fast(flat):
                features = self.encoder(flat).permute(0, 2, 3, 1)
            features = features.unflatten(0, (len(inputs), -1))
            seen, there = valid[:, chunk].to(flow_px), flow_px[:, chunk]
            pool.add(frame_sums(features, seen, there, self.scale))
        return pool.finish().permute(0, 3, 1, 2)


def detail_unit(detail: Tensor, valid: Tensor, noise_var: Tensor) -> Tensor:
    """Root mean square of the details of a burst, noise-weighted, (B, 1, 1, 1, 1).

    What the network sees and says is in this unit, so that it serves any sensor's range.
    """
    weight = valid / noise_var
    power = (weight * detail**2).sum((1, 2, 3)) / weight.sum((1, 2, 3)).clamp(min=1e-20)
    floor = (valid.to(detail)).sum((1, 2, 3)).clamp(min=1) / weight.sum((1, 2, 3)).clamp(min=1e-20)
    return (power + 0.1 * floor).clamp(min=1e-12).sqrt()[:, None, None, None, None]


def registered_base(base: Tensor, weight: Tensor, flow_px: Tensor, scale: int) -> Tensor:
    """`sum w base(x - flow) / sum w` on the reference's grid, enlarged, (B, s*H, s*W).

    base, weight: (B, N, H, W), weight zero where invalid. A base is smooth, so bicubic
    interpolation moves and enlarges it without harm.
    """
    batch, count, height, width = base.shape
    flow = flow_px if flow_px.ndim == 5 else flow_px[..., None, None]
    position = (pixel_grid((height, width), base) - flow).flatten(0, 1)
    moved = sample_at(base.flatten(0, 1), position).unflatten(0, (batch, count))
    seen = sample_at(weight.flatten(0, 1), position, "bilinear").unflatten(0, (batch, count))
    limit = position.new_tensor([height, width])[:, None, None] - 0.5
    inside = ((position > -0.5) & (position < limit)).all(1).unflatten(0, (batch, count))
    # beyond every frame the nearest values must do, with next to no weight
    seen = seen * torch.where(inside, 1.0, 1e-4) + 1e-9 * weight.amax((2, 3), keepdim=True)
    mean = (seen * moved).sum(1) / seen.sum(1).clamp(min=1e-30)
    fine = pixel_grid((scale * height, scale * width), base) / scale
    return sample_at(mean, fine.expand(batch, -1, -1, -1))
