"""Operators between frames and the high-res grid."""

from .median import median_over_frames
from .pool import Pool, frame_sums
from .splat import Splat, bilinear, splat, spread

__all__ = ["Pool", "Splat", "bilinear", "frame_sums", "median_over_frames", "splat", "spread"]
