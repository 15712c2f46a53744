"""Image to burst and truth: shift, subsample, expose, add noise (eq:degradation; paper, sec. 5)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .burst import Burst, NoiseLaw, Simulated
from .checks import check_scale, require
from .errors import UsageError
from .filters import gaussian_blur
from .forward import forward_model
from .geometry import all_but_the_reference, pixel_grid
from .noise import normalised_noise_var


@dataclass(frozen=True)
class Simulation:
    """How bursts are made. The defaults are the paper's setting.

    scale: zoom from frame to truth, 2 to 4. frames: N. size: side of a frame, low-res px.
    white_level: raw DN of radiance 1 at exposure 1.
    gamma, exposure_steps: exposures `gamma^c`, gamma uniform, c uniform on {-steps..steps}.
    longest_first: the reference is the longest exposure.
    exposure_error: relative rms error of the *stated* exposures of the frames 1 to N-1; the
        truth is on the reference's scale, whose own error nobody could tell.
    noise_a, noise_std_dn: the law `var = a dn + std^2`, std uniform between the two, per burst.
    motion: "translation", "affine" (a linear part, `bend_px` at its largest) or "drift" (a
        smooth local field, `bend_px` at its largest), both on top of the translation.
    shift_px: translations uniform on (-shift_px, shift_px) along each axis; reference at rest.
    oversampling: pixels of the source image for one of the truth, along each axis.
    psf_hpx: sigma of the Gaussian point spread applied to the source, truth px; 0 is none.
    saturate: clip raw values at the white level and mask them.
    margin_hpx: source beyond the truth on every side, truth px.
    """

    scale: int = 2
    frames: int = 15
    size: int = 64
    white_level: float = 3400.0
    gamma: tuple[float, float] = (1.2, 1.4)
    exposure_steps: int = 5
    longest_first: bool = False
    exposure_error: float = 0.0
    noise_a: float = 0.0
    noise_std_dn: tuple[float, float] = (5.0, 18.0)
    motion: Literal["translation", "affine", "drift"] = "translation"
    shift_px: float = 1.0
    bend_px: float = 0.5
    oversampling: int = 1
    psf_hpx: float = 0.0
    saturate: bool = False
    margin_hpx: int = 12

    def __post_init__(self) -> None:
        check_scale(self.scale)
        lowest = {"frames": 1, "size": 8, "oversampling": 1, "margin_hpx": 0, "exposure_steps": 0}
        for name, low in lowest.items():
            value = getattr(self, name)
            require(value >= low, f"{name} of at least {low}", value, "raise it", UsageError)
        for name in ("exposure_error", "noise_a", "shift_px", "bend_px", "psf_hpx"):
            value = getattr(self, name)
            require(
                0 <= value < math.inf,
                f"{name} of at least 0 and finite",
                value,
                "correct it",
                UsageError,
            )
        require(
            0 < self.white_level < math.inf,
            "white_level above 0",
            self.white_level,
            "give the DN of radiance 1",
            UsageError,
        )
        for name in ("gamma", "noise_std_dn"):
            first, last = getattr(self, name)
            require(
                0 <= first <= last < math.inf,
                f"{name} from low to high, not negative",
                f"{first:g} to {last:g}",
                "give the lower bound first",
                UsageError,
            )
        require(
            self.gamma[0] > 0,
            "gamma above 0",
            f"{self.gamma[0]:g} to {self.gamma[1]:g}",
            "exposures are its powers: raise it",
            UsageError,
        )
        bend_px = 0.0 if self.motion == "translation" else self.bend_px
        reach_hpx = self.scale * (self.shift_px + bend_px)
        require(
            reach_hpx <= self.margin_hpx,
            f"a margin_hpx of at least {reach_hpx:g}, the largest motion",
            self.margin_hpx,
            "raise margin_hpx, or lower shift_px or bend_px",
            UsageError,
        )

    @property
    def truth_size(self) -> int:
        """Side of the truth, high-res px."""
        return self.scale * self.size

    @property
    def source_size(self) -> int:
        """Side of the source image that one burst needs, source px."""
        return self.oversampling * (self.truth_size + 2 * self.margin_hpx)


PRESETS = {
    "paper": Simulation(),
    "affine": Simulation(noise_a=0.1187, noise_std_dn=(math.sqrt(12.05), math.sqrt(12.05))),
    "continuous": Simulation(oversampling=2, psf_hpx=0.7),
}


def preset(name: str) -> Simulation:
    """The named setting."""
    require(name in PRESETS, f"a preset of {', '.join(PRESETS)}", name, "choose one", UsageError)
    return PRESETS[name]


def simulate(source: Tensor, setting: Simulation, generator: torch.Generator) -> Simulated:
    """`v_t = e_t * D F_t u + n_t` for a batch of source images.

    source: (B, S, S) with S = setting.source_size, normalised radiance; any device.
    generator: draws on its own device, so that one seed gives one burst everywhere.
    Returns a batch: frames (B, N, H, W), truth (B, s*H, s*W), flow_px (B, N, 2[, H, W]).
    """
    side = setting.source_size
    require(
        source.ndim == 3 and source.shape[-2:] == (side, side),
        f"sources of shape (B, {side}, {side})",
        tuple(source.shape),
        f"crop to {setting.truth_size} px and a margin of {setting.margin_hpx} truth px",
        UsageError,
    )
    draw = _Draw(generator, source)
    batch, shape = source.shape[0], (setting.size, setting.size)
    step, margin = setting.oversampling, setting.oversampling * setting.margin_hpx
    if setting.psf_hpx > 0:
        source = gaussian_blur(source[:, None], step * setting.psf_hpx)[:, 0]
    truth = source[:, margin : side - margin, margin : side - margin][:, ::step, ::step]

    exposure = _draw_exposure(draw, batch, setting)
    std_dn = draw.uniform(*setting.noise_std_dn, batch)
    flow_px = _draw_flow(draw, batch, setting)
    clean = forward_model(flow_px, shape, step * setting.scale, margin).forward(source)

    law = NoiseLaw(std_dn.new_full((batch,), setting.noise_a), std_dn**2)
    stated = exposure * setting.white_level
    moving = all_but_the_reference(setting.frames, source)
    error = setting.exposure_error * draw.normal(batch, setting.frames) * moving
    true_gain = stated * (1 + error)
    noise_std = normalised_noise_var(law, clean, true_gain).sqrt()
    noisy = clean + noise_std * draw.normal(*clean.shape)
    frames = noisy * (true_gain / stated)[..., None, None]
    valid = torch.ones_like(frames, dtype=torch.bool)
    if setting.saturate:
        ceiling = (1 / exposure)[..., None, None]  # the white level, in normalised radiance
        valid, frames = frames < ceiling, torch.minimum(frames, ceiling)
    white_level = exposure.new_full((batch,), setting.white_level)
    return Simulated(Burst(frames, exposure, white_level, law, valid), truth, flow_px)


def simulate_one(source: Tensor, setting: Simulation, seed: int) -> Simulated:
    """One burst (no batch axis) from one source image (S, S), drawn on the CPU from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    made = simulate(source[None], setting, generator)
    flow_px = None if made.flow_px is None else made.flow_px[0]
    return Simulated(made.burst.part(0), made.truth[0], flow_px)


