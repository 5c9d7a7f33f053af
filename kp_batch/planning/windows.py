"""Tells which windows changed, which rows take part in their replay, and cuts these into spans.

A trace's novelty depends on the traces in its window alone. So a trace has to be replayed only
where its window holds other traces than before. The rows' positions in the old timeline tell that,
without any vector. All of it is on plain arrays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from kp_batch.vectors import Bools, Int64s


@dataclass(frozen=True)
class Span:
    """Rows `first` to `last` (excluded) of those that take part in the replay.

    The window of the first one to be replayed begins at `warm`.
    """

    warm: int
    first: int
    last: int


def window_changed(
    starts: Int64s, old_position: Int64s, old_size: Int64s, *, same_cache: Bools
) -> Bools:
    """Tell which rows of a timeline meet other traces than when they were replayed last.

    Row i meets rows `[starts[i], i)`. It meets the same traces as before exactly where it met as
    many, and all of these rows and itself stood one after the other in the old timeline. Before the
    first row that did not follow its predecessor, nothing has changed.

    Args:
        starts: int64, shape (n,), the first row that each row meets.
        old_position: int64, shape (n,), from 0 in the old timeline; -1: it was not there, or had
            another time or another text.
        old_size: int64, shape (n,), how many traces it met when it was replayed last.
        same_cache: bool, shape (n,), whether that was with a cache of the same size and ttl.

    Returns:
        bool, shape (n,).
    """
    rows = np.arange(len(starts), dtype=np.int64)
    size = rows - starts
    follows = old_position == np.concatenate([[-1], old_position[:-1]]) + 1
    breaks = (old_position < 0) | ~follows
    if not breaks.any():
        return np.zeros(len(rows), dtype=np.bool_)
    breaks_until = np.cumsum(breaks)
    oldest = np.maximum(rows - np.maximum(size, old_size), 0)
    changed = (breaks_until > breaks_until[oldest]) | (old_position[oldest] < 0)
    changed |= same_cache & (size != old_size)
    changed |= old_position[oldest] > np.maximum(
        old_position - old_size, 0
    )  # the first met is gone
    return changed & (rows >= int(breaks.argmax()))


def taking_part(replay: Bools, starts: Int64s) -> Bools:
    """Tell which rows of a timeline take part in the replay: those to replay, and whom they meet.

    Args:
        replay: bool, shape (n,), the rows to replay.
        starts: int64, shape (n,), the first row that each row meets.

    Returns:
        bool, shape (n,).
    """
    rows = np.flatnonzero(replay)
    windows = np.bincount(starts[rows], minlength=len(replay) + 1)  # how many begin at each row
    windows[rows + 1] -= 1
    return np.asarray(np.cumsum(windows[:-1]) > 0, dtype=np.bool_)


def spans(replay: Bools, starts: Int64s, limit: int) -> Iterator[Span]:
    """Cut rows that all take part in the replay into spans of at most `limit` rows.

    So the work of a span is bounded, however far apart its rows stand in the timeline.

    Args:
        replay: bool, shape (n,), the rows to replay.
        starts: int64, shape (n,), the first row that each row meets; ascending.
        limit: the length of a span, its warm-up aside.
    """
    for begin in range(0, len(replay), limit):
        rows = begin + np.flatnonzero(replay[begin : begin + limit])
        if len(rows):
            first, last = int(rows[0]), int(rows[-1])
            yield Span(int(starts[first]), first, last + 1)


def affected_days(
    days: Sequence[tuple[date, int]], first: date, last: date, size: int
) -> list[date]:
    """The days of every trace that a change between two days can affect, and of what these meet.

    Args:
        days: each day of the old timeline with its number of rows, ascending.
        first: the day of the first change.
        last: the day of the last one.
        size: the cache's capacity: so many rows before and after can matter at the most.
    """
    chosen = [day for day, _ in days if first <= day <= last]
    before = [each for each in days if each[0] < first]
    after = [each for each in days if each[0] > last]
    return sorted([*_days_until(reversed(before), size), *chosen, *_days_until(iter(after), size)])


def _days_until(days: Iterator[tuple[date, int]], rows: int) -> Iterator[date]:
    """Yield days until they hold so many rows."""
    held = 0
    for day, count in days:
        if held >= rows:
            return
        yield day
        held += count
