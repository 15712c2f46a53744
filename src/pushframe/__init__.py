"""pushframe: bursts of satellite frames to one sharper image with an error bar for every pixel."""

from .burst import Burst, GeoRef, NoiseLaw, Posterior, Product, Simulated
from .errors import PushframeError

__version__ = "0.1.0"

__all__ = [
    "Burst",
    "GeoRef",
    "NoiseLaw",
    "Posterior",
    "Product",
    "PushframeError",
    "Simulated",
    "__version__",
]
