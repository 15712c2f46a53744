"""Figure 1 of the paper: reference, mean, predicted and actual error of one burst."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice

from matplotlib.figure import Figure

from pushframe.baselines import bicubic
from pushframe.methods import Estimate
from pushframe.simulate import preset, with_options
from pushframe.sources import SimulatedCases, find_sources


def figure_1(
    run: Callable[..., Estimate], options: argparse.Namespace, scale: int, frames: int, name: str
) -> str:
    """Draw the first test burst; the file's name."""
    setting = with_options(preset("paper"), frames=frames, size=options.size, scale=scale)
    cases = SimulatedCases(find_sources(options.test), setting, options.seed)
    made = next(islice(cases, 0, None)).simulated
    burst = made.burst.batched().to(options.device)
    posterior = run(burst, scale, None).posterior
    mean, std = posterior.mean[0].cpu(), posterior.var[0].sqrt().cpu()
    low, high = made.truth.quantile(0.01), made.truth.quantile(0.99)
    largest = float(std.nan_to_num().quantile(0.995))
    panels = (
        ("reference, bicubic", bicubic(burst, scale).mean[0].cpu(), "gray", low, high),
        ("mean", mean, "gray", low, high),
        ("truth", made.truth, "gray", low, high),
        ("predicted std", std, "magma", 0, largest),
        ("actual error", (mean - made.truth).abs(), "magma", 0, largest),
    )
    figure = Figure(figsize=(3.2 * len(panels), 3.5), layout="constrained")
    for axes, (title, image, colours, first, last) in zip(
        figure.subplots(1, len(panels)), panels, strict=True
    ):
        axes.imshow(image.numpy(), cmap=colours, vmin=float(first), vmax=float(last))
        axes.set_title(title)
        axes.set_axis_off()
    path = options.out / f"figure1-{name}.png"
    figure.savefig(path, dpi=120)
    return path.name
