"""`pushframe run`: bursts to products."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import typer

from ..checks import check_scale, counted
from ..deliver import Delivery, Order, deliver, is_finished
from ..errors import UsageError
from ..extent import Bounds, Window
from ..io import check_files
from ..many import Result, run_here, run_on_cluster
from ..methods import METHODS, best_method, check_methods
from ..notes import of_reference
from ..orders import find_inputs, plan_orders
from ..report.packages import need_packages
from .console import JSON_OPTION, check_device, fail, note, out, print_json, progress

SUFFIXES = (".tif", ".tiff", ".npz")


def command(
    bursts: list[str] = typer.Argument(
        ..., metavar="BURST...", help="Bursts, folders of bursts, or a pattern in quotes."
    ),
    to: Path = typer.Option(
        ..., "--out", "-o", help="The product, .tif (GeoTIFF) or .npz; or a folder for many."
    ),
    method: str | None = typer.Option(
        None,
        help=f"One of {', '.join(METHODS)}, or weights: base (the default at scale 2, solver at "
        "others), small, or a file.",
    ),
    scale: int = typer.Option(2, help="Zoom, 2-4."),
    device: str = typer.Option("cpu", help="cpu or cuda."),
    window: str | None = typer.Option(
        None, metavar="ROW,COL,HEIGHT,WIDTH", help="A part to try first, px of the reference."
    ),
    bbox: str | None = typer.Option(
        None, metavar="WEST,SOUTH,EAST,NORTH", help="The same on the map, in the frames' CRS."
    ),
    extent: str = typer.Option("reference", help="reference: all of it; common: what all cover."),
    report: bool = typer.Option(True, help="An HTML report beside a GeoTIFF, with its check."),
    jobs: int = typer.Option(1, min=1, help="Processes, where there are many bursts."),
    cluster: str | None = typer.Option(
        None, metavar="ADDRESS", help="A Dask scheduler whose workers do the bursts."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Super-resolve bursts into products: mean, std and number of observations of each pixel.

    Values are in DN of the reference frame. Frames are placed on the reference first, by their
    georeference and their images. Scenes of any size are worked on tile by tile and written as
    they are made. Beside sharp.tif lie sharp.json (STAC item), sharp_std.qml (QGIS style of the
    error bar) and sharp.html (report; it holds frames out in turn to check the error bars). A
    product that is there already is replaced.

    With a folder as --out, each burst gets its product there. Those that are finished are
    skipped; one that fails is reported at the end, and the exit code is 1.

    Examples:

      pushframe run burst.npz --out sharp.tif

      pushframe run frames/ --out try.tif --window 1000,2000,256,256

      pushframe run frames/ --out sharp.tif --method map --scale 3 --no-report

      pushframe run 'bursts/*' --out products --jobs 4

      pushframe run 'bursts/*' --out products --cluster tcp://head:8786
    """
    pattern = _pattern(to, scale, method, device, window, bbox, extent, report)
    if cluster is None:
        check_device(device)
    if to.suffix.lower() in SUFFIXES:
        _run_one(find_inputs(bursts), pattern, cluster, as_json)
    else:
        _run_many(find_inputs(bursts), pattern, jobs, cluster, as_json)


def _pattern(
    to: Path,
    scale: int,
    method: str | None,
    device: str,
    window: str | None,
    bbox: str | None,
    extent: str,
    report: bool,
) -> Order:
    """What the options ask for, of no burst yet; UsageError where they do not fit."""
    method = method or best_method(scale)
    check_scale(scale)
    check_methods([method], scale)
    if window is not None and bbox is not None:
        raise UsageError("expected --window or --bbox, got both: choose one")
    if extent not in ("reference", "common"):
        raise UsageError(f"expected --extent reference or common, got {extent!r}: choose one")
    if to.suffix and to.suffix.lower() not in SUFFIXES and not to.is_dir():
        raise UsageError(
            f"expected --out of .tif or .npz, or a folder, got {to}: change the suffix"
        )
    return Order(
        Path(),
        to,
        scale,
        method,
        device,
        None if window is None else Window(*map(int, _numbers("--window", window, True))),
        None if bbox is None else Bounds(*_numbers("--bbox", bbox, False)),
        cast(Literal["reference", "common"], extent),
        report,
    )


