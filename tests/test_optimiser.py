"""Orthogonal steps for hidden kernels, Adam for the rest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pushframe.train.optimiser import ADAM_SIZE, BETAS, Muon, nearest_orthogonal


@pytest.mark.parametrize("shape", [(20, 180), (180, 20), (16, 16)])
def test_steps_are_orthogonal_along_the_gradients_own_directions(shape: tuple[int, int]) -> None:
    """The oracle is the singular value decomposition: same vectors, values near one."""
    matrix = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)).double()
    found = nearest_orthogonal(matrix)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.mT @ found @ right.mT
    values = inside.diagonal(dim1=1, dim2=2)
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.3
    assert float((inside - torch.diag_embed(values)).abs().max()) < 1e-6
    gradient_values = (left.mT @ matrix @ right.mT).diagonal(dim1=1, dim2=2)
    assert float(gradient_values.max() / gradient_values.min()) > 1.5  # else nothing was shown


def quadratic(weights: list[Tensor], goals: list[Tensor]) -> Tensor:
    terms = [
        ((w - g) ** 2 * (1 + torch.arange(w.numel()).view_as(w))).sum()
        for w, g in zip(weights, goals, strict=True)
    ]
    return torch.stack(terms).sum()


def test_small_layers_are_left_to_adam() -> None:
    """Step by step that of torch, for biases and for kernels of few channels."""
    torch.manual_seed(0)
    start = [torch.randn(5), torch.randn(4, 32, 3, 3), torch.randn(32, 4, 3, 3)]
    goals = [torch.zeros_like(x) for x in start]
    ours, theirs = ([nn.Parameter(x.clone()) for x in start] for _ in range(2))
    mine = Muon(ours, 1e-2, 1e-2)
    oracle = torch.optim.AdamW(theirs, lr=1e-2, betas=BETAS, weight_decay=1e-2)
    for _ in range(5):
        for weights, optimiser in ((ours, mine), (theirs, oracle)):
            optimiser.zero_grad()
            quadratic(weights, goals).backward()
            optimiser.step()
    for one, other, first in zip(ours, theirs, start, strict=True):
        torch.testing.assert_close(one, other)
        assert float((one - first).detach().abs().max()) > 0.02


def test_a_hidden_kernel_moves_as_far_as_adam_would() -> None:
    kernel = nn.Parameter(torch.zeros(32, 16, 3, 3))
    kernel.grad = torch.randn(kernel.shape, generator=torch.Generator().manual_seed(0)) * 1e-4
    Muon([kernel], 1e-3, 0.0).step()
    rms = float(kernel.detach().square().mean().sqrt())
    assert rms == pytest.approx(ADAM_SIZE * 1e-3, rel=0.3)
    assert float((kernel.detach() * kernel.grad).sum()) < 0  # downhill


def test_it_descends_where_gradients_are_lopsided() -> None:
    """Directions with a hundredth of the gradient get there in the same steps."""
    torch.manual_seed(0)
    goal = torch.randn(16, 16, 3, 3)
    weight = torch.logspace(0, -2, 16)[:, None, None, None]
    kernel = nn.Parameter(torch.zeros_like(goal))
    optimiser = Muon([kernel], 0.1, 0.0)
    for step in range(150):
        optimiser.param_groups[0]["lr"] = 0.1 * (1 - step / 150)
        optimiser.zero_grad()
        (weight * (kernel - goal) ** 2).sum().backward()
        optimiser.step()
    left = (kernel.detach() - goal).square().mean((1, 2, 3))
    assert float(left.max()) < 0.05
