"""Limits, which fail a run or an import above them: a number such as 5, or a share such as 5%."""

import re
from typing import TYPE_CHECKING, Any

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
        raise ValueError(f"a share is 5%, say, or 0.05, and 100% at the most, got {value!r}")
    return text


def is_beyond(limit: str, part: int, total: int) -> bool:
    """Whether a part of a total is more than a limit, to the last digit."""
    return part > (_share(limit) * total if limit.endswith("%") else int(limit))


def _is_share(text: str) -> bool:
    return re.fullmatch(_SHARE, text) is not None and _share(text) <= 1


def _share(text: str) -> "Fraction":
    from fractions import Fraction

    return Fraction(text.removesuffix("%")) / 100
