"""The product on disk: a Cloud-Optimised GeoTIFF of mean, std and samples, or an .npz."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checks import counted, require
from ..errors import BurstError, FileError, PushframeError, UsageError
from ..product import Product
from .atomic import atomic_path
from .contents import number
from .georef import georef_from_json, georef_of, georef_to_json
from .guard import decoding, naming, need_file
from .npz import load_npz, save_npz
from .raster import gdal, new_raster
from .sidecar import TIFF


class Band(NamedTuple):
    """What a band of a product is, for files, STAC items and xarray alike."""

    unit: str
    meaning: str


BANDS = {  # in the order of the GeoTIFF
    "mean": Band("DN", "Super-resolved image, DN of the reference frame"),
    "std": Band("DN", "Error bar: one standard deviation of the mean, DN of the reference frame"),
    "samples": Band("1", "Effective number of observations"),
}
NAMESPACE = "PUSHFRAME"
SCALE_TAG = "product_scale"
OVERVIEW_PX = 1024
COG = {
    "driver": "COG",
    "compress": "ZSTD",
    "predictor": "FLOATING_POINT",
    "level": 1,  # the default, 9, takes 2.5 times as long to save 2 % of the size
    "num_threads": "ALL_CPUS",
    "blocksize": 512,
    "overview_resampling": "AVERAGE",
    "copy_src_mdd": "YES",  # otherwise the tags of our namespace are dropped
}


def write_product(product: Product, path: str | Path) -> None:
    """Write a product by suffix: .tif a Cloud-Optimised GeoTIFF, .npz the same arrays."""
    path = Path(path)
    if path.suffix.lower() in TIFF:
        _write_cog(product, path)
    elif path.suffix.lower() == ".npz":
        _write_npz(product, path)
    else:
        raise UsageError(f"{path}: expected .tif or .npz, got '{path.suffix}': change the suffix")


def read_product(path: str | Path) -> Product:
    """Read back what `write_product` wrote."""
    path = Path(path)
    if path.suffix.lower() not in (*TIFF, ".npz"):
        if not path.exists():
            raise FileError(f"{path}: expected a product, got nothing there: correct the path")
        raise UsageError(f"{path}: expected .tif or .npz, got '{path.suffix}': name a product")
    with naming(path):
        return _read_npz(path) if path.suffix.lower() == ".npz" else _read_cog(path)


def _write_cog(product: Product, path: Path) -> None:
    """The GeoTIFF: three float32 bands with units, NaN nodata, overviews and provenance."""
    tags = all_tags(product.provenance, product.scale)
    with (
        atomic_path(path) as draft,
        new_raster(draft, path, product.mean.shape, len(BANDS), product.georef, COG) as sink,
    ):
        for band, name in enumerate(BANDS, start=1):
            sink.write(getattr(product, name), band)
        sink.descriptions = tuple(BANDS)
        sink.units = tuple(band.unit for band in BANDS.values())
        sink.update_tags(ns=NAMESPACE, **tags[NAMESPACE])
        sink.update_tags(**tags[""])


def all_tags(provenance: Mapping[str, str], scale: int) -> dict[str, Mapping[str, str]]:
    """The tags of a product by namespace: ours, which is read back, and GDAL's own, ""."""
    ours = {**_tags_of(provenance), SCALE_TAG: str(scale)}
    return {NAMESPACE: ours, "": _shown_tags(provenance, scale)}


def _shown_tags(facts: Mapping[str, str], scale: int) -> dict[str, str]:
    """What viewers show at once: the TIFF's own tags, and the provenance among GDAL's metadata.

    They are for people. The namespace of our own is what is read back.
    """
    made = f" by {facts['method']}" if "method" in facts else ""
    told = f"Image super-resolved {scale} times{made}: mean and std in DN, samples."
    tags = {f"{NAMESPACE}_{key.upper()}": text for key, text in facts.items() if text.strip()}
    return {
        "TIFFTAG_SOFTWARE": facts.get("software", "pushframe"),
        "TIFFTAG_IMAGEDESCRIPTION": told,
        **tags,
    }


def _tags_of(provenance: Mapping[str, str]) -> dict[str, str]:
    """Provenance as GeoTIFF tags: plain names that differ in more than case, texts as they are.

    GDAL drops empty texts and blanks at the ends: such texts are quoted as JSON.
    """
    taken = {"ns", "bidx", SCALE_TAG}
    for key, value in provenance.items():
        require(
            isinstance(key, str)
            and isinstance(value, str)
            and re.fullmatch(r"[A-Za-z0-9_.-]+", key) is not None
            and key.lower() not in taken,
            "provenance of texts under distinct names of letters, digits, '_', '.', '-'",
            f"{key!r}: {value!r}"[:60],
            "rename it",
            UsageError,
        )
        taken.add(key.lower())
    return {
        key: text if text and text == text.strip() and text[0] != '"' and text.isprintable()
        else json.dumps(text)
        for key, text in provenance.items()
    }  # fmt: skip


