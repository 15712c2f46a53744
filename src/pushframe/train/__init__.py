"""Training: settings, the step, the loop, and what it keeps in the folder of a run."""

from .config import TrainConfig, load_train_config
from .loop import train

__all__ = ["TrainConfig", "load_train_config", "train"]
