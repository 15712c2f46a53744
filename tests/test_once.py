"""Results that are kept, and may be trained through whoever asked first."""

from __future__ import annotations

from functools import lru_cache

import torch

from pushframe.once import MOST, made_once


def ramp(size: int) -> torch.Tensor:
    return torch.arange(float(size))


def test_results_are_made_once_and_not_for_inference_alone() -> None:
    shared = made_once(ramp)
    with torch.inference_mode():
        first = shared(5)
        twin = lru_cache(ramp)(5)
    assert shared(5) is first
    assert twin.is_inference()
    weight = torch.ones(5, requires_grad=True)
    (weight * first).sum().backward()
    assert torch.equal(weight.grad, ramp(5))


def test_the_oldest_results_are_forgotten() -> None:
    shared = made_once(ramp)
    first = shared(0)
    for size in range(1, MOST + 1):
        shared(size)
    assert shared(0) is not first
