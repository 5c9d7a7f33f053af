"""Sentences of the report, in which text from the archive is a part of its own and marked."""

from dataclasses import dataclass
from datetime import date

ENOUGH = 30  # traces, from which on a mean is worth a sentence


class Untrusted(str):
    """Text from the archive, which every page escapes in its own way."""

    __slots__ = ()


@dataclass(frozen=True)
class Finding:
    """One sentence, in parts."""

    parts: tuple[str, ...]  # text from the archive is `Untrusted`
    is_warning: bool = False


def tell(*parts: str, is_warning: bool = False) -> Finding:
    """Make a finding of the parts of its sentence."""
    return Finding(parts, is_warning)


def days(first: date, last: date) -> str:
    """Write a span of days, or the one day that it is."""
    return f"on {first}" if first == last else f"from {first} to {last}"


def share(part: int, whole: int) -> str:
    """Write a count and its percentage of the whole."""
    return f"{part:,} ({part / whole:.1%})"
