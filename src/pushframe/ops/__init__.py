"""Operators between frames and the high-res grid."""

from .median import median_over_frames
from .splat import Splat, splat

__all__ = ["Splat", "median_over_frames", "splat"]