def _numbers(option: str, text: str, whole: bool) -> list[float]:
    """Four numbers with commas between them."""
    try:
        values = [int(word) if whole else float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) != 4:
        what = "whole numbers" if whole else "numbers"
        raise UsageError(f"expected four {what} with commas for {option}, got {text!r}: correct it")
    return values


def _run_one(inputs: list[Path], pattern: Order, cluster: str | None, as_json: bool) -> None:
    """One burst to one product; what is wrong with it is the user's error."""
    if len(inputs) != 1 or cluster is not None:
        got = "--cluster" if len(inputs) == 1 else counted(len(inputs), "burst")
        raise UsageError(
            f"expected a folder as --out for {got}, got {pattern.product}: leave out its suffix"
        )
    (order,) = plan_orders(inputs, pattern, pattern.product)
    _check(order)
    with progress("super-resolving", None) as (bar, task):

        def on_progress(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        made = deliver(order, on_progress)
    if as_json:
        print_json(_facts(made))
        return
    moved = of_reference(made.notes)
    for text in moved:  # grid and unit are others than asked for: part of the result
        out.print(text, highlight=False, markup=False)
    for text in made.notes:
        if text not in moved:
            note(text)
    height, width = made.shape
    bands = "mean, std and samples" if made.has_bar else "mean and samples alone"
    out.print(f"{made.product}: {height}x{width}, {bands}, by {order.method}", highlight=False)
    if made.verdict:
        out.print(made.verdict, highlight=False)


def _run_many(
    inputs: list[Path], pattern: Order, jobs: int, cluster: str | None, as_json: bool
) -> None:
    """Each burst to a product in a folder; exit code 1 where one failed."""
    orders = plan_orders(inputs, pattern, None)
    if not orders:
        raise UsageError("expected bursts, got none: check the pattern")
    _check(orders[0])
    todo = [order for order in orders if not is_finished(order)]
    skipped = [str(order.product) for order in orders if order not in todo]
    results = run_here(todo, jobs) if cluster is None else run_on_cluster(todo, cluster)
    done: list[Result] = []
    with progress("bursts", len(todo)) as (bar, task):
        for result in results:
            done.append(result)
            bar.advance(task)
            if not as_json:
                _tell(result, len(done), len(todo))
    failed = [result for result in done if result.error]
    if as_json:
        made = [_facts(result.delivery) for result in done if result.delivery]
        bad = [{"burst": str(r.order.burst), "error": r.error} for r in failed]
        print_json({"made": made, "skipped": skipped, "failed": bad})
    else:
        out.print(
            f"{counted(len(done) - len(failed), 'product')} made in {pattern.product}, "
            f"{len(skipped)} skipped as finished, {len(failed)} failed",
            highlight=False,
        )
        for result in failed:
            fail(result.error or "")
    if failed:
        raise typer.Exit(1)


def _tell(result: Result, number: int, total: int) -> None:
    state = "failed" if result.delivery is None else str(result.delivery.product)
    text = f"{number}/{total} {result.order.burst.name}: {state} ({result.seconds:.1f} s)"
    out.print(text, highlight=False)
    for moved in of_reference(result.delivery.notes) if result.delivery else ():
        out.print(f"{result.order.burst.name}: {moved}", highlight=False, markup=False)


def _check(order: Order) -> None:
    """What can be known to fail is said before any work."""
    check_files(order.files)
    if not order.product.parent.exists():  # mistyped, perhaps
        note(f"making the folder {order.product.parent}")
    if order.report and order.product.suffix.lower() != ".npz":
        need_packages()


def _facts(made: Delivery) -> dict[str, object]:
    return {
        "product": str(made.product),
        "size": list(made.shape),
        "verdict": made.verdict,
        **made.provenance,
    }
