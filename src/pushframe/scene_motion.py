"""The motion of a scene's frames, fitted to all of it: smooth fields that its tiles then share.

A window of the scene tells the motion and gain of each frame there, with an error. Through the
windows a field of few coefficients a frame is laid, in least squares:

    told by window k  =  sum_j  c_j b_j(x_k)  +  what is local  +  error_k

How large the coefficients of each function are, and how far windows lie from any such field, are
variances learnt from the scene by evidence. So a function that the scene does not need vanishes,
and where motion is not smooth the tiles are left to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .burst import Burst
from .geometry import pixel_grid
from .seams import TILES_AT_ONCE, Tile, tile_corners
from .solver import Belief, Evidence, measure
from .solver.belief import NOTHING
from .solver.bend import FACTORS, axis_functions, smooth_basis, smooth_functions

WINDOW_PX = 64
MAX_WINDOWS = 6  # along each axis
# fewest windows, and the functions that they can tell: all; the constant and slopes; the constant
AFFORDABLE = ((16, None), (6, 3), (0, 1))
MAX_LOOKS = 3  # at the windows, where motion bends
GRID = 16  # points along each axis at which fields are summed up
ROUNDS, SETTLED = 30, 0.01  # of learning the variances, until they change by less
FIRST_LOCAL = (1e-2, 1e-3)
LEAST_LOCAL = (2e-3, 1e-4)  # px and share of a gain: what windows may differ by at least
MOST_LOCAL = (100.0, 1e-2)  # and at most: a window whose gain is farther off is wrong
LEAST_SPREAD = 2  # frames beside the reference, of which gains have a spread
CLEAR = 2.5  # standard errors, by which the reference's exposure is off the windows' own
FREEDOM = 4.0  # of Student's t: how soon a window that disagrees loses its say


def design(shape: tuple[int, int], tiles: Sequence[Tile]) -> Tensor:
    """From coefficients of a scene's field to those of tiles of one size, (T, C, 3 K) float64.

    shape: of the scene, low-res px. Flows along y and x, then the gain, each of K functions.
    """
    sides = (tiles[0][0].stop - tiles[0][0].start, tiles[0][1].stop - tiles[0][1].start)
    factors = torch.tensor(FACTORS).T
    own, met = torch.ones(2, 1, dtype=torch.float64)
    for axis, which in enumerate(factors):  # functions are products along the axes: so are sums
        size, side = shape[axis], sides[axis]
        pixel = torch.arange(side, dtype=torch.float64) + 0.5
        start = torch.tensor([tile[axis].start for tile in tiles])[:, None]
        there = axis_functions(2 * (pixel + start) / size - 1).movedim(0, 1)  # (T, 4, side)
        here = axis_functions(2 * pixel / side - 1)
        pair = (..., which[:, None], which)
        own, met = own * (here @ here.mT)[pair], met * (here @ there.mT)[pair]
    basis = smooth_basis(sides, own).flatten(1)
    unit = 2 * (pixel_grid(sides, own) + 0.5) / torch.tensor(sides)[:, None, None] - 1
    functions = smooth_functions(unit).flatten(1)
    made_of = torch.linalg.solve(own, functions @ basis.mT).mT  # basis = made_of functions
    onto = made_of @ met / basis.shape[1]
    zero = torch.zeros_like(onto)
    flows = [torch.cat(row, -1) for row in ((onto, zero, zero), (zero, onto, zero))]
    return torch.cat([*flows, torch.cat([zero, zero, onto], -1)[:, :1]], 1)


@dataclass(frozen=True)
class SceneMotion:
    """Fields of a scene's frames, in the order y, x, gain, float64.

    shape: of the scene, low-res px. mean: (N, 3 K) coefficients; covariance: (N, 3 K, 3 K).
    local_var: (N, C) by which the unknowns of a tile differ from the field.
    """

    shape: tuple[int, int]
    mean: Tensor
    covariance: Tensor
    local_var: Tensor

    def belief(self, tiles: Sequence[Tile], moved_px: Tensor) -> Belief:
        """What the scene says of tiles of one size, on the device of moved_px.

        moved_px: (B, N, 2), whole px by which the frames of each tile were moved.
        """
        onto = design(self.shape, tiles)[:, None]
        mean = (onto @ self.mean[..., None])[..., 0]
        covariance = onto @ self.covariance @ onto.mT + torch.diag_embed(self.local_var)
        mean[..., [0, mean.shape[-1] // 2]] += moved_px.cpu()
        mean[:, 0], covariance[:, 0] = 0, torch.eye(mean.shape[-1], dtype=mean.dtype)
        return Belief(mean.to(moved_px), covariance.to(moved_px))

    def summary(self) -> list[tuple[float, float]]:
        """Of each frame: how far its motion bends over the scene, and its error, both px rms."""
        middle = (torch.arange(GRID, dtype=torch.float64) + 0.5) * 2 / GRID - 1
        unit = torch.stack(torch.meshgrid(middle, middle, indexing="ij"))
        functions = smooth_functions(unit).flatten(1)  # (K, P)
        count = len(functions)
        field = self.mean[:, : 2 * count].unflatten(1, (2, count)) @ functions
        bend_px = (field - field.mean(-1, keepdim=True)).square().mean(-1).sum(1).sqrt()
        parts = [self.covariance[:, k : k + count, k : k + count] for k in (0, count)]
        var = sum(((part @ functions) * functions).sum(1).mean(-1) for part in parts)
        error_px = (var + 2 * self.local_var[:, 0]).sqrt()
        error_px[0] = 0
        return list(zip(bend_px.tolist(), error_px.tolist(), strict=True))

    def bends(self, tiles: Sequence[Tile], moved_px: Tensor) -> bool:
        """Whether the motion within a tile is more than a translation."""
        return bool(self.belief(tiles, moved_px).bends().any())


def register_scene(
    shape: tuple[int, int],
    cut: Callable[[Sequence[Tile]], tuple[Burst, Tensor]],
    scale: int,
    at_once: int = TILES_AT_ONCE,
) -> SceneMotion | None:
    """The motion of a scene from windows spread over it; None where one tile is all there is.

    shape: of the scene, low-res px. cut: gives windows as a batch, and the whole px (B, N, 2) by
    which their frames were moved. at_once: how many to cut together. Where motion bends, windows
    are looked at again with it.
    """
    tiles = spread_windows(shape)
    groups = [tiles[k : k + at_once] for k in range(0, len(tiles), at_once)]
    scene: SceneMotion | None = None
    for _ in range(MAX_LOOKS if len(tiles) > 1 else 0):
        told, moves = [], []
        for group in groups:
            batch, moved_px = cut(group)
            belief = None if scene is None else scene.belief(group, moved_px)
            told.append(measure(batch, scale, belief))
            moves.append(moved_px)
        moved_px = torch.cat(moves)
        mean, covariance = (torch.cat([part[k] for part in told]) for k in (0, 1))
        scene = fit_scene(shape, tiles, Evidence(mean, covariance), moved_px)
        if not scene.bends(tiles, moved_px):
            break
    return scene


def spread_windows(shape: tuple[int, int]) -> list[Tile]:
    """Windows of one size from edge to edge, along each axis as many as tiles or fit, up to 6."""
    corners = list(tile_corners(shape))
    axes = []
    for axis, size in enumerate(shape):
        side = min(WINDOW_PX, size)
        tiles = len({corner[axis].start for corner in corners})
        count = min(MAX_WINDOWS, max(tiles, size // WINDOW_PX)) if len(corners) > 1 else 1
        starts = [round((k + 0.5) * (size - side) / count) for k in range(count)]
        if count > 1:
            starts = [round(k * (size - side) / (count - 1)) for k in range(count)]
        axes.append([slice(start, start + side) for start in starts])
    return [(rows, columns) for rows in axes[0] for columns in axes[1]]


def fit_scene(
    shape: tuple[int, int], tiles: Sequence[Tile], told: Evidence, moved_px: Tensor
) -> SceneMotion:
    """The fields that windows of a scene agree on; told: by each of the `tiles`.

    Robust: of each frame, a window far from the others has little say.
    """
    value, error = told.mean.double().cpu().clone(), told.covariance.double().cpu()
    value[..., [0, value.shape[-1] // 2]] -= moved_px.cpu()
    _share_common_gain(value[:, 1:, -1], error[:, 1:, -1, -1])
    onto = design(shape, tiles)[:, None]  # (T, 1, C, D)
    onto = onto * _affordable(len(tiles), onto.shape[-1])
    kinds = _kinds(onto.shape[-1])
    size = torch.ones(int(kinds.max()) + 1, dtype=value.dtype)
    # of all flows, and of the gain of each frame: the last of its unknowns
    part = torch.zeros(value.shape[1:], dtype=torch.long)
    part[:, -1] = 1 + torch.arange(value.shape[1])
    first, least, most = (
        torch.tensor([flow, *[gain] * value.shape[1]], dtype=value.dtype).square()
        for flow, gain in (FIRST_LOCAL, LEAST_LOCAL, MOST_LOCAL)
    )
    local = first
    known = (error.diagonal(dim1=-2, dim2=-1) < NOTHING / 2).sum(-1)
    weight = torch.ones_like(value[..., 0])
    for _ in range(ROUNDS):
        before = torch.cat([size, local])
        trust = torch.linalg.inv(error + torch.diag_embed(local[part]))
        weighted = weight[..., None, None] * onto.mT @ trust
        normal = (weighted @ onto).sum(0) + torch.diag_embed(1 / size[kinds])
        covariance = torch.linalg.inv(normal)
        mean = (covariance @ (weighted @ value[..., None]).sum(0))[..., 0]
        off = value - (onto @ mean[..., None])[..., 0]
        pull = (trust @ off[..., None])[..., 0]
        weight = ((FREEDOM + known) / (FREEDOM + (off * pull).sum(-1))).clamp(max=1)
        size = _variance(mean, covariance.diagonal(dim1=-2, dim2=-1), size, kinds)
        size[0] = 1e4  # nothing is known of translations beforehand; gains are about 1
        seen = (trust - trust @ onto @ covariance @ onto.mT @ trust).diagonal(dim1=-2, dim2=-1)
        left = local[part] - local[part] ** 2 * seen
        local = _variance(local[part] * pull, left, local, part, weight[..., None])
        local = local.clamp(least, most)
        if bool(((torch.cat([size, local]) / before).log().abs() < SETTLED).all()):
            break
    return SceneMotion(shape, mean, covariance, local[part])


def _share_common_gain(gain: Tensor, var: Tensor) -> None:
    """Give windows one factor by which all frames are off the reference; changes gain in place.

    gain: (T, N) less one, all frames but the reference; var: (T, N) of its error. A window knows
    each gain against the others far better than all against the reference, so the scene's factor
    is the windows' mean. It counts as it is if it stands out of their scatter; otherwise as far as
    the gains' own spread makes it likely: exposures that agree with each other agree with the
    reference's.
    """
    gains, var = (part.masked_fill(var >= NOTHING / 2, torch.nan) for part in (gain, var))
    usual = gains.nanquantile(0.5, 1)  # of each window, whatever a frame or two say
    weight = (1 / var.nanquantile(0.5, 1)).nan_to_num(0)
    if int((weight > 0).sum()) < 2:
        return
    weight = weight / weight.sum()
    mean = (weight * usual.nan_to_num()).sum()
    scatter = (weight * (usual - mean).nan_to_num() ** 2).sum() / (1 / weight.square().sum() - 1)
    apart = (weight[:, None] * (gains - usual[:, None]).nan_to_num()).sum(0)
    if len(apart) >= LEAST_SPREAD and mean.abs() < CLEAR * scatter.sqrt():
        spread = (1.4826 * apart.abs().quantile(0.5)) ** 2 + LEAST_LOCAL[1] ** 2
        mean = mean * spread / (spread + scatter)
    gain += torch.where(gains.isnan(), 0, (mean - usual)[:, None])


def _affordable(windows: int, unknowns: int) -> Tensor:
    """Which coefficients so many windows can tell from what is local, (3 K,) of ones and zeros.

    Of a gain the constant: an exposure is one number, and windows that are wrong about it in one
    way, as a spectrum that changes across the scene makes them, would pass for its slope.
    """
    functions = unknowns // 3
    most = next(count for least, count in AFFORDABLE if windows >= least)
    flow = torch.arange(functions) < (most or functions)
    return torch.cat([flow, flow, torch.arange(functions) < 1]).double()


def _kinds(unknowns: int) -> Tensor:
    """Which variance each coefficient has, (3 K,): functions of flows share theirs over y and x."""
    functions = unknowns // 3
    flow = torch.arange(functions)
    return torch.cat([flow, flow, functions + flow])


def _variance(
    mean: Tensor, left: Tensor, var: Tensor, kinds: Tensor, weight: Tensor | float = 1.0
) -> Tensor:
    """The variances of Gaussian unknowns that their posterior suggests, one for each kind.

    mean, left: (..., N, U) posterior mean and variance under the prior variances `var[kinds]`.
    Squares over the share that the data tell, the reference's left aside (MacKay's rule).
    """
    told = (1 - left / var[kinds]).clamp(min=0)
    sums = []
    for values in (mean.square() * weight, told * weight):
        total = values.reshape(-1, *values.shape[-2:]).sum(0)
        which = kinds.expand(total.shape)[1:].flatten()
        sums.append(torch.zeros_like(var).index_add_(0, which, total[1:].flatten()))
    return (sums[0] / sums[1].clamp(min=1e-12)).clamp(1e-12, 1e4)