@dataclass(frozen=True)
class _Draw:
    """Random tensors from a generator, on the device of the source."""

    generator: torch.Generator
    like: Tensor

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        unit = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (low + (high - low) * unit).to(self.like)

    def normal(self, *shape: int) -> Tensor:
        unit = torch.randn(shape, generator=self.generator, device=self.generator.device)
        return unit.to(self.like)


def _draw_exposure(draw: _Draw, batch: int, setting: Simulation) -> Tensor:
    """`gamma^c`, one gamma a burst, one c a frame, (B, N)."""
    gamma = draw.uniform(*setting.gamma, batch)[:, None]
    steps = setting.exposure_steps
    power = draw.uniform(-steps - 0.5, steps + 0.5, batch, setting.frames).round()
    if setting.longest_first:
        power = power.sort(1, descending=True).values
    return gamma ** power.clamp(-steps, steps)


def _draw_flow(draw: _Draw, batch: int, setting: Simulation) -> Tensor:
    """Flows from frame to reference, (B, N, 2) or (B, N, 2, H, W) low-res px; frame 0 at rest."""
    count, size = setting.frames, setting.size
    moving = all_but_the_reference(count, draw.like)
    shift = draw.uniform(-setting.shift_px, setting.shift_px, batch, count, 2)
    shift = shift * moving[:, None]
    if setting.motion == "translation":
        return shift
    # (y, x) from -1 to 1 over the frame
    unit = 2 * pixel_grid((size, size), draw.like) / (size - 1) - 1
    if setting.motion == "affine":
        basis = unit
    else:
        angle = math.pi * (unit + 1) / 2
        waves = [torch.cos(k * angle) for k in range(3)]
        pairs = [(j, k) for j in range(3) for k in range(3) if 0 < j + k <= 2]
        basis = torch.stack([waves[j][0] * waves[k][1] for j, k in pairs])
    weight = draw.uniform(-1, 1, batch, count, 2, len(basis))
    bend = torch.einsum("bnck,khw->bnchw", weight, basis)
    # the stated size is each frame's largest displacement along either axis
    peak = bend.abs().amax((-1, -2, -3), keepdim=True)
    bend = setting.bend_px * bend / peak * moving[:, None, None, None]
    return shift[..., None, None] + bend


def with_options(setting: Simulation, **options: object) -> Simulation:
    """`setting` with the options that are not None."""
    given = {name: value for name, value in options.items() if value is not None}
    return dataclasses.replace(setting, **given)  # type: ignore[arg-type]
