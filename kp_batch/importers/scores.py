"""What counts as a score."""

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True)
class Score:
    """A judgement of a trace, or of a span of it."""

    name: str
    value: float
    time: int = 0  # in nanoseconds after 1970


def score(name: object, value: object, time: int = 0) -> Score | None:
    """A score, where it has a name and is a number."""
    number = score_of(value)
    return Score(name, number, time) if isinstance(name, str) and number is not None else None


def score_of(value: object) -> float | None:
    """A score as a number; None, as if there were none, of what is no finite number."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
