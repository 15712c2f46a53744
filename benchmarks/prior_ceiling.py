r"""How much a better prior could gain: the solver's, and one that the truth tells where detail is.

    python benchmarks/prior_ceiling.py ../shared/data/hr/train \
        --out benchmarks/results/prior_ceiling.json

The first window of each image, the paper's setting, true motion. Reconstructed under one spectrum
for the whole scene, under the local prior that is learnt from that image, and under local priors
whose power and direction are those of the truth, averaged over a Gaussian of so many high-res px.
The last are no methods: they bound what can be won by knowing better where detail lies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from record import record
from torch import Tensor

from pushframe.bootstrap import balanced_mean
from pushframe.burst import stack
from pushframe.filters import gaussian_blur
from pushframe.gaussian import GaussianProblem
from pushframe.local_prior import LocalPrior, analyse
from pushframe.metrics import Metrics
from pushframe.posterior import Posterior
from pushframe.simulate import PRESETS, with_options
from pushframe.solver.detail import POWER_RANGE
from pushframe.solver.image import detailed, reconstruct
from pushframe.solver.spectrum import spectrum_of_burst
from pushframe.sources import SimulatedCases, find_sources

SMOOTHING_HPX = (2.0, 1.0)


def told(problem: GaussianProblem, canvas: Tensor, smoothing_hpx: float) -> LocalPrior:
    """The local prior of a scene that is known, (B, h, w), less its level."""
    root = problem.stiffness.sqrt()
    w, down, right = analyse(canvas, root).unbind(1)
    products = torch.stack([w * w, 2 * down * down, 2 * down * right, 2 * right * right], 1)
    plain, yy, yx, xx = gaussian_blur(products, smoothing_hpx).unbind(1)
    middle, half = (yy + xx) / 2, (yy - xx) / 2
    radius = torch.hypot(half, yx).clamp(min=1e-9)
    larger, smaller = ((middle + r).clamp(*POWER_RANGE) for r in (radius, -radius))
    middle, stretch = (larger + smaller) / 2, (larger - smaller) / (2 * radius)
    turned = torch.stack([middle + stretch * half, stretch * yx, middle - stretch * half], 1)
    return LocalPrior.of_power(root, plain.clamp(*POWER_RANGE), turned)


def means(folder: str, frames: int, seed: int) -> dict[str, float]:
    """Image-balanced PSNR under each prior."""
    setting = with_options(PRESETS["paper"], frames=frames)
    metrics: dict[str, Metrics] = {}
    for source in find_sources(folder):
        case = next(iter(SimulatedCases([source], setting, seed)), None)
        if case is None:
            continue
        burst = stack([case.simulated.burst])
        truth, flow_px = case.simulated.truth[None], case.simulated.flow_px[None]
        gain, good = torch.ones_like(burst.exposure), burst.valid
        knots = spectrum_of_burst(burst, good, flow_px, gain, setting.scale)
        made = reconstruct(burst, good, flow_px, gain, knots, setting.scale)
        images = {"one spectrum": made.mean, "local prior": detailed(made, good).mean}
        pad = [made.problem.pad] * 4
        known = F.pad((truth - made.level[:, 0])[:, None], pad, mode="replicate")[:, 0]
        data = made.residual + made.problem.model.forward(made.image)
        for smoothing in SMOOTHING_HPX:
            problem = made.problem.with_detail(told(made.problem, known, smoothing))
            image = problem.solve(data, made.image, 1e-5)
            images[f"told, over {smoothing:g} px"] = made._replace(image=image).mean
        for name, image in images.items():
            sums = metrics.setdefault(name, Metrics(setting.scale))
            sums.update(Posterior(image), truth, [case.group])
    return {name: balanced_mean(sums.psnr_db(), sums.groups) for name, sums in metrics.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("--frames", type=int, nargs="+", default=[5, 8, 15])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for frames in options.frames:
        rows.append({"frames": frames, **means(options.images, frames, options.seed)})
        print(rows[-1], flush=True)
        if options.out:
            record(options.out, "prior_ceiling", seed=options.seed, rows=rows)


if __name__ == "__main__":
    main()
