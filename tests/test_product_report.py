"""The report of a product: values that can be read, the check in words, clicked in a browser."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import sources
from earth import pushframe_frames
from test_report import Page, Tab, browser, unpack

from pushframe import NoiseLaw, read_burst, write_burst
from pushframe.burst import Burst
from pushframe.deliver import Order, deliver
from pushframe.extent import Window
from pushframe.io import read_product
from pushframe.report.frame_table import MEANINGS
from pushframe.report.svg import log_histogram_svg
from pushframe.simulate import preset, simulate_one, with_options
from pushframe.tally import Tally

for package in ("jinja2", "PIL", "matplotlib", "rasterio"):
    pytest.importorskip(package)

__all__ = ["browser"]  # a fixture
SIZE = (80, 80)


class Made:
    """One burst on disk with its product and report."""

    def __init__(self, folder: Path) -> None:
        setting = with_options(preset("continuous"), size=40, frames=6)
        burst = simulate_one(sources(setting, 1, 3)[0], setting, 3).burst
        valid = burst.valid.clone()
        valid[:, :4, :4] = False
        write_burst(dataclasses.replace(burst, valid=valid), folder / "b")
        self.burst = read_burst(folder / "b")
        self.delivery = deliver(Order(folder / "b", folder / "sharp<i>.tif"))
        self.product = read_product(folder / "sharp<i>.tif")
        self.path = folder / "sharp<i>.html"
        self.html = self.path.read_text(encoding="utf-8")
        self.page = Page(self.html)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("report"))


def test_one_file_and_nothing_from_outside(made: Made) -> None:
    assert "://" not in made.html
    assert "sharp<i>" not in made.html  # a name from outside is text
    assert "sharp<i>" in made.page.text
    assert not re.search(r"@import|url\(|fetch\(", made.html)


def test_values_are_those_of_the_product(made: Made) -> None:
    layers = {layer["name"]: layer for layer in made.page.data["layers"]}
    assert list(layers) == ["one frame", "upsampled reference", "base"]
    for name, band in (("mean", made.product.mean), ("std", made.product.std)):
        found = unpack(layers["base"][name])
        np.testing.assert_allclose(found, band, atol=layers["base"][name]["step"])
    reference = unpack(layers["one frame"]["mean"])
    np.testing.assert_allclose(reference, made.burst.raw_dn()[0], atol=0.1)
    upsampled = unpack(layers["upsampled reference"]["mean"])
    inner = slice(6, None)
    np.testing.assert_allclose(upsampled[::2, ::2][inner], reference[inner], atol=0.2)
    assert made.page.data["left"] == "method-0"
    assert made.page.data["right"] == "method-1"


def test_the_verdict_stands_at_the_top_and_in_the_product_s_words(made: Made) -> None:
    text = " ".join("".join(made.page.text).split())
    assert made.delivery.verdict in text
    assert "6 frames were held out in turn and predicted from the others, on 1 part" in text
    assert text.index(made.delivery.verdict) < text.index("Swipe")
    assert len(made.page.all("svg")) == 2
    assert len(re.findall(r'class="curve thin', made.html)) == 6


def test_each_frame_has_a_row_and_provenance_is_listed(made: Made) -> None:
    assert len(re.findall(r'<tr[^>]*><th scope="row">', made.html)) == 6
    for key, value in made.product.provenance.items():
        assert key in made.page.text
        assert not value or value in "".join(made.page.text)


def test_motion_is_that_of_the_files_and_the_film_that_of_the_window(tmp_path: Path) -> None:
    """Frames that are read whole pixels away, near ones that are not, and one of another place."""
    shifts = np.array([[0.0, 0.0], [1.2, -0.6], [7.3, -4.6], [-3.2, 5.5]])
    frames, _ = pushframe_frames((64, 60), shifts, noise_dn=2)
    other, _ = pushframe_frames((64, 60), shifts[:1], seed=9)
    burst = Burst.from_dn(
        np.concatenate([frames, other]).astype(np.float32), torch.ones(5), 3000.0,
        noise=NoiseLaw(0.0, 4.0),
    )  # fmt: skip
    write_burst(burst, tmp_path / "b.npz")
    deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", method="shift_and_add"))
    html = (tmp_path / "p.html").read_text(encoding="utf-8")
    found = [
        [float(value) for value in text.replace("−", "-").split(", ")]
        for text in re.findall(r'data-label="Motion \(px\)">([^–<]+)<', html)
    ]
    np.testing.assert_allclose(found, shifts, atol=0.1)  # frame to reference: the flow's sign
    assert re.findall(r'"row">frame (\d)', html) == ["0", "1", "2", "3", "4"]
    cards = [card for card in Page(html).all("button") if card.get("class") == "frame"]
    left = [[0.64 * float(card["data-dy"]), 0.6 * float(card["data-dx"])] for card in cards]
    whole = [[0, 0], [0, 0], [7, -5], [-3, 6]]  # less than 1.5 px is not moved in reading
    np.testing.assert_allclose(left, shifts - whole, atol=0.1)
    headings = re.findall(r"<th scope=\"col\"><abbr[^>]*>([^<]+)<", html)
    assert headings == [
        "Frame", "Exposure", "Motion (px)", "Spread (px)", "Correlation", "Used (%)",
        "Held out: z²", "Remark",
    ]  # fmt: skip
    text = "".join(Page(html).text)
    assert MEANINGS["Correlation"] in text
    assert MEANINGS["Bend (px)"] not in text  # one tile: nothing is known of it


def test_numbers_at_the_top_are_those_of_the_product(made: Made) -> None:
    tiles = dict(re.findall(r"<div><dt>([^<]+)</dt><dd>([^<]+)<", made.html))
    signal, bar = np.nanmedian(made.product.mean), np.nanmedian(made.product.std)
    assert float(tiles["median signal"]) == pytest.approx(signal, rel=1e-3)
    assert tiles[f"median error bar, {100 * bar / signal:.2g}% of it"] == f"{bar:.3g}"
    assert made.product.provenance["noise_law"].endswith(" DN^2")


def test_where_there_was_no_check_it_says_why(made: Made, tmp_path: Path) -> None:
    order = Order(made.path.with_name("b"), tmp_path / "p.tif", window=Window(4, 4, 24, 24))
    verdict = deliver(order).verdict
    assert verdict.startswith("The error bars were not checked: it takes 500 pixels")
    assert "".join(Page((tmp_path / "p.html").read_text()).text).count(verdict) == 2


def test_a_method_without_error_bar_says_so(made: Made, tmp_path: Path) -> None:
    deliver(Order(made.path.with_name("b"), tmp_path / "p.tif", method="map"))
    page = Page((tmp_path / "p.html").read_text(encoding="utf-8"))
    text = "".join(page.text)
    assert "gives no error bar" in text
    assert "lie in the 90% interval" not in text
    assert not page.all("svg")
    assert page.data["layers"][2]["std"] is None


def test_a_large_scene_is_shown_by_its_middle(tmp_path: Path) -> None:
    setting = with_options(preset("paper"), size=420, frames=3)
    write_burst(simulate_one(sources(setting, 1)[0], setting, 1).burst, tmp_path / "b.npz")
    deliver(Order(tmp_path / "b.npz", tmp_path / "p.tif", method="bicubic"))
    page = Page((tmp_path / "p.html").read_text(encoding="utf-8"))
    assert (tmp_path / "p.html").stat().st_size < 3_500_000
    top, left = page.data["origin"]
    values = page.data["layers"][2]["mean"]
    part = read_product(tmp_path / "p.tif").mean[
        top : top + values["height"], left : left + values["width"]
    ]
    np.testing.assert_allclose(unpack(values), part, atol=values["step"])
    assert "all numbers are of the whole image" in "".join(page.text)


def test_the_histogram_of_bars_holds_nearly_all_pixels() -> None:
    tally = Tally()
    tally.update(np.random.default_rng(0).lognormal(2, 0.4, 20_000))
    edges, counts = tally.histogram
    svg = log_histogram_svg(edges, counts, "error bar, DN")
    labels = [float(t) for t in re.findall(r">([\d.]+)</text>", svg)]
    assert labels == [5.0, 10.0, 20.0]
    assert "<path" in log_histogram_svg(edges, 0 * counts, "nothing")


@pytest.fixture(params=["desktop light", "phone dark"])
def tab(browser: Any, made: Made, request: pytest.FixtureRequest) -> Iterator[Tab]:
    phone = request.param == "phone dark"
    window = browser.new_page(
        viewport={"width": 390, "height": 844} if phone else {"width": 1280, "height": 1000},
        color_scheme="dark" if phone else "light",
    )
    opened = Tab(window, made.path)
    yield opened
    window.close()
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


def test_browser_swipes_and_reads_value_and_bar(tab: Tab, made: Made) -> None:
    before, handle = tab.picture(), tab.box("#handle")
    y = handle["y"] + handle["height"] / 2
    tab.tab.mouse.move(handle["x"] + handle["width"] / 2, y)
    tab.tab.mouse.down()
    tab.tab.mouse.move(handle["x"] - 60, y, steps=4)
    tab.tab.mouse.up()
    assert tab.picture() != before
    tab.hover_pixel(33.5, 47.5, SIZE)
    assert tab.tab.text_content("#pixel") == "y 33, x 47"
    value, std = (float(text) for text in tab.cell("method-1", "value").split(" ± "))
    assert value == pytest.approx(made.product.mean[33, 47], abs=0.11)
    assert std == pytest.approx(made.product.std[33, 47], abs=0.06)
    tab.hover_pixel(1.5, 1.5, SIZE)
    assert tab.cell("method-1", "value") == "–"
    assert tab.tab.locator('td[data-field="error"]').count() == 0  # there is no truth


def test_browser_shows_the_error_bar_and_plays_frames(tab: Tab) -> None:
    before = tab.picture()
    tab.tab.select_option("#right", "method-1-std")
    assert tab.tab.text_content("#tag-right") == "error bar · base"
    assert tab.picture() != before
    assert tab.tab.locator("#left option").all_text_contents() == [
        "one frame", "upsampled reference", "base", "error bar · base",
    ]  # fmt: skip
    tab.tab.locator(".frame").nth(2).click()
    assert "3 of 6" in tab.tab.text_content("#frame-facts")


def test_browser_names_of_frames_stay_whole(tab: Tab) -> None:
    lines = tab.tab.evaluate(
        """[...document.querySelectorAll(".frame-table tbody th")].map(cell => {
          const text = document.createRange();
          text.selectNodeContents(cell);
          return new Set([...text.getClientRects()].map(box => box.top)).size;
        })"""
    )
    assert lines == [1] * 6


def test_browser_titles_of_axes_stand_clear_of_the_numbers(tab: Tab) -> None:
    clear = tab.tab.evaluate(
        """[...document.querySelectorAll("svg")].map(svg => {
          const title = [...svg.querySelectorAll(".axis")].at(-1).getBoundingClientRect();
          const numbers = [...svg.querySelectorAll("text.y")];
          return Math.min(...numbers.map(one => one.getBoundingClientRect().left)) > title.right;
        })"""
    )
    assert clear == [True, True]
