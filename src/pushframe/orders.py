"""Arguments to orders: which bursts are meant, and where each product goes."""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Sequence
from pathlib import Path

from .deliver import Order, check_apart
from .errors import FileError, UsageError
from .io import is_burst, is_stack, list_bursts

MAGIC = "*?["


def find_inputs(texts: Sequence[str]) -> list[Path]:
    """The bursts behind arguments: paths, folders of bursts, patterns; each once, in order.

    A path that is no burst is kept where it was named in full, so that reading says what is wrong
    with it; what a pattern catches besides bursts is left out.
    """
    found: dict[Path, None] = {}
    for text in texts:
        if Path(text).exists() or not any(sign in text for sign in MAGIC):
            named = list_bursts(text)
            if not named and Path(text).is_dir():
                raise FileError(
                    f"{text}: expected a burst or a folder of bursts, got neither: put TIFF "
                    "frames, .npz files or folders of frames there, or correct the path"
                )
            found.update(dict.fromkeys(named or [Path(text)]))
            continue
        caught = [Path(name) for name in sorted(glob.glob(text))]
        if not caught:
            raise FileError(f"expected bursts behind the pattern {text}, got none: correct it")
        found.update(dict.fromkeys(burst for path in caught for burst in _caught(path)))
    stacks = {path.with_suffix("") for path in found if path.suffix.lower() in (".tif", ".tiff")}
    return [
        path
        for path in found
        if not (path.suffix.lower() == ".toml" and path.with_suffix("") in stacks)
    ]


def _caught(path: Path) -> list[Path]:
    """The bursts behind a path that a pattern caught; an .npz always is one, broken or not.

    A TIFF is one if it has a side-car or several pages: bands alone may be colours, or a product.
    """
    if is_burst(path) or path.suffix.lower() == ".npz" or is_stack(path):
        return [path]
    return list_bursts(path) if path.is_dir() else []


def plan_orders(inputs: Sequence[Path], pattern: Order, product: Path | None) -> list[Order]:
    """An order for each burst: `product`, or a GeoTIFF of its name in the folder of the pattern.

    UsageError where products would collide with each other or with a burst.
    """
    names: dict[str, Path] = {}
    orders = []
    for burst in inputs:
        name = burst.resolve().name if burst.is_dir() else burst.stem
        if name in names:
            raise UsageError(
                f"expected bursts of different names, got {names[name]} and {burst}: their "
                "products would collide; run them into folders of their own"
            )
        names[name] = burst
        place = pattern.product / f"{name}.tif" if product is None else product
        orders.append(dataclasses.replace(pattern, burst=burst, product=place))
    check_apart(orders)
    return orders
