"""Bursts on Earth for the tests: a scene, frames of it at known places, with CRS or RPC."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch

from pushframe.forward import forward_model

PIXEL_M = 1.0
CORNER = (5e5, 5e6)


def pushframe_frames(
    size: tuple[int, int], shifts_px: np.ndarray, scale: int = 2, seed: int = 1, noise_dn: float = 6
) -> tuple[np.ndarray, np.ndarray]:
    """Frames (N, H, W) uint16 whose first pixels lie at `shifts_px` (N, 2), and the first's truth.

    Real shifts, low-res px: the whole part chooses the window of the scene, the rest is the
    forward model's. Truth (s*H, s*W) lies on the grid of the first frame, DN.
    """
    shifts = np.asarray(shifts_px) - np.floor(np.min(shifts_px, 0)) + 8
    whole = np.floor(shifts).astype(int)
    height, width = size
    tall, wide = whole.max(0) + np.array(size) + 16
    scene = power_law_scene((scale * int(tall), scale * int(wide)), seed)
    rng = np.random.default_rng(seed)
    frames = []
    for (y, x), part in zip(whole, shifts - whole, strict=True):
        margin = 8 * scale
        top, left = scale * y - margin, scale * x - margin
        rows = slice(top, top + scale * height + 2 * margin)
        columns = slice(left, left + scale * width + 2 * margin)
        window = scene[rows, columns]
        flow = torch.from_numpy(part).float()[None, None]
        clean = forward_model(flow, size, scale, margin).forward(torch.from_numpy(window)[None])
        frames.append(clean[0, 0].numpy() + rng.normal(0, noise_dn, size))
    top, left = scale * whole[0]
    if np.abs(shifts[0] - whole[0]).max() > 0:
        raise ValueError("the first frame lies at whole pixels, where its truth is known")
    truth = scene[top : top + scale * height, left : left + scale * width]
    return np.clip(np.rint(frames), 0, 65535).astype(np.uint16), truth


def power_law_scene(shape: tuple[int, int], seed: int) -> np.ndarray:
    """A random image with the spectrum of landscapes, around 1000 DN, float32 (H, W)."""
    fy, fx = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])
    white = np.random.default_rng(seed).normal(size=shape)
    image = np.fft.irfft2(np.fft.rfft2(white) / (fy**2 + fx**2 + 1e-4) ** 0.6, shape)
    return (1000 + 220 * image / image.std()).astype(np.float32)


def transform_at(shift_px, pixel_m: float = PIXEL_M):
    """The transform of a frame whose first pixel lies `shift_px` (dy, dx) from the corner."""
    from rasterio.transform import Affine

    dy, dx = shift_px
    return Affine(pixel_m, 0, CORNER[0] + pixel_m * dx, 0, -pixel_m, CORNER[1] - pixel_m * dy)


def rpc_at(shift_px) -> dict[str, float | tuple[float, ...]]:
    """RPC of a frame at `shift_px`: 1 m pixels, tilted, slightly curved, one camera for all."""
    dy, dx = map(float, shift_px)
    degree = 111e3

    def terms(**some: float) -> tuple[float, ...]:
        order = ("one", "L", "P", "H", "LP", "LH", "PH", "LL", "PP", "HH")
        return tuple(some.get(name, 0.0) for name in order) + (0.0,) * 10

    half = 2048.0
    return {
        "LINE_OFF": half - dy, "SAMP_OFF": half - dx, "LINE_SCALE": half, "SAMP_SCALE": half,
        "LAT_OFF": 45.0, "LONG_OFF": 3.0, "HEIGHT_OFF": 240.0,
        "LAT_SCALE": half / degree, "LONG_SCALE": half / (degree * np.cos(np.radians(45))),
        "HEIGHT_SCALE": 500.0,
        "LINE_NUM_COEFF": terms(P=-1.0, L=0.02, H=0.03, LP=2e-4, PP=1e-4),
        "LINE_DEN_COEFF": terms(one=1.0, P=1e-4, H=-2e-5),
        "SAMP_NUM_COEFF": terms(L=1.0, P=0.02, H=-0.02, LL=-1e-4, LP=1e-4),
        "SAMP_DEN_COEFF": terms(one=1.0, L=-1e-4, H=3e-5),
    }  # fmt: skip


def save_tiff(path: Path, frame: np.ndarray, rpc=None, tags=None, **profile) -> None:
    """One frame as GeoTIFF."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning
    from rasterio.rpc import RPC

    if rpc is not None:
        texts = {
            key: " ".join(map(repr, value)) if isinstance(value, tuple) else repr(float(value))
            for key, value in rpc.items()
        }
        profile["rpcs"] = RPC.from_gdal(texts)
    height, width = frame.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="GTiff", count=1, height=height, width=width,
                           dtype=frame.dtype, **profile) as sink:  # fmt: skip
            sink.write(frame, 1)
            sink.update_tags(**(tags or {}))


def rpc_text(rpc) -> str:
    """The lines of an _RPC.TXT file."""
    lines = []
    for key, value in rpc.items():
        if isinstance(value, tuple):
            lines += [f"{key}_{k}: {number!r}" for k, number in enumerate(value, start=1)]
        else:
            lines.append(f"{key}: {float(value)!r}")
    return "\n".join(lines) + "\n"
