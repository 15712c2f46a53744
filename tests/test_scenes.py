"""Procedural scenes: reproducible, in range, and as hard as real images by their statistics.

The bounds come from the 39 training images of shared/data; benchmarks/scene_statistics.py draws
the same comparison by other code.
"""

import subprocess
import sys

import numpy as np
import pytest

from pushframe.errors import UsageError
from pushframe.scenes import procedural_scene
from pushframe.scenes.canvas import PX_PER_M
from pushframe.scenes.noise import fractal_pair
from pushframe.scenes.render import expose, shadow_depth

SEEDS = range(5)  # one of each land use: city, farmland, suburb, forest, coast


@pytest.fixture(scope="module")
def scenes() -> list[np.ndarray]:
    return [procedural_scene((320, 320), seed) for seed in SEEDS]


def share_above_half_nyquist(image: np.ndarray) -> float:
    """Energy beyond 0.25 cycles/px over the AC energy, averaged over Hann-windowed 64 px tiles.

    Tiles drop what varies over more than 64 px, hence the correction by the variance of their
    means; unlike a radial sum over the whole image, nothing here depends on its border.
    """
    window = np.outer(np.hanning(64), np.hanning(64))
    radius = np.hypot(np.fft.fftfreq(64)[:, None], np.fft.fftfreq(64))
    high = total = 0.0
    down, across = image.shape[0] // 64, image.shape[1] // 64
    tiles = image[: down * 64, : across * 64].astype(float).reshape(down, 64, across, 64)
    tiles = tiles.swapaxes(1, 2).reshape(-1, 64, 64)
    for tile in tiles:
        power = np.abs(np.fft.fft2((tile - tile.mean()) * window)) ** 2 / (window**2).sum() / 64**2
        high += power[radius > 0.25].sum() / len(tiles)
        total += tile.var() / len(tiles)
    return high / (total + tiles.mean(axis=(1, 2)).var())


