"""From the files of one burst to all files of its product: place, parts, STAC, style, report."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from test_cli import refused, run
from test_io_product import rpc

from pushframe import GeoRef, NoiseLaw, read_burst, super_resolve, write_burst
from pushframe.align import align
from pushframe.burst import Burst
from pushframe.deliver import Order, deliver, is_finished, open_part
from pushframe.errors import BurstError, FileError, UsageError
from pushframe.extent import Bounds, Window, window_of_bounds, within
from pushframe.io import read_product, write_product
from pushframe.io.stac import (
    EXTENSIONS,
    Companions,
    acquisition_times,
    footprint,
    footprint_note,
    stac_item,
)
from pushframe.io.style import COLOURS, std_style
from pushframe.tally import Tally

rasterio = pytest.importorskip("rasterio")
pytest.importorskip("jinja2")

UTM = (2.0, 0.0, 500_000.0, 0.0, -2.0, 4_800_000.0)
CHEAP = {"method": "shift_and_add", "report": False}


def wkt(code: int) -> str:
    return rasterio.crs.CRS.from_epsg(code).to_wkt()


def still_burst(size: tuple[int, int] = (60, 48), count: int = 4, georef=None) -> Burst:
    """Frames that do not move, of a smooth scene with a bright spot."""
    generator = torch.Generator().manual_seed(2)
    rows, columns = (torch.arange(side) for side in size)
    scene = 0.3 + 0.1 * torch.sin(rows / 4)[:, None] * torch.cos(columns / 5)
    scene[20, 30] += 0.3
    frames = scene + 0.005 * torch.randn(count, *size, generator=generator)
    names = tuple(f"20191015_0738{10 + k}_ssc1d3_frame.tif" for k in range(count))
    return Burst.from_dn(
        (frames * 3000).numpy(), torch.ones(count), 3000.0, names=names,
        noise=NoiseLaw(0.0, 225.0), georef=georef or GeoRef(wkt(32631), UTM),
    )  # fmt: skip


@pytest.fixture
def burst(tmp_path: Path) -> Path:
    write_burst(still_burst(), tmp_path / "b.npz")
    return tmp_path / "b.npz"


def test_one_call_leaves_all_files(burst: Path, tmp_path: Path) -> None:
    told = []
    order = Order(burst, tmp_path / "out" / "sharp.tif", method="shift_and_add")
    made = deliver(order, lambda *progress: told.append(progress))
    names = ["sharp.html", "sharp.json", "sharp.tif", "sharp_std.qml"]
    assert sorted(os.listdir(tmp_path / "out")) == names
    assert sorted(path.name for path in order.files) == names
    assert made.shape == (120, 96)
    assert "90% interval" in made.verdict
    assert ("super-resolving", 1, 1) in told
    product = read_product(order.product)
    whole = super_resolve(read_burst(burst), method="shift_and_add")
    np.testing.assert_array_equal(product.mean, whole.mean)
    assert product.georef.transform == whole.georef.transform
    assert dict(product.provenance) == made.provenance
    for key in ("input", "fingerprint", "software", "weights", "backend", "noise_law", "frames"):
        assert made.provenance[key]


def test_what_validate_finds_is_said_in_the_product(tmp_path: Path) -> None:
    """A pedestal that is denied, and frames that all lie on one grid."""
    still = still_burst(count=6)
    dn = still.raw_dn().numpy()
    exposure = np.array([1, 1, 1, 1, 0.5, 1.2])
    dn = dn * exposure[:, None, None] + 400
    stated = {"exposure": exposure, "noise_a": 0.0, "noise_b": 225.0, "black_level": 0.0}
    np.savez(tmp_path / "b.npz", frames=dn, **stated)
    notes = deliver(Order(tmp_path / "b.npz", tmp_path / "s.npz")).provenance["notes"]
    assert "frame 4 is 1.3" in notes
    assert "times as bright as its exposure says; correct `exposure` or `black_level`." in notes
    assert "frame 3 is" not in notes
    assert "of whole rows and columns: they show hardly any detail" in notes


def test_npz_is_the_arrays_alone(burst: Path, tmp_path: Path) -> None:
    deliver(Order(burst, tmp_path / "out" / "sharp.npz", **CHEAP))
    assert os.listdir(tmp_path / "out") == ["sharp.npz"]
    assert read_product(tmp_path / "out" / "sharp.npz").provenance["input"] == "b.npz"


def test_a_failure_leaves_nothing_and_keeps_what_was_there(
    burst: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(burst, tmp_path / "out" / "sharp.tif", method="shift_and_add")
    deliver(order)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pushframe.deliver.write_report", full)
    with pytest.raises(FileError, match=str(tmp_path / "out")):
        deliver(dataclasses.replace(order, scale=3))
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def bright_spot(path: Path) -> np.ndarray:
    """Where the product says the brightest pixel is, on the map."""
    with rasterio.open(path) as source:
        row, column = divmod(int(np.nanargmax(source.read(1))), source.width)
        return np.array(source.xy(row, column))


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"window": Window(10, 12, 40, 30)},
        {"bounds": Bounds(500_020.0, 4_799_910.0, 500_080.0, 4_799_980.0)},
        {"scale": 3},
    ],
)
def test_the_spot_stays_on_its_ground(burst: Path, tmp_path: Path, part: dict) -> None:
    """Pixel (20, 30) of the reference, by GDAL's transform of the product, to a hundredth px."""
    deliver(Order(burst, tmp_path / "p.tif", method="bicubic", report=False, **part))
    truth = np.array([500_000 + 2 * 30.5, 4_800_000 - 2 * 20.5])
    assert np.abs(bright_spot(tmp_path / "p.tif") - truth).max() < 0.01 * 2
    if "window" in part:
        assert read_product(tmp_path / "p.tif").mean.shape == (80, 60)
        assert read_product(tmp_path / "p.tif").provenance["window"]


