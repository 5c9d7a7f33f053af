"""Sentences whose parts that come from an archive stand apart, so that every page escapes them."""

from dataclasses import dataclass

ENOUGH = 30  # traces of which a mean says something


class Name(str):
    """A part of a sentence that comes from the archive: each page escapes it in its own way."""

    __slots__ = ()


@dataclass(frozen=True)
class Finding:
    """One sentence, in parts."""

    parts: tuple[str, ...]  # what comes from the archive is a `Name`
    is_warning: bool = False


def tell(*parts: str, is_warning: bool = False) -> Finding:
    """One sentence."""
    return Finding(parts, is_warning)


def number(count: int, what: str) -> str:
    """So many, in the singular or the plural."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def share(part: int, whole: int) -> str:
    """A part, and how much of the whole it is."""
    return f"{part:,} ({part / whole:.1%})"
