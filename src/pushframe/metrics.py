"""How good and how honest a posterior is: sums (update) apart from numbers (compute).

Every figure exists for all pixels and for each of the s*s sub-grids (the pixels `s*l + tau`),
pooled over the test set and averaged over bursts, and says in its name which of the two it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .bootstrap import balanced_mean, interval_90
from .checks import require
from .errors import UsageError
from .posterior import Posterior

LEVELS = tuple(round(0.01 * j, 2) for j in range(1, 100))
STD_BIN_EDGES = tuple(np.round(10.0 ** np.arange(-5, 0.01, 0.25), 10).tolist())
SQRT2 = math.sqrt(2.0)
# half-width, in standard deviations, of the central interval of each level
HALF_WIDTHS = SQRT2 * torch.erfinv(torch.tensor(LEVELS, dtype=torch.float64))
Z90 = float(SQRT2 * torch.erfinv(torch.tensor(0.9, dtype=torch.float64)))


@dataclass
class Sums:
    """Sums over the pixels of one sub-grid of one burst; the sum of two is their union."""

    pixels: int = 0
    holes: int = 0
    error2: float = 0.0
    has_var: bool = True
    var_error2: float = 0.0
    inside: np.ndarray = field(default_factory=lambda: np.zeros(len(LEVELS)))
    std: float = 0.0
    z2: float = 0.0
    nll: float = 0.0
    crps: float = 0.0
    bins: np.ndarray = field(default_factory=lambda: np.zeros((len(STD_BIN_EDGES) + 1, 3)))

    def __add__(self, other: Sums) -> Sums:
        total = Sums(has_var=self.has_var and other.has_var)
        for name in vars(self):
            if name != "has_var":
                setattr(total, name, getattr(self, name) + getattr(other, name))
        return total


def measure(mean: Tensor, var: Tensor | None, truth: Tensor) -> Sums:
    """The sums of one set of pixels; a NaN mean is a hole and counts as such only.

    mean, var, truth: any one shape, normalised radiance.
    """
    known = ~torch.isnan(mean)
    error = (mean - truth)[known].double()
    sums = Sums(pixels=error.numel(), holes=int((~known).sum()), error2=float((error**2).sum()))
    if var is None:
        sums.has_var = False
        return sums
    var = var[known].double().clamp(min=1e-24)  # a zero would make z undefined
    std = var.sqrt()
    z = error / std
    sums.var_error2 = float(((var - error**2) ** 2).sum())
    # ranks instead of 99 comparisons a pixel
    rank = torch.bucketize(z.abs(), HALF_WIDTHS.to(z), right=False)
    inside = torch.bincount(rank, minlength=len(LEVELS) + 1)[: len(LEVELS)].cumsum(0)
    sums.inside = inside.double().cpu().numpy()
    sums.std, sums.z2 = float(std.sum()), float((z**2).sum())
    sums.nll = float((0.5 * z**2 + std.log() + 0.5 * math.log(2 * math.pi)).sum())
    density = torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    crps = std * (z * torch.erf(z / SQRT2) + 2 * density - 1 / math.sqrt(math.pi))
    sums.crps = float(crps.sum())
    place = torch.bucketize(std, torch.tensor(STD_BIN_EDGES, dtype=std.dtype, device=std.device))
    for column, values in enumerate((torch.ones_like(var), var, error**2)):
        filled = torch.zeros(len(sums.bins), dtype=var.dtype, device=var.device)
        sums.bins[:, column] = filled.index_add(0, place, values).cpu().numpy()
    return sums


class Metrics:
    """Accuracy and calibration over a test set, for all pixels and for each sub-grid."""

    def __init__(self, scale: int, border_hpx: int = 8) -> None:
        self.scale, self.border_hpx = scale, border_hpx
        self.bursts: list[dict[tuple[int, int], Sums]] = []
        self.groups: list[str] = []
        self.flow_error2: list[tuple[float, int]] = []  # sum and count of each burst

    def update(
        self,
        posterior: Posterior,
        truth: Tensor,
        groups: Sequence[str],
        flow_px: Tensor | None = None,
        true_flow_px: Tensor | None = None,
    ) -> None:
        """Add a batch: posterior and truth (B, s*H, s*W); groups: the image each comes from.

        flow_px, true_flow_px: (B, N, 2[, H, W]); the reference is left out of their error.
        """
        border, (tall, wide) = self.border_hpx, truth.shape[-2:]
        require(
            min(tall, wide) > 2 * border,
            f"images larger than twice the border of {border} px",
            f"{tall}x{wide}",
            "lower the border or enlarge the frames",
            UsageError,
        )
        for index, group in enumerate(groups):
            sums = {}
            for tau in np.ndindex(self.scale, self.scale):
                # the first row and column >= border that belong to the sub-grid tau
                first = [border + (t - border) % self.scale for t in tau]
                window = (
                    slice(first[0], tall - border, self.scale),
                    slice(first[1], wide - border, self.scale),
                )
                var = None if posterior.var is None else posterior.var[index][window]
                sums[tau] = measure(posterior.mean[index][window], var, truth[index][window])
            self.bursts.append(sums)
            self.groups.append(group)
        if flow_px is None or true_flow_px is None:
            self.flow_error2 += [(0.0, 0)] * len(groups)
        else:
            self._add_flow(flow_px, true_flow_px)

    def _add_flow(self, flow_px: Tensor, true_flow_px: Tensor) -> None:
        flow, true = flow_px[:, 1:], true_flow_px[:, 1:]
        if flow.ndim != true.ndim:
            flow, true = (x if x.ndim == 5 else x[..., None, None] for x in (flow, true))
        error = (flow - true).double().flatten(1)
        self.flow_error2 += [(float((row**2).sum()), row.numel()) for row in error]

    def compute(self) -> dict[str, object]:
        """`{"all": figures, "subgrids": [[figures, ...], ...]}`, as in the evaluation's JSON."""
        rows = [
            [self._figures([burst[y, x] for burst in self.bursts]) for x in range(self.scale)]
            for y in range(self.scale)
        ]
        return {"all": self._figures(self._whole()), "subgrids": rows}

    def psnr_db(self) -> np.ndarray:
        """The PSNR of each burst, all pixels, (B,); NaN where it has none."""
        return _column([figures(sums) for sums in self._whole()], "psnr_db")

    def _whole(self) -> list[Sums]:
        """The sums of each burst over all sub-grids."""
        return [sum(burst.values(), Sums()) for burst in self.bursts]

    def _figures(self, bursts: list[Sums]) -> dict[str, object]:
        pooled = figures(sum(bursts, Sums()))
        each = [figures(sums) for sums in bursts]
        columns = {key: _column(each, name) for key, name in PER_BURST.items()}
        columns["flow_rmse_px_per_burst"] = self._flow_rmse_px_per_burst()
        mean = {key: _mean(column) for key, column in columns.items()}
        return {
            "psnr_db": mean["psnr_db"],
            "psnr_pooled_db": pooled["psnr_db"],
            "rmse": pooled["rmse"],
            "rmse_per_burst": mean["rmse_per_burst"],
            "v_rmse": pooled["v_rmse"],
            "v_rmse_per_burst": mean["v_rmse_per_burst"],
            "calibration_error": pooled["calibration_error"],
            "calibration_error_per_burst": mean["calibration_error_per_burst"],
            "coverage": pooled["coverage"],
            "sharpness": pooled["sharpness"],
            "mean_z2": pooled["mean_z2"],
            "nll": pooled["nll"],
            "crps": pooled["crps"],
            "flow_rmse_px": self._flow_rmse_px(),
            "holes": pooled["holes"],
            "std_bins": pooled["std_bins"],
            "image_balanced": {
                key: balanced_mean(column, self.groups) for key, column in columns.items()
            },
            "interval_90": {
                key: interval_90(column, self.groups) for key, column in columns.items()
            },
        }

    def _flow_rmse_px_per_burst(self) -> np.ndarray:
        pairs = self.flow_error2
        return np.array([math.sqrt(error2 / n) if n else math.nan for error2, n in pairs])

    def _flow_rmse_px(self) -> float | None:
        count = sum(size for _, size in self.flow_error2)
        return math.sqrt(sum(error2 for error2, _ in self.flow_error2) / count) if count else None


