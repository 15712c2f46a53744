"""A detector whose pixels do not answer alike: found in a burst, and taken out of it.

Its pattern stays where it is while the scene moves over it. What the residuals of all frames have
in common at a place of the detector is that pattern, as far as it could not pass for scene. Of a
pattern with the power spectrum P, of which frames hold the information I (`solver.pattern`),

    p  =  slope / (I + 1 / P)

frequency by frequency. P is learnt from the frames: a variance of pixels, one of whole columns and
one of whole rows. What is left unknown of the pattern, `1 / (I + 1 / P)`, feigns an image, whose
variance belongs in the error bars.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .burst import Burst
from .folding import half_weight, power_of
from .seams import TILES_AT_ONCE, Tile, spread_tiles, tile_corners
from .solver.pattern import LATTICE, PatternEvidence, pattern_evidence
from .spectral import subgrid_variance

KINDS = ("response", "offset")
FORMS = ("pixel", "column", "row")  # what a pattern is made of, each with a variance of its own
ROUNDS = 6
TOLD = 0.15  # share of the information that is left, below which a pattern passes for scene
LEAST_FRAMES = 4
CLEAR, CERTAIN = 1.3, 20.0  # power over that of noise, and its own errors, from which there is one
LEARNING = 30  # steps of learning variances
LEAST_VARIANCE = 1e-8  # of what noise alone might make of it
# of a map's usual value, and of brightness, beyond both of which a pixel is defective
UNUSUAL, MUCH = 6.0, 0.1

MOST_LOST = 0.5  # of a response, that is made up for
LARGEST = 3 * 10**7  # px of a detector that is mapped: what is larger was scanned by lines
SOME_TILES = 16  # of which it is kept how images answer to patterns
WORTH_TELLING = 2e-4  # of a response, or of an offset in radiance


@dataclass(frozen=True, eq=False)
class Pattern:
    """What pixels of a detector answer more than they should.

    maps: (2, h, w), the response's share, and the offset as radiance at the reference's exposure.
    defective: (h, w) bool, beyond such corrections. origin: where on the scene's grid the maps
    begin, low-res px. variance: (2, 3), of each kind's `FORMS`. doubt: (2, s, s), variance that is
    left of them in an image; the response's is over brightness squared.
    """

    maps: Tensor
    defective: Tensor
    origin: tuple[int, int]
    variance: Tensor
    doubt: Tensor

    def corrected(self, batch: Burst, tiles: Sequence[Tile], moved_px: Tensor) -> Burst:
        """Tiles of one size without it. moved_px: (B, N, 2) by which their frames were moved."""
        shape = (self.maps.shape[1], self.maps.shape[2])
        places = [
            [_place(tile, moved, self.origin, shape) for moved in moves]
            for tile, moves in zip(tiles, moved_px.tolist(), strict=True)
        ]
        response, offset, defective = (
            torch.stack([torch.stack([layer[at] for at in frames]) for frames in places])
            for layer in (*self.maps, self.defective)
        )
        relative = batch.exposure / batch.exposure[:, :1]
        dark = offset.to(batch.frames) / relative[..., None, None]
        frames = (batch.frames - dark) / (1 + response.to(batch.frames).clamp(min=-MOST_LOST))
        valid = batch.valid & ~defective.to(batch.valid.device)
        return dataclasses.replace(batch, frames=frames, valid=valid)

    def variance_in(self, mean: Tensor) -> Tensor:
        """The variance that is left of it in images (..., s*H, s*W)."""
        scale = self.doubt.shape[-1]
        size = (mean.shape[-2] // scale, mean.shape[-1] // scale)
        response, offset = self.doubt.to(mean).repeat(1, *size)
        return response * mean.square() + offset

    def note(self, gain: float, white_level: float) -> str:
        """What was found, in words; gain: raw DN of the reference for one unit of radiance."""
        units = (100.0, "%"), (gain, "DN")
        least = 100 * WORTH_TELLING, white_level * WORTH_TELLING
        found = []
        for kind, row, (unit, sign), limit in zip(KINDS, self.variance, units, least, strict=True):
            stds = [unit * math.sqrt(float(v)) for v in row]
            some = [
                f"{std:.2g} {sign} from {form} to {form}"
                for std, form in zip(stds, FORMS, strict=True)
                if std > limit
            ]
            if some:
                found.append(f"its {kind} by {', '.join(some)}")
        count = int(self.defective.sum())
        said = [f"{' and '.join(found)} (rms)"] if found else []
        if count or not found:
            said.append(f"{count} pixels are defective and were left out" if count else "by little")
        return (
            f"The detector is uneven: {'; '.join(said)}. That was read off the "
            "frames themselves and taken out; what could not be told from the scene is in the "
            "error bars."
        )


def find_pattern(
    shape: tuple[int, int],
    cut: Callable[[Sequence[Tile]], Burst],
    moves: Callable[[Sequence[Tile]], Tensor],
    scale: int,
    at_once: int = TILES_AT_ONCE,
) -> Pattern | None:
    """The pattern of the detector of a scene's frames; None where there is none, or none to tell.

    shape: of the scene, low-res px. cut: gives tiles as a batch; moves: the whole px (B, N, 2) by
    which the frames of tiles were moved. Looked for on a few tiles; then worked out on all of them,
    in at most `ROUNDS` of taking out what was found.
    """

    def told(tiles: Sequence[Tile], pattern: Pattern) -> _Told:
        sums = _Told(pattern, tiles)
        for first in range(0, len(tiles), at_once):
            group = tiles[first : first + at_once]
            moved_px = moves(group)
            batch = pattern.corrected(cut(group), group, moved_px)
            sums.add(group, pattern_evidence(batch, scale, moved_px.to(batch.frames)), moved_px)
        return sums

    def shows(tile: Tile) -> bool:
        blank = _blank([tile], moves([tile]), scale)
        small = blank.defective.numel() <= LARGEST
        return small and told([tile], blank).clearest() is not None

    if math.prod(shape) > LARGEST or not any(shows(tile) for tile in spread_tiles(shape)):
        return None
    tiles = list(tile_corners(shape))
    pattern = blank = _blank(tiles, moves(tiles), scale)
    for _ in range(ROUNDS):
        sums = told(tiles, pattern)
        kind = sums.clearest()
        if kind is None:
            break
        pattern = sums.improved(kind)
    return None if pattern is blank else pattern


def _blank(tiles: Sequence[Tile], moved_px: Tensor, scale: int) -> Pattern:
    """No pattern, on all of the detector that tiles of one size show; moved_px: (T, N, 2)."""
    ends = torch.tensor([[(part.start, part.stop) for part in tile] for tile in tiles])
    seen = (ends[:, None] + moved_px[..., None]).flatten(0, 1).round().long()  # (T N, 2, 2)
    starts, stops = seen.unbind(-1)
    origin = starts.amin(0)
    height, width = (stops.amax(0) - origin).tolist()
    return Pattern(
        torch.zeros(2, height, width),
        torch.zeros(height, width, dtype=torch.bool),
        (int(origin[0]), int(origin[1])),
        torch.zeros(2, len(FORMS)),
        torch.zeros(2, scale, scale),
    )


def _place(
    tile: Tile, moved: Sequence[float], origin: tuple[int, int], shape: tuple[int, int]
) -> tuple[slice, slice]:
    """Where a frame of a tile lies on maps of a shape; at their edge, if it reaches beyond it.

    How far frames were moved may differ by a pixel from tile to tile.
    """
    parts = []
    for part, by, first, size in zip(tile, moved, origin, shape, strict=True):
        length = part.stop - part.start
        start = min(max(part.start + round(by) - first, 0), size - length)
        parts.append(slice(start, start + length))
    return parts[0], parts[1]


class _Told:
    """What tiles of a scene tell of the pattern of their detector, beside what is known of it.

    slope, information: (2, h, w), summed over frames, the latter as if the scene were known.
    shares: (2, L, L // 2 + 1), `share` times all information. answers: (T, 2, K, L, L // 2 + 1),
    what images of some tiles make of a unit of a pattern.
    """

    def __init__(self, pattern: Pattern, tiles: Sequence[Tile]) -> None:
        self.pattern, self.shape = pattern, (pattern.maps.shape[1], pattern.maps.shape[2])
        self.slope, self.information = torch.zeros(2, 2, *self.shape, dtype=torch.float64)
        lattice = (LATTICE, LATTICE // 2 + 1)
        self.shares = torch.zeros(len(KINDS), *lattice, dtype=torch.float64)
        self.answers = torch.zeros(0, len(KINDS), 1, *lattice, dtype=torch.complex64)
        self.laid = torch.zeros([max(tile[axis].stop for tile in tiles) for axis in (0, 1)])
        for tile in tiles:  # where they overlap, each counts for as much less
            self.laid[tile] += 1

    def add(self, tiles: Sequence[Tile], seen: PatternEvidence, moved_px: Tensor) -> None:
        """Add a batch of tiles; moved_px: (B, N, 2)."""
        weight = seen.information.sum((2, 3, 4), dtype=torch.float64)[..., None, None]
        self.shares += (seen.share * weight).sum(0).cpu()
        if len(self.answers) < SOME_TILES:
            answer = seen.answer[:SOME_TILES].cpu()
            self.answers = torch.cat([self.answers, answer]) if len(self.answers) else answer
        slope, information = (x.double().cpu() for x in (seen.slope, seen.information))
        for k, (tile, moves) in enumerate(zip(tiles, moved_px.tolist(), strict=True)):
            for n, moved in enumerate(moves):
                at = (..., *_place(tile, moved, self.pattern.origin, self.shape))
                self.slope[at] += slope[k, :, n] / self.laid[tile]
                self.information[at] += information[k, :, n] / self.laid[tile]

    @property
    def share(self) -> Tensor:
        """Of the information that is left with the scene unknown, (2, L, L // 2 + 1)."""
        total = self.information.sum((1, 2)).clamp(min=1e-30)
        return self.shares / total[:, None, None]

    def clearest(self) -> int | None:
        """The kind of pattern that stands out of the noise the most, if one does."""
        excess = torch.stack([self._excess(kind) for kind in range(len(KINDS))])
        kind = int(excess.amax(1).argmax())
        return kind if float(excess[kind].max()) > CERTAIN else None

    def _excess(self, kind: int) -> Tensor:
        """Power of each of the `FORMS` beyond what noise makes of it, in its errors, (3,)."""
        slope, information, _ = self._spectrum(kind)
        told, form, count = self._forms(kind)
        power = power_of(slope) / information
        shown = self.information[kind] > 0
        covered = [x.double().mean() for x in (shown, shown.any(0), shown.any(1))]
        found = []
        for k in range(len(FORMS)):
            weight = (told & (form == k)) * count
            number = weight.sum() / 2 * covered[k]
            mean = (weight * power).sum() / weight.sum().clamp(min=1)
            found.append(torch.where(mean > CLEAR, (mean - 1) * number.sqrt(), 0))
        return torch.stack(found)

    def _forms(self, kind: int) -> tuple[Tensor, Tensor, Tensor]:
        """Frequencies that are told, of which of the `FORMS`, and how many each stands for."""
        tall, wide = self.shape
        form = torch.zeros(tall, wide // 2 + 1, dtype=torch.long)
        form[0], form[:, 0] = 1, 2  # what columns have in common does not change along them
        told = self._at(self.share[kind]) >= TOLD
        told[0, 0] = False  # which is what the gain is about
        return told, form, half_weight(wide, self.slope).expand(form.shape)

    def _at(self, values: Tensor) -> Tensor:
        """Values on the lattice (L, L // 2 + 1) for the frequencies of the maps."""
        fy, fx = torch.fft.fftfreq(self.shape[0]), torch.fft.rfftfreq(self.shape[1])
        return values[(fy * LATTICE).round().long() % LATTICE][:, (fx * LATTICE).round().long()]

    def _spectrum(self, kind: int) -> tuple[Tensor, Tensor, Tensor]:
        """The slope's spectrum, the information on it, and the pixels' unit (h, w).

        In that unit they all tell the same of a pattern.
        """
        known = self.information[kind] > 0
        usual = self.information[kind].sum() / known.sum().clamp(min=1)
        unit = torch.where(known, self.information[kind] / usual, 1).clamp(min=1e-3).sqrt()
        slope = torch.fft.rfft2(self.slope[kind] / unit, norm="ortho")
        share = self._at(self.share[kind]).clamp(min=1e-3)
        return slope, (share * usual * known.double().mean()).clamp(min=1e-30), unit

    def improved(self, kind: int) -> Pattern:
        """The pattern with what is told of one kind of it.

        Or else of defective pixels alone: without them the others are another matter.
        """
        pattern = self.pattern
        slope, information, unit = self._spectrum(kind)
        told, form, count = self._forms(kind)
        before = torch.fft.rfft2(pattern.maps[kind].double() * unit, norm="ortho")
        first = (power_of(slope) / information.square() * told * count).sum() / (told * count).sum()
        variance = first.expand(len(FORMS))
        for _ in range(LEARNING):
            prior = variance[form]
            left = 1 / (information + 1 / prior)
            found = (before + (slope - before / prior) * left) * told
            power = torch.stack(
                [((power_of(found) + left) * told * count)[form == k].sum() for k in range(3)]
            )
            number = torch.stack([(told * count)[form == k].sum() for k in range(3)])
            variance = (power / number.clamp(min=1)).clamp(min=LEAST_VARIANCE * float(first))
        maps = pattern.maps.clone()
        shown = torch.fft.irfft2(found, s=self.shape, norm="ortho")
        shown = torch.where(self.information[kind] > 0, shown, 0)
        maps[kind] = (shown / unit).float()
        if bool((fresh := self._defective(shown, kind) & ~pattern.defective).any()):
            return dataclasses.replace(pattern, defective=pattern.defective | fresh)
        own, lines = variance[0], torch.tensor([1, *self.shape])
        variance = variance.clamp(min=float(own))  # lines are of pixels
        sizes = torch.cat([own[None], (variance[1:] - own).clamp(min=0) / lines[1:]])
        variances, doubt = pattern.variance.clone(), pattern.doubt.clone()
        variances[kind] = sizes.float()
        doubt[kind] = self._doubt(kind, variance, information).float()
        return Pattern(maps, pattern.defective, pattern.origin, variances, doubt)

    def _defective(self, values: Tensor, kind: int) -> Tensor:
        """Pixels that no correction brings back, (h, w) bool, by what they do to a usual scene."""
        known = self.information[kind] > 0
        usual = 1.4826 * values[known].abs().median()
        # a response is a share of the scene's brightness
        scene, offset = (self.information[k][known].mean() for k in range(len(KINDS)))
        much = MUCH * float((scene / offset).sqrt()) if kind else MUCH
        return values.abs() > max(UNUSUAL * float(usual), much)

    def _doubt(self, kind: int, variance: Tensor, information: Tensor) -> Tensor:
        """The variance that is left of a pattern in an image, (s, s)."""
        share = self.share[kind]
        usual = (information / self._at(share).clamp(min=1e-3)).mean()
        form = torch.zeros(share.shape, dtype=torch.long)
        form[0], form[:, 0] = 1, 2
        prior = variance[form]
        left = torch.where(share >= TOLD, 1 / (share * usual + 1 / prior), prior)
        # a line of the maps' spectrum has the power of one of the lattice's, which has fewer lines
        left[0] *= LATTICE / self.shape[0]
        left[:, 0] *= LATTICE / self.shape[1]
        left[0, 0] = 0
        answer = self.answers[:, kind].to(torch.complex128)
        feigned = answer[:, :, None] * answer[:, None].conj() * left
        return subgrid_variance(feigned, LATTICE, self.pattern.doubt.shape[-1]).mean(0)
