"""The demo page: one file, nothing from outside, values that can be read back, nothing injected."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import math
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pushframe.burst import Burst, NoiseLaw, Simulated
from pushframe.errors import FileError, MissingPackageError, UsageError
from pushframe.metrics import LEVELS, Metrics
from pushframe.posterior import Posterior
from pushframe.product import Product
from pushframe.report import write_demo_page
from pushframe.report.encode import colour_table, levels_of, pack_values, pooled, stretch_of
from pushframe.report.layers import collect_layers, frame_noise_dn, show_window
from pushframe.report.table import format_number, metric_rows

for package in ("jinja2", "PIL", "matplotlib"):
    pytest.importorskip(package)

EVIL = "<script>alert(1)</script>"
WHITE, BLACK = 3400.0, 40.0
HOLE_AT = (11, 30)


class Demo:
    """A small burst with known shifts, a truth, three methods and their evaluation."""

    def __init__(self, size: tuple[int, int] = (20, 26), scale: int = 2, count: int = 4) -> None:
        generator = torch.Generator().manual_seed(3)

        def noise(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        rows, cols = (torch.arange(side * scale) for side in size)
        truth = 0.3 + 0.2 * torch.sin(rows / 5)[:, None] * torch.cos(cols / 7)
        truth = truth + 0.2 * ((rows[:, None] // 8 + cols // 8) % 2)
        std = 0.01 + 0.01 * torch.rand(truth.shape, generator=generator)
        flow = torch.tensor([[0.0, 0.0], [0.5, -0.25], [-0.75, 0.1], [0.2, 0.9]])
        flow = flow.repeat(-(-count // 4), 1)[:count]
        frames = truth[::scale, ::scale] + 0.01 * noise(count, *size)
        frames[0, 3, 4] = torch.nan
        exposure = torch.tensor([0.8, 1.0, 1.25, 2.0]).repeat(-(-count // 4))[:count]
        names = (EVIL, *(f"frame {index}" for index in range(1, count)))
        burst = Burst(
            frames,
            exposure,
            torch.tensor(WHITE),
            NoiseLaw(torch.tensor(0.1), torch.tensor(30.0)),
            black_level=torch.tensor(BLACK),
            names=names,
        )
        self.simulated = Simulated(burst, truth, flow)
        blurred = truth + 0.08 * noise(*truth.shape)
        blurred[HOLE_AT] = torch.nan
        self.posteriors = {
            "plain": Posterior(blurred),
            "sharp": Posterior(truth + std * noise(*truth.shape), std**2),
            "<i>over</i>": Posterior(truth + 2 * std * noise(*truth.shape), std**2),
        }
        self.gain = 0.8 * WHITE
        self.evaluation = {
            "schema": "pushframe-evaluation/1",
            "bursts": 1,
            "frames": count,
            "scale": scale,
            "border_hpx": 2,
            "levels": list(LEVELS),
            "methods": {name: self._measure(name, scale) for name in self.posteriors},
        }
        zeros = np.zeros(truth.shape, np.float32)
        self.product = Product(zeros, zeros, zeros, scale, provenance={"method": EVIL, "seed": "3"})

    def _measure(self, name: str, scale: int) -> dict[str, Any]:
        metrics, posterior = Metrics(scale, 2), self.posteriors[name]
        var = None if posterior.var is None else posterior.var[None]
        truth = self.simulated.truth[None]
        metrics.update(Posterior(posterior.mean[None], var), truth, ["only"])
        return metrics.compute()

    def write(self, path: Path, best: str = "sharp") -> str:
        write_demo_page(path, self.simulated, self.posteriors, best, self.evaluation, self.product)
        return path.read_text(encoding="utf-8")

    def dn(self, radiance: torch.Tensor) -> np.ndarray:
        return radiance.double().numpy() * self.gain + BLACK


class Page(HTMLParser):
    """What a browser would see: elements with attributes, and text outside scripts and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        inside = self.elements[-1][0] if self.elements else ""
        (self.scripts if inside == "script" else self.text).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """The values of a layer, decoded byte by byte as the format is described."""
    raw = base64.b64decode(packed["codes"])
    codes = struct.unpack(f"<{len(raw) // 2}H", raw)
    values = [math.nan if c == 65535 else packed["offset"] + packed["step"] * c for c in codes]
    return np.array(values).reshape(packed["height"], packed["width"])


