"""What is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .burst import GeoRef
from .checks import require
from .errors import BurstError


@dataclass(frozen=True, eq=False)
class Product:
    """What is delivered: image, error bar and number of observations, on the HR grid.

    mean, std: (s*H, s*W) float32 in raw DN of the reference frame, NaN where nothing is known.
    samples: effective number of observations of each pixel. provenance: how it was made.
    """

    mean: np.ndarray
    std: np.ndarray
    samples: np.ndarray
    scale: int
    georef: GeoRef | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("mean", "std", "samples"):
            array = np.asarray(getattr(self, name), dtype=np.float32)
            require(
                array.ndim == 2 and array.shape == np.shape(self.mean),
                f"{name} of the shape of mean, {np.shape(self.mean)}",
                array.shape,
                "give three images of one size",
                BurstError,
            )
            object.__setattr__(self, name, array)
