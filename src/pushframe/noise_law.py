"""The noise law of a burst from what its frames disagree about: `var = a * dn + b`.

The image is reconstructed under a first guess of the law, and the squared residuals of the
frames, raw DN^2, are told apart into what unit noise of either kind and a missed part of the
image would leave there: `residual^2 = a * left_a + b * left_b + missed`, a line for each frame
and level of brightness. A reconstruction follows some of the noise, so that its residuals are
too small; how much too small is measured by sending simulated noise through the same
reconstruction. The law found sets the weights of the next round.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from .burst import Burst, NoiseLaw
from .checks import LEFT_OUT, check_scale, require
from .gaussian import GaussianProblem, weighted_mean
from .geometry import middle_of
from .noise import frame_noise_var, rounding_var
from .prior import scaled
from .solver.begin import begin
from .solver.peaks import fit_motion

MIN_FRAMES = 3
STATE_IT = "give noise_a and noise_b of the raw pixels, var = noise_a * dn + noise_b"
DRAWS = (1, 2, 5)  # of simulated noise, in each round; motion is estimated anew in each
LOOSENESS = 4.5  # image power allowed over that found, so that less of the image is missed
BORDER_PX = 8  # of a frame, where residuals tell little of noise
BINS = 12  # of brightness, in each frame
TRIM_SIGMAS = 3.0
LEAST_SIGMAS = 2.5  # by which a term must stand out of its error
MISSED_ERROR = 0.5  # relative, of what is said to be missed of the image
DOUBTFUL_SHIFT_PX = 0.05  # stated error of the motion beyond which a law is doubtful
FLAT_SHARE = 0.1  # of the blocks, that are taken for flat in the first guess
BLOCK_PX = 8
LEAST_GRAIN = 0.5  # of the variance by a law: frames with less of it do not have that noise
OVERSTATED = (
    "The frames are much smoother than that law says: something else than the noise of single "
    "pixels went into it, such as wrong exposures, clouds, JPEG or resampling. Do not rely on the "
    "law, nor on the error bars."
)
MIDDLE_PX = 128  # side of the part of a large frame that is looked at
MIN_COVER = 0.5  # of it, by a frame whose noise is to be told


def estimate_noise_law(burst: Burst, scale: int = 2) -> NoiseLaw:
    """The law `var = a * dn + b` of the raw pixels of one burst, (N, H, W), N of 3 or more.

    scale: zoom at which the frames are reconstructed; at a lower one than the optics need,
    aliases count as noise. A law that the burst states is not looked at.
    """
    _check_estimable(burst, scale)
    return _law_and_shift_error(burst, scale)[0]


def _check_estimable(burst: Burst, scale: int) -> None:
    check_scale(scale)
    require(
        burst.frames.ndim == 3,
        "one burst of shape (N, H, W)",
        tuple(burst.frames.shape),
        "estimate the laws of a batch one by one",
    )
    require(
        burst.count >= MIN_FRAMES,
        f"at least {MIN_FRAMES} frames to estimate their noise from",
        _how_many(burst),
        STATE_IT,
    )


def _how_many(burst: Burst) -> str:
    """The number of frames, and why there are no more, where some were left out."""
    left = [note.rstrip(".") for note in burst.notes if LEFT_OUT in note]
    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return f"{burst.count} ({left[0]}{more})" if left else f"{burst.count}"


def _law_and_shift_error(burst: Burst, scale: int) -> tuple[NoiseLaw, float]:
    """The law, and how far off the motion may be that it was found with, px rms."""
    generator = torch.Generator().manual_seed(0)
    batch = dataclasses.replace(burst.batched(), noise=None)
    law = first_guess(batch)
    for draws in DRAWS:
        alike = _Alike(dataclasses.replace(batch, noise=law), scale)
        law = alike.next_law(law, draws, generator)
    return law.map(lambda x: x[0]), float(alike.fit.shift_error_px()[0])


def with_noise_law(burst: Burst, scale: int) -> Burst:
    """One burst, a batch of it too, with its noise law; one that is not given is estimated.

    It is told from the frames that show the middle, and said in a note.
    """
    if burst.noise is not None:
        return burst
    middle = burst.tile(*middle_of(burst.shape, MIDDLE_PX))
    share = middle.valid[0].float().mean((-1, -2)).tolist()
    seen = [k for k in range(middle.count) if share[k] >= MIN_COVER]
    require(
        len(seen) >= min(MIN_FRAMES, burst.count),
        f"{MIN_FRAMES} frames that show the middle, to estimate their noise from",
        f"{len(seen)} of {burst.count}",
        STATE_IT,
    )
    alone = middle.select(seen).part(0)
    _check_estimable(alone, scale)
    law, error_px = _law_and_shift_error(alone.to("cpu"), scale)
    notes = [f"The noise law {law} was estimated."]
    if error_px > DOUBTFUL_SHIFT_PX:
        notes.append(
            f"The scene shows too little to register its frames by (shifts may be off by "
            f"{error_px:.2g} px rms): do not rely on that law."
        )
    if is_overstated(alone, law):
        notes.append(OVERSTATED)
    return dataclasses.replace(burst, noise=law, notes=(*burst.notes, *notes))


def first_guess(burst: Burst) -> NoiseLaw:
    """A law without slope from the flattest blocks of all frames, (B,)."""
    power, _ = _grain(burst)
    b = power.nanquantile(FLAT_SHARE, dim=1).nan_to_num(0).maximum(rounding_var(burst))
    return NoiseLaw(torch.zeros_like(b), b)


def _grain(burst: Burst) -> tuple[Tensor, Tensor]:
    """The variance of mixed second differences in blocks of all frames, DN^2, and their mean DN.

    (B, P) each, NaN where a pixel is invalid. A plane leaves none, detail adds to that of noise.
    """
    dn = burst.frames * burst.gain[..., None, None]
    bend = dn.diff(dim=-1).diff(dim=-2) / 2  # of unit noise gain
    seen = burst.valid[..., 1:, :] & burst.valid[..., :-1, :]
    seen = seen[..., 1:] & seen[..., :-1]
    step = min(BLOCK_PX, *bend.shape[-2:])
    power, level = (
        values.masked_fill(~seen, torch.nan)
        .unfold(-2, step, step)
        .unfold(-2, step, step)
        .mean((-1, -2))
        .flatten(1)
        for values in (bend.square(), dn[..., 1:, 1:])
    )
    return power, level


def is_overstated(burst: Burst, law: NoiseLaw) -> bool:
    """Whether frames (N, H, W) are smoother than the noise of single pixels would make them.

    Noise alone has a lower quartile of 0.8 over blocks, a scene's detail raises it. What clips
    does not count, and no frame is smoother than its rounding.
    """
    batch = burst.batched()
    power, level = _grain(batch)
    power = power.masked_fill(power == 0, torch.nan).clamp(min=float(rounding_var(batch)[0]))
    share = power / (law.a * level.clamp(min=0) + law.b)
    return float(share.nanquantile(0.25)) < LEAST_GRAIN


class _Alike:
    """A burst brought to one image: its frames registered, with their gains and outliers."""

    def __init__(self, burst: Burst, scale: int) -> None:
        begun = begin(burst)
        self.burst, self.scale = begun.burst, scale
        self.fit = fit_motion(self.burst, begun.start_px, begun.kept, scale, begun.rough)
        self.good = self.fit.good(self.burst)
        self.gain = self.fit.gain[..., None, None]
        self.to_dn = self.gain * self.burst.gain[..., None, None]

    def next_law(self, law: NoiseLaw, draws: int, generator: torch.Generator) -> NoiseLaw:
        """The law that the residuals tell, the frames weighted by the law before, (1,)."""
        noise_var = frame_noise_var(dataclasses.replace(self.burst, noise=law)) / self.gain**2
        knots = scaled(self.fit.knots, LOOSENESS)
        problem = GaussianProblem(self.fit.flow_px, self.good / noise_var, knots, self.scale)
        frames = self.burst.frames / self.gain
        level = weighted_mean(frames, problem.precision)
        residual = _unexplained(problem, frames - level)
        dn = ((frames - residual) * self.to_dn).clamp(min=0)
        residual = residual * self.to_dn
        left = left_over(problem, dn, self.to_dn, draws, generator)
        seen = (problem.precision > 0) & _well_inside(self.burst)
        rows = [
            _binned(dn[0, t][where], residual[0, t][where], left[:, 0, t][:, where])
            for t, where in enumerate(seen[0])
            if int(where.sum()) > 4 * BINS
        ]
        require(len(rows) >= MIN_FRAMES, f"{MIN_FRAMES} frames that agree", len(rows), STATE_IT)
        return regress(torch.cat(rows), law, float(rounding_var(self.burst)[0]))


def _well_inside(burst: Burst) -> Tensor:
    """Pixels of a frame that are far from its borders, (H, W) bool.

    Near them the image is much less known, and more of it is missed than the blocks foretell.
    """
    device = burst.frames.device
    rows, columns = (torch.zeros(size, dtype=torch.bool, device=device) for size in burst.shape)
    for axis in (rows, columns):
        margin = min(BORDER_PX, len(axis) // 8)
        axis[margin : len(axis) - margin] = True
    return rows[:, None] & columns


def _unexplained(problem: GaussianProblem, data: Tensor) -> Tensor:
    """Data (B, N, H, W) less what the image of least energy predicts of them."""
    return data - problem.model.forward(problem.solve(data))


def left_over(
    problem: GaussianProblem, dn: Tensor, to_dn: Tensor, draws: int, generator: torch.Generator
) -> Tensor:
    """Squared residuals of unit noise `a`, of unit noise `b`, of an image alone, (3, B, N, H, W).

    DN^2, means over simulated draws. dn: (B, N, H, W) clean signal; to_dn: raw DN of radiance 1.
    """

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator).to(dn)

    total = torch.zeros_like(dn).repeat(3, 1, 1, 1, 1)
    for _ in range(draws):
        white = normal(dn.shape) / to_dn
        power = (problem.prior / LOOSENESS).sqrt()
        image = problem.filter(normal((len(dn), *problem.canvas)), power)
        for kind, data in enumerate((dn.sqrt() * white, white, problem.model.forward(image))):
            total[kind] += (_unexplained(problem, data) * to_dn) ** 2
    return total / draws


def _binned(dn: Tensor, residual: Tensor, left: Tensor) -> Tensor:
    """Trimmed mean square of the residuals, mean `left` (3), `dn` and count of each bin.

    Returns (BINS, 6).

    dn, residual: (P,); left: (3, P). Bins of equal count, by brightness.
    """
    rows = []
    for part in dn.argsort().tensor_split(BINS):
        power = left[:, part].mean(1)
        place = torch.stack([dn[part].mean(), power.new_tensor(len(part))])
        rows.append(torch.cat([trimmed_power(residual[part])[None], power, place]))
    return torch.stack(rows)


def trimmed_power(values: Tensor) -> Tensor:
    """Mean square without what lies beyond `TRIM_SIGMAS`, true for normal values; (P,) to ()."""
    inside = math.erf(TRIM_SIGMAS / math.sqrt(2))
    tail = TRIM_SIGMAS * math.sqrt(2 / math.pi) * math.exp(-(TRIM_SIGMAS**2) / 2)
    square = values**2
    power = square.median() / 0.6745**2
    for _ in range(5):
        power = square[square <= TRIM_SIGMAS**2 * power].mean() / (1 - tail / inside)
    return power


def regress(rows: Tensor, law: NoiseLaw, least_var: float) -> NoiseLaw:
    """`power = a * left_a + b * left_b + missed` by weighted least squares, a and b not negative.

    rows: (R, 6) of `_binned`; law: to begin from, (1,). The weights follow the law. A term too
    small to be told from none is none. least_var: that of rounding, DN^2.
    """
    power, left_a, left_b, missed, dn, count = rows.double().unbind(1)
    a, b = law.a[0].double(), law.b[0].double()
    for _ in range(10):
        noise = a * left_a + b * left_b
        # residuals that follow from few free numbers scatter like those few
        free = count * noise / (a * dn + b).clamp(min=least_var)
        var = 2 * (noise + missed) ** 2 / free.clamp(min=1) + (MISSED_ERROR * missed) ** 2
        root = var.clamp(min=1e-12 * least_var**2).rsqrt()
        system = torch.stack([left_a, left_b], 1) * root[:, None]
        right = (power - missed) * root
        normal, slope = system.T @ system, system.T @ right
        both = torch.linalg.solve(normal, slope)
        if bool((both < LEAST_SIGMAS * torch.linalg.inv(normal).diagonal().sqrt()).any()):
            alone = slope.clamp(min=0) / normal.diagonal()
            both = torch.where(alone * slope >= (alone * slope).max(), alone, 0)
        a, b = both
    if float(a * dn.median() + b) < least_var:  # nothing is known better than it was written
        a, b = torch.zeros_like(a), torch.full_like(b, least_var)
    return NoiseLaw(a[None], b[None])
