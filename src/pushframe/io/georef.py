"""A georeference as rasterio holds it, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..burst import GeoRef
from ..checks import require
from ..errors import BurstError
from ..rpc import check_rpc

CODE = re.compile(r"[A-Za-z0-9_]+:[0-9]+")
PIXEL_TOLERANCE = 0.02  # of a pixel's size: a pixel and a half over a tile


def georef_of(source: Any) -> GeoRef | None:
    """The georeference of an open rasterio dataset: CRS, transform and RPC; None without any.

    An identity transform without CRS is what GDAL reports where there is none.
    """
    crs = source.crs.to_wkt() if source.crs else None
    transform = tuple(source.transform)[:6]
    placed = crs is not None or transform != (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    rpc = None if source.rpcs is None else _rpc_numbers(source.rpcs.to_gdal())
    if not placed and rpc is None:
        return None
    return GeoRef(crs, transform if placed else None, rpc)


def _rpc_numbers(strings: Mapping[str, str]) -> dict[str, float | tuple[float, ...]]:
    """GDAL's RPC strings as numbers; an error of -1 stands for unknown and is left out."""
    rpc: dict[str, float | tuple[float, ...]] = {}
    for key, text in strings.items():
        values = tuple(float(word) for word in text.split())
        if not (key.startswith("ERR_") and values == (-1.0,)):
            rpc[key] = values if key.endswith("_COEFF") else values[0]
    return rpc


def crs_of(text: str) -> Any:
    """rasterio's CRS of a WKT, or of a code such as EPSG:32631; its CRSError for anything else.

    GDAL by itself would follow addresses and the names of files.
    """
    from rasterio.crs import CRS

    return CRS.from_string(text) if CODE.fullmatch(text) else CRS.from_wkt(text)


def profile_of(georef: GeoRef | None) -> dict[str, Any]:
    """The keywords for rasterio.open(..., "w") that carry CRS, transform and RPC."""
    from rasterio.rpc import RPC
    from rasterio.transform import Affine

    profile: dict[str, Any] = {}
    if georef is None:
        return profile
    if georef.crs is not None:
        profile["crs"] = crs_of(georef.crs)
    if georef.transform is not None:
        profile["transform"] = Affine(*georef.transform)
    if georef.rpc is not None:
        profile["rpcs"] = RPC.from_gdal(rpc_strings(georef.rpc))
    return profile


def rpc_strings(rpc: Mapping[str, float | tuple[float, ...]]) -> dict[str, str]:
    """RPC as GDAL's strings, the inverse of reading them; every digit is kept."""
    return {
        key: " ".join(repr(float(number)) for number in value)
        if isinstance(value, tuple | list)
        else repr(float(value))
        for key, value in rpc.items()
    }


def same_crs(one: GeoRef | None, other: GeoRef | None) -> bool:
    """Whether two images lie in one projection; with none of both they do."""
    first, second = (None if georef is None else georef.crs for georef in (one, other))
    if first is None or second is None or first == second:
        return first == second
    return bool(crs_of(first) == crs_of(second))


def same_pixel(one: GeoRef | None, other: GeoRef | None) -> bool:
    """Whether two images have pixels of one size and direction, within `PIXEL_TOLERANCE`."""
    first, second = (None if georef is None else georef.transform for georef in (one, other))
    if first is None or second is None:
        return (first is None) == (second is None)
    axes = [[transform[k] for k in (0, 1, 3, 4)] for transform in (first, second)]
    largest = max(map(abs, axes[0]))
    return all(abs(a - b) <= PIXEL_TOLERANCE * largest for a, b in zip(*axes, strict=True))


def crs_name(georef: GeoRef | None) -> str:
    """The name of a CRS, for people."""
    if georef is None or georef.crs is None:
        return "no CRS"
    words = georef.crs.split('"')
    return words[1] if len(words) > 1 else georef.crs[:60]


def pixel_size(georef: GeoRef | None) -> str:
    """The vectors of a pixel in units of the CRS, for people."""
    if georef is None or georef.transform is None:
        return "no transform"
    a, b, _, d, e, _ = georef.transform
    if b == d == 0:
        return f"{abs(a):g}x{abs(e):g}"
    return f"({a:g}, {d:g})x({b:g}, {e:g})"


def georef_to_json(georef: GeoRef) -> str:
    """The georeference as a JSON object of crs, transform and rpc."""
    rpc = None if georef.rpc is None else dict(georef.rpc)
    return json.dumps({"crs": georef.crs, "transform": georef.transform, "rpc": rpc})


def georef_from_json(text: str) -> GeoRef:
    """The georeference from JSON, the inverse of `georef_to_json`."""
    try:
        table = json.loads(text)
        transform, rpc = table["transform"], table["rpc"]
        if rpc is not None:
            rpc = {
                key: tuple(map(float, value)) if isinstance(value, list) else float(value)
                for key, value in rpc.items()
            }
        crs = table["crs"]
        if rpc is not None:
            check_rpc(rpc, "`georef`")
        if crs is not None:
            _check_crs(crs)
        return GeoRef(crs, None if transform is None else tuple(transform), rpc)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BurstError(
            f"expected georef as a JSON object of crs, transform and rpc, got {text[:60]!r}: "
            "correct `georef`"
        ) from error


def _check_crs(text: Any) -> None:
    """BurstError unless GDAL understands a CRS; without rasterio nothing asks."""
    try:
        import rasterio
    except ImportError:
        return
    try:
        known = isinstance(text, str) and bool(crs_of(text))
    except rasterio.errors.CRSError:
        known = False
    require(
        known,
        "the CRS of `georef` as WKT, or a code such as EPSG:32631",
        repr(text)[:60],
        "correct it, or give null",
    )