def kurtosis(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float((centred**4).mean() / (centred**2).mean() ** 2)


def test_same_seed_same_scene_other_seed_other_scene():
    first, again, other = (procedural_scene((96, 96), seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.5


def test_the_global_random_state_is_neither_read_nor_moved():
    before = np.random.get_state()[1].copy()
    first = procedural_scene((48, 48), 3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    np.random.seed(int(before[0]) ^ 1)
    np.testing.assert_array_equal(first, procedural_scene((48, 48), 3))


@pytest.mark.parametrize("shape", [(16, 16), (17, 131), (203, 64), (101, 99), (16, 400)])
@pytest.mark.parametrize("seed", [0, 4])
def test_any_shape_from_16_pixels_on(shape, seed):
    scene = procedural_scene(shape, seed)
    assert scene.shape == shape
    assert scene.dtype == np.float32
    assert np.isfinite(scene).all()
    assert (scene > 0).all()
    assert scene.std() > 0


def test_range_is_that_of_the_real_images(scenes):
    for scene in scenes:
        assert np.percentile(scene, 99.5) == pytest.approx(2400, rel=0.01)
        # Shadows and water of the real images lie at 50 to 800 DN (1st percentile).
        assert 50 < np.percentile(scene, 1) < 800
    # Bare metal and white paint saturate a 12-bit sensor in some scenes.
    assert max(scene.max() for scene in scenes) > 4000


@pytest.mark.parametrize(
    "shape",
    [(0, 64), (64, -1), (15, 64), (64, 15), (64,), (64, 64, 1), (64.0, 64.0)],
)
def test_a_bad_shape_says_what_was_expected(shape):
    with pytest.raises(UsageError, match=r"expected a shape .* at least 16 px, got .*; ask for"):
        procedural_scene(shape, 0)


@pytest.mark.parametrize("seed", [-1, 1.5])
def test_a_bad_seed_says_what_was_expected(seed):
    with pytest.raises(UsageError, match=r"expected a seed of 0, 1, 2, ..., got .*; pass"):
        procedural_scene((32, 32), seed)


def test_energy_near_nyquist_lies_in_the_real_band(scenes):
    shares = [share_above_half_nyquist(scene) for scene in scenes]
    # Real images by this very function: 10-90 percentiles 0.018 to 0.150, median 0.059.
    assert all(0.018 < share < 0.150 for share in shares)
    assert 0.039 < np.median(shares) < 0.110  # the quartiles


def test_the_real_band_excludes_a_blurred_scene_and_white_noise(scenes):
    for scene in scenes:
        shifts = [np.roll(scene, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        assert share_above_half_nyquist(np.mean(shifts, axis=0)) < 0.018
    noise = np.random.default_rng(0).standard_normal((320, 320))
    assert share_above_half_nyquist(noise) > 0.150


def test_a_scene_aliases_when_every_second_pixel_is_kept(scenes):
    for scene in scenes:
        image = scene.astype(float)
        spectrum = np.fft.fft2(image)
        low = np.abs(np.fft.fftfreq(320)) < 0.25
        kept = np.fft.ifft2(spectrum * np.outer(low, low)).real
        folded = (image - kept)[::2, ::2]
        assert folded.std() > 0.15 * image.std()


def test_gradients_have_the_heavy_tails_of_edges(scenes):
    # Real images: 10-90 percentiles 5.1 to 78, median 10; Gaussian noise has 3.
    for scene in scenes:
        for axis in (0, 1):
            assert 5 < kurtosis(np.diff(scene.astype(float), axis=axis)) < 78


def test_a_scene_has_smooth_and_busy_places(scenes):
    for scene in scenes:
        tiles = np.diff(scene, axis=1)[:, :304].reshape(20, 16, 19, 16)
        calm, busy = np.percentile(tiles.std(axis=(1, 3)), [5, 95])
        assert busy > 3 * calm


def test_land_uses_differ(scenes):
    """The coast has the most water: dark and smooth over the largest share of the scene."""
    shares = []
    for scene in scenes:
        tiles = scene.reshape(20, 16, 20, 16)
        shares.append(((tiles.mean((1, 3)) < 600) & (tiles.std((1, 3)) < 60)).mean())
    assert int(np.argmax(shares)) == 4
    assert shares[4] > 0.1


@pytest.mark.parametrize("azimuth_deg", [0, 90, 135, 200])
def test_a_tower_casts_a_shadow_of_its_height_over_the_tangent_away_from_the_sun(azimuth_deg):
    height = np.zeros((201, 201), np.float32)
    height[98:103, 98:103] = 12.0
    azimuth, elevation = np.deg2rad(azimuth_deg), np.deg2rad(45.0)
    dark = shadow_depth(height, azimuth, elevation) > 0
    rows, cols = np.nonzero(dark)
    towards_sun = (cols - 100) * np.cos(azimuth) + (rows - 100) * np.sin(azimuth)
    assert towards_sun.max() <= 3
    expected_px = 12.0 / np.tan(elevation) * PX_PER_M + 2
    assert -towards_sun.min() == pytest.approx(expected_px, abs=3)


def test_the_sensor_keeps_a_flat_field_and_centres_a_point():
    rng = np.random.default_rng(0)
    flat = expose(np.full((64, 64), 0.5, np.float32), (16, 16), 16, rng)
    assert flat.mean() == pytest.approx(0.53, abs=1e-3)
    point = np.zeros((64, 64), np.float32)
    point[16 + 8 : 16 + 10, 16 + 8 : 16 + 10] = 1e3  # the four samples under image pixel (4, 4)
    seen = expose(point, (16, 16), 16, rng) - 0.03
    weight = seen / seen.sum()
    assert (weight.sum(axis=1) @ np.arange(16)) == pytest.approx(4, abs=0.01)
    assert (weight.sum(axis=0) @ np.arange(16)) == pytest.approx(4, abs=0.01)


@pytest.mark.parametrize("exponent", [1.0, 2.5])
def test_fractal_noise_follows_its_power_law(exponent):
    for field in fractal_pair((256, 256), exponent, np.random.default_rng(5)):
        assert field.std() == pytest.approx(1, abs=1e-3)
        power = np.abs(np.fft.fft2(field)) ** 2
        radius = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.fftfreq(256))
        octaves = [power[(radius >= low) & (radius < 2 * low)].mean() for low in (0.03, 0.06, 0.12)]
        ratios = np.log2(np.array(octaves[:-1]) / octaves[1:])
        np.testing.assert_allclose(ratios, exponent, atol=0.25)


def test_scenes_need_numpy_alone():
    code = (
        "import sys\n"
        "for name in ('scipy', 'skimage', 'PIL', 'matplotlib', 'rasterio', 'tifffile'):\n"
        "    sys.modules[name] = None\n"
        "from pushframe.scenes import procedural_scene\n"
        "assert procedural_scene((16, 16), 0).shape == (16, 16)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
