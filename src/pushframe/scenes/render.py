"""From ground to image: sunlight and cast shadows, then haze, blur and sampling of the sensor."""

import numpy as np

from pushframe.scenes.canvas import PX_PER_M, SUPERSAMPLING

SKYLIGHT = 0.22  # share of the light on flat open ground that comes from the sky and not the sun
HAZE = 0.03  # light scattered by the air into every pixel, in units of albedo
SHADOW_STEPS = 7  # doublings: shadows reach 2^7 canvas pixels, some 45 m
PSF_SIGMA_PX = 0.3  # Gaussian blur in image pixels, on top of the detector's square


def _shifted(values: np.ndarray, dx: int, dy: int) -> np.ndarray:
    """values at (x + dx, y + dy); past the edge, the edge."""
    rows, cols = values.shape
    row = np.clip(np.arange(rows) + dy, 0, rows - 1)
    col = np.clip(np.arange(cols) + dx, 0, cols - 1)
    return values[row][:, col]


def shadow_depth(height: np.ndarray, azimuth: float, elevation: float) -> np.ndarray:
    """Depth (m) of each point in the shadow: max over t of h(x + t s) - t tan(elevation) - h(x).

    azimuth is the direction towards the sun, elevation its angle above the horizon, in radians.
    The maximum over 2k steps is that of two maxima over k steps, one of them moved by k.
    """
    drop = np.float32(np.tan(elevation) / PX_PER_M)
    ray = height
    for doubling in range(SHADOW_STEPS):
        steps = 2**doubling
        dx, dy = round(steps * np.cos(azimuth)), round(steps * np.sin(azimuth))
        ray = np.maximum(ray, _shifted(ray, dx, dy) - drop * np.float32(np.hypot(dx, dy)))
    return ray - height


def sunlight(height: np.ndarray, azimuth: float, elevation: float) -> np.ndarray:
    """Light on each point over that on flat open ground: Lambert's cosine, shadows and skylight."""
    # Walls are not seen from above: a slope beyond 45 degrees is a step between two surfaces.
    slope_y, slope_x = (np.clip(s, -1, 1) for s in np.gradient(height * np.float32(PX_PER_M)))
    facing = slope_x * np.float32(np.cos(azimuth)) + slope_y * np.float32(np.sin(azimuth))
    cosine = 1 - facing / np.float32(np.tan(elevation))
    cosine /= np.sqrt(1 + slope_x**2 + slope_y**2)
    lit = 1 - np.clip(shadow_depth(height, azimuth, elevation) * 4 - 0.1, 0, 1)
    return SKYLIGHT + (1 - SKYLIGHT) * lit * np.maximum(cosine, 0)


def _kernel() -> np.ndarray:
    """One axis of the point spread function on the canvas: detector square times Gaussian."""
    offset = np.arange(-8, 9)
    gaussian = np.exp(-0.5 * (offset / (PSF_SIGMA_PX * SUPERSAMPLING)) ** 2)
    kernel = np.convolve(gaussian, np.ones(SUPERSAMPLING))
    kernel = kernel[np.abs(kernel) > 1e-4 * kernel.max()]
    return (kernel / kernel.sum()).astype(np.float32)


def expose(
    radiance: np.ndarray, shape: tuple[int, int], margin: int, rng: np.random.Generator
) -> np.ndarray:
    """Blur by the point spread function, keep every second sample, add haze and read noise.

    Returns shape pixels, starting margin canvas pixels from the corner.
    """
    kernel = _kernel()
    rows, cols = shape
    blurred = np.zeros((rows, radiance.shape[1]), np.float32)
    for tap, weight in enumerate(kernel):
        start = margin + tap - (len(kernel) - 1) // 2
        blurred += weight * radiance[start : start + SUPERSAMPLING * rows : SUPERSAMPLING]
    image = np.zeros(shape, np.float32)
    for tap, weight in enumerate(kernel):
        start = margin + tap - (len(kernel) - 1) // 2
        image += weight * blurred[:, start : start + SUPERSAMPLING * cols : SUPERSAMPLING]
    image += HAZE
    return image + 0.002 * np.sqrt(image) * rng.standard_normal(shape, np.float32)
