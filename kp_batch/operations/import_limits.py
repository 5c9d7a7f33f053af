"""Checks that an import does not refuse too much: then it changes nothing."""

from dataclasses import dataclass

from kp_batch.importers.refusals import Refusals
from kp_batch.text import are, number


@dataclass(frozen=True)
class ImportLimits:
    """How much an import may refuse: a number such as 5, or a share such as 5%; None: any.

    What waits counts as neither.
    """

    max_refused: str | None = None  # of the traces, lines and rows that are read
    max_unreadable: str | None = None  # of the files of the sources


def excess(limits: ImportLimits, refusals: Refusals, traces: int, files: int) -> str | None:
    """Say why an import must not change its archive; None if it may.

    Args:
        limits: of this import.
        refusals: of what it has read.
        traces: that it has made.
        files: of its sources.
    """
    read = traces + refusals.numbers["refused"]
    for kind, limit, whole, what in (
        ("refused", limits.max_refused, read, "trace"),
        ("unreadable", limits.max_unreadable, files, "file"),
    ):
        part = refusals.numbers[kind]
        if limit is not None and 100 * part > _hundredths(limit, whole):
            return (
                f"{part:,} of {number(whole, what)} {are(part)} {kind}, more than --max-{kind} "
                f"{limit} allows (such as {refusals.first[kind]}); no trace is imported; to allow "
                f"it this once: --max-{kind} {part}"
            )
    return None


def _hundredths(limit: str, whole: int) -> int:
    """A hundred times the greatest number that a limit allows."""
    return int(limit.removesuffix("%")) * (whole if limit.endswith("%") else 100)
