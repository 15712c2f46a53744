"""Where a frame lies without a clue: the best correlation of all offsets, on reduced images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from ..filters import masked_blur
from ..io import BurstSource, Placement
from ..io.frames import block_means

COARSE_PX = 384  # side to which frames are reduced
MIN_OVERLAP = 0.08  # of a frame
DETAIL_SIGMA_PX = 3.0


def search(source: BurstSource, index: Sequence[int]) -> list[Placement]:
    """Whole-pixel placements of frames `index` of the files, to within the reduction's step."""
    bare = dataclasses.replace(source, placements=(), window=None)
    step = -(-max(bare.shape) // COARSE_PX)
    reference = _detail(bare, bare.reference, step)
    found = []
    for k in index:
        correlation, count = masked_correlation(reference, _detail(bare, k, step))
        # in standard errors of a correlation by chance
        score = correlation * np.sqrt(count)
        score[count < MIN_OVERLAP * reference.size] = -np.inf
        best = np.unravel_index(int(score.argmax()), score.shape)
        down, right = (
            int(k) - size if k > size // 2 else int(k)
            for k, size in zip(best, score.shape, strict=True)
        )
        found.append(Placement((-float(down) * step, -float(right) * step)))
    return found


def masked_correlation(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The correlation of two images over their common valid pixels, for every offset.

    NaN marks invalid pixels. Entry k is for `other(x) = one(x + k)`, negative offsets at the
    end, as in a Fourier transform; the second array counts the common pixels.
    """
    shape = [a + b for a, b in zip(one.shape, other.shape, strict=True)]
    seen = [~np.isnan(image) for image in (one, other)]
    values = [np.where(mask, image, 0.0) for mask, image in zip(seen, (one, other), strict=True)]
    parts = [
        [np.fft.rfft2(part, shape) for part in (value, value**2, mask.astype(float))]
        for value, mask in zip(values, seen, strict=True)
    ]

    def sums(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.fft.irfft2(first * second.conj(), shape)

    (a, aa, has_a), (b, bb, has_b) = parts
    count = np.rint(sums(has_a, has_b))
    total = np.maximum(count, 1)
    sum_a, sum_b = sums(a, has_b), sums(has_a, b)
    cross = sums(a, b) - sum_a * sum_b / total
    power = (sums(aa, has_b) - sum_a**2 / total) * (sums(has_a, bb) - sum_b**2 / total)
    scale = np.sqrt(np.maximum(power, 1e-12 * max(float(power.max()), 1e-30)))
    return cross / scale, count


def _detail(source: BurstSource, index: int, step: int) -> np.ndarray:
    """A frame reduced `step` times, less its low-pass, NaN where invalid."""
    means = block_means(lambda rows, columns: source.raw(index, rows, columns), source.shape, step)
    image = torch.from_numpy(means)[None, None]
    valid = ~torch.isnan(image)
    low = masked_blur(torch.nan_to_num(image), valid, DETAIL_SIGMA_PX)
    return (image - low)[0, 0].double().numpy()
