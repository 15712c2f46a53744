"""Toy worlds whose posterior is known in closed form: Gaussian mixtures seen through noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .likelihood import Gaussian
from .operators import RandomOperator, subsampling


@dataclass(frozen=True, eq=False)
class Mixture:
    """A Gaussian mixture, `sum_k weight_k N(means_k, covs_k)`; Gaussian where K = 1.

    weight: (K,); means: (K, d); covs: (K, d, d), float64.
    """

    weight: Tensor
    means: Tensor
    covs: Tensor

    @property
    def moments(self) -> Gaussian:
        """Mean (d,) and covariance (d, d): spread within the components and between them."""
        mean = self.weight @ self.means
        away = self.means - mean
        return Gaussian(mean, torch.einsum("k,kij->ij", self.weight, self.covs + _outer(away)))

    def given(self, seen: Tensor, operator: Tensor, noise_cov: Tensor) -> Mixture:
        """The posterior after `seen = operator u + noise`: a mixture again, by Bayes' rule.

        seen: (p,); operator: (p, d); noise_cov: (p, p).
        """
        seen, operator, noise_cov = seen.double(), operator.double(), noise_cov.double()
        across = self.covs @ operator.mT
        spread = operator @ across + noise_cov
        gain = torch.linalg.solve(spread, across.mT).mT
        residual = seen - self.means @ operator.mT
        evidence = torch.distributions.MultivariateNormal(
            torch.zeros_like(residual), spread, validate_args=False
        ).log_prob(residual)
        return Mixture(
            (self.weight.log() + evidence).softmax(0),
            self.means + (gain @ residual[..., None])[..., 0],
            self.covs - gain @ across.mT,
        )

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` draws, (count, d)."""
        which = torch.multinomial(self.weight, count, replacement=True, generator=generator)
        white = torch.randn(count, self.means.shape[-1], dtype=torch.float64, generator=generator)
        lower = torch.linalg.cholesky(self.covs)
        return self.means[which] + (lower[which] @ white[..., None])[..., 0]


@dataclass(frozen=True)
class AffineNoise:
    """Noise of variance `g(s) = a s + b`, s the clean signal; below zero it counts as zero."""

    a: float
    b: float

    def var(self, signal: Tensor) -> Tensor:
        """`a s + b` for every entry. While s is above zero its mean given v is `var(E[s|v])`."""
        return self.a * signal.clamp(min=0) + self.b

    def add(self, signal: Tensor, generator: torch.Generator) -> Tensor:
        """The signal with one draw of noise on every entry."""
        white = torch.randn(signal.shape, dtype=torch.float64, generator=generator)
        return signal + self.var(signal).sqrt() * white


def draw_targets(
    truth: Tensor, operator: RandomOperator, noise: AffineNoise, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """For every truth one tau and `z = A_tau u + n`. truth: (n, d). Returns z (n, q), tau (n,)."""
    tau = operator.draw(len(truth), generator)
    clean = (operator.matrices[tau] @ truth[..., None])[..., 0]
    return noise.add(clean, generator), tau


def gaussian_world(shape: tuple[int, int] = (4, 4)) -> Mixture:
    """One smooth image; from pixel to pixel the mean grows from 2.5 to 3.5, std from 0.2 to 0.6.

    The correlation of two pixels is `exp(-distance / 2 px)`. Signals stay above zero.
    """
    mean = _ramp(shape, 2.5, 3.5)
    return Mixture(torch.ones(1, dtype=torch.float64), mean[None], _smooth(shape, 0.2, 0.6)[None])


def mixture_world(shape: tuple[int, int] = (4, 4)) -> Mixture:
    """A dark field (3), a bright one (5), or an edge after the first column; std 0.15 to 0.45.

    Correlated as in `gaussian_world`.
    """
    edge = torch.full(shape, 5.0, dtype=torch.float64)
    edge[:, 0] = 3
    means = torch.stack([torch.full_like(edge, 3.0), torch.full_like(edge, 5.0), edge]).flatten(1)
    weight = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    return Mixture(weight, means, _smooth(shape, 0.15, 0.45).expand(3, -1, -1))


def burst_view(shape: tuple[int, int] = (2, 2), scale: int = 2) -> Tensor:
    """The operator of a burst: two low-res frames on the sub-grids (0, 1) and (1, 0), (2 q, d)."""
    matrices = subsampling(shape, scale).matrices
    return torch.cat([matrices[1], matrices[scale]])


def _smooth(shape: tuple[int, int], low: float, high: float) -> Tensor:
    """Covariance of a smooth image whose std grows from pixel to pixel, (d, d)."""
    axes = [torch.arange(size, dtype=torch.float64) for size in shape]
    place = torch.cartesian_prod(*axes)
    std = _ramp(shape, low, high)
    return std[:, None] * std * (-torch.cdist(place, place) / 2).exp()


def _ramp(shape: tuple[int, int], low: float, high: float) -> Tensor:
    return torch.linspace(low, high, shape[0] * shape[1], dtype=torch.float64)


def _outer(vectors: Tensor) -> Tensor:
    return vectors[..., :, None] * vectors[..., None, :]
