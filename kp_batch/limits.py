"""Limits that fail a run or an import: a number such as 5, or a share such as 5%."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kp_batch.text import be, count_of

if TYPE_CHECKING:  # keeps the start of the command line fast
    from fractions import Fraction

_NUMBER = r"[0-9]{1,9}"
_SHARE = r"[0-9]{1,3}(\.[0-9]{1,18})?%"
_DECIMAL = r"[01]|[01]?\.[0-9]{1,20}"


def parse_limit(value: Any) -> str:
    """Parse a limit: a number, or a share of all in percent.

    Raises:
        ValueError: the text is neither.
    """
    text = str(value)
    if not (re.fullmatch(_NUMBER, text) or _is_share(text)):
        raise ValueError(
            f"a limit must be a number such as 5, or a share such as 5%, got {value!r}"
        )
    return text


def parse_share(value: Any) -> str:
    """Parse a limit that is a share: in percent, or a decimal from 0 to 1, where 0.05 is 5%.

    Raises:
        ValueError: the text is neither.
    """
    from decimal import Decimal

    text = f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)
    if re.fullmatch(_DECIMAL, text):
        text = f"{(Decimal(text) * 100).normalize():f}%"
    if not _is_share(text):
        raise ValueError(f"a share must be such as 5% or 0.05, and at most 100%, got {value!r}")
    return text


@dataclass(frozen=True)
class Measure:
    """A part of a whole, which a limit may apply to."""

    limit: str  # the name of its setting
    part: int
    whole: int
    unit: str  # the noun of what is counted, in the singular
    state: str  # what the part is, such as rejected
    example: str
    option: str = ""  # allows as much; by default, the limit's option with the part
    default: tuple[str, ...] = ()  # without a limit, it must exceed all of these to fail

    @property
    def allowance(self) -> str:
        """The options that would allow this much."""
        return self.option or f"{self._name} {self.part}"

    def exceeds(self, limits: object) -> bool:
        """Whether the part is more than the limit, an attribute of `limits`, allows."""
        limit = getattr(limits, self.limit)
        bounds = self.default if limit is None else (limit,)
        return bool(bounds) and all(is_beyond(each, self.part, self.whole) for each in bounds)

    def message(self, limits: object) -> str:
        """Say that the part exceeds the limit."""
        limit = getattr(limits, self.limit)
        allowed = f"{self._name} {limit} allows"
        if limit is None:
            allowed = f"{' and more than '.join(self.default)}, the default of {self._name}"
        of_all = f"{self.part:,} of {count_of(self.whole, self.unit)} {be(self.part)}"
        return f"{of_all} {self.state}, more than {allowed} ({self.example})"

    @property
    def _name(self) -> str:
        return f"--{self.limit.replace('_', '-')}"


def exceeded(measures: Iterable[Measure], limits: object) -> list[Measure]:
    """Return, for each limit, the first measure that exceeds it."""
    first: dict[str, Measure] = {}
    for measure in measures:
        if measure.exceeds(limits):
            first.setdefault(measure.limit, measure)
    return [*first.values()]


def is_beyond(limit: str, part: int, total: int) -> bool:
    """Whether a part of a total exceeds a limit, computed exactly."""
    return part > (_share(limit) * total if limit.endswith("%") else int(limit))


def _is_share(text: str) -> bool:
    return re.fullmatch(_SHARE, text) is not None and _share(text) <= 1


def _share(text: str) -> "Fraction":
    from fractions import Fraction

    return Fraction(text.removesuffix("%")) / 100
