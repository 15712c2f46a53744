"""The mean of weights of one network, with a card that says of which files, and what led to them.

    python benchmarks/mean_of_weights.py before.safetensors after.safetensors --out mean.safetensors

For instance of those before and after a training.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pushframe.checks import require
from pushframe.errors import PushframeError, UsageError
from pushframe.version import __version__
from pushframe.weights import ancestry, digest, find_weights, load_weights, save_weights


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("weights", nargs="+", help="files, or names of shipped weights")
    parser.add_argument("--out", type=Path, required=True, help="a .safetensors file")
    parser.add_argument("--half", action="store_true", help="as float16, half the file")
    options = parser.parse_args(arguments)
    try:
        write_mean(options.weights, options.out, options.half)
    except PushframeError as error:
        parser.error(str(error))
    print(f"written: {options.out}")


def write_mean(names: Sequence[str], to: Path, half: bool = False) -> None:
    """Write the mean of two or more weights files that differ, each counted once."""
    loaded = [load_weights(name) for name in names]
    networks, cards = [network for network, _ in loaded], [card for _, card in loaded]
    digests = [digest(name) for name in names]
    different = len(set(digests)) == len(names) > 1
    require(different, "two or more different weights", ", ".join(names), "name others", UsageError)
    require(not to.exists(), "a new file for --out", to, "choose another", UsageError)
    for name, network in zip(names, networks, strict=True):
        require(
            (type(network), network.config) == (type(networks[0]), networks[0].config),
            f"weights of the network of {names[0]}, {networks[0].config}",
            f"{network.config} in {find_weights(name)}",
            "average weights of one network",
            UsageError,
        )
    states = [network.state_dict() for network in networks]
    kind = torch.float16 if half else torch.float32
    mean = {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(kind)
        for name in states[0]
    }
    save_weights(networks[0], to, mean_card(names, digests, cards), mean)


def mean_card(
    names: Sequence[str], digests: Sequence[str], cards: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What the files agree on; what each says for itself is among the ancestors."""
    alike = {
        key: cards[0][key]
        for key in ("trained_on", "config")
        if all(key in card and card[key] == cards[0][key] for card in cards)
    }
    lineage = {"mean_of": list(digests), "ancestors": ancestry(*names)}
    return {**alike, "version": __version__, **lineage}


if __name__ == "__main__":
    main()
