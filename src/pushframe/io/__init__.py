"""Files in and out, by suffix: bursts, products, images; written whole or not at all."""

from .atomic import atomic_files, atomic_folder, atomic_path, check_files, sweep
from .burst_files import (
    burst_parts,
    is_burst,
    is_stack,
    list_bursts,
    open_burst,
    read_burst,
    read_simulated,
    read_verified,
    write_burst,
)
from .image import read_image
from .placement import Placement
from .product import read_product, write_product
from .source import BurstSource
from .stream import new_product

__all__ = [
    "BurstSource",
    "Placement",
    "atomic_files",
    "atomic_folder",
    "atomic_path",
    "burst_parts",
    "check_files",
    "is_burst",
    "is_stack",
    "list_bursts",
    "new_product",
    "open_burst",
    "read_burst",
    "read_image",
    "read_product",
    "read_simulated",
    "read_verified",
    "sweep",
    "write_burst",
    "write_product",
]
