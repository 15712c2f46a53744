"""The order of notes: first those that change what the product is."""

from __future__ import annotations

from collections.abc import Sequence

from .brightness import BRIGHT
from .checks import LEFT_OUT, REPLACED


def in_order(notes: Sequence[str]) -> tuple[str, ...]:
    """Another reference, then frames left out, then exposures, then the rest as it comes."""
    first = (REPLACED, LEFT_OUT.rstrip(":"), BRIGHT)

    def place(note: str) -> int:
        return next((k for k, words in enumerate(first) if words in note), len(first))

    return tuple(sorted(notes, key=place))


def of_reference(notes: Sequence[str]) -> list[str]:
    """Those that say that another frame became the reference."""
    return [note for note in notes if REPLACED in note]