@pytest.mark.parametrize("scale", [2, 3])
def test_rpc_of_a_part_by_gdal(tmp_path: Path, scale: int) -> None:
    """The centres that product and frame share lie on one ground, by GDAL's own RPC transformer."""
    write_burst(still_burst(georef=GeoRef(rpc=rpc())), tmp_path / "b.npz")
    window = Window(8, 16, 40, 30)
    deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", scale, "bicubic", window=window,
                  report=False))  # fmt: skip
    from rasterio.transform import RPCTransformer

    from pushframe.io.georef import rpc_strings

    camera = rasterio.rpc.RPC.from_gdal(rpc_strings(rpc()))
    rows, columns = np.mgrid[9:45:7, 17:44:5].reshape(2, -1)
    with rasterio.open(tmp_path / "p.tif") as source:
        found = source.rpcs
    with RPCTransformer(camera, rpc_height=80.0) as low, RPCTransformer(
        found, rpc_height=80.0
    ) as high:  # fmt: skip
        there = np.array(low.xy(rows, columns, offset="center"))
        step = np.hypot(*(np.array(low.xy(rows, columns + 1, offset="center")) - there))
        here = np.array(high.xy(scale * (rows - 8), scale * (columns - 16), offset="center"))
        off = np.array(high.xy(scale * (rows - 8) + 1, scale * (columns - 16), offset="center"))
    assert (np.hypot(*(here - there)) / step).max() < 0.01
    assert (np.hypot(*(off - there)) / step).min() > 0.1  # the twin: a product pixel away


def test_bounds_are_the_pixels_they_touch() -> None:
    where = GeoRef(wkt(32631), UTM)
    assert window_of_bounds(Bounds(500_020, 4_799_910, 500_080, 4_799_980), where, (60, 48)) == (
        10, 10, 35, 30,
    )  # fmt: skip
    part = window_of_bounds(Bounds(0, 4_799_999, 500_003, 5e6), where, (60, 48))
    assert part == (0, 0, 1, 2)
    with pytest.raises(UsageError, match="meet the scene"):
        window_of_bounds(Bounds(0, 0, 1, 1), where, (60, 48))
    with pytest.raises(UsageError, match="west < east"):
        window_of_bounds(Bounds(1, 0, 0, 1), where, (60, 48))
    with pytest.raises(UsageError, match="map projection"):
        window_of_bounds(Bounds(0, 0, 1, 1), GeoRef(rpc=rpc()), (60, 48))
    assert within(Window(1, 2, 3, 4), (9, 9)) == (slice(1, 4), slice(2, 6))
    for wrong in (Window(-1, 0, 2, 2), Window(0, 0, 0, 2), Window(5, 0, 5, 2)):
        with pytest.raises(UsageError, match="within 9x9"):
            within(wrong, (9, 9))


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda o: o, True),
        (lambda o: dataclasses.replace(o, device="cuda"), True),
        (lambda o: dataclasses.replace(o, scale=3), False),
        (lambda o: dataclasses.replace(o, method="bicubic"), False),
        (lambda o: dataclasses.replace(o, window=Window(0, 0, 20, 20)), False),
        (lambda o: dataclasses.replace(o, report=True), False),
        (lambda o: os.utime(o.burst, ns=(1, 1)) or o, False),
        (lambda o: o.product.write_bytes(o.product.read_bytes()[:2000]) and o, False),
        (lambda o: Companions(o.product).style.unlink() or o, False),
        (lambda o: o.product.unlink() or o, False),
    ],
)
def test_finished_is_the_same_input_settings_and_a_whole_product(
    burst: Path, tmp_path: Path, change, same: bool
) -> None:
    order = Order(burst, tmp_path / "out" / "sharp.tif", **CHEAP)
    assert not is_finished(order)
    deliver(order)
    assert is_finished(change(order)) is same


