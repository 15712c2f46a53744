"""Operators between frames and the high-res grid."""

from .median import median_over_frames
from .pool import Pool, land
from .splat import Splat, bilinear, splat, spread

__all__ = ["Pool", "Splat", "bilinear", "land", "median_over_frames", "splat", "spread"]
