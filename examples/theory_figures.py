"""The theory in three figures: the risk and its minimum, what is recovered, and what breaks it.

    python examples/theory_figures.py --out docs/images

Writes theory_risk.png, theory_recovery.png and theory_failures.png, in about half a minute on one
CPU core. Needs `pip install 'pushframe[report]'`. docs/theory.md explains them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor

from pushframe import theory

SELF, SUPERVISED, TRUTH = "#c0322b", "#2b6ca3", "0.25"
LAW = theory.AffineNoise(0.05, 0.1)
NO_NOISE: Callable[[Tensor], Tensor] = torch.zeros_like
OPERATOR = theory.subsampling((2, 2))
WHOLE = theory.RandomOperator(torch.eye(16)[None])  # the truth itself as target
COUNT = 60_000
PIXEL = 0  # of the risk surface


def start(seed: int, size: int = 16) -> theory.Gaussian:
    """Somewhere to begin a descent."""
    generator = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, size, dtype=torch.float64, generator=generator)
    return theory.Gaussian(4 + mean, log_var.exp())


def known(world: theory.Mixture, generator: torch.Generator) -> theory.Mixture:
    """What is known of a drawn image after two noisy low-res frames of it."""
    view = theory.burst_view()
    seen = theory.AffineNoise(0, 2.25).add(view @ world.sample(1, generator)[0], generator)
    return world.given(seen, view, 2.25 * torch.eye(len(seen), dtype=torch.float64))


def ambiguous() -> theory.Mixture:
    """What is known of the mixture after an input halfway between its scenes."""
    world, view = theory.mixture_world(), theory.burst_view()
    noise_cov = 2.25 * torch.eye(len(view), dtype=torch.float64)
    return world.given(view @ world.moments.mean, view, noise_cov)


def targets(
    posterior: theory.Mixture, law: theory.AffineNoise, generator: torch.Generator
) -> tuple[theory.Gaussian, theory.RandomOperator, Tensor]:
    """Moments of COUNT noisy targets, the frequencies of tau, standard errors of the variances."""
    truth = posterior.sample(COUNT, generator)
    target, tau = theory.draw_targets(truth, OPERATOR, law, generator)
    error = torch.zeros(16, dtype=torch.float64)
    for place, matrix in enumerate(OPERATOR.matrices):
        square = (target[tau == place] - target[tau == place].mean(0)).square()
        error += matrix.mT @ square.std(0) / len(square) ** 0.5
    return *theory.sample_moments(target, tau, OPERATOR), error


def titled(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout(w_pad=2.5, h_pad=2)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    print(path)


def draw_risk(path: Path) -> None:
    """The posterior of a pixel, and three risks over its predicted mean and std."""
    figure, axes = plt.subplots(1, 4, figsize=(16, 4.2), facecolor="white")
    posterior, generator = ambiguous(), torch.Generator().manual_seed(0)
    moments = posterior.moments
    mean, std = float(moments.mean[PIXEL]), float(moments.var[PIXEL].sqrt())
    draws = posterior.sample(COUNT, generator)
    axes[0].hist(draws[:, PIXEL].numpy(), 80, density=True, color="0.8")
    axes[0].errorbar(mean, 0.1, xerr=std, fmt="*", color=TRUTH, capsize=4, markersize=13)
    axes[0].annotate("mean ± std", (4.0, 0.16), ha="center", color=TRUTH)
    axes[0].set_yticks([])
    titled(axes[0], "What is known of one pixel", "value", "density")

    noisy, frequencies, _ = targets(posterior, LAW, generator)
    still = torch.zeros(COUNT, dtype=torch.long)
    clean, _ = theory.sample_moments(draws, still, WHOLE)
    panels = [
        ("Risk, the truth as target", WHOLE, clean, NO_NOISE),
        ("Risk, noisy sub-grids as target", frequencies, noisy, LAW.var),
        ("The same without R in the loss", frequencies, noisy, NO_NOISE),
    ]
    means, stds = torch.linspace(3, 4.6, 41), torch.linspace(0.55, 1.45, 41)
    for axis, (title, operator, target, noise) in zip(axes[1:], panels, strict=True):
        noise_var = noise(operator.matrices @ moments.mean)
        found = theory.minimise(operator, target, noise, start(1))
        surface = torch.empty(len(stds), len(means))
        for j, s in enumerate(stds):
            for i, m in enumerate(means):
                belief = theory.Gaussian(found.mean.clone(), found.cov.clone())
                belief.mean[PIXEL], belief.cov[PIXEL] = m, s**2
                surface[j, i] = theory.risk(belief, operator, target, noise_var)
        surface = surface - surface.min()
        levels = [
            level * float(surface.max()) for level in (0.002, 0.01, 0.03, 0.08, 0.2, 0.4, 0.7)
        ]
        axis.contour(means, stds, surface, levels, cmap="viridis", linewidths=1.2)
        axis.plot(mean, std, "*", color=TRUTH, markersize=11, label="posterior mean, std")
        axis.plot(
            *(float(found.mean[PIXEL]), float(found.cov[PIXEL].sqrt())),
            "o",
            color=SELF if operator is frequencies else SUPERVISED,
            markersize=17,
            markerfacecolor="none",
            markeredgewidth=2,
            label="minimum",
        )
        axis.legend(loc="upper right", framealpha=1, edgecolor="white")
        titled(axis, title, "predicted mean", "predicted std")
    save(figure, path)


def scatter(axis: Axes, world: theory.Mixture, law: theory.AffineNoise, title: str) -> None:
    """Recovered against true variance, 16 pixels of eight inputs."""
    generator = torch.Generator().manual_seed(1)
    still = torch.zeros(COUNT // 4, dtype=torch.long)
    for seed in range(8):
        posterior = known(world, generator)
        truth = posterior.moments
        sample, frequencies, error = targets(posterior, law, generator)
        found = theory.minimise(frequencies, sample, law.var, start(seed))
        clean, _ = theory.sample_moments(posterior.sample(len(still), generator), still, WHOLE)
        taught = theory.minimise(WHOLE, clean, NO_NOISE, start(seed))
        new = seed == 0
        axis.errorbar(
            *(truth.var, found.cov, 2 * error),
            fmt=".",
            color=SELF,
            elinewidth=1,
            label="self-supervised, ± 2 s.e." if new else None,
        )
        axis.plot(
            *(truth.var, taught.cov, "s"),
            color=SUPERVISED,
            markersize=6,
            markerfacecolor="none",
            label="supervised" if new else None,
        )
    ends = axis.get_xlim()
    axis.axline((ends[0], ends[0]), slope=1, color=TRUTH, linewidth=1, zorder=0)
    axis.set_aspect("equal")
    axis.set_xlim(ends)
    axis.set_ylim(ends)
    axis.legend(frameon=False, loc="lower right", fontsize=9)
    titled(axis, title, "true posterior variance", "recovered variance")


def train_network(
    world: theory.Mixture, view: Tensor, law: theory.AffineNoise, view_var: float
) -> torch.nn.Module:
    """A network from input to means and log variances, trained on pairs (input, target) alone."""
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(2)
    operator = theory.subsampling((1, 1))
    network = torch.nn.Sequential(
        torch.nn.Linear(1, 48), torch.nn.Tanh(), torch.nn.Linear(48, 48), torch.nn.Tanh(),
        torch.nn.Linear(48, 8),
    ).double()  # fmt: skip
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 2000)
    for _ in range(2000):
        truth = world.sample(1024, generator)
        seen = theory.AffineNoise(0, view_var).add(truth @ view.mT, generator)
        target, tau = theory.draw_targets(truth, operator, law, generator)
        mean, log_var = network(seen - 4).chunk(2, -1)
        noise_var = law.var((operator.matrices[tau] @ mean[..., None])[..., 0])
        belief = theory.Gaussian(mean + 0, log_var.exp())
        loss = theory.nll(belief, target, operator.matrices[tau], noise_var).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network


def draw_network(axis: Axes) -> None:
    """Posterior mean and std of one pixel against the input, true and learnt."""
    world, view_var, pixel = theory.mixture_world((2, 2)), 0.16, 2
    view = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)  # another pixel, noisy
    network = train_network(world, view, LAW, view_var)
    inputs = torch.linspace(2.2, 5.8, 60, dtype=torch.float64)
    noise_cov = torch.tensor([[view_var]], dtype=torch.float64)
    truth = [world.given(v[None], view, noise_cov).moments for v in inputs]
    mean = torch.stack([one.mean[pixel] for one in truth])
    std = torch.stack([one.var[pixel].sqrt() for one in truth])
    with torch.no_grad():
        learnt, log_var = network(inputs[:, None] - 4).chunk(2, -1)
    learnt, learnt_std = learnt[:, pixel], log_var[:, pixel].exp().sqrt()
    axis.fill_between(inputs, mean - std, mean + std, color="0.87", label="posterior ± std")
    axis.plot(inputs, mean, color=TRUTH, label="posterior mean")
    axis.plot(inputs, learnt, "--", color=SELF, linewidth=2, label="network, mean and ± std")
    for sign in (-1, 1):
        axis.plot(inputs, learnt + sign * learnt_std, ":", color=SELF, linewidth=2)
    axis.set_ylim(1.6, 5.4)
    axis.legend(frameon=False, loc="lower right", fontsize=9)
    titled(axis, "A network that never saw the truth", "input: a noisy neighbour", "pixel")


def draw_recovery(path: Path) -> None:
    """Recovered against true variances in three worlds, and a trained network."""
    figure, axes = plt.subplots(1, 4, figsize=(17, 4.4), facecolor="white")
    white = theory.AffineNoise(0, 0.1)
    scatter(axes[0], theory.gaussian_world(), white, "Gaussian world")
    scatter(axes[1], theory.mixture_world(), white, "Mixture: posterior not Gaussian")
    scatter(axes[2], theory.mixture_world(), LAW, "Noise that follows the signal")
    draw_network(axes[3])
    save(figure, path)


def draw_unseen(axis: Axes, truth: theory.Gaussian, target: theory.Gaussian) -> None:
    fixed = theory.RandomOperator(OPERATOR.matrices[:1])
    seen = OPERATOR.matrices[0].sum(0) > 0
    one = theory.Gaussian(target.mean[:1], target.cov[:1])
    for seed in range(3):
        found = theory.minimise(fixed, one, LAW.var, start(seed))
        axis.plot(
            truth.var[~seen],
            found.cov[~seen],
            "x",
            color="0.6",
            label="unseen: left where they began",
        )
        axis.plot(truth.var[seen], found.cov[seen], "o", color=SELF, label="seen: right")
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[:2], labels[:2], framealpha=1, edgecolor="white", fontsize=9)
    axis.plot([0.02, 0.4], [0.02, 0.4], color=TRUTH, linewidth=1, zorder=0)
    axis.set_ylim(0, 3.2)
    titled(axis, "No random shift: 3 pixels in 4 are free", "true variance", "recovered variance")


def draw_valley(axis: Axes) -> None:
    operator = theory.RandomOperator(torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]))
    noise_var = torch.full((2, 1), 0.3, dtype=torch.float64)
    mean = torch.zeros(2, dtype=torch.float64)
    truth = theory.Gaussian(mean, torch.tensor([1.0, 3.0], dtype=torch.float64))
    target = theory.target_moments(truth, operator, noise_var)
    grid = torch.linspace(0.05, 4.5, 40, dtype=torch.float64)
    surface = torch.tensor(
        [
            [theory.risk(theory.Gaussian(mean, torch.stack([x, y])), operator, target, noise_var)
             for x in grid]
            for y in grid
        ]
    )  # fmt: skip
    levels = (0.002, 0.01, 0.03, 0.08, 0.2)
    axis.contour(grid, grid, surface - surface.min(), levels, cmap="viridis", linewidths=1.2)
    axis.plot([0, 4], [4, 0], color=SELF, linewidth=1)
    for begin in ([0.4, 0.6], [1.6, 0.5], [3.9, 1.9], [1.9, 4.2]):
        cov = torch.tensor(begin, dtype=torch.float64)
        found = theory.minimise(operator, target, lambda _: noise_var, theory.Gaussian(mean, cov))
        axis.annotate("", found.cov.tolist(), begin, arrowprops={"arrowstyle": "->"})
        axis.plot(*found.cov.tolist(), "o", color=SELF, label="minima found")
    axis.plot(1, 3, "*", color=TRUTH, markersize=15, label="posterior")
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[-2:], labels[-2:], loc="upper right", framealpha=1, edgecolor="white")
    axis.set_xlim(0, 4.5)
    axis.set_ylim(0, 4.5)
    title = "Targets u1 + u2, u1 - u2: a line of minima"
    titled(axis, title, "variance of pixel 1", "variance of pixel 2")


def draw_uncorrected(axis: Axes, truth: theory.Gaussian, target: theory.Gaussian) -> None:
    with_noise = theory.minimise(OPERATOR, target, LAW.var, start(0))
    without = theory.minimise(OPERATOR, target, NO_NOISE, start(0))
    axis.plot(truth.var, without.cov, "s", color="0.5", label="no R in the loss: var + R")
    axis.plot(truth.var, with_noise.cov, "o", color=SELF, label="R in the loss")
    axis.axline((0, 0), slope=1, color=TRUTH, linewidth=1, zorder=0)
    axis.legend(frameon=False, loc="upper left", fontsize=9)
    axis.set_xlim(0, 0.36)
    axis.set_ylim(0, 0.8)
    titled(axis, "No noise in the loss: too much by R", "true variance", "recovered variance")


def draw_level(axis: Axes, truth: theory.Gaussian, target: theory.Gaussian) -> None:
    levels = torch.linspace(0, 3, 16).tolist()
    laws = [theory.AffineNoise(level * LAW.a, level * LAW.b) for level in levels]
    found = [theory.minimise(OPERATOR, target, law.var, start(0)).cov for law in laws]
    noise = (OPERATOR.matrices.mT @ LAW.var(target.mean)[..., None]).sum(0)[:, 0]
    for pixel, colour in ((15, SELF), (8, SUPERVISED)):
        line = [float(truth.var[pixel] + (1 - level) * noise[pixel]) for level in levels]
        axis.plot(levels, line, color=colour, linewidth=1)
        axis.plot(levels, [cov[pixel] for cov in found], "o", color=colour, markersize=5)
        axis.plot(1, truth.var[pixel], "*", color=TRUTH, markersize=15)
    axis.axvline(1, color="0.8", zorder=0)
    axis.set_ylim(-0.02, 0.65)
    axis.annotate("two pixels; lines: var + R - R_hat\nstars: the truth", (1.15, 0.52))
    title = "Wrong noise level: one to one, then zero"
    titled(axis, title, "stated over true noise, R_hat / R", "recovered variance")


def draw_negative(axis: Axes) -> None:
    generator = torch.Generator().manual_seed(4)
    ratios = torch.logspace(-2, 1, 60, dtype=torch.float64)
    one = torch.tensor(1.0, dtype=torch.float64)
    for count, colour in ((8, SELF), (32, SUPERVISED), (128, TRUTH)):
        share = theory.negative_share(ratios, one, count)
        axis.plot(ratios, 100 * share, color=colour, label=f"{count} targets a pixel")
        for ratio in ratios[5::9]:
            white = torch.randn(count, 5000, dtype=torch.float64, generator=generator)
            learnt = (1 + ratio) * white.var(0, correction=0)
            axis.plot(ratio, 100 * (learnt < 1).double().mean(), "o", color=colour, markersize=5)
    axis.set_xscale("log")
    axis.set_ylim(0, 75)
    axis.legend(frameon=False, fontsize=9)
    title = "Subtracting R afterwards: negative variances"
    titled(axis, title, "true variance over noise variance", "share of pixels, %")


def draw_bias(axis: Axes, truth: theory.Gaussian, target: theory.Gaussian) -> None:
    biases, pixel = torch.linspace(-1.2, 1.2, 13, dtype=torch.float64), 15
    noise_var, var = LAW.var(target.mean), float(truth.var[pixel])
    found = []
    for bias in biases:
        biased = theory.Gaussian(truth.mean + bias, torch.ones_like(truth.mean))
        held = theory.minimise(OPERATOR, target, lambda _: noise_var, biased, hold_mean=True)
        found.append(held.cov[pixel])
    fine = torch.linspace(-1.25, 1.25, 100)
    axis.axhline(var, color="0.8", zorder=0)
    axis.annotate("true variance", (0, var - 0.17), ha="center")
    axis.plot(fine, var + fine**2, color=TRUTH, linewidth=1, label="var + bias²")
    axis.plot(biases, found, "o", color=SELF, label="recovered")
    axis.legend(frameon=False, loc="upper center", fontsize=9)
    axis.set_ylim(0, 2)
    title = "A biased mean: its square joins the variance"
    titled(axis, title, "bias of the predicted mean", "recovered variance")


def draw_failures(path: Path) -> None:
    """Six assumptions, each broken on its own."""
    figure, axes = plt.subplots(2, 3, figsize=(15, 8.6), facecolor="white")
    truth = known(theory.gaussian_world(), torch.Generator().manual_seed(0)).moments
    noise_var = LAW.var(OPERATOR.matrices @ truth.mean)
    target = theory.target_moments(truth, OPERATOR, noise_var)
    draw_unseen(axes[0, 0], truth, target)
    draw_valley(axes[0, 1])
    draw_uncorrected(axes[0, 2], truth, target)
    draw_level(axes[1, 0], truth, target)
    draw_negative(axes[1, 1])
    draw_bias(axes[1, 2], truth, target)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the PNGs")
    folder = parser.parse_args().out
    torch.set_num_threads(1)  # the matrices are 16 x 16: more threads only wait for each other
    folder.mkdir(parents=True, exist_ok=True)
    draw_risk(folder / "theory_risk.png")
    draw_recovery(folder / "theory_recovery.png")
    draw_failures(folder / "theory_failures.png")


if __name__ == "__main__":
    main()
