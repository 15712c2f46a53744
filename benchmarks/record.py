"""What every benchmark writes: its figures, and on what they were measured."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from pushframe.io.atomic import atomic_path
from pushframe.version import __version__


def record(path: Path, benchmark: str, device: str = "cpu", **figures: Any) -> None:
    """Write figures as JSON beside the machine and the code they are of, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as draft:
        result = {"benchmark": benchmark, **circumstances(device), **figures}
        draft.write_text(json.dumps(result, indent=1) + "\n")


def circumstances(device: str = "cpu") -> dict[str, Any]:
    """Machine, versions and commit."""
    cuda = torch.device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if cuda else _processor(),
        "threads": torch.get_num_threads(),
        "pushframe": __version__,
        "torch": torch.__version__,
        "commit": _git("rev-parse", "HEAD") or None,
        "changed_since": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*words: str) -> str:
    """What git says of the tree that is measured; nothing where there is no tree, or no git."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _processor() -> str:
    """The name of the CPU; Linux keeps it in /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"CPU, {names[0] if names else platform.machine()}"
