"""Networks: a burst and its motion to mean and variance of every high-res pixel."""

from .hdr_dsp import HdrDsp, HdrDspConfig
from .motion import MotionKind, estimate_motion, find_motion
from .network import Motion, Network
from .on_solver import OnSolver, OnSolverConfig

NETWORKS: dict[str, type[Network]] = {"hdr_dsp": HdrDsp, "on_solver": OnSolver}

__all__ = [
    "NETWORKS",
    "HdrDsp",
    "HdrDspConfig",
    "Motion",
    "MotionKind",
    "Network",
    "OnSolver",
    "OnSolverConfig",
    "estimate_motion",
    "find_motion",
]
