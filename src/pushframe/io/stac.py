"""The STAC item of a product: where it lies, what its bands are, how it was made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..burst import GeoRef
from ..tally import Tally
from .georef import rpc_strings
from .product import BANDS, UNITS
from .raster import gdal

EXTENSIONS = (
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
)
COG_TYPE = "image/tiff; application=geotiff; profile=cloud-optimized"
MEANING = {
    "mean": "Super-resolved image, DN of the reference frame",
    "std": "Error bar: one standard deviation of the mean, DN of the reference frame",
    "samples": "Effective number of observations",
}
TIME = re.compile(r"(?<!\d)(20\d{6})[_T-]?(\d{6})(?!\d)")  # 20191015_073816, as in SkySat names
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

    Without a georeference its geometry is null. The time is read from the names of the frames;
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

    RPC are evaluated at their height offset.
    """
    rows, columns = _outline(shape)
    if georef is None or (georef.rpc is None and (georef.crs is None or georef.transform is None)):
        return None
    if georef.crs is not None and georef.transform is not None:
        from rasterio.warp import transform

        a, b, c, d, e, f = georef.transform
        x, y = a * columns + b * rows + c, d * columns + e * rows + f
        longitude, latitude = transform(georef.crs, "EPSG:4326", x.tolist(), y.tolist())
    else:
        from rasterio.rpc import RPC
        from rasterio.transform import RPCTransformer

        assert georef.rpc is not None
        camera = RPC.from_gdal(rpc_strings(georef.rpc))
        with RPCTransformer(camera, rpc_height=float(camera.height_off)) as ground:
            # its (0, 0) is a pixel's corner in rasterio's terms, with the offset "ul"
            longitude, latitude = ground.xy(rows.tolist(), columns.tolist(), offset="ul")
    ring = [
        [round(x, 9), round(y, 9)] for x, y in zip(list(longitude), list(latitude), strict=True)
    ]
    return [*ring, ring[0]]


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
    from rasterio.crs import CRS

    crs = CRS.from_wkt(georef.crs)
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
            "bands": [{"name": name, "description": MEANING[name]} for name in BANDS],
            "raster:bands": [
                _raster_band(unit, tallies[name]) for name, unit in zip(BANDS, UNITS, strict=True)
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
