"""Weights on disk: safetensors with a card. They load only if they fit; nothing is unpickled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from .config import load_values, suggestion
from .errors import FileError, UsageError
from .io import atomic_path
from .model import NETWORKS, Network

SCHEMA = "pushframe-weights/1"
SUFFIX = ".safetensors"
UNTOLD = ("schema", "scale", "model")  # in a lineage: all are alike
NEEDED = {"network": (str, "a name"), "scale": (int, "a whole number"), "model": (dict, "a table")}


def shipped_weights() -> dict[str, Path]:
    """Names and files of the weights that come with the package."""
    folder = Path(str(resources.files(__package__))) / "weights_data"
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def save_weights(
    network: Network,
    path: Path,
    card: Mapping[str, Any],
    tensors: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a network and its card; the file appears whole or not at all.

    card: what a user should know of them, plain values. tensors: in place of the network's own;
    in float16 they make half the file, and are read as float32.
    """
    state = dict(network.state_dict() if tensors is None else tensors)
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in state.items()}
    name = next(name for name, kind in NETWORKS.items() if kind is type(network))
    full = {
        "schema": SCHEMA,
        "network": name,
        "scale": network.scale,
        "model": dataclasses.asdict(network.config),
        **card,
    }
    with atomic_path(path) as draft:
        draft.write_bytes(save(plain, metadata={"card": json.dumps(full)}))


def read_card(name_or_path: str | Path) -> dict[str, Any]:
    """The card of a weights file."""
    return _open(find_weights(name_or_path))[0]


def digest(name_or_path: str | Path) -> str:
    """By what lineages know weights: a hash of their tensors, whatever their card says."""
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(find_weights(name_or_path)).items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:12]


def ancestry(*names_or_paths: str | Path) -> list[dict[str, Any]]:
    """The cards of weights and of all that they come from, oldest first, each once.

    For the card of what is made from them, under `ancestors`; there `started_from` or `mean_of`
    say which are its parents, by `digest`, which is `weights` in a card of the list.
    """
    found: dict[str, dict[str, Any]] = {}
    for place in names_or_paths:
        card = {key: value for key, value in read_card(place).items() if key not in UNTOLD}
        before = card.pop("ancestors", [])
        own = {"weights": digest(place), "name": str(place), **card}
        for one in (*before, own):
            found.setdefault(one["weights"], one)
    return list(found.values())


def load_weights(
    name_or_path: str | Path, scale: int | None = None
) -> tuple[Network, dict[str, Any]]:
    """A network ready to use, on the CPU, and its card.

    name_or_path: shipped weights by name, or a file. scale: the zoom it must have, if given.
    """
    path = find_weights(name_or_path)
    card, shapes = _open(path)
    kind = NETWORKS.get(card["network"])
    if kind is None:
        raise FileError(
            f"{path}: expected weights of {', '.join(NETWORKS)}, got those of "
            f"{card['network']!r}: update pushframe, or choose other weights"
        )
    if scale is not None and card["scale"] != scale:
        raise UsageError(
            f"{path}: expected weights for scale {scale}, got weights for scale "
            f"{card['scale']}: use --scale {card['scale']}, or choose other weights"
        )
    try:
        network = kind(load_values(kind.Config(), card["model"]))
    except UsageError as error:
        raise FileError(f"{path}: {error}") from error
    if network.scale != card["scale"]:
        raise FileError(
            f"{path}: expected a card with one scale, got {card['scale']} and a network of scale "
            f"{network.scale}: fetch it again"
        )
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if wanted != shapes:
        name = min(k for k in wanted.keys() | shapes.keys() if wanted.get(k) != shapes.get(k))
        raise FileError(
            f"{path}: expected tensor {name} of shape {wanted.get(name, 'none')}, got "
            f"{shapes.get(name, 'none')}: the file does not hold the network its card names; "
            "fetch it again"
        )
    network.load_state_dict(load_file(path))
    return network.eval(), card


def find_weights(name_or_path: str | Path) -> Path:
    """The file of shipped weights, by name, or of a path."""
    shipped = shipped_weights()
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    path = Path(name_or_path)
    if path.suffix != SUFFIX:
        raise UsageError(
            f"expected a {SUFFIX} file or weights of {', '.join(shipped) or '(none shipped)'}, "
            f"got {str(name_or_path)!r}: {suggestion(str(name_or_path), list(shipped))}"
        )
    if not path.is_file():
        raise FileError(f"expected weights, got {path}: no such file; check the path")
    return path


def _open(path: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The card of a file and the shapes of its tensors."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        card = json.loads(metadata["card"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        cause = "no card" if isinstance(error, KeyError) else str(error)
        raise FileError(
            f"{path}: expected weights of pushframe, got a file that is damaged, truncated or "
            f"something else ({cause}): fetch it again"
        ) from error
    schema = card.get("schema") if isinstance(card, dict) else card
    if schema != SCHEMA:
        raise FileError(
            f"{path}: expected {SCHEMA}, got {schema!r}: update pushframe, or choose other weights"
        )
    for name, (kind, spelt) in NEEDED.items():
        if not isinstance(card.get(name), kind):
            raise FileError(
                f"{path}: expected a card whose {name} is {spelt}, got {card.get(name)!r}: "
                "fetch it again"
            )
    before = card.get("ancestors", [])
    if not isinstance(before, list) or not all(map(_is_ancestor, before)):
        raise FileError(
            f"{path}: expected a card whose ancestors are a list of cards, each with its weights, "
            f"got {before!r:.60}: fetch it again"
        )
    return card, shapes


def _is_ancestor(card: object) -> bool:
    return isinstance(card, dict) and isinstance(card.get("weights"), str)


def to_device(network: Network, device: torch.device) -> Network:
    """The network on `device`, in the memory layout that convolutions like."""
    return network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
