"""What changed, and the least work that is enough: on plain arrays, without looking at any file.

A trace's novelty depends on the traces in its window alone. So a trace has to be replayed only
where its window holds other traces than before, which is told without any of their vectors: from
where each row of the new timeline stood in the old one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from kp_batch.vectors import Bools, Int64s


@dataclass(frozen=True)
class Span:
    """Rows `first` to `last` (excluded) of a timeline, and where the window of the first begins."""

    warm: int
    first: int
    last: int


def meets_others(starts: Int64s, was: Int64s, met: Int64s, *, comparable: Bools) -> Bools:
    """Which rows of a timeline meet other traces than when they were replayed last.

    Row i meets rows `[starts[i], i)`. It meets the same traces as before exactly where it met as
    many, and all of these rows and itself stood one after the other in the old timeline. Before the
    first row that did not follow its predecessor, nothing has changed.

    Args:
        starts: int64, shape (n,), the first row that each row meets.
        was: int64, shape (n,), its position in the old timeline; -1: it was not there, or had
            another time or another text. Positions of the old timeline's first row are 0.
        met: int64, shape (n,), how many traces it met when it was replayed last.
        comparable: bool, shape (n,), whether that was with a cache of the same size and ttl.

    Returns:
        bool, shape (n,).
    """
    rows = np.arange(len(was), dtype=np.int64)
    size = rows - starts
    breaks = (was < 0) | (was != np.concatenate([[-1], was[:-1]]) + 1)
    if not breaks.any():
        return np.zeros(len(was), dtype=np.bool_)
    breaks_until = np.cumsum(breaks)
    oldest = np.maximum(rows - np.maximum(size, met), 0)
    others = (breaks_until > breaks_until[oldest]) | (was[oldest] < 0) | comparable & (size != met)
    others |= was[oldest] > np.maximum(was - met, 0)  # what it met first is gone
    return others & (rows >= int(breaks.argmax()))


def spans(rows: Bools, starts: Int64s, limit: int) -> Iterator[Span]:
    """The marked rows in pieces of at most `limit`, rows between them included that they need.

    Args:
        rows: bool, shape (n,), the rows to replay.
        starts: int64, shape (n,), the first row that each row meets; ascending.
        limit: the length of a span, its warm-up aside.
    """
    marked = np.flatnonzero(rows)
    apart = np.flatnonzero(starts[marked[1:]] > marked[:-1]) + 1
    for group in np.split(marked, apart):
        end = int(group[-1]) + 1 if len(group) else 0
        for first in range(int(group[0]) if len(group) else 0, end, limit):
            yield Span(int(starts[first]), first, min(first + limit, end))


def needed(pieces: Sequence[Span], length: int) -> Bools:
    """Which rows of a timeline of that length any of the spans takes a vector of."""
    mask = np.zeros(length, dtype=np.bool_)
    for span in pieces:
        mask[span.warm : span.last] = True
    return mask


def around(days: Sequence[tuple[date, int]], first: date, last: date, size: int) -> list[date]:
    """The days that hold all that a change between two days can touch, and what that meets.

    Args:
        days: each day of the old timeline with its number of rows, ascending.
        first: the day of the first change.
        last: the day of the last one.
        size: the cache's capacity: so many rows before and after can matter at the most.
    """
    chosen = [day for day, _ in days if first <= day <= last]
    before = [each for each in days if each[0] < first]
    after = [each for each in days if each[0] > last]
    return sorted([*_reaching(reversed(before), size), *chosen, *_reaching(iter(after), size)])


def _reaching(days: Iterator[tuple[date, int]], rows: int) -> Iterator[date]:
    """Days until they hold so many rows."""
    held = 0
    for day, count in days:
        if held >= rows:
            return
        yield day
        held += count
