"""Operators between frames and the high-res grid."""

from .splat import Splat, splat

__all__ = ["Splat", "splat"]
