"""The optimiser: orthogonal steps for the weights between hidden layers, Adam for the rest.

A gradient's momentum is replaced by the nearest matrix with equal singular values (Jordan et al.,
"Muon", 2024): directions in which a layer hardly ever gets a gradient move as fast as the others.
Steps are scaled to the size of Adam's, so that one learning rate serves both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
BETAS = (0.9, 0.99)
TINY = 1e-8
LEAST_CHANNELS = 16  # of a matrix worth making orthogonal
ADAM_SIZE = 0.2  # rms of Adam's steps, in learning rates
ROUNDS = 5
SERIES = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that drives singular values to one


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal for 3x3 kernels of many channels, Adam for other parameters.

    Kernels of one shape are treated in one go.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": learning_rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            rate, alike = group["lr"], defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[tuple(parameter.shape)].append(parameter)
            for shape, parameters in alike.items():
                hidden = len(shape) == 4 and min(shape[:2]) >= LEAST_CHANNELS
                changes = (self._orthogonal if hidden else self._adam)(parameters)
                torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
                torch._foreach_add_(parameters, changes, alpha=-rate)

    def _orthogonal(self, parameters: list[nn.Parameter]) -> list[Tensor]:
        gradients = [p.grad for p in parameters if p.grad is not None]
        momenta = self._moments(parameters, "exp_avg")
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        matrices = torch.stack([part.flatten(1) for part in ahead])
        size = ADAM_SIZE * max(matrices.shape[-2:]) ** 0.5
        changes = size * nearest_orthogonal(matrices)
        return [x.view_as(p) for x, p in zip(changes, parameters, strict=True)]

    def _adam(self, parameters: list[nn.Parameter]) -> list[Tensor]:
        gradients = [p.grad for p in parameters if p.grad is not None]
        first, second = (self._moments(parameters, name) for name in ("exp_avg", "exp_avg_sq"))
        count = self._moments(parameters, "step")
        torch._foreach_add_(count, 1)
        torch._foreach_lerp_(first, gradients, 1 - BETAS[0])
        torch._foreach_mul_(second, BETAS[1])
        torch._foreach_addcmul_(second, gradients, gradients, 1 - BETAS[1])
        return [
            m / (1 - BETAS[0] ** n) / ((v / (1 - BETAS[1] ** n)).sqrt() + TINY)
            for m, v, n in zip(first, second, count, strict=True)
        ]

    def _moments(self, parameters: list[nn.Parameter], name: str) -> list[Tensor]:
        for parameter in parameters:
            if name not in self.state[parameter]:
                start = parameter.new_zeros(()) if name == "step" else torch.zeros_like(parameter)
                self.state[parameter][name] = start
        return [self.state[parameter][name] for parameter in parameters]


def nearest_orthogonal(matrices: Tensor) -> Tensor:
    """`U V'` of matrices `U S V'`, (K, m, n), singular values within some 0.7 to 1.2 of one."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    a, b, c = SERIES
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x if wide else x.mT).to(matrices)
