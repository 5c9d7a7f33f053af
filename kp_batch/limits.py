"""Limits, which fail a run or an import above them: a number such as 5, or a share such as 5%."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kp_batch.text import be, count_of

if TYPE_CHECKING:  # the command line needs none of it to begin
    from fractions import Fraction

_NUMBER = r"[0-9]{1,9}"
_SHARE = r"[0-9]{1,3}(\.[0-9]{1,18})?%"
_DECIMAL = r"[01]|[01]?\.[0-9]{1,20}"


def parse_limit(value: Any) -> str:
    """Read a limit: a number, or a share of all in percent.

    Raises:
        ValueError: it is neither.
    """
    text = str(value)
    if not (re.fullmatch(_NUMBER, text) or _is_share(text)):
        raise ValueError(f"a limit is a number such as 5, or a share such as 5%, got {value!r}")
    return text


def parse_share(value: Any) -> str:
    """Read a limit that is a share: in percent, or as a decimal from 0 to 1, where 0.05 is 5%.

    Raises:
        ValueError: it is neither.
    """
    from decimal import Decimal

    text = f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)
    if re.fullmatch(_DECIMAL, text):
        text = f"{(Decimal(text) * 100).normalize():f}%"
    if not _is_share(text):
        raise ValueError(f"a share is 5%, or 0.05, for example, and 100% at most, got {value!r}")
    return text


@dataclass(frozen=True)
class Measure:
    """So much of a whole, which a limit may be on."""

    limit: str  # the name of its setting
    part: int
    whole: int
    unit: str  # that is counted, in the singular
    state: str  # of the part
    example: str
    among: str = ""  # which ones are counted, where it is not all
    option: str = ""  # what allows as much; unless given, the limit's option with the part
    default: tuple[str, ...] = ()  # without a limit, more than all of these is too much

    @property
    def allowance(self) -> str:
        """The options that allow as much."""
        return self.option or f"{self._name} {self.part}"

    def exceeds(self, limits: object) -> bool:
        """Whether it is more than the limit of its name, an attribute, allows."""
        limit = getattr(limits, self.limit)
        bounds = self.default if limit is None else (limit,)
        return bool(bounds) and all(is_beyond(each, self.part, self.whole) for each in bounds)

    def message(self, limits: object) -> str:
        """That it does, in words."""
        limit = getattr(limits, self.limit)
        allowed = f"{self._name} {limit} allows"
        if limit is None:
            allowed = f"{' and more than '.join(self.default)}, the default of {self._name}"
        of_all = f"{self.part:,} of {count_of(self.whole, self.unit)} {be(self.part)}"
        return f"{self.among}{of_all} {self.state}, more than {allowed} ({self.example})"

    @property
    def _name(self) -> str:
        return f"--{self.limit.replace('_', '-')}"


def exceeded(measures: Iterable[Measure], limits: object) -> list[Measure]:
    """For each limit, the first measure that is more than it allows."""
    first: dict[str, Measure] = {}
    for measure in measures:
        if measure.exceeds(limits):
            first.setdefault(measure.limit, measure)
    return [*first.values()]


def is_beyond(limit: str, part: int, total: int) -> bool:
    """Whether a part of a total is more than a limit, to the last digit."""
    return part > (_share(limit) * total if limit.endswith("%") else int(limit))


def _is_share(text: str) -> bool:
    return re.fullmatch(_SHARE, text) is not None and _share(text) <= 1


def _share(text: str) -> "Fraction":
    from fractions import Fraction

    return Fraction(text.removesuffix("%")) / 100
