"""Methods on bursts with truth: the loop behind `pushframe evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .bootstrap import DRAWS, SEED, balanced_mean, interval_90
from .burst import Simulated, stack
from .checks import require
from .days import as_of_one_day, with_law
from .errors import UsageError
from .io.guard import naming
from .methods import Estimate, find_methods
from .metrics import LEVELS, Metrics

SCHEMA = "pushframe-evaluation/1"
PAIRED_WITH = "map"


class Case(NamedTuple):
    """One burst of the test set and the image or file it comes from."""

    group: str
    simulated: Simulated


class Evaluation:
    """Figures of several methods over a test set, in the evaluation's JSON schema."""

    def __init__(self, border_hpx: int = 8, true_motion: bool = False) -> None:
        self.border_hpx, self.true_motion = border_hpx, true_motion
        self.sums: dict[str, Metrics] = {}
        self.scales: set[int] = set()
        self.counts: set[int] = set()
        self.bursts = 0
        self.notes: list[str] = []

    def with_law(self, case: Case) -> Case:
        """The case with a noise law, estimated where its burst has none, as `run` does."""
        made = case.simulated
        with naming(Path(case.group)):
            burst = with_law(made.burst, made.scale)
        if told := " ".join(burst.notes[len(made.burst.notes) :]):
            self.notes.append(f"{case.group}: {told}")
        return Case(case.group, dataclasses.replace(made, burst=burst))

    def update(self, cases: Sequence[Case], estimates: Mapping[str, Estimate]) -> None:
        """Add what each method made of a batch of cases of one shape."""
        scale = cases[0].simulated.scale
        for name, (posterior, flow_px, *_) in estimates.items():
            truth = torch.stack([case.simulated.truth for case in cases]).to(posterior.mean)
            true_flow = _stacked_flow(cases, posterior.mean)
            self.sums.setdefault(name, Metrics(scale, self.border_hpx)).update(
                posterior, truth, [case.group for case in cases], flow_px, true_flow
            )
        self.scales.add(scale)
        self.counts.add(cases[0].simulated.burst.count)
        self.bursts += len(cases)

    def compute(self) -> dict[str, object]:
        """The figures; an error where there was no burst, or bursts of several scales."""
        require(
            self.bursts > 0,
            "a burst with truth",
            "none",
            "give larger images, or lower --size",
            UsageError,
        )
        require(
            len(self.scales) == 1,
            "bursts of one scale",
            sorted(self.scales),
            "evaluate them apart",
            UsageError,
        )
        counts = sorted(self.counts)
        return {
            "schema": SCHEMA,
            "bursts": self.bursts,
            "images": len(set(next(iter(self.sums.values())).groups)),
            "frames": counts[0] if len(counts) == 1 else counts,
            "scale": next(iter(self.scales)),
            "border_hpx": self.border_hpx,
            "motion": "true" if self.true_motion else "estimated",
            "levels": list(LEVELS),
            "bootstrap": {"draws": DRAWS, "seed": SEED},
            "methods": {name: metrics.compute() for name, metrics in self.sums.items()},
            "paired": self._paired(),
            "notes": self.notes,
        }

    def _paired(self) -> dict[str, object]:
        """PSNR of each method less that of `map` (or the first) on the same burst."""
        base = PAIRED_WITH if PAIRED_WITH in self.sums else next(iter(self.sums))
        images, reached = self.sums[base].groups, self.sums[base].psnr_db()
        gains = {
            name: metrics.psnr_db() - reached for name, metrics in self.sums.items() if name != base
        }
        return {
            "against": base,
            "psnr_db": {name: balanced_mean(gain, images) for name, gain in gains.items()},
            "interval_90": {name: interval_90(gain, images) for name, gain in gains.items()},
        }


def evaluate(
    cases: Iterable[Case],
    methods: Sequence[str],
    true_motion: bool = False,
    border_hpx: int = 8,
    device: str = "cpu",
    batch: int = 8,
    on_batch: Callable[[int], None] = lambda _: None,
) -> dict[str, object]:
    """Run each method on each case and measure it.

    true_motion: give the methods the simulator's flow instead of letting them estimate it.
    on_batch: told the number of bursts done, for a progress bar.
    """
    chosen = find_methods(methods)
    evaluation = Evaluation(border_hpx, true_motion)
    if any(method.weighs_noise for method in chosen.values()):
        cases = map(evaluation.with_law, cases)
    for group in _batches(cases, batch):
        burst = as_of_one_day(stack([case.simulated.burst for case in group]).to(device))
        flow_px = _stacked_flow(group, burst.frames) if true_motion else None
        if true_motion:
            _check_flow(flow_px, group[0].group)
        estimates = {
            name: method.run(burst, group[0].simulated.scale, flow_px)
            for name, method in chosen.items()
        }
        evaluation.update(group, estimates)
        on_batch(len(group))
    return evaluation.compute()


def _check_flow(flow_px: Tensor | None, name: str) -> None:
    """The true motion is known."""
    require(
        flow_px is not None,
        "bursts with their true motion",
        f"{name} without flow_px",
        "evaluate with estimated motion",
        UsageError,
    )


def _stacked_flow(cases: Sequence[Case], like: Tensor) -> Tensor | None:
    """The true motion of all cases as a batch; None where a case lacks it."""
    known = [case.simulated.flow_px for case in cases if case.simulated.flow_px is not None]
    return torch.stack(known).to(like) if len(known) == len(cases) else None


def _batches(cases: Iterable[Case], size: int) -> Iterator[list[Case]]:
    """Runs of at most `size` consecutive cases that can be stacked."""
    group: list[Case] = []
    for case in cases:
        if group and (len(group) == size or _kind(case) != _kind(group[0])):
            yield group
            group = []
        group.append(case)
    if group:
        yield group


def _kind(case: Case) -> tuple[object, ...]:
    made = case.simulated
    flow = None if made.flow_px is None else made.flow_px.shape
    burst = made.burst
    return burst.frames.shape, made.truth.shape, burst.noise is None, burst.days, flow
