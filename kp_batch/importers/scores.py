"""What counts as a score."""

from math import isfinite


def score_of(value: object) -> float | None:
    """A score as a number; None, as if there were none, of what is no finite number."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
