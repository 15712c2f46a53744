"""Processes that train together, as torchrun starts them; alone, everything here does nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..checks import require
from ..errors import UsageError


@dataclass(frozen=True)
class Team:
    """This process among `size`; rank 0 writes files and decides."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, device: str) -> Team:
        """The team of torchrun's environment, or a team of one."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        import torch.distributed.nn  # later, its default arguments would keep the team for ever

        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        return cls(dist.get_rank(), size)

    @staticmethod
    def is_led_from_here() -> bool:
        """Whether this process will lead, known before the team is joined."""
        return os.environ.get("RANK", "0") == "0"

    @staticmethod
    def own_device(device: str) -> str:
        """The device of this process: of several GPUs, that of its local rank."""
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def shards(self, count: int) -> range:
        """The shards of a batch that are this process's own."""
        require(
            count % self.size == 0,
            f"data.shards to be a multiple of the {self.size} processes",
            count,
            f"use --set data.shards={self.size}",
            UsageError,
        )
        return range(self.rank, count, self.size)

    def add_gradients(self, network: nn.Module) -> None:
        """Gradients of all processes added up, in place."""
        if self.size == 1:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def add(self, value: Tensor) -> Tensor:
        """The sum of a number over processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def agree(self, number: float, device: str) -> float:
        """Rank 0's number, in every process."""
        if self.size == 1:
            return number
        value = torch.tensor(number, dtype=torch.float64, device=device)
        dist.broadcast(value, 0)
        return float(value)

    def leave(self) -> None:
        """Part from the others."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
