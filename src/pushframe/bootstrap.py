"""How sure a mean over a test set is: images drawn again, then bursts within each image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

DRAWS = 2000
SEED = 0
TAILS = (5.0, 95.0)  # percentiles that bound the 90 % interval

Interval = tuple[float, float]


def balanced_mean(values: np.ndarray, images: Sequence[str]) -> float | None:
    """The mean over images of the mean over each image's bursts; None where there is no number.

    values: (B,), NaN where a burst has no such figure; images: the image each burst comes from.
    """
    values, images = _known(values, images)
    sizes = Counter(images)
    shares = np.array([1 / (len(sizes) * sizes[image]) for image in images])
    return float(shares @ values) if len(values) else None


def interval_90(
    values: np.ndarray, images: Sequence[str], draws: int = DRAWS, seed: int = SEED
) -> Interval | None:
    """The central 90 % of `balanced_mean` over bootstrap draws; None for fewer than two bursts.

    Each draw takes as many images as there are, with replacement, and of each as many bursts as
    it has, with replacement. The same images and seed give the same draws, whatever the values.
    """
    values, images = _known(values, images)
    if len(values) < 2:
        return None
    means = draw_weights(images, draws, seed) @ values
    low, high = np.percentile(means, TAILS)
    return float(low), float(high)


@lru_cache(maxsize=2)  # the same for every figure and method of a test set
def draw_weights(images: tuple[str, ...], draws: int, seed: int) -> np.ndarray:
    """The weight of each burst in the balanced mean of each bootstrap draw, (draws, B)."""
    generator = np.random.default_rng(seed)
    names, member = np.unique(images, return_inverse=True)
    count = len(names)
    taken = generator.multinomial(count, np.full(count, 1 / count), size=draws)
    weights = np.empty((draws, len(member)))
    for image in range(count):
        inside = np.flatnonzero(member == image)
        size = len(inside)
        # an image taken k times gives k independent samples of its bursts: one of k * size
        picked = generator.multinomial(taken[:, image] * size, np.full(size, 1 / size))
        weights[:, inside] = picked / (count * size)
    weights.flags.writeable = False
    return weights


def _known(values: np.ndarray, images: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The values that are numbers, and their images."""
    known = ~np.isnan(values)
    return values[known], tuple(image for image, kept in zip(images, known, strict=True) if kept)
