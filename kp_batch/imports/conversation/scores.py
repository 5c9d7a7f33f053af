"""What counts as a score."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite


@dataclass(slots=True)
class Score:
    """A judgement of a trace, or of a span of it."""

    name: str
    value: float
    time: int = 0  # in nanoseconds after 1970


def scores_of(told: Iterable[tuple[object, object, int | None]]) -> list[Score]:
    """The scores among names, values and times: those that have a name, and are numbers."""
    numbers = ((name, score_of(value), time or 0) for name, value, time in told)
    return [Score(x, y, z) for x, y, z in numbers if isinstance(x, str) and y is not None]


def score_of(value: object) -> float | None:
    """A score as a number; None, as if there were none, of what is no finite number."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