@pytest.fixture(scope="module")
def demo() -> Demo:
    return Demo()


@pytest.fixture(scope="module")
def html(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> str:
    return demo.write(tmp_path_factory.mktemp("page") / "demo.html")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_nothing_comes_from_outside(html: str, page: Page) -> None:
    assert "://" not in html
    assert not re.search(r"@import|url\(|\bimport\s*\(|fetch\(|XMLHttpRequest", html)
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "poster"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, name)
    policy = next(
        meta["content"]
        for meta in page.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_names_from_data_are_text(html: str, page: Page) -> None:
    assert "<script>alert" not in html
    assert "<i>over" not in html
    assert len(page.all("script")) == 2
    assert EVIL in page.text  # a frame's name and a provenance value
    assert "<i>over</i>" in page.text
    assert any(button.get("data-name") == EVIL for button in page.all("button"))
    assert page.data["layers"][3]["name"] == "<i>over</i>"


def test_only_the_package_s_scripts_may_run(html: str, page: Page) -> None:
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_values_read_back_in_dn_of_the_reference(demo: Demo, page: Page) -> None:
    layers = {layer["name"]: layer for layer in page.data["layers"]}
    assert list(layers) == ["one frame", *demo.posteriors, "truth"]
    expected = {
        "truth": demo.dn(demo.simulated.truth),
        **{name: demo.dn(posterior.mean) for name, posterior in demo.posteriors.items()},
    }
    for name, image in expected.items():
        packed = layers[name]["mean"]
        known = np.isfinite(image)
        step = (image[known].max() - image[known].min()) / 65534
        assert packed["step"] == pytest.approx(step)
        np.testing.assert_allclose(unpack(packed), image, rtol=0, atol=0.501 * step)
    var = demo.posteriors["sharp"].var
    assert var is not None
    std = unpack(layers["sharp"]["std"])
    np.testing.assert_allclose(std, var.double().sqrt().numpy() * demo.gain, atol=1e-3)
    assert layers["plain"]["std"] is None
    assert page.data["right"] == layers["sharp"]["key"]


def test_reference_is_the_first_frame_with_its_hole(demo: Demo, page: Page) -> None:
    packed = page.data["layers"][0]
    frame = unpack(packed["mean"])
    assert packed["scale"] == 2
    assert frame.shape == demo.simulated.burst.shape
    assert np.argwhere(np.isnan(frame)).tolist() == [[3, 4]]
    np.testing.assert_allclose(
        frame[5:], demo.dn(demo.simulated.burst.frames[0])[5:], atol=packed["mean"]["step"]
    )


def test_hole_is_a_hole_in_values_and_pictures(demo: Demo, tmp_path: Path) -> None:
    from PIL import Image

    page = Page(demo.write(tmp_path / "demo.html", best="plain"))
    values = unpack(page.data["layers"][1]["mean"])
    assert np.argwhere(np.isnan(values)).tolist() == [list(HOLE_AT)]
    panels = [image for image in page.all("img") if "plain" in (image["alt"] or "")]
    assert len(panels) == 2  # the result and |error|; `plain` has no error bar
    for panel, side in zip(panels, (1, 2), strict=True):  # the map in colour: means of 2 x 2
        raw = base64.b64decode((panel["src"] or "").partition(",")[2])
        alpha = np.asarray(Image.open(io.BytesIO(raw)).convert("RGBA"))[..., 3]
        assert np.argwhere(alpha == 0).tolist() == [[place // side for place in HOLE_AT]]
    assert "gives no error bar" in "".join(page.text)


@pytest.mark.parametrize("values", [[[math.nan, math.nan]], [[2.5, 2.5]], [[math.inf, 1.0]]])
def test_packing_of_degenerate_images(values: list[list[float]]) -> None:
    image = np.array(values)
    packed = dict(pack_values(image))
    assert packed["step"] > 0
    np.testing.assert_allclose(unpack(packed), np.where(np.isfinite(image), image, np.nan))
    low, high = stretch_of(image)
    assert high > low
    assert (levels_of(image, low, high) == 0).tolist() == (~np.isfinite(image)).tolist()


def test_levels_span_the_stretch() -> None:
    image = np.array([[-1.0, 0.0, 0.5, 1.0, 9.0, np.nan]])
    assert levels_of(image, 0.0, 1.0).tolist() == [[1, 1, 128, 255, 255, 0]]


def test_pooled_values_are_means_of_blocks() -> None:
    image = np.arange(24.0).reshape(4, 6)
    image[3, 5] = np.nan
    means = [[3.5, 5.5, 7.5], [15.5, 17.5, np.nan]]
    np.testing.assert_array_equal(pooled(image, 2), means)


@pytest.mark.parametrize(
    ("value", "text"), [(-0.0004, "0.000"), (-0.0006, "−0.001"), (1.5, "1.500"), (None, "–")]
)
def test_zero_has_no_sign(value: float | None, text: str) -> None:
    assert format_number(value, 3) == text


def test_colours_are_matplotlib_s() -> None:
    table = colour_table("inferno")
    assert table.shape == (256, 3)
    assert table[0].tolist() == [0, 0, 4]
    assert table[-1].tolist() == [252, 255, 164]


def test_missing_metrics_are_dashes_and_the_best_is_bold(demo: Demo, html: str) -> None:
    rows = dict(metric_rows(demo.evaluation, demo.gain))
    plain = {cell.column.key: cell for cell in rows["plain"]}
    sharp = {cell.column.key: cell for cell in rows["sharp"]}
    assert plain["nll"].text == "–"
    assert plain["flow_rmse_px"].text == "–"
    assert not plain["nll"].best
    assert [key for key, cell in sharp.items() if cell.best] == [
        "psnr_db",
        "rmse",
        "calibration_error",
        "nll",
        "crps",
    ]
    figures = demo.evaluation["methods"]["sharp"]["all"]
    assert sharp["psnr_db"].text == f"{figures['psnr_db']:.2f}"
    assert sharp["rmse"].text == f"{figures['rmse'] * demo.gain:.2f}"
    row = re.search(r"<tr[^>]*><th[^>]*>plain</th>.*?</tr>", html, re.DOTALL)
    assert row
    assert row[0].count(">–</td>") == 5


def test_equal_values_have_no_best() -> None:
    same = {"all": {"psnr_db": 40.0, "rmse": 0.01}}
    rows = metric_rows({"methods": {"a": same, "b": same, "c": {"all": {}}}}, 1.0)
    assert not any(cell.best for _, cells in rows for cell in cells)


def test_summary_says_what_was_measured(demo: Demo, page: Page) -> None:
    text = " ".join("".join(page.text).split())
    psnr = {name: demo.evaluation["methods"][name]["all"]["psnr_db"] for name in demo.posteriors}
    covered = demo.evaluation["methods"]["sharp"]["all"]["coverage"][89]
    assert "4 frames of 20×26 became one image of 40×52 by sharp" in text
    assert f"PSNR {psnr['sharp']:.1f}" in text.replace("\xa0", " ")
    assert f"{psnr['sharp'] - psnr['plain']:.1f} dB above plain" in text.replace("\xa0", " ")
    assert f"measured {100 * covered:.1f}%" in text


def test_evaluation_without_error_bars_has_no_curves(demo: Demo, tmp_path: Path) -> None:
    bare = Demo()
    bare.posteriors = {"plain": demo.posteriors["plain"]}
    bare.evaluation = {**demo.evaluation, "methods": {"plain": {"all": {"psnr_db": 30.0}}}}
    page = Page(bare.write(tmp_path / "bare.html", best="plain"))
    assert not page.all("svg")
    assert "above" not in "".join(page.text)


def test_curves_end_where_the_coverage_says(demo: Demo, html: str) -> None:
    coverage = demo.evaluation["methods"]["sharp"]["all"]["coverage"]
    whole = re.findall(r'class="curve whole series-(\d)" d="M([^"]*)"', html)
    assert {series for series, _ in whole} == {"0", "1"}  # `plain` has none
    points = [tuple(map(float, p.split())) for p in dict(whole)["0"].split("L")]
    assert len(points) == 99
    top, bottom = 14, 400 - 48
    heights = [(bottom - y) / (bottom - top) for _, y in points]
    np.testing.assert_allclose(heights, coverage, atol=2e-4)
    assert len(re.findall(r'class="curve thin', html)) == 2 * 4


def test_z_scores_leave_out_border_and_holes(demo: Demo) -> None:
    layers = collect_layers(demo.simulated, demo.posteriors)
    z = layers.z_scores("sharp", 2)
    assert z.size == 36 * 48
    assert float(np.mean(z**2)) == pytest.approx(
        demo.evaluation["methods"]["sharp"]["all"]["mean_z2"], rel=1e-4
    )
    assert layers.z_scores("sharp", 25).size == 0


def test_frame_noise_follows_the_law(demo: Demo) -> None:
    burst = demo.simulated.burst
    median = float(burst.frames[burst.valid].median())
    noise = frame_noise_dn(burst)
    assert noise is not None
    for exposure, found in zip((0.8, 1.0, 1.25, 2.0), noise, strict=True):
        raw_std = math.sqrt(0.1 * median * exposure * WHITE + 30.0)
        assert found == pytest.approx(raw_std * 0.8 / exposure, rel=1e-4)


def test_frames_move_onto_the_reference(page: Page) -> None:
    moved = [button for button in page.all("button") if "data-dy" in button]
    assert float(moved[1]["data-dy"] or "") == pytest.approx(100 * 0.5 / 20)
    assert float(moved[1]["data-dx"] or "") == pytest.approx(100 * -0.25 / 26, abs=1e-4)


def test_local_motion_is_shown_by_its_mean(demo: Demo) -> None:
    flow = demo.simulated.flow_px
    assert flow is not None
    field = flow[..., None, None].expand(-1, -1, 20, 26)
    layers = collect_layers(
        Simulated(demo.simulated.burst, demo.simulated.truth, field), demo.posteriors
    )
    assert layers.shifts_px is not None
    np.testing.assert_allclose(layers.shifts_px, flow.numpy(), atol=1e-6)


def test_page_of_fifteen_frames_is_small(tmp_path: Path) -> None:
    path = tmp_path / "demo.html"
    text = Demo((128, 128), count=15).write(path)
    assert path.stat().st_size < 2_500_000
    assert "Shown: the central" not in text


def test_large_image_is_shown_by_its_centre(tmp_path: Path) -> None:
    path, large = tmp_path / "demo.html", Demo((330, 300), scale=2, count=8)
    page = Page(large.write(path))
    assert path.stat().st_size < 3_000_000
    assert "Shown: the central" in "".join(page.text)
    top, left = page.data["origin"]
    truth = page.data["layers"][-1]["mean"]
    tall, wide = truth["height"], truth["width"]
    assert top % 2 == left % 2 == 0
    assert abs(2 * top + tall - 660) <= 2
    assert abs(2 * left + wide - 600) <= 2
    expected = large.dn(large.simulated.truth)[top : top + tall, left : left + wide]
    np.testing.assert_allclose(unpack(truth), expected, atol=truth["step"])
    reference = unpack(page.data["layers"][0]["mean"])
    frame = large.dn(large.simulated.burst.frames[0])
    np.testing.assert_allclose(reference[0, 0], frame[top // 2, left // 2], atol=0.1)


def test_small_image_is_shown_whole(demo: Demo) -> None:
    layers = collect_layers(demo.simulated, demo.posteriors)
    assert show_window(layers).truth.shape == layers.truth.shape
    assert show_window(layers).origin_hpx == (0, 0)


def test_failure_leaves_the_old_file(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "demo.html"
    path.write_text("old")

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(FileError, match=r"demo\.html"):
        demo.write(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unknown_best_stops_before_writing(demo: Demo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected best to be one of plain, sharp"):
        demo.write(tmp_path / "demo.html", best="nobody")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["jinja2", "PIL.Image", "matplotlib"])
def test_missing_package_says_what_to_install(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"pip install 'pushframe\[report\]'"):
        demo.write(tmp_path / "demo.html")
    assert not list(tmp_path.iterdir())


CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


class Tab:
    """The page open in a browser, with everything it complained about or asked for."""

    def __init__(self, tab: Any, path: Path) -> None:
        self.tab = tab
        self.complaints: list[str] = []
        self.requests: list[str] = []
        tab.on("console", lambda message: self.complaints.append(message.text))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("#canvas[width]")  # the page's policy forbids waiting on scripts
        tab.locator("#canvas").scroll_into_view_if_needed()

    def picture(self) -> str:
        """What is on the canvas once pending drawing is done."""
        return self.tab.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>"
            " done(document.getElementById('canvas').toDataURL()))))"
        )

    def green(self) -> np.ndarray:
        """The green of a row of the canvas, away from the pixel marked in its middle."""
        self.picture()
        script = (
            "[...canvas.getContext('2d').getImageData(0, canvas.height >> 2, canvas.width, 1).data]"
        )
        return np.array(self.tab.evaluate(script)[1::4])

    def box(self, selector: str) -> dict[str, float]:
        return self.tab.locator(selector).bounding_box()

    def hover_pixel(self, y: float, x: float, size: tuple[int, int]) -> None:
        box = self.box("#canvas")
        self.tab.mouse.move(
            box["x"] + x / size[1] * box["width"], box["y"] + y / size[0] * box["height"]
        )

    def cell(self, layer: str, field: str) -> str:
        text = self.tab.text_content(f'tr[data-layer="{layer}"] td[data-field="{field}"]')
        return text.replace("−", "-")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture(params=[(1280, 1000), (390, 844)], ids=["desktop", "phone"])
def tab(browser: Any, demo: Demo, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tab]:
    path = tmp_path / "demo.html"
    demo.write(path)
    width, height = request.param
    made = browser.new_page(viewport={"width": width, "height": height})
    opened = Tab(made, path)
    yield opened
    made.close()
    assert opened.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in opened.requests)


def test_browser_page_fits_its_window(tab: Tab) -> None:
    wide, window = tab.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide == window
    clipped = tab.tab.evaluate(
        "[...document.querySelectorAll('main *:not(.strip *)')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert clipped == 0


def test_browser_divider_changes_the_picture(tab: Tab) -> None:
    before, handle = tab.picture(), tab.box("#handle")
    y = handle["y"] + handle["height"] / 2
    tab.tab.mouse.move(handle["x"] + handle["width"] / 2, y)
    tab.tab.mouse.down()
    tab.tab.mouse.move(handle["x"] - 60, y, steps=4)
    tab.tab.mouse.up()
    dragged = tab.picture()
    assert dragged != before
    place = int(tab.tab.get_attribute("#handle", "aria-valuenow"))
    assert place < 48
    tab.tab.focus("#handle")
    tab.tab.keyboard.press("ArrowRight")
    assert int(tab.tab.get_attribute("#handle", "aria-valuenow")) == place + 2
    assert tab.picture() != dragged


def test_browser_reads_the_value_under_the_pointer(tab: Tab, demo: Demo) -> None:
    y, x, size = 13, 38, (40, 52)
    truth, sharp = demo.simulated.truth, demo.posteriors["sharp"]
    assert sharp.var is not None
    # the far corner of the pixel: the frame pixel (7, 19) is centred on (14, 38)
    tab.hover_pixel(y + 0.75, x + 0.75, size)
    assert tab.tab.text_content("#pixel") == f"y {y}, x {x}"
    value, std = (float(text) for text in tab.cell("method-1", "value").split(" ± "))
    true = float(demo.dn(truth)[y, x])
    assert value == pytest.approx(demo.dn(sharp.mean)[y, x], abs=0.11)
    assert std == pytest.approx(float(sharp.var[y, x]) ** 0.5 * demo.gain, abs=0.06)
    assert float(tab.cell("truth", "value")) == pytest.approx(true, abs=0.11)
    error = float(demo.dn(sharp.mean)[y, x]) - true
    assert float(tab.cell("method-1", "error")) == pytest.approx(error, abs=0.16)
    z = error / (float(sharp.var[y, x]) ** 0.5 * demo.gain)
    assert float(tab.cell("method-1", "z")) == pytest.approx(z, abs=0.02)
    frame = demo.dn(demo.simulated.burst.frames[0])
    assert float(tab.cell("reference", "value")) == pytest.approx(frame[7, 19], abs=0.11)
    tab.hover_pixel(y + 0.25, x + 0.75, size)
    assert float(tab.cell("reference", "value")) == pytest.approx(frame[6, 19], abs=0.11)
    tab.hover_pixel(HOLE_AT[0] + 0.5, HOLE_AT[1] + 0.5, size)
    assert tab.cell("method-0", "value") == "–"


def test_browser_zoom_keeps_the_pixel_and_keys_move_it(tab: Tab) -> None:
    whole = tab.picture()
    tab.hover_pixel(20.5, 10.5, (40, 52))
    tab.tab.focus("#canvas")
    tab.tab.mouse.wheel(0, -300)
    tab.tab.wait_for_selector("#stage.zoomed")
    assert tab.tab.text_content("#pixel") == "y 20, x 10"
    assert tab.picture() != whole
    tab.tab.keyboard.press("ArrowDown")
    assert tab.tab.text_content("#pixel") == "y 21, x 10"
    tab.tab.keyboard.press("0")
    assert tab.tab.text_content("#zoom-level") == "1×"


def test_browser_chooses_sides_and_plays_frames(tab: Tab) -> None:
    before = tab.picture()
    tab.tab.select_option("#left", "method-1-error")
    tab.tab.select_option("#right", "method-1-std")
    assert tab.tab.text_content("#tag-left") == "|error| · sharp"
    chosen = tab.picture()
    assert chosen != before
    tab.tab.click("#swap")
    assert tab.tab.text_content("#tag-right") == "|error| · sharp"
    assert tab.picture() != chosen

    tab.tab.fill("#speed", "1")
    tab.tab.click("#play")
    # three seconds of four, so that no polling rate can miss it each time
    tab.tab.wait_for_selector(".strip li:first-child .frame[aria-pressed=false]")
    tab.tab.locator(".frame").nth(1).click()
    assert tab.tab.get_attribute("#play", "aria-pressed") == "false"
    assert "2 of 4" in tab.tab.text_content("#frame-facts")
    shift = tab.tab.get_attribute("#screen", "style")
    assert "translate(-0.9615%, 2.5%)" in shift
    tab.tab.uncheck("#registered")
    assert "none" in tab.tab.get_attribute("#screen", "style")


@pytest.mark.parametrize("width", [1280, 390], ids=["enlarged", "shrunk"])
def test_browser_shows_stripes_as_they_are_or_not_at_all(
    browser: Any, tmp_path: Path, width: int
) -> None:
    """Every second column of the error bars is long: no other stripes may be seen, at any size."""
    striped = Demo(size=(40, 200))
    var = torch.full((80, 400), 0.01**2)
    var[:, ::2] = 0.02**2
    sharp = dataclasses.replace(striped.posteriors["sharp"], var=var)
    striped.posteriors = {"plain": striped.posteriors["plain"], "sharp": sharp}
    striped.write(tmp_path / "demo.html")
    tab = Tab(browser.new_page(viewport={"width": width, "height": 900}), tmp_path / "demo.html")
    tab.tab.select_option("#left", "method-1-std")
    tab.tab.select_option("#right", "method-1-std")
    columns = tab.green()
    assert columns.std() < 1  # the mean of both: even
    for _ in range(3):
        tab.tab.click("#zoom-in")
    columns = tab.green()
    edges = np.flatnonzero(np.diff(columns)) + 1
    assert len(set(np.diff(edges))) == 1  # both kinds of columns, each as wide as the other
    assert columns.std() > 10
    tab.tab.close()


def test_browser_names_in_the_lists_are_not_cut(tab: Tab) -> None:
    for side in ("#left", "#right"):
        room, text = tab.tab.evaluate(
            """side => {
              const select = document.querySelector(side), span = document.createElement("span");
              span.style.cssText = `position: absolute; font: ${getComputedStyle(select).font}`;
              const all = [...select.options].map(one => one.text);
              span.textContent = all.reduce((a, b) => (a.length > b.length ? a : b));
              document.body.append(span);
              const found = [select.clientWidth - 16, span.offsetWidth];
              span.remove();
              return found;
            }""",
            side,
        )
        assert room >= text