# figures averaged over bursts or images: key in the JSON, key of `figures`
PER_BURST = {
    "psnr_db": "psnr_db",
    "rmse_per_burst": "rmse",
    "v_rmse_per_burst": "v_rmse",
    "calibration_error_per_burst": "calibration_error",
    "nll_per_burst": "nll",
    "crps_per_burst": "crps",
}
FIGURES = (
    *("psnr_db", "rmse", "v_rmse", "calibration_error", "coverage", "sharpness"),
    *("mean_z2", "nll", "crps", "std_bins"),
)


def figures(sums: Sums) -> dict[str, object]:
    """The numbers of one set of sums; None where there is no error bar or no pixel."""
    seen = sums.pixels + sums.holes
    result: dict[str, object] = dict.fromkeys(FIGURES)
    result["holes"] = sums.holes / seen if seen else None
    if not sums.pixels:
        return result
    count = sums.pixels
    mse = sums.error2 / count
    result["rmse"] = math.sqrt(mse)
    result["psnr_db"] = -10 * math.log10(mse) if mse > 0 else None
    if not sums.has_var:
        return result
    coverage = sums.inside / count
    result["v_rmse"] = math.sqrt(sums.var_error2 / count)
    result["coverage"] = coverage.tolist()
    result["calibration_error"] = float(np.abs(coverage - np.array(LEVELS)).mean())
    result["sharpness"] = 2 * Z90 * sums.std / count
    result["mean_z2"], result["nll"], result["crps"] = (
        total / count for total in (sums.z2, sums.nll, sums.crps)
    )
    result["std_bins"] = [
        {"pixels": int(n), "predicted_rms": math.sqrt(v / n), "actual_rms": math.sqrt(e / n)}
        for n, v, e in sums.bins.tolist()
        if n
    ]
    return result


def _column(rows: Sequence[dict[str, object]], name: str) -> np.ndarray:
    """One figure of each burst, (B,); NaN where it has none."""
    return np.array([math.nan if row[name] is None else row[name] for row in rows], dtype=float)


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
