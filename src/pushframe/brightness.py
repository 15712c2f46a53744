"""Whose exposure is wrong? Frames against the reference, and the reference against the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

MAX_GAIN_ERROR = 0.10  # of the means of frames, beyond which a burst is not fit
MAX_REFERENCE_ERROR = 0.068  # of the reference's: the frames alike that say so stay within 10 %
TOLD_GAIN_ERROR = 0.03  # of gains that were estimated and corrected
SURE = 5.0  # of their stated errors
ALIKE = 0.03  # gains as near as this are one factor
BRIGHT = "times as bright"
MIN_OTHERS = 3  # frames, of which most agree, tell that it is the reference


def reference_excess(gain: Sequence[float], limit: float = MAX_REFERENCE_ERROR) -> float:
    """How many times too bright the reference is for its exposure, as most other frames say.

    gain: of each of the other frames, true over stated exposure, the reference's as the unit. 1
    where they agree with the reference to `limit`, or not with one another.
    """
    if len(gain) < MIN_OTHERS:
        return 1.0
    usual = median(gain)
    alike = sum(abs(value / usual - 1) <= ALIKE for value in gain) if usual > 0 else 0
    if 2 * alike <= len(gain) or max(usual, 1 / usual) - 1 <= limit:
        return 1.0
    return 1 / usual


def reference_fault(excess: float) -> str:
    """What to say of a reference that is `excess` times as bright as its exposure says."""
    return f"{_excess_text(excess)}; correct `exposure` or `black_level`"


def _excess_text(excess: float) -> str:
    return f"the reference is {excess:.2f} {BRIGHT} as the others say"


def brightness_fault(gain: float) -> str:
    """What to say of a frame whose brightness is `gain` times what its exposure says."""
    return f"{gain:.2f} {BRIGHT} as its exposure says; correct `exposure` or `black_level`"


def corrected_notes(
    labels: Sequence[str],
    gain: Sequence[float],
    error: Sequence[float],
    told: Sequence[int] = (),
) -> list[str]:
    """Without a full stop: frames whose estimated gains are off by more than TOLD_GAIN_ERROR.

    gain, error: of all frames, the reference first; NaN where nothing is known.
    """
    known = [k for k in range(1, len(gain)) if gain[k] == gain[k]]
    sure = [k for k in known if abs(gain[k] - 1) > SURE * error[k]]
    excess = reference_excess([gain[k] for k in known], TOLD_GAIN_ERROR)
    if 2 * len(sure) <= len(known):
        excess = 1.0
    found = []
    if excess != 1 and 0 not in told:
        found.append(
            f"{labels[0]}: {_excess_text(excess)}; they were brought to its own in the product"
        )
    for k in known:
        own = gain[k] * excess
        if k not in told and abs(own - 1) > max(TOLD_GAIN_ERROR, SURE * error[k] * excess):
            what = f"{own:.2f} {BRIGHT} as its stated exposure says"
            found.append(f"{labels[k]} is {what}; corrected in the product")
    return found


def of_brightness(note: str, name: str) -> bool:
    """Whether a note speaks of the brightness of the frame of that name."""
    return note.startswith((f"{name} is ", f"{name}: the reference")) and BRIGHT in note


def with_outcome(note: str, names: Sequence[str], gain: Sequence[float]) -> str:
    """A note; one on a frame's brightness says in the end what the product made of it.

    gain: as estimated, of all frames, the reference first; NaN where it was not.
    """
    told = [k for k, name in enumerate(names) if of_brightness(note, name)]
    if not told:
        return note
    if all(value != value for value in gain):
        return f"{note} The product takes exposures as they are stated."
    if told[0] == 0:
        return f"{note} In the product the other frames were brought to its brightness."
    own = gain[told[0]] * reference_excess([g for g in gain[1:] if g == g], TOLD_GAIN_ERROR)
    if own != own:  # it was left out, which is said elsewhere
        return note
    if abs(own - 1) <= TOLD_GAIN_ERROR:
        return f"{note} The product takes its exposure as it is stated."
    return f"{note} It was corrected in the product (gain {own:.2f})."
