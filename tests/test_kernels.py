"""Fused kernels against the plain operations that define them; most of it on a GPU alone."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

import pushframe.spectral as spectral
from pushframe.folding import half_weight, image_frequencies
from pushframe.ops import median_over_frames, pool
from pushframe.ops.fused import kernels
from pushframe.prior import power_law, spectral_basis, spectrum_at
from pushframe.spectral import AliasBlocks, transfer

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_only_where_triton_is_missing_are_there_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernels.__wrapped__  # what is cached stays
    monkeypatch.setitem(sys.modules, "triton", None)
    assert found("pool") is None
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))  # twin: with it
    with pytest.raises(ModuleNotFoundError, match="no_such_kernels"):
        found("no_such")


@pytest.mark.parametrize("count", [1, 2, 5, 8, 15])
def test_the_median_by_sorting_is_the_median(count: int) -> None:
    values = torch.randn(2, count, 7, 9).round(decimals=1)  # with ties
    values[torch.rand_like(values) < 0.3] = torch.nan
    expected = values.nanmedian(1, keepdim=True).values
    torch.testing.assert_close(median_over_frames(values), expected, equal_nan=True)


def test_the_median_leaves_nan_out() -> None:
    values = torch.tensor([3.0, torch.nan, 1.0, 2.0, 5.0])[None, :, None, None]
    assert float(median_over_frames(values)) == 2  # the lower of the two in the middle
    assert bool(torch.isnan(median_over_frames(values[:, 1:2])).all())


@on_gpu
@pytest.mark.parametrize("frames", [1, 3, 15, 40])
def test_the_median_kernel_is_the_median(frames: int) -> None:
    pytest.importorskip("triton")
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, frames, 33, 47, generator=generator)
    values[:, :, :5] = values[:, :, :5].round()  # ties
    values[torch.rand(values.shape, generator=generator) < 0.2] = torch.nan
    values[0, :, 9, 9] = torch.nan
    found = median_over_frames(values.cuda()).cpu()
    torch.testing.assert_close(found, median_over_frames(values), equal_nan=True, atol=0, rtol=0)


@on_gpu
@pytest.mark.parametrize(("lattice", "frames"), [((64, 64), 15), ((9, 10), 5), ((7, 31), 3)])
def test_alias_kernels_are_the_plain_operations(
    lattice: tuple[int, int], frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    shape = (lattice[0], lattice[1] // 2 + 1)
    flow = (2 * torch.rand(3, frames, 2) - 1).cuda()
    precision = (1 + 3 * torch.rand(3, frames)).cuda()
    prior = (0.5 + torch.rand(3, 4, *shape)).cuda()
    data = torch.randn(3, frames, *shape, dtype=torch.complex64).cuda()
    change = torch.randn(3, frames, 3, *shape, dtype=torch.complex64).cuda()
    image = torch.fft.rfft2(torch.randn(3, 2 * lattice[0], 2 * lattice[1]).cuda())
    even = power_law(torch.ones(3))  # the spectrum of real images is
    even = spectrum_at(even, spectral_basis(*image_frequencies(lattice, 2, even))).cuda()
    count = half_weight(lattice[1], prior)

    def everything() -> dict[str, torch.Tensor]:
        see = transfer(flow, lattice, 2)
        solved = AliasBlocks(see, precision, prior)
        return {
            "covariance": solved.covariance,
            "log_det": solved.log_det,
            "mean": solved.mean(data),
            "predict": see.predict(solved.mean(data)),
            "solve_image": AliasBlocks(see, precision, even).solve_image(image),
            "answers": solved.answers(change),
            "information": solved.information(change, count),
            "the rough information": solved.information(change, count, roughly=True),
        }

    assert spectral._fused(transfer(flow, lattice, 2).rows) is not None
    fused = everything()
    monkeypatch.setattr(spectral, "_fused", lambda _: None)
    for name, plain in everything().items():
        off = float((fused[name] - plain).abs().max() / plain.abs().max())
        assert off < 5e-6, name


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "frames", "channels", "scale"), [((33, 47), 5, 64, 2), ((7, 9), 1, 5, 3)]
)
def test_the_pool_kernels_are_the_plain_operations(
    shape: tuple[int, int], frames: int, channels: int, scale: int, dtype: torch.dtype
) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    feat = torch.randn(3, frames, *shape, channels, device="cuda").to(dtype)
    valid = (torch.rand(3, frames, *shape, device="cuda") > 0.2).float()
    flow_px = 3 * torch.randn(3, frames, 2, device="cuda")
    upstream = torch.randn(3, 3, scale * shape[0], scale * shape[1], channels, device="cuda")
    found = []
    for fused, x in ((True, feat.clone()), (False, feat.double())):
        x.requires_grad_()
        way = pool.frame_sums if fused else lambda *a: pool.landed_sums(*pool.land(*a))
        sums = way(x, valid, flow_px, scale)
        (torch.stack(sums[1:]) * upstream).sum().backward()
        found.append([part.double() for part in (*sums, x.grad)])
    names = ("weight", "first", "second", "peak", "gradient")
    for name, one, other in zip(names, *found, strict=True):
        rounded = 4e-3 if dtype == torch.bfloat16 and name == "gradient" else 0
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5 + rounded, msg=name)
    still = pool.frame_sums(feat.float(), valid, flow_px.requires_grad_(), scale)
    assert still.weight.requires_grad  # where motion is learnt
