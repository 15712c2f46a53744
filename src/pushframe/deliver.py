"""From the files of one burst to its product and all that lies beside it, with one call."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .align import Aligned, Registration, align, common
from .brightness import MAX_GAIN_ERROR, brightness_fault, reference_excess, reference_fault
from .checks import require
from .errors import PushframeError, UsageError
from .extent import Bounds, Window, window_of_bounds, within
from .heldout import HeldOut, Unchecked, check_held_out
from .infer import Reconstruction, tiled_batch
from .io import atomic_files, burst_parts, new_product, open_burst, sweep, write_product
from .io.guard import naming
from .io.product import product_facts, read_window
from .io.source import BurstSource
from .io.stac import Companions, footprint_note, stac_item
from .io.stream import ProductSink
from .io.style import std_style
from .methods import best_method
from .registration import MIN_SIDE_PX
from .report import VALUED, Report, shown_part, write_report
from .validate import least_correlation
from .version import __version__

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Order:
    """What is asked for: which burst, which product, and how.

    product: .tif for a GeoTIFF with all that lies beside it, .npz for the arrays alone. window:
    the part to work on, low-res px of the reference; bounds: the same on the map, in the CRS of
    the reference; at most one of them. extent: all of the reference frame, or what all frames
    cover. method: the best for the scale by default. report: whether the HTML page is written
    beside a GeoTIFF.
    """

    burst: Path
    product: Path
    scale: int = 2
    method: str = ""
    device: str = "cpu"
    window: Window | None = None
    bounds: Bounds | None = None
    extent: Literal["reference", "common"] = "reference"
    report: bool = True

    def __post_init__(self) -> None:
        if not self.method:
            object.__setattr__(self, "method", best_method(self.scale))

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change with the input files, the settings or the version.

        Files count by name, size and time of change, as in make: no pixel is read. A product
        that lies beside its burst is none of its files.
        """
        settings = {
            key: value
            for key, value in dataclasses.asdict(self).items()
            if key not in ("burst", "product", "device")
        }
        weights = [Path(self.method)] if Path(self.method).is_file() else []
        seen = [
            (path.name, path.stat().st_size, path.stat().st_mtime_ns)
            for path in [*input_files(self.burst), *weights]
        ]
        text = json.dumps([settings, seen, __version__], default=str, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def files(self) -> list[Path]:
        """The files that will be written."""
        if self.product.suffix.lower() == ".npz":
            return [self.product]
        beside = Companions(self.product)
        report = [beside.report] if self.report else []
        return [self.product, beside.item, beside.style, *report]


@dataclass(frozen=True)
class Delivery:
    """What was delivered: the product, its size, how it was made, and what the check says.

    verdict: None without a report. notes: those of the provenance, one by one.
    """

    product: Path
    shape: tuple[int, int]
    provenance: dict[str, str]
    has_bar: bool
    verdict: str | None = None
    notes: tuple[str, ...] = ()


def input_files(burst: Path) -> list[Path]:
    """The files that a burst is made of; of a folder, all that are in it."""
    parts = burst_parts(burst)
    inside = [path for part in parts if part.is_dir() for path in part.rglob("*")]
    return sorted({path for path in (*parts, *inside) if path.is_file()})


def is_finished(order: Order) -> bool:
    """Whether the product of an order is there: whole, and from the same input, settings, version.

    Files are renamed into place when all of them are whole. Here each must be there, and the
    product must open, hold the same fingerprint, and give its last pixel.
    """
    if not all(path.is_file() for path in order.files):
        return False
    try:
        return product_facts(order.product).get("fingerprint") == order.fingerprint
    except PushframeError:  # damaged since, or something else: made again
        return False


def check_apart(orders: Sequence[Order]) -> None:
    """UsageError where an output would replace a file of a burst, or lie among its frames."""
    taken = {
        os.path.realpath(part): order.burst for order in orders for part in burst_parts(order.burst)
    }
    for file in (file for order in orders for file in order.files):
        place = Path(os.path.realpath(file))
        for path in (place, *place.parents):
            if str(path) in taken:
                got = "one of its files" if path == place else "a file in its folder"
                raise UsageError(
                    f"{file}: expected --out other than the burst {taken[str(path)]}, got {got}: "
                    "choose another name or folder"
                )


def deliver(order: Order, on_progress: Progress = lambda *_: None) -> Delivery:
    """Read, reconstruct, check and write: all files of the order appear, or none.

    on_progress: told (stage, done, total).
    """
    check_apart([order])
    sweep(order.product.parent)  # of what a process left that was killed
    source, alignment = open_part(order)
    arrays_alone = order.product.suffix.lower() == ".npz"
    said = [] if source.days else brightness_notes(alignment, source.names[0])
    if not arrays_alone and (place := footprint_note(source.shape, source.georef)) is not None:
        said.append(place)
    source = dataclasses.replace(source, said=(*source.said, *said))
    making = Reconstruction(
        source,
        order.scale,
        order.method,
        order.device,
        lambda done, total: on_progress("super-resolving", done, total),
    )
    facts = {"input": order.burst.name, "fingerprint": order.fingerprint}
    if order.window is not None:
        facts["window"] = str(order.window)
    if order.bounds is not None:
        facts["bbox"] = str(order.bounds)
    if arrays_alone:
        product = making.product()
        facts = {**product.provenance, **facts}
        write_product(dataclasses.replace(product, provenance=facts), order.product)
        barred = bool(np.isfinite(product.std).any())
        return Delivery(order.product, making.shape, facts, barred, None, making.said())
    with atomic_files(order.product.parent) as room:
        files = Companions(room / order.product.name)
        with new_product(files.product, making.shape, order.scale, making.georef) as sink:
            for part in making.parts():
                sink.write(*part)
            facts = {**making.provenance(), **facts}
            sink.provenance = facts
        check = _write_beside(order, source, alignment, making, sink, files, facts, on_progress)
    barred = sink.tallies["std"].known > 0
    verdict = None if check is None else check.verdict
    return Delivery(order.product, making.shape, facts, barred, verdict, making.said())


def open_part(order: Order) -> Aligned:
    """The burst of an order, opened, aligned and cropped to the part that is asked for."""
    with naming(order.burst):
        opened = open_burst(order.burst)
        source, table = align(opened)
        require(
            order.window is None or source.names[0] == opened.names[0],
            f"{opened.names[0]}, in whose pixels --window counts, to be of use",
            "one that disagrees with the other frames",
            f"choose another with `reference`, such as {source.names[0]}",
        )
    if order.extent == "common":
        source = common(source)
    window = order.window
    if order.bounds is not None:
        window = window_of_bounds(order.bounds, source.georef, source.shape)
    if window is not None:
        require(
            min(window.height, window.width) >= min(MIN_SIDE_PX, *source.shape),
            f"a window of at least {MIN_SIDE_PX}x{MIN_SIDE_PX} px of the reference",
            f"{window.height}x{window.width}",
            "choose a larger one",
            UsageError,
        )
        source = source.crop(*within(window, source.shape))
    return Aligned(source, table)


def brightness_notes(table: Sequence[Registration], reference: str) -> list[str]:
    """A sentence for each frame that shows the reference's scene at another brightness.

    One of the reference where most others say that it is that.
    """
    told = [
        (line.frame, line.gain, line.correlation)
        for line in table
        if line.used and line.gain is not None and line.correlation is not None
    ]
    least = least_correlation([correlation for *_, correlation in told]) if told else 0.0
    alike = [(frame, gain) for frame, gain, correlation in told if correlation >= least]
    excess = reference_excess([gain for frame, gain in alike if frame != reference])
    found = [] if excess == 1 else [f"{reference}: {reference_fault(excess)}."]
    return found + [
        f"{frame} is {brightness_fault(excess * gain)}."
        for frame, gain in alike
        if frame != reference and abs(excess * gain - 1) > MAX_GAIN_ERROR
    ]


def _write_beside(
    order: Order,
    source: BurstSource,
    alignment: Sequence[Registration],
    making: Reconstruction,
    sink: ProductSink,
    files: Companions,
    facts: dict[str, str],
    on_progress: Progress,
) -> HeldOut | Unchecked | None:
    """STAC item, QGIS style and, if asked for, the report with its check."""
    beside = Companions(order.product)
    item: dict[str, Any] = stac_item(
        beside, making.shape, making.georef, facts, sink.tallies, order.report
    )
    files.item.write_text(json.dumps(item, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    files.style.write_text(std_style(sink.tallies["std"]), encoding="utf-8")
    if not order.report:
        return None
    check = check_held_out(
        making.source,
        order.scale,
        making.method,
        order.device,
        lambda done, total: on_progress("checking the error bars", done, total),
        facts=making.facts,
        scene=making.scene,
        pattern=making.pattern,
    )
    low = shown_part(source.shape, order.scale, making.facts.count, VALUED)
    high = tuple(slice(order.scale * part.start, order.scale * part.stop) for part in low)
    mean, std, samples = read_window(files.product, *high)
    report = Report(
        name=order.product.stem,
        scale=order.scale,
        method=order.method,
        facts=making.facts,
        window=tiled_batch(source, [low], making.facts),
        mean=mean,
        std=std,
        samples=samples,
        origin_hpx=(high[0].start, high[1].start),
        moved_px=source.moved_px(*low).numpy(),
        shape=making.shape,
        tallies=sink.tallies,
        frames=making.frames(),
        alignment=alignment,
        check=check,
        provenance=facts,
        witness=making.witness,
    )
    write_report(files.report, report)
    return check
