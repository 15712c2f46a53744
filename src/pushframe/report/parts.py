"""What every page shows: the viewer's data, the frames, colour bars, and how a page is rendered."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..burst import Burst
from ..io.atomic import atomic_path
from .encode import Packed, grey_uri, pack_values
from .layers import Layers, frame_noise_dn
from .packages import load_package
from .table import format_number

SMALL = 0.02  # DN, where a fixed number of decimals would show none
SCRIPTS = ("pictures.js", "viewer.js", "frames.js")


def write_page(path: str | Path, template: str, context: Mapping[str, Any]) -> None:
    """A page as a file, whole or not at all."""
    html = render_page(template, context)
    with atomic_path(path) as temp:
        # a file name that is no Unicode would stop here: its odd bytes become question marks
        temp.write_text(html, encoding="utf-8", errors="replace", newline="\n")


def render_page(template: str, context: Mapping[str, Any]) -> str:
    """The HTML text of a page: a template, the style and the scripts of the package in one.

    Only this package's scripts run, known to the browser by their hash, whatever the data hold.
    """
    jinja2 = load_package("jinja2")
    here = files(__package__)
    style, *scripts = (
        here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", *SCRIPTS)
    )
    script = "\n".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    markup = load_package("markupsafe").Markup
    return environment.get_template(template).render(
        {**context, "style": markup(style), "script": markup(script), "script_hash": digest}
    )


def viewer_data(
    layers: Layers, best: str, stretch: tuple[float, float], error_top: float, colours: np.ndarray
) -> dict[str, Any]:
    """What viewer.js reads: values of every layer, display ranges, the two layers it opens with."""

    def layer(key: str, name: str, scale: int, mean: np.ndarray, std: Packed | None) -> dict:
        return {"key": key, "name": name, "scale": scale, "mean": pack_values(mean), "std": std}

    methods = [
        layer(
            f"method-{index}",
            name,
            1,
            mean,
            pack_values(layers.std[name]) if name in layers.std else None,
        )
        for index, (name, mean) in enumerate(layers.mean.items())
    ]
    return {
        "origin": layers.origin_hpx,
        "stretch": stretch,
        "error_top": error_top,
        "colours": base64.b64encode(colours.tobytes()).decode("ascii"),
        "layers": [
            layer("reference", "one frame", layers.scale, layers.frames[0], None),
            *methods,
            *([] if layers.truth is None else [layer("truth", "truth", 1, layers.truth, None)]),
        ],
        "left": "reference",
        "right": f"method-{list(layers.mean).index(best)}",
    }


def frame_cards(burst: Burst, layers: Layers, stretch: tuple[float, float]) -> list[dict[str, Any]]:
    """One card a frame: picture, name, exposure, noise, and its shift in percent of its size."""
    noise = frame_noise_dn(burst)
    _, height, width = layers.frames.shape
    shifts = layers.shifts_px if layers.shifts_px is not None else np.zeros((burst.count, 2))
    return [
        {
            "name": name,
            "exposure": f"{float(exposure):.3g}",
            "noise": None if noise is None else f"{noise[index]:.3g}",
            "picture": grey_uri(layers.frames[index], *stretch),
            "dy": f"{100 * shifts[index, 0] / height:.4f}",
            "dx": f"{100 * shifts[index, 1] / width:.4f}",
        }
        for index, (name, exposure) in enumerate(
            zip(burst.names, burst.exposure.flatten().tolist(), strict=True)
        )
    ]


def colour_bar(top: float, colours: np.ndarray, unit: str = "DN") -> dict[str, Any]:
    """A CSS gradient of the colour map and five labels from 0 to its top."""
    digits = 0 if top >= 20 else 1 if top >= 2 else 3
    stops = ",".join("#" + bytes(colour).hex() for colour in colours[1::23])
    values = [share * top for share in (0, 0.25, 0.5, 0.75, 1)]
    labels = [f"{x:.3g}" if top < SMALL else format_number(x, digits) for x in values]
    labels[-1] = f"≥ {labels[-1]} {unit}"
    return {"gradient": f"linear-gradient(to right,{stops})", "labels": labels}