def test_a_product_beside_its_burst_is_none_of_its_files(burst: Path) -> None:
    order = Order(burst, burst.with_suffix(".tif"), method="bicubic")
    deliver(order)
    assert is_finished(order)
    os.utime(burst, ns=(1, 1))
    assert not is_finished(order)  # twin: the burst itself


@pytest.mark.parametrize(
    ("name", "touched", "counts"),
    [
        ("x[1].npz", "x[1].npz", True),
        ("a.npz", "ab.npz", False),
        ("s.tif", "s.toml", True),
        ("s.tif", "s_RPC.TXT", True),
        ("s.tif", "s_other.tif", False),
        ("s.toml", "s.tif", True),
        ("pick/burst.toml", "pick/frame_01.tif", True),
        ("folder", "folder/frame_01.tif", True),
        ("hdr/crop/10.npy", "hdr/ratios/10.npy", True),
        ("hdr/crop/10.npy", "hdr/satmask/10.npy", True),
        ("hdr/crop/10.npy", "hdr/ratios/1.npy", False),
    ],
)
def test_what_counts_as_input_is_what_the_burst_is_made_of(
    tmp_path: Path, name: str, touched: str, counts: bool
) -> None:
    for made in ("x[1].npz", "a.npz", "ab.npz", "s.tif", "s_other.tif", "pick", "folder"):
        write_burst(still_burst(), tmp_path / made)
    (tmp_path / "s_RPC.TXT").write_text("")
    for folder in ("crop", "ratios", "satmask"):
        (tmp_path / "hdr" / folder).mkdir(parents=True)
        for sequence in ("1", "10"):
            np.save(tmp_path / "hdr" / folder / f"{sequence}.npy", np.ones(3))
    order = Order(tmp_path / name, tmp_path / "out" / "sharp.tif", **CHEAP)
    before = order.fingerprint
    assert order.fingerprint == before
    os.utime(tmp_path / touched, ns=(1, 1))
    assert (order.fingerprint != before) is counts


@pytest.mark.parametrize("name", ["b.npz", "frames/sharp.tif"])
def test_no_product_takes_the_place_of_its_burst(burst: Path, tmp_path: Path, name: str) -> None:
    write_burst(still_burst(), tmp_path / "frames")
    product = tmp_path / name
    named = burst if product == burst else tmp_path / "frames"
    before = burst.read_bytes()
    with pytest.raises(UsageError, match="other than the burst"):
        deliver(Order(named, product, method="bicubic"))
    assert burst.read_bytes() == before
    assert not (tmp_path / "frames" / "sharp.tif").exists()


def test_other_weights_make_it_again(burst: Path, tmp_path: Path) -> None:
    weights = tmp_path / "own.safetensors"
    weights.write_bytes(b"one")
    order = Order(burst, tmp_path / "p.tif", method=str(weights))
    before = order.fingerprint
    assert order.fingerprint == before
    os.utime(weights, ns=(1, 1))
    assert order.fingerprint != before


def test_another_version_makes_it_again(burst: Path, tmp_path: Path, monkeypatch) -> None:
    order = Order(burst, tmp_path / "sharp.tif", **CHEAP)
    deliver(order)
    monkeypatch.setattr("pushframe.deliver.__version__", "9.9")
    assert not is_finished(order)


NO_FOOTPRINT = {
    "site grid": GeoRef('LOCAL_CS["site grid",UNIT["metre",1]]', UTM),
    "beyond its zone": GeoRef(wkt(32631), (2.0, 0.0, 5e15, 0.0, -2.0, 4.8e16)),
    "beyond the globe": GeoRef(wkt(4326), (2.0, 0.0, 10.0, 0.0, -2.0, 400.0)),
}