def _provenance_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The provenance again, the inverse of `_tags_of`."""
    return {
        key: json.loads(text) if text[:1] == '"' else text
        for key, text in tags.items()
        if key != SCALE_TAG
    }


def product_facts(path: str | Path) -> dict[str, str]:
    """The provenance of a product whose last pixel can be read; FileError or BurstError else."""
    path = Path(path)
    if path.suffix.lower() == ".npz":
        return dict(read_product(path).provenance)
    with _opened(path) as (source, tags):
        height, width = source.shape
        source.read(window=((height - 1, height), (width - 1, width)))
        return _provenance_of(tags)


def is_product(path: Path) -> bool:
    """Whether a file is a product rather than a burst, by its tags or keys: no pixel is read."""
    try:
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return {f"{name}.npy" for name in BANDS} <= set(archive.namelist())
        if path.suffix.lower() in TIFF:
            with _opened(path):
                return True
    except (OSError, zipfile.BadZipFile, PushframeError):  # reading will say what is wrong
        pass
    return False


def read_window(path: Path, rows: slice, columns: slice) -> np.ndarray:
    """Mean, std and samples of a part of a product's GeoTIFF, (3, h, w)."""
    with _opened(path) as (source, _):
        window = ((rows.start, rows.stop), (columns.start, columns.stop))
        return np.asarray(source.read(window=window))


def read_overview(path: str | Path) -> tuple[tuple[int, int], Product]:
    """The size of a product, and the product with its pixels thinned to OVERVIEW_PX a side at most.

    Of a large GeoTIFF an overview is read. The georeference is that of the whole.
    """
    path = Path(path)
    if path.suffix.lower() not in TIFF:
        whole = read_product(path)
        return (whole.mean.shape[0], whole.mean.shape[1]), whole
    with naming(path), _opened(path) as (source, tags):
        height, width = source.shape
        step = -(-max(height, width) // OVERVIEW_PX)
        thin = source.read(out_shape=(len(BANDS), -(-height // step), -(-width // step)))
        return (height, width), _product_of(source, tags, thin)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """The open GeoTIFF of a product and its tags; BurstError for a TIFF that is none."""
    need_file(path)
    with (
        gdal() as rasterio,
        decoding(path, "a TIFF image"),
        rasterio.open(path, driver="GTiff") as source,
    ):
        tags: dict[str, str] = source.tags(ns=NAMESPACE)
        if tuple(source.descriptions) != tuple(BANDS) or not tags.get(SCALE_TAG, "").isdigit():
            raise BurstError(
                f"{path}: expected a product with the bands {', '.join(BANDS)}, "
                f"got {counted(source.count, 'band')} of something else: name a file that "
                "`pushframe run` wrote"
            )
        yield source, tags


def _read_cog(path: Path) -> Product:
    """The product from its GeoTIFF."""
    with _opened(path) as (source, tags):
        return _product_of(source, tags, source.read())


def _product_of(source: Any, tags: Mapping[str, str], bands: np.ndarray) -> Product:
    """The product of pixels (3, h, w) and of what the open GeoTIFF says of them."""
    mean, std, samples = bands
    scale = int(tags[SCALE_TAG])
    return Product(mean, std, samples, scale, georef_of(source), _provenance_of(tags))


def _write_npz(product: Product, path: Path) -> None:
    """The arrays of the product, its georeference and provenance as JSON."""
    arrays: dict[str, Any] = {name: getattr(product, name) for name in BANDS}
    arrays |= {"scale": product.scale, "provenance": json.dumps(dict(product.provenance))}
    if product.georef is not None:
        arrays["georef"] = georef_to_json(product.georef)
    save_npz(path, arrays)


def _read_npz(path: Path) -> Product:
    """The product from its .npz; BurstError where a key is missing."""
    table = load_npz(path, "a product", (*BANDS, "scale", "provenance", "georef"))
    missing = [key for key in (*BANDS, "scale") if key not in table]
    require(not missing, f"the keys {', '.join(BANDS)}, scale", f"no {missing}", "save them")
    with decoding(path, "provenance as a JSON object"):
        provenance = dict(json.loads(str(table.get("provenance", "{}"))))
    georef = georef_from_json(str(table["georef"])) if "georef" in table else None
    scale = int(number("scale", table["scale"], kinds="ui"))
    return Product(table["mean"], table["std"], table["samples"], scale, georef, provenance)
