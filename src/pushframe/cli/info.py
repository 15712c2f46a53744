"""`pushframe info`: what a file holds, or what this installation can do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.markup import escape

from ..burst import GeoRef
from ..checks import counted
from ..errors import BurstError, FileError
from ..io import BurstSource, is_burst, open_burst, read_image
from ..io.georef import crs_name
from ..io.guard import naming
from ..io.product import read_overview
from ..io.sidecar import TIFF
from ..methods import method_names
from ..orders import find_inputs
from ..product import Product
from ..simulate import PRESETS
from ..version import __version__
from ..weights import SUFFIX, read_card, shipped_weights
from .console import JSON_OPTION, flattened, out, print_json

OPTIONAL = (
    *("rasterio", "tifffile"),
    *("matplotlib", "PIL", "jinja2"),
    "distributed",
    *("xarray", "rioxarray"),
)


def command(
    path: Path | None = typer.Argument(
        None,
        help="A burst, a folder of bursts, a product, an image or weights; nothing for the "
        "installation itself.",
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Describe a burst, a product, an image or weights; without an argument, this installation.

    Of a folder of bursts it says which they are, as `run` would find them. Medians of a product
    larger than 1024 px are those of an overview.

    Examples:

      pushframe info

      pushframe info burst.npz

      pushframe info frames/

      pushframe info bursts/

      pushframe info product.tif --json

      pushframe info run/weights.safetensors
    """
    if path is None:
        facts = describe_installation()
    else:
        with naming(path):
            facts = describe(path)
    if as_json:
        print_json(facts)
        return
    facts = flattened(facts | tell_lineage(facts)) if "ancestors" in facts else flattened(facts)
    width = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        text = "unknown" if value is None else text
        out.print(f"[bold]{name:<{width}}[/]  {escape(text)}", highlight=False)


def describe_installation() -> dict[str, Any]:
    """Versions, device, presets and methods."""
    import torch

    return {
        "pushframe": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "presets": list(PRESETS),
        "methods": method_names(),
        "optional packages": [n for n in OPTIONAL if importlib.util.find_spec(n)],
    }


def describe(path: Path) -> dict[str, Any]:
    """The facts of one file or folder, by what it is."""
    if str(path) in shipped_weights() or path.suffix == SUFFIX:
        return {"kind": "weights", **read_card(path)}
    if not path.exists():
        raise FileError(f"expected a burst, a product or an image, got {path}: no such file")
    if path.is_dir():
        return describe_folder(path)
    if is_burst(path):
        return describe_burst(open_burst(path))
    tiff = path.suffix.lower() in TIFF
    if tiff or path.suffix.lower() == ".npz":
        try:
            return describe_product(*read_overview(path))
        except BurstError:  # readable, but no product: a stack or an image, then
            pass
    if tiff:
        stack = open_burst(path)
        if stack.count > 1:
            return describe_burst(stack)
    return describe_image(read_image(path))


def tell_lineage(card: dict[str, Any]) -> dict[str, Any]:
    """What weights come from, a line each, oldest first, and what their trainings come to."""
    lines = {
        str(place): f"{one.get('weights')} ({one.get('name')}): {_spell_origin(one)}"
        for place, one in enumerate(card["ancestors"], 1)
    }
    trained = [one for one in (*card["ancestors"], card) if "steps" in one]
    steps, minutes = (sum(one.get(key, 0) for one in trained) for key in ("steps", "minutes"))
    whole = f"{counted(len(trained), 'training')}, {steps} steps, {minutes:.1f} minutes"
    return {"ancestors": {**lines, "then": _spell_origin(card), "in all": whole}}


def _spell_origin(card: dict[str, Any]) -> str:
    """How weights were made: from others and by how much training."""
    if "mean_of" in card:
        return f"the mean of {' and '.join(card['mean_of'])}"
    config = card.get("config", {})
    parent = card.get("started_from") or config.get("start") or "random weights"
    kind = config.get("loss", {}).get("kind")
    learnt = [counted(card[key], key[:-1]) for key in ("bursts", "crops") if key in card]
    if "steps" not in card:
        return "of which its card says nothing"
    length = (f"{card['steps']} steps", f"{card.get('minutes', 0):g} minutes", *learnt, kind)
    return f"from {parent}, " + ", ".join(part for part in length if part)


def describe_folder(path: Path) -> dict[str, Any]:
    """The burst that a folder is or holds; of several, which they are."""
    bursts = find_inputs([str(path)])
    if len(bursts) == 1:
        return {"burst": str(bursts[0]), **describe_burst(open_burst(bursts[0]))}
    return {
        "kind": "folder of bursts",
        "holds": counted(len(bursts), "burst"),
        "bursts": [str(burst) for burst in bursts],
    }


def describe_product(shape: tuple[int, int], product: Product) -> dict[str, Any]:
    """What was delivered, and how it was made; shape: of all of it, pixels may be an overview."""
    facts: dict[str, Any] = {
        "kind": "product",
        "size": list(shape),
        "scale": product.scale,
        "median of mean, DN": _median(product.mean, 5),
        "median of samples": _median(product.samples, 3),
        "georeference": _spell(product.georef),
    }
    if np.isfinite(product.std).any():
        facts["median of std, DN"] = _median(product.std, 3)
    return facts | dict(product.provenance)


def describe_image(image: np.ndarray) -> dict[str, Any]:
    """Size and range of an image (H, W) in DN."""
    percentiles = np.nanpercentile(image, [0.5, 50, 99.5]).tolist()
    return {
        "kind": "image",
        "size": list(image.shape),
        "DN at 0.5, 50, 99.5%": [_rounded(value, 5) for value in percentiles],
        "invalid pixels, %": _rounded(100 * np.isnan(image).mean(), 4),
    }


def describe_burst(burst: BurstSource) -> dict[str, Any]:
    """What is known of a burst, from windows of it where it is large."""
    law, stated = burst.noise, burst.stated_exposure
    # frames that lie apart cannot tell theirs before they are aligned
    exposure = None if stated is None else [_rounded(stated[k], 4) for k in burst.order]
    return {
        "kind": "burst",
        "frames": burst.count,
        "size": list(burst.shape),
        "reference": burst.names[0],
        "exposure": exposure,
        "white level": _rounded(burst.white_level, 7),
        "black level": _rounded(burst.black_level, 7),
        "noise law": str(law) if law else None,
        "valid pixels, %": _rounded(100 * burst.valid_share(), 4),
        "georeference": _spell(burst.georef),
        "notes": list(burst.notes),
    }


def _median(values: np.ndarray, digits: int) -> float | None:
    """That of the finite ones, None without any."""
    seen = values[np.isfinite(values)]
    return _rounded(float(np.median(seen)), digits) if seen.size else None


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _spell(georef: GeoRef | None) -> str:
    if georef is None:
        return "none"
    parts = []
    if georef.transform is not None:
        parts.append(f"transform in {crs_name(georef)}")
    if georef.rpc is not None:
        parts.append("RPC")
    return " and ".join(parts)
