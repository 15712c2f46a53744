"""The STAC item of a product: where it lies, what its bands are, how it was made."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..burst import GeoRef
from ..tally import Tally
from .georef import crs_name, crs_of, rpc_strings
from .product import BANDS
from .raster import gdal

EXTENSIONS = (
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
)
COG_TYPE = "image/tiff; application=geotiff; profile=cloud-optimized"
TIME = re.compile(r"(?<!\d)(20\d{6})[_T-]?(\d{6})(?!\d)")  # 20191015_073816, as in SkySat names
WHOLE_GLOBE = (360.0, 90.0)  # longitudes may count from 0 to 360
EDGE_POINTS = 8  # on each side of the footprint: straight on the map is bent on the globe


@dataclass(frozen=True)
class Companions:
    """The files beside a product, by the names that all of them share."""

    product: Path

    @property
    def item(self) -> Path:
        return self.product.with_suffix(".json")

    @property
    def style(self) -> Path:
        return self.product.with_name(f"{self.product.stem}_std.qml")

    @property
    def report(self) -> Path:
        return self.product.with_suffix(".html")


def stac_item(
    files: Companions,
    shape: tuple[int, int],
    georef: GeoRef | None,
    provenance: Mapping[str, str],
    tallies: Mapping[str, Tally],
    report: bool,
) -> dict[str, Any]:
    """A STAC 1.1 item with the projection and raster extensions, as a JSON object.

    Without a footprint its geometry is null. The time is read from the names of the frames;
    where they hold none it is that of processing, and the description says so.
    """
    with gdal():
        ring = footprint(shape, georef)
        placed = _projection(shape, georef)
    times = acquisition_times(provenance.get("frames", ""))
    now = datetime.now(UTC)
    about = f"Super-resolved by {provenance.get('software', 'pushframe')}"
    if not times:
        about += "; the time of acquisition is not known, datetime is that of processing"
    properties: dict[str, Any] = {
        "title": files.product.stem,
        "description": f"{about}.",
        "created": _spell(now),
        "datetime": _spell(times[0] if times else now),
        **placed,
        **{f"pushframe:{key}": text for key, text in provenance.items() if text},
    }
    if len(times) > 1:
        properties |= {"start_datetime": _spell(times[0]), "end_datetime": _spell(times[-1])}
    item: dict[str, Any] = {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": list(EXTENSIONS),
        "id": files.product.stem,
        "geometry": None if ring is None else {"type": "Polygon", "coordinates": [ring]},
        "properties": properties,
        "links": [],
        "assets": _assets(files, tallies, report),
    }
    if ring is not None:
        west, south, east, north = (
            f(point[k] for point in ring) for f, k in ((min, 0), (min, 1), (max, 0), (max, 1))
        )
        item["bbox"] = [west, south, east, north]
    return item


def acquisition_times(frames: str) -> list[datetime]:
    """The times in the names of the frames, sorted; empty where none is found."""
    found = []
    for date, time in TIME.findall(frames):
        try:
            found.append(datetime.strptime(date + time, "%Y%m%d%H%M%S").replace(tzinfo=UTC))
        except ValueError:  # digits that are no time
            continue
    return sorted(found)


def footprint(shape: tuple[int, int], georef: GeoRef | None) -> list[list[float]] | None:
    """The outline of an image as a closed ring of [longitude, latitude], or None.

    None without a georeference, and where it has no longitude and latitude: a grid of a site, or
    a place that its projection does not reach. RPC are evaluated at their height offset.
    """
    if not _is_placed(georef):
        return None
    assert georef is not None
    try:
        points = np.round(_on_globe(georef, *_outline(shape)), 9)
    except Exception:  # GDAL's errors share no base class
        return None
    if not (np.isfinite(points).all() and (np.abs(points) <= WHOLE_GLOBE).all()):
        return None
    ring: list[list[float]] = points.tolist()
    return [*ring, ring[0]]


def footprint_note(shape: tuple[int, int], georef: GeoRef | None) -> str | None:
    """What to say of a georeference that gives no footprint; None where all is well."""
    with gdal():
        if not _is_placed(georef) or footprint(shape, georef) is not None:
            return None
    assert georef is not None
    place = "its RPC" if georef.crs is None else f"its CRS ({crs_name(georef)})"
    return (
        f"The product's place by {place} could not be turned into longitude and latitude: "
        "its STAC item has no footprint."
    )


def _is_placed(georef: GeoRef | None) -> bool:
    """Whether a georeference speaks of a place on Earth."""
    if georef is None:
        return False
    return georef.rpc is not None or (georef.crs is not None and georef.transform is not None)


def _on_globe(georef: GeoRef, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Longitude and latitude of outer corners, (P, 2); infinite, or an error, where none is."""
    if georef.crs is not None and georef.transform is not None:
        from rasterio.warp import transform

        a, b, c, d, e, f = georef.transform
        x, y = a * columns + b * rows + c, d * columns + e * rows + f
        return np.column_stack(transform(crs_of(georef.crs), "EPSG:4326", x.tolist(), y.tolist()))
    from rasterio.errors import TransformWarning
    from rasterio.rpc import RPC
    from rasterio.transform import RPCTransformer

    assert georef.rpc is not None
    camera = RPC.from_gdal(rpc_strings(georef.rpc))
    with (
        warnings.catch_warnings(),
        RPCTransformer(camera, rpc_height=float(camera.height_off)) as ground,
    ):
        warnings.simplefilter("ignore", TransformWarning)  # infinite points tell it, too
        # its (0, 0) is a pixel's corner in rasterio's terms, with the offset "ul"
        return np.column_stack(ground.xy(rows.tolist(), columns.tolist(), offset="ul"))


