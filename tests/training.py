"""A training run small enough for a test, also as a program of its own that can be killed.

python training.py CONFIG_JSON RUN [resume] [kill=STEP] [torn=STEP]
python training.py golden > golden/hdr_dsp_losses.txt
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

from pushframe.scenes import procedural_scene
from pushframe.train import checkpoint, train
from pushframe.train.config import TrainConfig, load_train_config


def write_images(folder: Path, count: int = 3, side: int = 96) -> Path:
    """A folder of procedural scenes."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        np.save(folder / f"scene{seed}.npy", procedural_scene((side, side), seed))
    return folder


def settings(images: Path, **changes: object) -> list[str]:
    """Overrides of the tiniest run, and `changes` to it, dots as double underscores."""
    values = {
        "model__features": 4,
        "model__encoder_blocks": 1,
        "model__decoder_blocks": 1,
        "motion": "lucas_kanade",
        "data__images": str(images),
        "data__validation_groups": ["scene2"],
        "data__validation": ["paper:3"],
        "data__validation_bursts": 1,
        "data__batch": 2,
        "data__size": 16,
        "data__frames": [3, 4],
        "schedule__steps": 8,
        "schedule__learning_rate": 1e-3,
        "log_every": 2,
        "validate_every": 8,
        "checkpoint_every": 3,
        **changes,
    }
    return [f"{name.replace('__', '.')}={json.dumps(value)}" for name, value in values.items()]


def config(images: Path, **changes: object) -> TrainConfig:
    """The tiniest run."""
    return load_train_config(None, settings(images, **changes))


def loss_curve(folder: Path) -> list[float]:
    """The losses of 20 steps of the tiniest run."""
    losses: list[float] = []
    chosen = config(
        write_images(folder / "images"), schedule__steps=20, log_every=1, validate_every=100
    )
    train(
        chosen,
        folder / "run",
        on_log=lambda line, _: losses.append(line["loss"]) if "loss" in line else None,
    )
    return losses


def main() -> None:
    """Train; kill this process at a step, or in the middle of writing a checkpoint."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    overrides, run, *words = sys.argv[1:]
    kill = {k: int(v) for k, _, v in (word.partition("=") for word in words) if v}

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def on_log(line: dict, _: float) -> None:
        if line["step"] == kill.get("kill"):
            die()

    if "torn" in kill:
        whole = checkpoint.save

        def torn(tensors: dict, metadata: dict) -> bytes:
            data = whole(tensors, metadata)
            if json.loads(metadata["state"])["progress"]["step"] == kill["torn"]:
                room = next(Path(run).glob(".pushframe-*"))
                (room / checkpoint.NAME).write_bytes(data[: len(data) // 2])
                die()
            return data

        checkpoint.save = torn
    train(
        load_train_config(None, json.loads(overrides)),
        Path(run),
        resume="resume" in words,
        on_log=on_log,
    )
    left = [name for name in thread_names() if "gloo" in name]
    assert not left, f"the team is left, its threads are not: {left}; they abort a process's end"


def thread_names() -> list[str]:
    """The threads of this process, where the system tells."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append(path.read_text().strip())
    return names


if __name__ == "__main__":
    if sys.argv[1:] == ["golden"]:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as place:
            print("\n".join(f"{loss:.6f}" for loss in loss_curve(Path(place))))
    else:
        main()
