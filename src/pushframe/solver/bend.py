"""Motion that bends: what smooth flows are made of, whether a burst needs them, a first fit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..burst import Burst
from ..filters import gaussian_blur, masked_blur
from ..forward import forward_model
from ..gaussian import GaussianProblem
from ..geometry import all_but_the_reference, pixel_grid
from ..noise import frame_noise_var
from ..once import made_once
from ..prior import FEW
from .image import Reconstruction

COEFFICIENT_PX = 0.5  # what a coefficient may be, before the burst has told
SMOOTHING_PX = 1.0
STEPS = 8  # of the first fit
LEAST_BEND_PX = 0.025
LEAST_SURPRISE = 4.0  # of residuals projected on bends, against noise alone
LEAST_MISMATCH = 0.1  # over the variance of noise; bends of 0.1 px leave 0.1 to 60


# the functions of y and x, of `axis_functions`, whose products smooth motion is made of
FACTORS = ((0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 2), (3, 0))


def axis_functions(unit: Tensor) -> Tensor:
    """A constant, a slope, cosines of half a period and one, (4, ...), at places from -1 to 1."""
    angle = math.pi * (unit + 1) / 2
    return torch.stack([torch.ones_like(unit), unit, torch.cos(angle), torch.cos(2 * angle)])


def smooth_functions(unit: Tensor) -> Tensor:
    """What smooth motion is made of, (K, ...), at places `unit` (2, ...), (y, x) from -1 to 1.

    A constant, the two slopes of an affine motion, and cosines of up to one period.
    """
    y, x = (axis_functions(axis) for axis in unit)
    return torch.stack([y[i] * x[j] for i, j in FACTORS])


def smooth_basis(shape: tuple[int, int], like: Tensor) -> Tensor:
    """The same functions of the pixels of a frame, (K, H, W), orthogonal, of rms 1."""
    return _smooth_basis(shape, like.dtype, like.device)


@made_once
def _smooth_basis(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    like = torch.zeros((), dtype=dtype, device=device)
    size = torch.tensor(shape, device=like.device)[:, None, None]
    functions = smooth_functions(2 * (pixel_grid(shape, like) + 0.5) / size - 1)
    rows = torch.linalg.qr(functions.flatten(1).double().mT).Q.mT
    rows = rows * rows[:, :1].sign() * math.sqrt(shape[0] * shape[1])
    return rows.to(like).unflatten(1, shape)


def bending(made: Reconstruction) -> Tensor:
    """Bursts whose residuals, under translations, look as if the motion bent, (B,) bool.

    It must be large in px, and beyond what noise alone would give. Few frames must leave something
    unexplained, too: so many bends explain the noise of so few.
    """
    surprise, square_px = _projected(made)
    noise_var = made.noise_var.mean((-1, -2)).median(1).values
    used = made.problem.precision.flatten(2).any(2).sum(1)
    moved = (used > FEW * made.problem.scale**2) | (made.mismatch > LEAST_MISMATCH * noise_var)
    return (surprise.mean(1) > LEAST_SURPRISE) & (square_px.mean(1) > LEAST_BEND_PX**2) & moved


def all_bending(made: Reconstruction) -> Tensor:
    """Bursts most of whose frames, each by itself, look so, (B,) bool: not one of another place."""
    surprise, square_px = _projected(made)
    used = made.problem.precision[:, 1:].flatten(2).any(2)
    bent = (surprise > LEAST_SURPRISE) & (square_px > LEAST_BEND_PX**2) & used
    return 2 * bent.sum(1) > used.sum(1)


def _projected(made: Reconstruction) -> tuple[Tensor, Tensor]:
    """Residuals of all frames but the reference on what smooth motion would do to them.

    How much that explains beyond a shift, over what it would of noise alone, and the squared
    motion, px^2, both (B, N - 1).
    """
    weight = made.problem.precision[:, 1:].flatten(2)[:, :, None]
    shape = (made.residual.shape[-2], made.residual.shape[-1])
    basis = smooth_basis(shape, made.residual)
    slopes = torch.stack(made.problem.model.slopes(made.image), 2)[:, 1:, None]
    columns = (slopes * basis[:, None]).flatten(4).flatten(2, 3)  # constants first
    score = (columns * weight) @ made.residual[:, 1:].flatten(2)[..., None]
    normal = (columns * weight) @ columns.mT
    # the prior keeps frames that show next to nothing from telling wild tales
    ridge = 1e-4 * normal.diagonal(dim1=-2, dim2=-1) + COEFFICIENT_PX**-2
    normal = normal + torch.diag_embed(ridge)
    shift, bend = normal[..., :2, :2], normal[..., :2, 2:]
    answer = torch.linalg.solve_ex(shift, torch.cat([bend, score[..., :2, :]], -1)).result
    score = score[..., 2:, :] - bend.mT @ answer[..., -1:]
    normal = normal[..., 2:, 2:] - bend.mT @ answer[..., :-1]
    coefficients = torch.linalg.solve_ex(normal, score).result
    return (score * coefficients).mean((2, 3)), coefficients.square().sum((2, 3))


def image_slopes(problem: GaussianProblem, image: Tensor) -> list[Tensor]:
    """The image's own slopes along y and x, a low-res px, each (B, h, w)."""
    rows = torch.fft.fftfreq(problem.canvas[0], device=image.device)[:, None]
    columns = torch.fft.rfftfreq(problem.canvas[1], device=image.device)
    return [
        problem.filter(image, 2j * math.pi * problem.scale * frequency)
        for frequency in (rows, columns)
    ]


