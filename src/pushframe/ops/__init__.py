"""Operators between frames and the high-res grid."""

from .pool import Pool, land
from .splat import Splat, splat

__all__ = ["Pool", "Splat", "land", "splat"]
