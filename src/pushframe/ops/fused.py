"""Kernels that fuse plain operations into one pass over memory, where Triton is installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def kernels(name: str) -> ModuleType | None:
    """The module `<name>_kernels`; None without Triton, where plain operations do the same, slower.

    A module that is not there, or does not load, stops.
    """
    try:
        import_module("triton")
    except ImportError:
        return None
    return import_module(f".{name}_kernels", __package__)