@pytest.mark.parametrize("place", NO_FOOTPRINT)
def test_a_place_without_longitude_and_latitude_is_delivered_and_said(
    tmp_path: Path, place: str
) -> None:
    write_burst(still_burst(georef=NO_FOOTPRINT[place]), tmp_path / "b.npz")
    made = deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", **CHEAP))
    item = json.loads((tmp_path / "p.json").read_text())
    validate(item)
    assert item["geometry"] is None
    assert "bbox" not in item
    product = read_product(tmp_path / "p.tif")
    assert product.georef.transform[0] == NO_FOOTPRINT[place].transform[0] / 2
    for notes in (made.provenance["notes"], item["properties"]["pushframe:notes"]):
        assert "could not be turned into longitude and latitude" in notes
    write_burst(still_burst(), tmp_path / "c.npz")
    twin = deliver(Order(tmp_path / "c.npz", tmp_path / "c.tif", **CHEAP))
    assert "longitude" not in twin.provenance["notes"]


def test_a_crs_may_be_a_code(tmp_path: Path) -> None:
    write_burst(still_burst(georef=GeoRef("EPSG:32631", UTM)), tmp_path / "b.npz")
    deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", **CHEAP))
    write_burst(still_burst(), tmp_path / "c.npz")
    deliver(Order(tmp_path / "c.npz", tmp_path / "c.tif", **CHEAP))
    one, other = (json.loads((tmp_path / name).read_text()) for name in ("p.json", "c.json"))
    assert one["geometry"] == other["geometry"]
    assert one["properties"]["proj:code"] == "EPSG:32631"
    assert read_product(tmp_path / "p.tif").georef == read_product(tmp_path / "c.tif").georef
    write_product(read_product(tmp_path / "p.tif"), tmp_path / "q.tif")
    assert read_product(tmp_path / "q.tif").georef == read_product(tmp_path / "p.tif").georef


def test_rpc_that_lead_nowhere_have_no_footprint() -> None:
    flat = rpc() | {"LINE_NUM_COEFF": (0.0,) * 20, "SAMP_NUM_COEFF": (0.0,) * 20}
    assert footprint((120, 96), GeoRef(rpc=flat)) is None
    assert "its RPC" in footprint_note((120, 96), GeoRef(rpc=flat))
    assert footprint_note((120, 96), GeoRef(rpc=rpc())) is None
    assert footprint_note((120, 96), None) is None


# --- STAC -----------------------------------------------------------------------------------------


def item_of(georef: GeoRef | None, frames: str = "", report: bool = True) -> dict:
    tallies = {name: Tally() for name in ("mean", "std", "samples")}
    for tally in tallies.values():
        tally.update(np.array([[1.0, 2.0], [3.0, np.nan]]))
    files = Companions(Path("out/sharp.tif"))
    facts = {"software": "pushframe 9", "frames": frames, "notes": ""}
    return stac_item(files, (120, 96), georef, facts, tallies, report)


