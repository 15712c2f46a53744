"""The paper's theory, executable: loss, stationarity, minimisers, worlds with known posteriors."""

from .descent import minimise, negative_share
from .likelihood import Gaussian, nll, nll_gradients, supervised_nll
from .operators import (
    RandomOperator,
    dense,
    subsampling,
    unseen_covs,
    unseen_means,
    unseen_vars,
)
from .stationarity import (
    Sides,
    risk,
    sample_moments,
    stationarity_cov,
    stationarity_mean,
    stationarity_var,
    target_moments,
)
from .worlds import AffineNoise, Mixture, burst_view, draw_targets, gaussian_world, mixture_world

__all__ = [
    "AffineNoise",
    "Gaussian",
    "Mixture",
    "RandomOperator",
    "Sides",
    "burst_view",
    "dense",
    "draw_targets",
    "gaussian_world",
    "minimise",
    "mixture_world",
    "negative_share",
    "nll",
    "nll_gradients",
    "risk",
    "sample_moments",
    "stationarity_cov",
    "stationarity_mean",
    "stationarity_var",
    "subsampling",
    "supervised_nll",
    "target_moments",
    "unseen_covs",
    "unseen_means",
    "unseen_vars",
]
