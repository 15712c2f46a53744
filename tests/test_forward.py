"""The forward operator: its kernel, its transpose, its derivatives, its direction."""

from __future__ import annotations

import math

import pytest
import torch

from pushframe.forward import canvas_shape, forward_model
from pushframe.geometry import flow_field, pixel_grid, subsample
from pushframe.kernel import sinc_taps

SHAPE = (7, 6)


def flows(kind: str, scale: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(scale)
    shift = 1.6 * torch.rand(2, 3, 2, dtype=torch.float64, generator=generator) - 0.8
    if kind == "translation":
        return shift
    bend = 0.3 * torch.rand(2, 3, 2, *SHAPE, dtype=torch.float64, generator=generator)
    return flow_field(shift, SHAPE) + bend


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("kind", ["translation", "field"])
def test_adjoint_is_the_exact_transpose(kind: str, scale: int) -> None:
    model = forward_model(flows(kind, scale), SHAPE, scale, pad=5)
    generator = torch.Generator().manual_seed(1)
    size = canvas_shape(SHAPE, scale, 5)
    image = torch.randn(2, *size, dtype=torch.float64, generator=generator)
    frames = torch.randn(2, 3, *SHAPE, dtype=torch.float64, generator=generator)
    left = (model.forward(image) * frames).sum()
    right = (image * model.adjoint(frames)).sum()
    assert abs(float(left - right)) < 1e-11 * float(left.abs() + 1)


def test_large_images_are_convolved_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = forward_model(flows("field", 2), SHAPE, 2, pad=5)
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(2, *canvas_shape(SHAPE, 2, 5), dtype=torch.float64, generator=generator)
    frames = torch.randn(2, 3, *SHAPE, dtype=torch.float64, generator=generator)
    small = model.forward(image), model.adjoint(frames)
    monkeypatch.setattr("pushframe.forward.LARGEST_MATRIX", 1)
    for one, other in zip(small, (model.forward(image), model.adjoint(frames)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["translation", "field"])
def test_gradients_in_image_and_flow(kind: str) -> None:
    flow = flows(kind, 2)[:1, :2].clone().requires_grad_()
    image = torch.randn(1, *canvas_shape(SHAPE, 2, 2), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda f, u: forward_model(f, SHAPE, 2, 2).forward(u), (flow, image)
    )


@pytest.mark.parametrize("scale", [2, 3])
@pytest.mark.parametrize("kind", ["translation", "field"])
def test_slopes_are_those_of_the_kernel_at_every_frequency(kind: str, scale: int) -> None:
    flow = flows(kind, scale)
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(  # white, so with as much at the Nyquist frequency as anywhere
        2, *canvas_shape(SHAPE, scale, 6), dtype=torch.float64, generator=generator
    )
    slopes = forward_model(flow, SHAPE, scale, pad=6).slopes(image)
    for axis, slope in enumerate(slopes):
        step = torch.zeros(2, dtype=torch.float64)
        step[axis] = 1e-5
        step = step if flow.ndim == 3 else step[:, None, None]
        ahead, behind = (
            forward_model(flow + off, SHAPE, scale, pad=6).forward(image) for off in (step, -step)
        )
        numeric = (ahead - behind) / 2e-5
        torch.testing.assert_close(slope, numeric, atol=1e-7, rtol=1e-6)
        assert not torch.allclose(slopes[1 - axis], numeric, atol=0.1)  # the axes' twin fails


def test_the_slope_of_an_ideal_shift_is_another_one() -> None:
    """A wave near the image's Nyquist frequency: a kernel of some taps hardly follows it."""
    canvas = canvas_shape(SHAPE, 2, 16)
    place = torch.arange(canvas[1], dtype=torch.float64)
    wave, ideal = (
        part(2 * math.pi * 0.48 * place).expand(1, *canvas) for part in (torch.cos, torch.sin)
    )
    ideal = -2 * math.pi * 0.48 * 2 * ideal
    model = forward_model(flows("translation", 2)[:1], SHAPE, 2, pad=16)
    exact, shifted = model.slopes(wave)[1], model.forward(ideal)
    assert float((exact - shifted).abs().amax()) > 0.1 * float(shifted.abs().amax())


def test_square_frames_are_not_special() -> None:
    flow = flows("translation", 2)
    square = forward_model(flow, (6, 6), 2, pad=4)
    wide, tall = (forward_model(flow, shape, 2, pad=4) for shape in ((6, 8), (8, 6)))
    assert torch.equal(square.rows, wide.rows)
    assert torch.equal(square.columns, tall.columns)
    assert not torch.equal(square.rows, square.columns)  # twin
    assert torch.equal(square.inside, wide.inside[..., :6] & tall.inside[..., :6, :])


def test_several_images_at_once() -> None:
    model = forward_model(flows("translation", 2), SHAPE, 2, pad=4)
    images = torch.randn(2, 3, *canvas_shape(SHAPE, 2, 4), dtype=torch.float64)
    each = torch.stack([model.forward(image) for image in images.unbind(1)], 2)
    torch.testing.assert_close(model.forward_each(images), each)


@pytest.mark.parametrize("kind", ["translation", "field"])
def test_a_part_of_a_batch_is_the_model_of_that_part(kind: str) -> None:
    flow, index = flows(kind, 2), torch.tensor([1])
    part = forward_model(flow, SHAPE, 2, pad=4).part(index)
    alone = forward_model(flow[index], SHAPE, 2, pad=4)
    image = torch.randn(1, *canvas_shape(SHAPE, 2, 4), dtype=torch.float64)
    frames = torch.randn(1, 3, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(part.forward(image), alone.forward(image))
    torch.testing.assert_close(part.adjoint(frames), alone.adjoint(frames))
    for one, other in zip(part.slopes(image), alone.slopes(image), strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(part.inside, alone.inside)


def test_a_gradient_at_rest_is_finite() -> None:
    flow = torch.zeros(1, 1, 2, requires_grad=True)
    image = torch.randn(1, *canvas_shape(SHAPE, 2, 2))
    forward_model(flow, SHAPE, 2, 2).forward(image).sum().backward()
    assert bool(torch.isfinite(flow.grad).all())


def test_field_and_translation_are_one_operator() -> None:
    flow = flows("translation", 2)
    image = torch.randn(2, *canvas_shape(SHAPE, 2, 4), dtype=torch.float64)
    as_matrix = forward_model(flow, SHAPE, 2, 4)
    as_field = forward_model(flow_field(flow, SHAPE), SHAPE, 2, 4)
    torch.testing.assert_close(as_matrix.forward(image), as_field.forward(image), atol=5e-4, rtol=0)
    error = as_matrix.forward(image) - as_field.forward(image)
    assert float(error.square().mean().sqrt()) < 5e-5  # of white noise
    torch.testing.assert_close(
        as_field.forward(torch.ones_like(image)), torch.ones_like(error), atol=1e-12, rtol=0
    )
    assert torch.equal(as_matrix.inside, as_field.inside)


def test_a_frame_at_rest_is_the_subsampled_image() -> None:
    image = torch.randn(1, 20, 24, dtype=torch.float64)
    frame = forward_model(torch.zeros(1, 1, 2, dtype=torch.float64), (10, 12), 2, 0).forward(image)
    torch.testing.assert_close(frame[:, 0], subsample(image, 2), atol=1e-14, rtol=0)


def wave(position: torch.Tensor, frequency: tuple[float, float]) -> torch.Tensor:
    """A sinusoid of unit amplitude at positions (2, ...), cycles per px."""
    return torch.cos(2 * math.pi * (frequency[0] * position[0] + frequency[1] * position[1]) + 0.4)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_a_sample_at_x_lands_on_s_times_x_plus_flow(scale: int) -> None:
    pad, shape = 20, (12, 14)
    grid = pixel_grid(canvas_shape(shape, scale, pad), torch.zeros(1, dtype=torch.float64)) - pad
    image = wave(grid, (0.11, -0.07))[None]
    flow = torch.tensor([0.37, -0.81], dtype=torch.float64)
    frame = forward_model(flow[None, None], shape, scale, pad).forward(image)[0, 0]
    x = pixel_grid(shape, grid)
    assert (frame - wave(scale * (x + flow[:, None, None]), (0.11, -0.07))).abs().max() < 2e-4
    for twin in (-flow, flow.flip(0)):  # from reference to frame; (dx, dy)
        assert (frame - wave(scale * (x + twin[:, None, None]), (0.11, -0.07))).abs().max() > 0.05


def test_taps_sum_to_one_and_are_a_delta_at_rest() -> None:
    taps = sinc_taps(torch.linspace(0, 0.99, 34, dtype=torch.float64))
    assert taps.shape == (34, 24)
    torch.testing.assert_close(taps.sum(-1), torch.ones(34, dtype=torch.float64))
    assert (taps[0] - torch.nn.functional.one_hot(torch.tensor(11), 24)).abs().max() < 1e-15


def test_the_window_is_kaiser_8_of_half_width_12() -> None:
    import numpy as np

    fine = np.kaiser(24 * 100 + 1, 8.0)  # half-width 12, a hundred points a pixel
    distance = 0.25 - np.arange(-11, 13)
    expected = np.sinc(distance) * fine[np.round((distance + 12) * 100).astype(int)]
    taps = sinc_taps(torch.tensor(0.25, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(taps, expected / expected.sum(), atol=1e-12)


def test_positions_stay_exact_far_from_the_origin() -> None:
    flow = torch.tensor([[[0.3, -0.2]]])
    long, short = (4, 30_000), (4, 64)
    image = torch.randn(1, *canvas_shape(short, 2, 12))
    tail = torch.nn.functional.pad(image, (2 * (long[1] - short[1]), 0))
    near = forward_model(flow, short, 2, 12).forward(image)
    far = forward_model(flow_field(flow, long), long, 2, 12).forward(tail)
    torch.testing.assert_close(far[..., -50:], near[..., -50:], atol=5e-4, rtol=0)


def test_samples_off_the_canvas_are_told() -> None:
    model = forward_model(torch.tensor([[[0.0, 0.0], [3.0, 0.0]]]), (8, 8), 2, 2)
    assert bool(model.inside[0, 0].all())
    assert model.inside[0, 1].any(1).tolist() == [True] * 6 + [False] * 2
