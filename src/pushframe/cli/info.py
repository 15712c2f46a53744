"""`pushframe info`: what a file holds, or what this installation can do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.markup import escape

from ..burst import GeoRef
from ..errors import BurstError, FileError
from ..io import BurstSource, is_burst, open_burst, read_image, read_product
from ..io.sidecar import TIFF
from ..methods import method_names
from ..product import Product
from ..simulate import PRESETS
from ..version import __version__
from ..weights import SUFFIX, read_card, shipped_weights
from .console import JSON_OPTION, flattened, out, print_json

OPTIONAL = ("rasterio", "tifffile", "matplotlib", "PIL", "jinja2")


def command(
    path: Path | None = typer.Argument(
        None, help="A burst, a product, an image or weights; nothing for the installation itself."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Describe a burst, a product, an image or weights; without an argument, this installation.

    Examples:

      pushframe info

      pushframe info burst.npz

      pushframe info frames/

      pushframe info product.tif --json

      pushframe info run/weights.safetensors
    """
    facts = describe_installation() if path is None else describe(path)
    if as_json:
        print_json(facts)
        return
    facts = flattened(facts)
    width = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
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
    if is_burst(path) or path.is_dir():
        return describe_burst(open_burst(path))
    tiff = path.suffix.lower() in TIFF
    if tiff or path.suffix.lower() == ".npz":
        try:
            return describe_product(read_product(path))
        except BurstError:  # readable, but no product: a stack or an image, then
            pass
    if tiff:
        stack = open_burst(path)
        if stack.count > 1:
            return describe_burst(stack)
    return describe_image(read_image(path))


def describe_product(product: Product) -> dict[str, Any]:
    """What was delivered, and how it was made."""
    facts: dict[str, Any] = {
        "kind": "product",
        "size": f"{product.mean.shape[0]}x{product.mean.shape[1]}",
        "scale": product.scale,
        "median of mean": f"{np.nanmedian(product.mean):.1f} DN",
        "median of samples": f"{np.nanmedian(product.samples):.2f}",
        "georeference": _spell(product.georef),
    }
    if np.isfinite(product.std).any():
        facts["median of std"] = f"{np.nanmedian(product.std):.2f} DN"
    return facts | dict(product.provenance)


def describe_image(image: np.ndarray) -> dict[str, Any]:
    """Size and range of an image (H, W) in DN."""
    percentiles = np.nanpercentile(image, [0.5, 50, 99.5]).tolist()
    return {
        "kind": "image",
        "size": f"{image.shape[0]}x{image.shape[1]}",
        "DN at 0.5, 50, 99.5%": [round(value, 1) for value in percentiles],
        "invalid pixels": f"{np.isnan(image).mean():.2%}",
    }


def describe_burst(burst: BurstSource) -> dict[str, Any]:
    """What is known of a burst, from windows of it where it is large."""
    law, stated = burst.noise, burst.stated_exposure
    # frames that lie apart cannot tell theirs before they are aligned
    exposure = "unknown" if stated is None else [round(float(stated[k]), 4) for k in burst.order]
    return {
        "kind": "burst",
        "frames": burst.count,
        "size": f"{burst.shape[0]}x{burst.shape[1]}",
        "reference": burst.names[0],
        "exposure": exposure,
        "white level": round(burst.white_level, 3),
        "black level": round(burst.black_level, 3),
        "noise law": str(law) if law else "unknown",
        "valid pixels": f"{burst.valid_share():.2%}",
        "georeference": _spell(burst.georef),
        "notes": list(burst.notes),
    }


def _spell(georef: GeoRef | None) -> str:
    if georef is None:
        return "none"
    parts = []
    if georef.transform is not None:
        name = (georef.crs or "no CRS").split('"')
        parts.append(f"transform in {name[1] if len(name) > 1 else name[0]}")
    if georef.rpc is not None:
        parts.append("RPC")
    return " and ".join(parts)
