"""Check that values of JSON from any source have the expected types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Bounds:
    """The bounds of a number; both are allowed themselves."""

    least: int
    most: int
    is_whole: bool = False

    def allows(self, value: Any) -> bool:
        """Whether a value is a number within the bounds; true and false are not."""
        is_number = isinstance(value, int if self.is_whole else int | float)
        return is_number and not isinstance(value, bool) and self.least <= value <= self.most


SHARE = Bounds(0, 1)


def is_text(value: Any) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Whether a value is true or false."""
    return isinstance(value, bool)


def are_all(values: Any, allowed: Callable[[str, Any], bool]) -> bool:
    """Whether a value is an object whose names and values are all allowed."""
    return isinstance(values, dict) and all(
        allowed(name, value) for name, value in cast("dict[str, Any]", values).items()
    )
