"""Networks: a burst and its motion to mean and variance of every high-res pixel."""

from .hdr_dsp import HdrDsp, HdrDspConfig
from .motion import MotionKind, estimate_motion, find_motion
from .network import Motion, Network

NETWORKS: dict[str, type[Network]] = {"hdr_dsp": HdrDsp}

__all__ = [
    "NETWORKS",
    "HdrDsp",
    "HdrDspConfig",
    "Motion",
    "MotionKind",
    "Network",
    "estimate_motion",
    "find_motion",
]
