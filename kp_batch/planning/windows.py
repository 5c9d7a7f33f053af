"""Tells which windows changed, which rows take part in their replay, and cuts these into spans.

A trace's novelty depends on the traces in its window alone. So a trace has to be replayed only
where its window holds other traces than before. The rows' positions in the old timeline tell that,
without any vector. Timelines are looked at a stretch at a time: see stretches.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from kp_batch.vectors import Bools, Int64s


@dataclass(frozen=True)
class Span:
    """Rows `first` to `last` (excluded) of those that take part in the replay.

    The window of the first one to be replayed begins at `warm`.
    """

    warm: int
    first: int
    last: int


def breaks(old_position: Int64s) -> Bools:
    """Tell which rows did not follow their predecessor in the old timeline.

    Args:
        old_position: int64, shape (n,), see `window_changed`.

    Returns:
        bool, shape (n,); the first row follows if its position is 0.
    """
    follows = old_position == np.concatenate([[-1], old_position[:-1]]) + 1
    return np.asarray((old_position < 0) | ~follows, dtype=np.bool_)


def window_changed(
    starts: Int64s, old_position: Int64s, old_size: Int64s, broken: Bools, *, same_cache: Bools
) -> Bools:
    """Tell which rows meet other traces than when they were replayed last, once any is broken.

    Row i meets rows `[starts[i], i)`. It meets the same traces as before exactly where it met as
    many, and all of these rows and itself stood one after the other in the old timeline. Before the
    timeline's first break nothing has changed, which only the caller knows.

    Args:
        starts: int64, shape (n,), the first row that each row meets.
        old_position: int64, shape (n,), from 0 in the old timeline; -1: it was not there, or had
            another time or another text.
        old_size: int64, shape (n,), how many traces it met when it was replayed last.
        broken: bool, shape (n,), see `breaks`.
        same_cache: bool, shape (n,), whether that was with a cache of the same size and ttl.

    Returns:
        bool, shape (n,).
    """
    rows = np.arange(len(starts), dtype=np.int64)
    size = rows - starts
    breaks_until = np.cumsum(broken)
    oldest = np.maximum(rows - np.maximum(size, old_size), 0)
    changed = (breaks_until > breaks_until[oldest]) | (old_position[oldest] < 0)
    changed |= same_cache & (size != old_size)
    first_is_gone = old_position[oldest] > np.maximum(old_position - old_size, 0)
    return np.asarray(changed | first_is_gone, dtype=np.bool_)


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


def spans(rows: pl.LazyFrame, limit: int) -> tuple[Span, ...]:
    """Cut rows that all take part in the replay into spans of at most `limit` rows.

    So the work of a span is bounded, however far apart its rows stand in the timeline.

    Args:
        rows: `start`, the first row that each row meets, ascending; and `replay`, whether it is
            to be replayed.
        limit: the length of a span, its warm-up aside.
    """
    replayed = rows.with_row_index("row").filter("replay")
    bounds = replayed.group_by(pl.col("row") // limit).agg(
        warm=pl.col("start").min(), first=pl.col("row").min(), last=pl.col("row").max() + 1
    )
    found = bounds.select("warm", "first", "last").sort("first").collect(engine="streaming")
    return tuple(Span(*bound) for bound in found.iter_rows())


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
