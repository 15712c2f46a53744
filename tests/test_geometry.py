"""Conventions of place, each with a sabotaged twin that must fail."""

from __future__ import annotations

import pytest
import torch

from pushframe.burst import GeoRef
from pushframe.errors import UsageError
from pushframe.forward import forward_model
from pushframe.geometry import (
    pixel_grid,
    random_tau,
    sample_at,
    shift_flow,
    subsample,
    subsample_adjoint,
    upscale_georef,
)

SCALES = (2, 3, 4)


def ramp(shape: tuple[int, int]) -> torch.Tensor:
    """An image whose value tells its pixel: 100 y + x."""
    y, x = pixel_grid(shape, torch.zeros(1, dtype=torch.float64))
    return 100 * y + x


@pytest.mark.parametrize("scale", SCALES)
def test_low_res_centre_is_high_res_pixel_s_times_l(scale: int) -> None:
    frame = subsample(ramp((4 * scale, 5 * scale)), scale)
    assert frame[2, 3] == 100 * 2 * scale + 3 * scale
    centred = subsample(ramp((4 * scale, 5 * scale)).roll(-1, 0), scale)  # twin: D u = u_{sl+1}
    assert centred[2, 3] != 100 * 2 * scale + 3 * scale


@pytest.mark.parametrize("scale", SCALES)
def test_a_tau_reads_pixel_s_l_plus_tau(scale: int) -> None:
    tau = torch.tensor([[0, scale - 1], [1, 0]])
    image = ramp((4 * scale, 5 * scale)).expand(2, -1, -1)
    frames = subsample(image, scale, tau)
    expected = [100 * (2 * scale) + 3 * scale + scale - 1, 100 * (2 * scale + 1) + 3 * scale]
    assert frames[:, 2, 3].tolist() == expected
    assert subsample(image, scale, tau.flip(1))[:, 2, 3].tolist() != expected  # twin: (dx, dy)


@pytest.mark.parametrize("scale", SCALES)
def test_subsampling_adjoint_is_exact(scale: int) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(3, 5 * scale, 4 * scale, dtype=torch.float64, generator=generator)
    frame = torch.randn(3, 5, 4, dtype=torch.float64, generator=generator)
    for tau in (None, random_tau(3, scale, generator)):
        left = (subsample(image, scale, tau) * frame).sum()
        right = (image * subsample_adjoint(frame, scale, tau)).sum()
        assert abs(float(left - right)) < 1e-12


def test_the_shifts_see_every_pixel_once() -> None:
    seen = torch.zeros(1, 6, 9, dtype=torch.float64)
    for y in range(3):
        for x in range(3):
            ones = torch.ones(1, 2, 3, dtype=torch.float64)
            seen += subsample_adjoint(ones, 3, torch.tensor([[y, x]]))
    assert bool((seen == 1).all())


def test_random_tau_is_uniform_and_seeded() -> None:
    tau = random_tau(9000, 3, torch.Generator().manual_seed(1))
    counts = torch.bincount(tau[:, 0] * 3 + tau[:, 1], minlength=9)
    assert (counts - 1000).abs().max() < 5 * 1000**0.5
    assert torch.equal(tau, random_tau(9000, 3, torch.Generator().manual_seed(1)))
    with pytest.raises(UsageError, match="scale of 2, 3, 4"):
        random_tau(1, 5, torch.Generator())


def misalignment(sign: int, scale: int = 2) -> float:
    """How far frames stray when the flow of a moved image is changed by `sign * tau / s`.

    The image moved by tau satisfies A_tau u' = D u (the reference); its frames must stay.
    """
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(1, 64, 64, dtype=torch.float64, generator=generator)
    flow = torch.rand(1, 3, 2, dtype=torch.float64, generator=generator) - 0.5
    tau = torch.tensor([[1, 0]])
    moved = image.roll((1, 0), (1, 2))
    assert torch.equal(subsample(moved, scale, tau), subsample(image, scale))
    shifted = shift_flow(flow, sign * tau, scale)
    before = forward_model(flow, (32, 32), scale, 0).forward(image)
    after = forward_model(shifted, (32, 32), scale, 0).forward(moved)
    return float((before - after)[..., 8:-8, 8:-8].abs().max())


def test_the_grid_shift_is_added_to_the_flow() -> None:
    assert misalignment(+1) < 1e-12
    assert misalignment(-1) > 0.5  # twin: tau subtracted


def test_shift_flow_spreads_over_fields() -> None:
    flow = torch.zeros(2, 3, 2, 4, 5)
    moved = shift_flow(flow, torch.tensor([[1, 0], [0, 1]]), 2)
    assert moved[0, :, 0].unique().tolist() == [0.5]
    assert moved[1, :, 0].unique().tolist() == [0.0]


def test_sample_at_takes_y_first_and_pixel_centres() -> None:
    image = ramp((12, 16))[None]
    position = torch.tensor([5.25, 7.5], dtype=torch.float64)[None, :, None, None]
    for mode in ("bilinear", "bicubic"):
        assert abs(float(sample_at(image, position, mode)) - 532.5) < 1e-9
        assert abs(float(sample_at(image, position.flip(1), mode)) - 532.5) > 100  # twin: (x, y)
        assert abs(float(sample_at(image, position + 0.5, mode)) - 532.5) > 10  # twin: corners


@pytest.mark.parametrize("scale", SCALES)
def test_georeference_keeps_shared_centres_in_place(scale: int) -> None:
    low = GeoRef("EPSG:32631", (0.7, 0.1, 500_000.0, 0.05, -0.7, 4_800_000.0))
    high = upscale_georef(low, scale)

    def place(transform: tuple[float, ...], column: float, row: float) -> tuple[float, float]:
        a, b, c, d, e, f = transform
        x, y = column + 0.5, row + 0.5  # from pixel centre to GDAL's corner origin
        return a * x + b * y + c, d * x + e * y + f

    expected = place(low.transform, 11, 7)
    assert place(high.transform, 11 * scale, 7 * scale) == pytest.approx(expected, abs=1e-7)
    a, b, c, d, e, f = low.transform
    halved = (a / scale, b / scale, c, d / scale, e / scale, f)  # twin: only the pixel size
    x, y = place(halved, 11 * scale, 7 * scale)
    off_px = (scale - 1) / (2 * scale)
    assert ((x - expected[0]) ** 2 + (y - expected[1]) ** 2) ** 0.5 > 0.9 * off_px * 0.7


def test_rpc_offsets_and_scales_are_multiplied() -> None:
    rpc = {"LINE_OFF": 10.0, "LINE_SCALE": 11.0, "SAMP_OFF": 5.0, "SAMP_SCALE": 6.0}
    rpc |= {"LAT_OFF": 43.0, "LINE_NUM_COEFF": (1.0, 2.0)}
    high = upscale_georef(GeoRef(rpc=rpc), 2).rpc
    assert high == {
        "LINE_OFF": 20.0,
        "LINE_SCALE": 22.0,
        "SAMP_OFF": 10.0,
        "SAMP_SCALE": 12.0,
        "LAT_OFF": 43.0,
        "LINE_NUM_COEFF": (1.0, 2.0),
    }