def flow_of(theta: Tensor, basis: Tensor) -> Tensor:
    """The flow (..., 2, H, W) of coefficients (..., 2, K), px; of the constant alone (..., 2)."""
    if len(basis) == 1:
        return theta[..., 0]
    return torch.einsum("...k,khw->...hw", theta, basis)


def lucas_kanade_bent(burst: Burst, start_px: Tensor, basis: Tensor) -> Tensor:
    """Coefficients (B, N, 2, K) by Gauss-Newton on `frame(x) = gain reference(x + flow)`.

    start_px: (B, N, 2) translations. Both images are low-passed, since aliases do not move.
    """
    batch, count = burst.frames.shape[:2]
    smooth = masked_blur(burst.frames, burst.valid, SMOOTHING_PX)
    seen = gaussian_blur(burst.valid.to(smooth), SMOOTHING_PX) > 0.95
    reference = torch.stack([smooth[:, 0], *torch.gradient(smooth[:, 0], dim=(-2, -1))], 1)
    reference = reference.repeat_interleave(count, 0)
    there = seen[:, 0].to(smooth).repeat_interleave(count, 0)
    frame, seen = smooth.flatten(0, 1), seen.flatten(0, 1)
    theta = torch.zeros(batch * count, 2, len(basis)).to(frame)
    theta[..., 0] = start_px.flatten(0, 1)
    unknown = torch.cat([theta.flatten(1), torch.ones_like(theta[:, 0, :1])], 1)  # and the gain
    trust = torch.full_like(unknown[0], COEFFICIENT_PX**-2)
    trust[[0, len(basis), -1]] = 0  # nothing is known of the constants beforehand
    noise = frame_noise_var(burst)
    noise = (noise + noise[:, :1]).flatten(0, 1) / (4 * math.pi * SMOOTHING_PX**2)
    for _ in range(STEPS):
        theta, gain = unknown[:, :-1].unflatten(1, (2, -1)), unknown[:, -1:, None]
        moved = forward_model(flow_of(theta, basis)[:, None], burst.shape, 1, 0)
        value, *slopes = (moved.forward(part)[:, 0] for part in reference.unbind(1))
        usable = (moved.forward(there) > 0.99)[:, 0] & moved.inside[:, 0] & seen
        weight = (usable / noise).flatten(1)[:, None]
        columns = torch.stack(slopes, 1)[:, :, None] * basis * gain[..., None, None]
        columns = torch.cat([columns.flatten(1, 2), value[:, None]], 1).flatten(2)
        weighted = columns * weight
        normal = (weighted @ columns.mT).double()
        misfit = (frame - gain * value).flatten(1)[..., None]
        slope = (weighted @ misfit)[..., 0].double() - trust * unknown
        ridge = 1e-9 * normal.diagonal(dim1=-2, dim2=-1) + 1e-12
        change = torch.linalg.solve(normal + torch.diag_embed(ridge + trust), slope)
        unknown = unknown + change.to(unknown).clamp(-0.5, 0.5)
    theta = unknown[:, :-1].unflatten(1, (2, -1)).unflatten(0, (batch, count))
    return theta * all_but_the_reference(count, theta)[:, None, None]