# The rules of the two extensions that concern us, written down from their specifications: the
# published schemas are on the network, where tests do not go.
PROJ = {
    "proj:code": {"type": ["string", "null"]},
    "proj:wkt2": {"type": ["string", "null"]},
    "proj:shape": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    "proj:transform": {
        "type": "array",
        "items": {"type": "number"},
        "oneOf": [{"minItems": 6, "maxItems": 6}, {"minItems": 9, "maxItems": 9}],
    },
    "proj:bbox": {
        "type": "array",
        "items": {"type": "number"},
        "oneOf": [{"minItems": 4, "maxItems": 4}, {"minItems": 6, "maxItems": 6}],
    },
}
DRAFT = "http://json-schema.org/draft-07/schema#"
BAND = {
    "data_type": {"enum": ["uint8", "int16", "uint16", "float32", "float64", "other"]},
    "nodata": {"oneOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]},
    "unit": {"type": "string"},
    "sampling": {"enum": ["area", "point"]},
    "statistics": {
        "type": "object",
        "properties": {
            key: {"type": "number"}
            for key in ("mean", "minimum", "maximum", "stddev", "valid_percent")
        },
        "additionalProperties": False,
        "minProperties": 1,
    },
}


def fields(rules: dict, prefix: str) -> dict:
    other = {f"^(?!{prefix}:)": {}}
    return {"properties": rules, "patternProperties": other, "additionalProperties": False}


def schemas() -> dict[str, dict]:
    bands = {"type": "array", "minItems": 1, "items": {"type": "object", "properties": BAND}}
    return {
        EXTENSIONS[0]: {
            "$schema": DRAFT,
            "$id": EXTENSIONS[0],
            "required": ["properties"],
            "properties": {"properties": {"required": ["proj:code"], **fields(PROJ, "proj")}},
        },
        EXTENSIONS[1]: {
            "$schema": DRAFT,
            "$id": EXTENSIONS[1],
            "properties": {
                "assets": {"additionalProperties": fields({"raster:bands": bands}, "raster")}
            },
        },
    }


def validate(item: dict) -> None:
    """pystac's own validation; its core schemas are in the package."""
    pystac = pytest.importorskip("pystac")
    pytest.importorskip("jsonschema")
    from pystac.validation.stac_validator import JsonSchemaSTACValidator

    validator = JsonSchemaSTACValidator()
    validator.schema_cache.update(schemas())
    validator.validate(item, pystac.STACObjectType.ITEM, "1.1.0", list(EXTENSIONS))
    pystac.Item.from_dict(item)


PLACES = {
    "utm": GeoRef(wkt(32631), UTM),
    "rpc": GeoRef(rpc=rpc()),
    "geographic": GeoRef(wkt(4326), (1e-4, 0.0, 3.0, 0.0, -1e-4, 45.0)),
    "nowhere": None,
    "no projection": GeoRef(None, UTM),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_stac_item_is_valid(place: str) -> None:
    item = item_of(PLACES[place])
    validate(item)
    assert (item["geometry"] is None) == (place in ("nowhere", "no projection"))
    assert ("bbox" in item) == (item["geometry"] is not None)
    json.dumps(item, allow_nan=False)


@pytest.mark.parametrize(
    "harm",
    [
        lambda item: item.pop("stac_version"),
        lambda item: item["properties"].pop("datetime"),
        lambda item: item["properties"].update({"proj:shape": [1.5, 2]}),
        lambda item: item["properties"].update({"proj:epsgg": 1}),
        lambda item: item["assets"]["product"]["raster:bands"][0].update({"unit": 3}),
        lambda item: item["assets"]["product"].pop("href"),
    ],
)
def test_an_invalid_item_is_caught(harm) -> None:
    item = item_of(PLACES["utm"])
    harm(item)
    with pytest.raises(pytest.importorskip("pystac").STACValidationError):
        validate(item)


def test_extensions_read_what_was_written() -> None:
    pystac = pytest.importorskip("pystac")
    from pystac.extensions.projection import ProjectionExtension
    from pystac.extensions.raster import RasterExtension

    item = pystac.Item.from_dict(item_of(PLACES["utm"]))
    projection = ProjectionExtension.ext(item)
    assert projection.code == "EPSG:32631"
    assert projection.transform[:6] == list(UTM)
    assert projection.shape == [120, 96]  # y, x
    assert rasterio.crs.CRS.from_wkt(projection.wkt2).to_epsg() == 32631
    bands = RasterExtension.ext(item.assets["product"]).bands
    assert [band.unit for band in bands] == ["DN", "DN", "1"]
    assert bands[1].statistics.mean == 2.0
    assert bands[1].statistics.valid_percent == 75.0
    assert item.assets["report"].href.endswith("sharp.html")
    assert "report" not in item_of(None, report=False)["assets"]


def test_the_footprint_is_where_gdal_puts_it() -> None:
    ring = np.array(footprint((120, 96), PLACES["utm"]))
    from rasterio.warp import transform_bounds

    west, south, east, north = transform_bounds(
        wkt(32631), "EPSG:4326", 500_000, 4_800_000 - 240, 500_000 + 192, 4_800_000
    )
    np.testing.assert_allclose(ring.min(0), [west, south], atol=1e-6)
    np.testing.assert_allclose(ring.max(0), [east, north], atol=1e-6)
    area = np.sum(ring[:-1, 0] * ring[1:, 1] - ring[1:, 0] * ring[:-1, 1])
    assert area > 0  # counter-clockwise, as GeoJSON wants it
    seen = np.array(footprint((64, 82), PLACES["rpc"]))
    assert np.abs(seen.mean(0) - [3.25, 45.5]).max() < 0.01


def test_the_rpc_footprint_begins_half_a_pixel_before_the_first_centre() -> None:
    """By GDAL: its pixel corners are half a pixel from the RPC's own origin."""
    from rasterio.transform import RPCTransformer

    from pushframe.io.georef import rpc_strings

    camera = rasterio.rpc.RPC.from_gdal(rpc_strings(rpc()))
    with RPCTransformer(camera, rpc_height=100.0) as ground:
        centre = np.array(ground.xy(0, 0, offset="center"))
        next_one = np.array(ground.xy(1, 1, offset="center"))
    corner = np.array(footprint((64, 82), PLACES["rpc"])[0])
    expected = centre - (next_one - centre) / 2
    assert np.abs(corner - expected).max() < 0.02 * np.abs(next_one - centre).max()


def test_times_come_from_names_or_are_said_to_be_unknown() -> None:
    names = "20191015_073816_ssc1d3_0011.tif, 20191015T073814Z_x.tif, 20199999_999999.tif"
    times = acquisition_times(names)
    assert [time.isoformat() for time in times] == [
        "2019-10-15T07:38:14+00:00",
        "2019-10-15T07:38:16+00:00",
    ]
    item = item_of(None, names)
    assert item["properties"]["datetime"] == "2019-10-15T07:38:14Z"
    assert item["properties"]["end_datetime"] == "2019-10-15T07:38:16Z"
    assert "not known" in item_of(None)["properties"]["description"]


def test_the_style_shows_std_from_nothing_to_nearly_all() -> None:
    tally = Tally()
    tally.update(np.linspace(0.1, 40, 5000))
    root = ElementTree.fromstring(std_style(tally).partition("\n")[2])
    renderer = root.find("pipe/rasterrenderer")
    assert renderer.get("type") == "singlebandpseudocolor"
    assert renderer.get("band") == "2"
    items = root.findall(".//item")
    values = [float(item.get("value")) for item in items]
    assert values[0] == 0
    assert values == sorted(values)
    assert values[-1] == pytest.approx(0.98 * 40, rel=0.003)
    assert len(items) == len(COLOURS)
    empty = ElementTree.fromstring(std_style(Tally()).partition("\n")[2])
    assert empty.find(".//colorrampshader").get("maximumValue") == "1"


# --- the command ----------------------------------------------------------------------------------


def test_run_takes_a_part_and_says_what_it_made(burst: Path, tmp_path: Path) -> None:
    text = run("run", burst, "--out", tmp_path / "p.tif", "--window", "10,12,40,30",
               "--method", "shift_and_add")  # fmt: skip
    assert "80x60, mean, std and samples, by shift_and_add" in text
    assert "held out in turn" in text
    text = run("run", burst, "--out", tmp_path / "s.tif", "--window", "0,0,20,20",
               "--method", "shift_and_add")  # fmt: skip
    assert "The error bars were not checked: it takes 500 pixels of a frame" in text
    told = json.loads(
        run("run", burst, "--out", tmp_path / "q.tif", "--bbox",
            "500020,4799910,500080,4799980", "--no-report", "--json")
    )  # fmt: skip
    assert told["size"] == [70, 60]
    assert told["verdict"] is None
    assert not (tmp_path / "q.html").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--window", "1,2,3"], "four whole numbers"),
        (["--bbox", "a,b,c,d"], "four numbers"),
        (["--window", "0,0,9,9", "--bbox", "0,0,1,1"], "choose one"),
        (["--window", "0,0,99,9"], "within 60x48"),
        (["--extent", "union"], "reference or common"),
        (["--cluster", "tcp://nowhere:1"], "expected a folder as --out"),
    ],
)
def test_wrong_parts_are_one_line_and_2(
    burst: Path, tmp_path: Path, capsys, monkeypatch, options: list[str], said: str
) -> None:
    code, err = refused(capsys, monkeypatch, "run", burst, "--out", tmp_path / "p.tif", *options)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "p.tif").exists()


def test_a_missing_package_is_said_before_any_work(
    burst: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    monkeypatch.setattr("pushframe.cli.run.deliver", None)  # would fail if it were called
    code, err = refused(capsys, monkeypatch, "run", burst, "--out", tmp_path / "p.tif")
    assert (code, "pushframe[report]" in err) == (2, True)


def test_a_window_is_one_of_the_reference_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another frame takes its place the window would be of other ground."""
    write_burst(still_burst(), tmp_path / "b.npz")
    order = Order(tmp_path / "b.npz", tmp_path / "a.tif", **CHEAP)
    part = dataclasses.replace(order, window=Window(0, 0, 32, 32))
    assert open_part(part).source.shape == (32, 32)
    monkeypatch.setattr(
        "pushframe.deliver.align", lambda source: align(dataclasses.replace(source, reference=1))
    )
    assert open_part(order).source.names[0] == "frame 1"
    with pytest.raises(BurstError, match="frame 0, in whose pixels --window counts"):
        open_part(part)