def _outline(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Points around an image, (row, column) of outer corners, counter-clockwise on the map."""
    height, width = shape
    along = np.arange(EDGE_POINTS) / EDGE_POINTS
    ones = np.ones(EDGE_POINTS)
    rows = np.concatenate([height * along, height * ones, height * (1 - along), 0 * ones])
    columns = np.concatenate([0 * ones, width * along, width * ones, width * (1 - along)])
    return rows, columns


def _projection(shape: tuple[int, int], georef: GeoRef | None) -> dict[str, Any]:
    """The fields of the projection extension."""
    fields: dict[str, Any] = {"proj:shape": list(shape)}
    if georef is None or georef.crs is None or georef.transform is None:
        return {**fields, "proj:code": None}
    crs = crs_of(georef.crs)
    authority = crs.to_authority()
    a, b, c, d, e, f = georef.transform
    rows, columns = _outline(shape)
    x, y = a * columns + b * rows + c, d * columns + e * rows + f
    fields |= {
        "proj:code": ":".join(authority) if authority else None,
        "proj:wkt2": crs.to_wkt(version="WKT2_2019"),  # what GDAL reads
        "proj:transform": [a, b, c, d, e, f, 0.0, 0.0, 1.0],
        "proj:bbox": [float(value) for value in (x.min(), y.min(), x.max(), y.max())],
    }
    return fields


def _assets(files: Companions, tallies: Mapping[str, Tally], report: bool) -> dict[str, Any]:
    assets: dict[str, Any] = {
        "product": {
            "href": f"./{files.product.name}",
            "type": COG_TYPE,
            "title": "Mean, error bar and number of observations",
            "roles": ["data"],
            "bands": [{"name": name, "description": band.meaning} for name, band in BANDS.items()],
            "raster:bands": [
                _raster_band(band.unit, tallies[name]) for name, band in BANDS.items()
            ],
        },
        "style": {
            "href": f"./{files.style.name}",
            "type": "application/xml",
            "title": "QGIS style that shows the error bar",
            "roles": ["metadata"],
        },
    }
    if report:
        assets["report"] = {
            "href": f"./{files.report.name}",
            "type": "text/html",
            "title": "Report: the image to look at, and a check of its error bars",
            "roles": ["overview"],
        }
    return assets


def _raster_band(unit: str, tally: Tally) -> dict[str, Any]:
    band: dict[str, Any] = {
        "data_type": "float32",
        "nodata": "nan",
        "unit": unit,
        "sampling": "point",
    }
    if tally.known:
        band["statistics"] = {
            "minimum": tally.low,
            "maximum": tally.high,
            "mean": tally.mean,
            "stddev": tally.std,
            "valid_percent": 100 * tally.known / tally.pixels,
        }
    return band


def _spell(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
