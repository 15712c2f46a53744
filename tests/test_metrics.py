"""Figures against closed forms and independent libraries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scoringrules
import torch
from skimage.metrics import peak_signal_noise_ratio

from pushframe import Posterior
from pushframe.errors import UsageError
from pushframe.metrics import LEVELS, Metrics

SIZE = 160


def made(factor: float = 1.0, seed: int = 0, batch: int = 3) -> tuple[Posterior, torch.Tensor]:
    """Truth, and a posterior whose stated std is `factor` times the real one."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(batch, SIZE, SIZE, generator=generator, dtype=torch.float64)
    std = 0.01 * (1 + torch.rand(truth.shape, generator=generator, dtype=torch.float64))
    noise = torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    return Posterior(truth + std * noise, (factor * std) ** 2), truth


def figures(posterior: Posterior, truth: torch.Tensor, border: int = 8) -> dict:
    metrics = Metrics(2, border)
    metrics.update(posterior, truth, [str(k) for k in range(len(truth))])
    return metrics.compute()


def inner(x: torch.Tensor) -> np.ndarray:
    return x[..., 8:-8, 8:-8].numpy()


def test_psnr_is_scikit_images() -> None:
    posterior, truth = made()
    result = figures(posterior, truth)["all"]
    each = [
        peak_signal_noise_ratio(t, m, data_range=1)
        for t, m in zip(inner(truth), inner(posterior.mean), strict=True)
    ]
    pooled = peak_signal_noise_ratio(inner(truth), inner(posterior.mean), data_range=1)
    assert result["psnr_db"] == pytest.approx(np.mean(each), abs=1e-9)
    assert result["psnr_pooled_db"] == pytest.approx(pooled, abs=1e-9)


def test_crps_and_nll_are_scoringrules() -> None:
    posterior, truth = made(0.7)
    result = figures(posterior, truth)["all"]
    given = inner(truth), inner(posterior.mean), np.sqrt(inner(posterior.var))
    assert result["crps"] == pytest.approx(scoringrules.crps_normal(*given).mean(), rel=1e-9)
    assert result["nll"] == pytest.approx(scoringrules.logs_normal(*given).mean(), rel=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.3])
def test_coverage_and_calibration_of_misstated_errors(factor: float) -> None:
    posterior, truth = made(factor)
    result = figures(posterior, truth)["all"]
    # P(|z| < factor * q_p) = erf(factor * erfinv(p))
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    expected = torch.erf(factor * torch.erfinv(levels)).numpy()
    pixels = 3 * (SIZE - 16) ** 2
    tolerance = 5 * 0.5 / math.sqrt(pixels)
    np.testing.assert_allclose(result["coverage"], expected, atol=tolerance)
    error = np.abs(expected - np.array(LEVELS)).mean()
    assert result["calibration_error"] == pytest.approx(error, abs=tolerance)
    assert result["mean_z2"] == pytest.approx(1 / factor**2, rel=0.03)
    stated = np.sqrt(inner(posterior.var)).mean()
    assert result["sharpness"] == pytest.approx(2 * 1.6448536 * stated, rel=1e-6)


def test_v_rmse_by_its_definition() -> None:
    posterior, truth = made()
    result = figures(posterior, truth)["all"]
    gap = inner(posterior.var) - (inner(posterior.mean) - inner(truth)) ** 2
    assert result["v_rmse"] == pytest.approx(np.sqrt((gap**2).mean()), rel=1e-9)
    each = np.sqrt((gap**2).mean((1, 2))).mean()
    assert result["v_rmse_per_burst"] == pytest.approx(each, rel=1e-9)


def test_pooled_and_per_burst_calibration_differ_as_they_should() -> None:
    """Errors of std that cancel over the set vanish when pooled and show per burst."""
    factors = torch.tensor([0.9, 1.1, 0.9, 1.1])[:, None, None]
    posterior, truth = made(batch=4)
    spread = Posterior(posterior.mean, posterior.var * factors**2)
    result = figures(spread, truth)["all"]
    assert result["calibration_error"] < 0.006
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    off = [(torch.erf(f * torch.erfinv(levels)) - levels).abs().mean() for f in (0.9, 1.1)]
    assert result["calibration_error_per_burst"] == pytest.approx(float(sum(off)) / 2, abs=0.003)


