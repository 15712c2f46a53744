"""What every network is: a burst and its motion to a posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..burst import Burst
from ..geometry import shift_flow
from ..posterior import Posterior


class Motion(NamedTuple):
    """Where and how bright the frames of a batch are against the reference.

    flow_px: (B, N, 2) or (B, N, 2, H, W), frame to reference, low-res px.
    gain: (B, N) true over stated exposure, the reference's as the unit.
    covariance: (B, 3N, 3N) of each frame's (dy, dx, gain); None where they are taken as exact.
    """

    flow_px: Tensor
    gain: Tensor
    covariance: Tensor | None = None

    def without_reference(self) -> Motion:
        """The motion of frames 1 to N-1, for the inputs of `Burst.split_reference`."""
        covariance = None if self.covariance is None else self.covariance[:, 3:, 3:]
        return Motion(self.flow_px[:, 1:], self.gain[:, 1:], covariance)

    def shifted(self, tau: Tensor, scale: int) -> Motion:
        """The motion under a grid shift: samples land on `s (x + flow) + tau`; tau (B, 2)."""
        return self._replace(flow_px=shift_flow(self.flow_px, tau, scale))


@cache
def cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 by itself: twice as fast; others are slower with it."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


class Network(nn.Module, ABC):
    """Burst and motion of a batch to a posterior on the high-res grid, finite everywhere.

    `config` is a frozen dataclass of plain values with a field `scale`; it is stored with the
    weights and rebuilds the network. Subclasses define `Config`, `prepare` and `conclude`.
    """

    Config: type[Any]
    mixed_precision = True  # bfloat16 where `fast` allows it and the device is made for it
    mixes_counts = False  # whether bursts of different numbers of frames can be joined
    fast_on_cpu = False  # where rounding is small against what the network is there for

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @property
    def scale(self) -> int:
        """The zoom from frame to posterior."""
        return int(self.config.scale)

    def forward(self, burst: Burst, motion: Motion) -> Posterior:
        """The posterior of a batch (B, N, H, W): mean and var, each (B, s*H, s*W)."""
        return self.conclude(self.prepare(burst, motion))

    @abstractmethod
    def prepare(self, burst: Burst, motion: Motion) -> Any:
        """What depends on no weight, for all that is done with a batch.

        It has `part(rows)`, and its class `joined(several)`.
        """

    @abstractmethod
    def conclude(self, given: Any) -> Posterior:
        """The posterior from what `prepare` made."""

    def own_motion(self, burst: Burst) -> Motion | None:  # noqa: ARG002
        """The motion that the network itself finds, with gradient; None if it has no such part."""
        return None

    def fast(self, like: Tensor) -> AbstractContextManager[None]:
        """The context for convolutions; physics outside of it stays in float32.

        On a CPU only where nothing is learnt, so that learning stays reproducible.
        """
        on_cpu = self.fast_on_cpu and like.device.type == "cpu" and not torch.is_grad_enabled()
        able = like.is_cuda or (on_cpu and cpu_has_bfloat16())
        return torch.autocast(like.device.type, torch.bfloat16, self.mixed_precision and able)

    def heavy_parts(self) -> Sequence[nn.Module]:
        """The parts worth compiling."""
        return ()
