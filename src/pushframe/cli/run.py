"""`pushframe run`: one burst to one product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from ..align import align
from ..errors import UsageError
from ..infer import super_resolve
from ..io import check_files, open_burst, write_product
from ..methods import BEST, METHODS
from .console import JSON_OPTION, check_device, note, out, print_json, progress


def command(
    burst: Path = typer.Argument(..., help="An .npz, a folder of TIFF frames, or a TIFF stack."),
    to: Path = typer.Option(..., "--out", "-o", help="The product: .tif (GeoTIFF) or .npz."),
    method: str = typer.Option(BEST, help=f"One of {', '.join(METHODS)}."),
    scale: int = typer.Option(2, help="Zoom, 2-4."),
    device: str = typer.Option("cpu", help="cpu or cuda."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Super-resolve a burst into a product: mean, std and number of observations of each pixel.

    Values are in DN of the reference frame. Large frames are worked on in overlapping tiles.

    Examples:

      pushframe run burst.npz --out product.tif

      pushframe run frames/ --out product.tif --method map --scale 3
    """
    if to.suffix.lower() not in (".tif", ".tiff", ".npz"):
        raise UsageError(f"expected --out of .tif or .npz, got {to}: change the suffix")
    if to.resolve() == burst.resolve():
        raise UsageError(f"expected --out other than the burst, got {to}: choose another name")
    check_files([to])
    check_device(device)
    frames = align(open_burst(burst)).source.read().to(device)
    with progress("super-resolving", None) as (bar, task):

        def on_tile(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        product = super_resolve(frames, scale, method, on_tile)
    write_product(product, to)
    height, width = product.mean.shape
    if as_json:
        print_json({"product": str(to), "size": [height, width], **product.provenance})
        return
    if product.provenance["notes"]:
        note(product.provenance["notes"])
    bands = "mean, std and samples" if np.isfinite(product.std).any() else "mean and samples alone"
    out.print(f"{to}: {height}x{width}, {bands}, by {method}", highlight=False)
