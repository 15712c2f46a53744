"""`pushframe demo`: the whole job on a scene that needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..evaluate import Case, Evaluation
from ..infer import count_samples, make_product
from ..io import atomic_files, check_files, write_burst, write_product
from ..methods import best_method, find_methods
from ..report import write_demo_page
from ..simulate import preset, with_options
from ..sources import find_sources, simulate_count
from .console import JSON_OPTION, out, print_json, progress, write_json
from .evaluate import COMPARED, print_summary

FILES = ("burst.npz", "product.tif", "evaluation.json", "index.html")


def command(
    to: Path = typer.Option(Path("demo"), "--out", "-o", help="Folder for the results."),
    seed: int = typer.Option(7, min=0, help="Which scene; each number is another one."),
    frames: int = typer.Option(15, help="Frames in the burst."),
    size: int = typer.Option(128, help="Side of a frame, px."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Simulate a burst of a procedural scene, super-resolve it, and compare with the truth.

    Leaves burst.npz, product.tif (mean, std, samples), evaluation.json and index.html, a page
    to look at.

    Examples:

      pushframe demo

      pushframe demo --out demo --seed 3 --frames 8
    """
    setting = with_options(preset("paper"), frames=frames, size=size)
    check_files([to / name for name in FILES])
    best = best_method(setting.scale)
    names = list(dict.fromkeys((*COMPARED, best)))
    with progress("simulating a burst", len(names) + 1) as (bar, task):
        made = next(simulate_count(find_sources(f"scene:{seed}")[0], setting, seed, 1))
        batch = made.burst.batched()
        estimates = {}
        for name, method in find_methods(names).items():
            bar.update(task, description=f"reconstructing: {name}", advance=1)
            estimates[name] = method.run(batch, setting.scale, None)
        samples = count_samples(batch, estimates[best], setting.scale)[0]
        posterior = estimates[best].posterior[0]
        product = make_product(
            made.burst, posterior.mean, posterior.var, samples, setting.scale, best
        )
    evaluation = Evaluation()
    evaluation.update([Case(f"scene:{seed}", made)], estimates)
    result: dict[str, Any] = evaluation.compute()
    posteriors = {name: estimate.posterior[0] for name, estimate in estimates.items()}
    with atomic_files(to) as draft:
        write_burst(made.burst, draft / "burst.npz", truth=made.truth, flow_px=made.flow_px)
        write_product(product, draft / "product.tif")
        write_json(draft / "evaluation.json", result)
        write_demo_page(draft / "index.html", made, posteriors, best, result, product)
    if as_json:
        print_json(result)
    else:
        print_summary(result)
        out.print(f"\nthe product: {to / 'product.tif'}", highlight=False)
        out.print(f"look at:     {to / 'index.html'}", highlight=False)
