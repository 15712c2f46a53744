"""A QGIS style that shows the error bar of a product in colours."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from ..tally import Tally
from .product import BANDS

# matplotlib's inferno at equal steps: dark is certain, bright is not
COLOURS = ("#000004", "#280b54", "#65156e", "#9f2a63", "#d44842", "#f57d15", "#fac228", "#fcffa4")
TOP_SHARE = 0.98  # of the pixels lie below the brightest colour


def std_style(std: Tally) -> str:
    """The `.qml` of the band `std`: inferno from 0 to the 98th percentile; holes stay clear."""
    top = std.quantile(TOP_SHARE)
    top = top if math.isfinite(top) and top > 0 else 1.0
    root = ElementTree.Element("qgis", version="3.28", styleCategories="Symbology")
    pipe = ElementTree.SubElement(root, "pipe")
    renderer = ElementTree.SubElement(
        pipe,
        "rasterrenderer",
        type="singlebandpseudocolor",
        band=str(1 + list(BANDS).index("std")),
        classificationMin="0",
        classificationMax=f"{top:.6g}",
        opacity="1",
        alphaBand="-1",
        nodataColor="",
    )
    shader = ElementTree.SubElement(renderer, "rastershader")
    ramp = ElementTree.SubElement(
        shader,
        "colorrampshader",
        colorRampType="INTERPOLATED",
        classificationMode="1",
        clip="0",
        minimumValue="0",
        maximumValue=f"{top:.6g}",
    )
    for index, colour in enumerate(COLOURS):
        value = top * index / (len(COLOURS) - 1)
        ElementTree.SubElement(
            ramp, "item", value=f"{value:.6g}", label=f"{value:.3g} DN", color=colour, alpha="255"
        )
    ElementTree.SubElement(pipe, "brightnesscontrast", brightness="0", contrast="0", gamma="1")
    ElementTree.SubElement(root, "blendMode").text = "0"
    ElementTree.indent(root)
    kind = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
    return kind + ElementTree.tostring(root, encoding="unicode") + "\n"
