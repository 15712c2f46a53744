"""Burst to product: register, reconstruct, and put the result in the reference's unit and place."""

from __future__ import annotations

import torch
from torch import Tensor

from .baselines import weighted_splat
from .burst import Burst, Product
from .checks import check_scale, require
from .errors import UsageError
from .geometry import upscale_georef
from .methods import BEST, Estimate, find_methods
from .ops import splat
from .version import __version__


def super_resolve(burst: Burst, scale: int = 2, method: str = BEST) -> Product:
    """The image of `scale` times the resolution with its error bar, in DN of the reference frame.

    burst: one burst, on the device to compute on.
    """
    require(
        burst.frames.ndim == 3,
        "one burst of frames (N, H, W)",
        tuple(burst.frames.shape),
        "call super_resolve for each burst",
        UsageError,
    )
    check_scale(scale)
    estimate = find_methods([method])[method].run(burst.batched(), scale, None)
    return make_product(burst, estimate, scale, method)


def make_product(burst: Burst, estimate: Estimate, scale: int, method: str) -> Product:
    """A product from an estimate of a batch of one: `dn = radiance * gain + black`.

    Without an error bar std is NaN; without motion the samples are those of the reference alone.
    """
    batch = burst.batched()
    mean, var = estimate.posterior.mean[0], estimate.posterior.var
    gain, black = burst.gain[0], burst.black_level
    samples = count_samples(batch, estimate.flow_px, scale)[0]
    std = torch.full_like(mean, torch.nan) if var is None else var[0].sqrt()
    return Product(
        mean=(mean * gain + black).cpu().numpy(),
        std=(std * gain).cpu().numpy(),
        samples=samples.cpu().numpy(),
        scale=scale,
        georef=None if burst.georef is None else upscale_georef(burst.georef, scale),
        provenance=_provenance(burst, method),
    )


def count_samples(burst: Burst, flow_px: Tensor | None, scale: int) -> Tensor:
    """Effective number of observations of each high-res pixel of a batch, (B, s*H, s*W)."""
    if flow_px is None:
        alone = burst.select([0])
        still = torch.zeros(len(alone.frames), 1, 2).to(alone.frames)
        return splat(alone.frames, alone.valid.to(alone.frames), still, scale).samples
    return weighted_splat(burst, flow_px, scale).samples


def _provenance(burst: Burst, method: str) -> dict[str, str]:
    facts = {
        "software": f"pushframe {__version__}",
        "method": method,
        "frames": ", ".join(burst.names),
        "exposure": ", ".join(f"{value:g}" for value in burst.exposure.tolist()),
        "white_level": f"{float(burst.white_level):g}",
        "black_level": f"{float(burst.black_level):g}",
        "notes": " ".join(burst.notes),
    }
    if burst.noise is not None:
        facts["noise_law"] = f"var = {float(burst.noise.a):g} * dn + {float(burst.noise.b):g}"
    return facts
