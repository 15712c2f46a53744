"""Frames onto the reference, whole pixels at a time; a table of how well, and what was left out."""

from .agree import Registration
from .place import Aligned, align, common

__all__ = ["Aligned", "Registration", "align", "common"]
