"""Shift-and-pool: the gather form is the splat, outputs and gradients; chunks are the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pushframe.ops.pool import Pool, land, land_by_gather, land_by_splat, landed_sums, reading
from pushframe.ops.splat import splat


def random_input(shape: tuple[int, int], count: int = 3, seed: int = 0) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)
    feat = torch.randn(2, count, *shape, 4, generator=draw, dtype=torch.float64)
    valid = (torch.rand(2, count, *shape, generator=draw) > 0.2).double()
    flow_px = 2.5 * torch.randn(2, count, 2, generator=draw, dtype=torch.float64)
    return feat, valid, flow_px


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("shape", [(8, 8), (5, 9)])
@pytest.mark.parametrize("whole", [False, True])
def test_gather_is_the_splat(scale: int, shape: tuple[int, int], whole: bool) -> None:
    feat, valid, flow_px = random_input(shape)
    if whole:  # samples exactly on pixels, and exactly between
        flow_px = (2 * scale * flow_px).round() / (2 * scale)
    results = []
    for way in (land_by_splat, land_by_gather):
        x, f = feat.clone().requires_grad_(), flow_px.clone().requires_grad_()
        value, weight = way(x, valid, f, scale)
        draw = torch.Generator().manual_seed(1)
        upstream = torch.randn(value.shape, generator=draw, dtype=torch.float64)
        ((value * weight[..., None] + weight[..., None]) * upstream).sum().backward()
        results.append((value * (weight > 1e-9)[..., None], weight, x.grad, f.grad))
    for name, one, other in zip(("value", "weight", "feat", "flow"), *results, strict=True):
        if whole and name == "flow":
            continue  # the kernel has a kink there: any slope between its two is right
        torch.testing.assert_close(
            one, other, atol=1e-9, rtol=1e-9, msg=lambda m, n=name: f"{n} {m}"
        )


@pytest.mark.parametrize("scale", [2, 3])
def test_pixels_read_samples_and_samples_know_by_which(scale: int) -> None:
    flow_px = 3 * torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    read = reading(flow_px, 9, scale)
    counted = read.weight > 0  # others are read in vain
    for burst, frame, sample in torch.cartesian_prod(*map(torch.arange, (2, 4, 9))).tolist():
        those = set((counted & (read.sample == sample))[burst, frame].nonzero()[:, 0].tolist())
        known = set(read.pixels[burst, frame, :, sample].tolist()) - {-1}
        assert those <= known <= set((read.sample == sample)[burst, frame].nonzero()[:, 0].tolist())


def test_the_flow_is_added_in_y_first() -> None:
    """A sample at x lands on s (x + flow); the opposite sign and (dx, dy) land elsewhere."""
    feat, valid = torch.zeros(1, 1, 8, 8, 1), torch.ones(1, 1, 8, 8)
    feat[0, 0, 3, 4] = 1.0
    flow_px = torch.tensor([[[0.5, -1.0]]])
    for flow, right in ((flow_px, True), (-flow_px, False), (flow_px.flip(-1), False)):
        value, weight = land(feat, valid, flow, 2)
        assert bool(value[0, 0, 7, 6, 0] * weight[0, 0, 7, 6] == 1) == right


def test_it_is_the_splat_of_the_baselines() -> None:
    feat, valid, flow_px = (x.float() for x in random_input((7, 8)))
    value, weight = land(feat[..., :1], valid, flow_px, 2)
    sums = splat(feat[..., 0], valid, flow_px, 2)
    torch.testing.assert_close((value[..., 0] * weight).sum(1), sums.value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weight.sum(1), sums.weight, atol=1e-5, rtol=1e-5)


def test_a_field_of_equal_flows_is_a_translation() -> None:
    feat, valid, flow_px = (x.float() for x in random_input((7, 8)))
    field = flow_px[..., None, None].expand(2, 3, 2, 7, 8)
    one, other = (land(feat, valid, flow, 2) for flow in (flow_px, field))
    seen = (one[1] > 1e-6)[..., None]
    torch.testing.assert_close(one[1], other[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one[0] * seen, other[0] * seen, atol=1e-4, rtol=1e-4)


def pooled(feat: Tensor, weight: Tensor, chunk: int) -> Tensor:
    pool = Pool()
    for first in range(0, feat.shape[1], chunk):
        chunked = slice(first, first + chunk)
        pool.add(landed_sums(feat[:, chunked], weight[:, chunked]))
    return pool.finish()


def test_pooling_is_its_definition_in_any_chunks_and_order() -> None:
    feat, valid, flow_px = (x.float() for x in random_input((6, 6), count=7))
    value, weight = land(feat, valid, flow_px / 5, 2)
    whole = pooled(value, weight, 7)
    k = weight[..., None]
    mean = (k * value).sum(1) / k.sum(1)
    std = ((k * (value - mean[:, None]) ** 2).sum(1) / k.sum(1) + 1e-6).sqrt()
    wanted = torch.cat([mean, (k * value).amax(1).clamp(min=0), std, k.sum(1)], -1)
    seen = (k.sum(1) > 1e-3).expand_as(wanted)
    torch.testing.assert_close(whole[seen], wanted[seen], atol=2e-4, rtol=2e-3)
    for chunk in (1, 3):
        torch.testing.assert_close(pooled(value, weight, chunk), whole, atol=1e-5, rtol=1e-5)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    torch.testing.assert_close(
        pooled(value[:, order], weight[:, order], 7), whole, atol=1e-5, rtol=1e-5
    )


def test_nothing_seen_is_zero_with_finite_gradient() -> None:
    feat = torch.randn(1, 1, 4, 4, 2).requires_grad_()
    value, weight = land(feat, torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 2), 2)
    out = pooled(value, weight, 1)
    assert bool((out == 0).all())
    out.sum().backward()
    assert bool((feat.grad == 0).all())
    again = torch.ones(1, 1, 4, 4, 2, requires_grad=True)  # one frame: no spread, no infinite slope
    pooled(*land(again, torch.ones(1, 1, 4, 4), torch.zeros(1, 1, 2), 2), 1).sum().backward()
    assert bool(torch.isfinite(again.grad).all())
