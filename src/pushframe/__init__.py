"""pushframe: bursts of satellite frames to one sharper image with an error bar for every pixel."""

from .burst import Burst, GeoRef, NoiseLaw, Simulated
from .errors import PushframeError
from .infer import super_resolve
from .io import read_burst, write_burst, write_product
from .posterior import Posterior
from .product import Product
from .version import __version__

__all__ = [
    "Burst",
    "GeoRef",
    "NoiseLaw",
    "Posterior",
    "Product",
    "PushframeError",
    "Simulated",
    "__version__",
    "read_burst",
    "super_resolve",
    "write_burst",
    "write_product",
]
