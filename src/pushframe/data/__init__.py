"""Batches for training, each a pure function of (seed, step, shard): nothing to save or restore.

From sharp images bursts are simulated on the training device; from a folder of bursts without
truth crops are cut. A batch is drawn in shards, so that several processes can share one.
"""

from .bursts import BurstStream, cut, read_bursts
from .config import Batch, DataConfig, Stream, draws, held_out
from .images import ImageStream, read_images, validation_cases
from .mixture import Mixture

__all__ = [
    "Batch",
    "BurstStream",
    "DataConfig",
    "ImageStream",
    "Mixture",
    "Stream",
    "cut",
    "draws",
    "held_out",
    "read_bursts",
    "read_images",
    "validation_cases",
]
