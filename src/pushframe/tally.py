"""Range, moments and histogram of an image of any size, a strip at a time."""

from __future__ import annotations

import math

import numpy as np

BINS_A_DECADE = 1000
BINS_TOGETHER = 25  # in the histogram that people look at
DECADES = (-18, 18)  # powers of ten that the histogram spans; what lies outside counts at its ends


class Tally:
    """Sums over the finite pixels of an image.

    The histogram has bins of equal ratio, 1000 a decade (0.2 % wide each), over positive values:
    it needs no range to be known beforehand.
    """

    def __init__(self) -> None:
        self.pixels = self.known = 0
        self.total = self.square = 0.0
        self.low, self.high = math.inf, -math.inf
        self.counts = np.zeros((DECADES[1] - DECADES[0]) * BINS_A_DECADE, np.int64)

    def update(self, values: np.ndarray) -> None:
        """Add a strip."""
        self.pixels += values.size
        seen = values[np.isfinite(values)].astype(np.float64)
        if not seen.size:
            return
        self.known += seen.size
        self.total += float(seen.sum())
        self.square += float((seen**2).sum())
        self.low, self.high = min(self.low, float(seen.min())), max(self.high, float(seen.max()))
        place = (np.log10(seen[seen > 0]) - DECADES[0]) * BINS_A_DECADE
        place = np.clip(place.astype(np.int64), 0, self.counts.size - 1)
        self.counts += np.bincount(place, minlength=self.counts.size)

    @property
    def mean(self) -> float:
        """Mean of the known pixels, NaN without any."""
        return self.total / self.known if self.known else math.nan

    @property
    def positive(self) -> float:
        """Share of the known pixels above zero."""
        return float(self.counts.sum()) / max(self.known, 1)

    @property
    def std(self) -> float:
        """Standard deviation of the known pixels, NaN without any."""
        return (
            math.sqrt(max(self.square / self.known - self.mean**2, 0)) if self.known else math.nan
        )

    @property
    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges and counts of bins to look at, 40 a decade (6 % wide each)."""
        counts = self.counts.reshape(-1, BINS_TOGETHER).sum(1)
        return _edge(BINS_TOGETHER * np.arange(counts.size + 1)), counts

    def quantile(self, share: float) -> float:
        """The value below which `share` of the positive pixels lie, NaN without any.

        Within a bin, pixels count as evenly spread.
        """
        below = self.counts.cumsum()
        if not below[-1]:
            return math.nan
        rank = share * below[-1]
        place = int(np.searchsorted(below, rank))
        inside = 1 - (below[place] - rank) / max(self.counts[place], 1)
        return float(_edge(np.array(place + inside)))


def _edge(place: np.ndarray) -> np.ndarray:
    """The values at places among the bins, the lower edge of bin k at k."""
    return 10.0 ** (DECADES[0] + place / BINS_A_DECADE)