@pytest.mark.parametrize(("scale", "border"), [(2, 8), (2, 7), (3, 8), (4, 0)])
def test_sub_grids_are_those_of_the_high_res_grid(scale: int, border: int) -> None:
    truth = torch.zeros(1, 48, 48, dtype=torch.float64)
    mean = torch.zeros_like(truth)
    for y in range(scale):
        for x in range(scale):
            mean[:, y::scale, x::scale] = 10.0 ** (-1 - y) * (1 + x)
    metrics = Metrics(scale, border)
    metrics.update(Posterior(mean), truth, ["a"])
    rows = metrics.compute()["subgrids"]
    for y in range(scale):
        for x in range(scale):
            assert rows[y][x]["rmse"] == pytest.approx(10.0 ** (-1 - y) * (1 + x))


def test_a_method_without_error_bar_has_none() -> None:
    posterior, truth = made()
    result = figures(Posterior(posterior.mean), truth)["all"]
    assert result["psnr_db"] is not None
    for name in ("v_rmse", "calibration_error", "coverage", "sharpness", "nll", "crps"):
        assert result[name] is None
    assert result["flow_rmse_px"] is None


def test_holes_are_counted_not_scored() -> None:
    posterior, truth = made()
    full = figures(posterior, truth)["all"]
    mean = posterior.mean.clone()
    mean[:, 8:80, 8:80] = torch.nan
    result = figures(Posterior(mean, posterior.var), truth)["all"]
    assert full["holes"] == 0
    assert result["holes"] == pytest.approx((72 / 144) ** 2)
    assert result["rmse"] == pytest.approx(full["rmse"], rel=0.05)


def test_image_balanced_mean_gives_each_image_one_vote() -> None:
    truth = torch.zeros(3, 32, 32, dtype=torch.float64)
    mean = torch.tensor([0.1, 0.1, 0.01], dtype=torch.float64)[:, None, None].expand(3, 32, 32)
    metrics = Metrics(2)
    metrics.update(Posterior(mean), truth, ["a", "a", "b"])
    result = metrics.compute()["all"]
    assert result["psnr_db"] == pytest.approx((20 + 20 + 40) / 3)
    assert result["image_balanced"]["psnr_db"] == pytest.approx(30)


def test_batches_add_up() -> None:
    posterior, truth = made(batch=4)
    once = figures(posterior, truth)
    metrics = Metrics(2)
    for k in range(4):
        part = Posterior(posterior.mean[k : k + 1], posterior.var[k : k + 1])
        metrics.update(part, truth[k : k + 1], [str(k)])
    again = metrics.compute()
    assert again["all"]["nll"] == pytest.approx(once["all"]["nll"])
    assert again["all"]["coverage"] == pytest.approx(once["all"]["coverage"])
    assert again["subgrids"][1][0]["rmse"] == pytest.approx(once["subgrids"][1][0]["rmse"])


def test_flow_error_leaves_the_reference_out() -> None:
    posterior, truth = made(batch=2)
    flow = torch.zeros(2, 5, 2)
    true = torch.zeros(2, 5, 2)
    true[:, 0] = 9.0
    true[:, 1:] = torch.tensor([0.03, 0.04])
    metrics = Metrics(2)
    metrics.update(posterior, truth, ["a", "b"], flow, true)
    expected = math.sqrt((0.03**2 + 0.04**2) / 2)  # per component
    assert metrics.compute()["all"]["flow_rmse_px"] == pytest.approx(expected)
    field = true[..., None, None].expand(-1, -1, -1, 6, 7)
    metrics = Metrics(2)
    metrics.update(posterior, truth, ["a", "b"], flow, field)
    assert metrics.compute()["all"]["flow_rmse_px"] == pytest.approx(expected)


def test_std_bins_compare_stated_with_real() -> None:
    posterior, truth = made(0.5)
    bins = figures(posterior, truth)["all"]["std_bins"]
    assert sum(row["pixels"] for row in bins) == 3 * (SIZE - 16) ** 2
    for row in bins:
        if row["pixels"] > 2000:
            assert row["actual_rms"] / row["predicted_rms"] == pytest.approx(2, rel=0.1)


def test_an_image_within_its_border_is_refused() -> None:
    with pytest.raises(UsageError, match="twice the border"):
        Metrics(2, 8).update(Posterior(torch.zeros(1, 16, 16)), torch.zeros(1, 16, 16), ["a"])
