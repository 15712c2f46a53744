"""Random fields: fractal texture for surfaces, smooth fields for relief and shorelines."""

import numpy as np


def good_length(length: int) -> int:
    """Smallest 2^a 3^b 5^c at or above length: sizes whose Fourier transform is fast."""
    candidate = length
    while True:
        rest = candidate
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return candidate
        candidate += 1


def fractal_pair(
    shape: tuple[int, int], exponent: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Two independent Gaussian fields of power spectrum 1 / f^exponent, zero mean, unit variance.

    The real and imaginary parts of one filtered complex white noise; shape in pixels.
    """
    rows, cols = shape
    radius = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.fftfreq(cols)).astype(np.float32)
    # Periods beyond 600 px would only tilt the scene, and eat the variance the eye looks for.
    gain = np.maximum(radius, 1 / 600) ** np.float32(-exponent / 2)
    gain[0, 0] = 0
    spectrum = np.empty(shape, np.complex64)
    spectrum.real = rng.standard_normal(shape, np.float32)
    spectrum.imag = rng.standard_normal(shape, np.float32)
    spectrum *= gain
    field = np.fft.ifft2(spectrum)
    first, second = field.real.astype(np.float32), field.imag.astype(np.float32)
    return first / first.std(), second / second.std()


def _spline_matrix(length: int, knots: int, pitch: float, offset: float) -> np.ndarray:
    """Cubic B-spline weights (length, knots) of knots every pitch pixels."""
    position = (np.arange(length) + 0.5) / pitch + 1 + offset
    distance = np.abs(position[:, None] - np.arange(knots))
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.maximum(2 - distance, 0) ** 3 / 6
    return np.where(distance < 1, near, far).astype(np.float32)


def smooth_field(shape: tuple[int, int], pitch: float, rng: np.random.Generator) -> np.ndarray:
    """White noise on knots every pitch pixels, joined by a cubic B-spline, about unit variance."""
    rows, cols = (int(length / pitch) + 5 for length in shape)
    knots = rng.standard_normal((rows, cols), np.float32) / np.float32(0.48)
    # A random phase, so that the knots do not line up with the corner of every scene.
    down = _spline_matrix(shape[0], rows, pitch, rng.random())
    across = _spline_matrix(shape[1], cols, pitch, rng.random())
    return down @ knots @ across.T
