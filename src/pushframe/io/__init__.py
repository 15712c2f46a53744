"""Files in and out, by suffix: bursts, products, images; written whole or not at all."""

from .atomic import atomic_folder, atomic_path
from .burst_files import is_burst, read_burst, read_simulated, write_burst
from .image import read_image
from .product import read_product, write_product

__all__ = [
    "atomic_folder",
    "atomic_path",
    "is_burst",
    "read_burst",
    "read_image",
    "read_product",
    "read_simulated",
    "write_burst",
    "write_product",
]
