"""Which traces to replay: those whose window in the cache holds other traces than before.

Each trace meets a contiguous run of the traces before it, its window, and its novelty depends on
nothing else. So the positions of what came and went decide, without any vector.

**Theorem.** Merge the old timeline and the new one, in replay order: a trace that stays has one
row; one with another time, group or text has two, one where it is removed and one where it is
added. A trace that stays has to be replayed if and only if

1. its new window holds an added trace: the last one added before it is at the window's start or
   behind it; or
2. its old window held a removed trace: the last one removed before it was, likewise; or
3. its new window has another length than its old one.

*Proof.* If its windows are equal, none of the three is true. If neither 1 nor 2 is, all traces of
the new window are in the old timeline, and all of the old window in the new one: both are runs of
the traces that stay, which end just before this one. If they are of equal length, they are equal.

With the size and ttl of before, 3 implies 1 or 2; it decides where the cache has others. The last
one added and the last one removed are running maxima: one pass with bounded memory decides.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl

from kp_batch.novelty.replay import window_starts
from kp_batch.vectors import Bools, Int64s

_ROWS_AT_ONCE = 524_288  # of which two columns are read


@dataclass(frozen=True)
class MergedRows:
    """Rows of a merged timeline, one stretch of it after the other, in each in replay order.

    A stretch is of one group; no window reaches from one into another. All arrays have shape (n,).
    """

    stretch: Int64s  # equal within a stretch
    time: Int64s  # microseconds
    added: Bools  # only in the new timeline
    removed: Bools  # only in the old timeline
    old_size: Int64s  # how many traces it met when it was replayed last
    other_cache: Bools  # whether that was with a cache of another size or ttl


@dataclass(frozen=True)
class NewWindows:
    """The windows of some rows of the new timeline; positions count from 0, over all stretches."""

    start: Int64s  # position of the first row that each one meets
    changed: Bools  # whether its window holds others than when it was replayed last


class WindowComparison:
    """Compares the windows of a merged timeline with those of before, some rows after the other.

    Args:
        size: the cache's capacity; 0 where there is none, and nothing is met.
        ttl: its time to live, None for no limit.
    """

    def __init__(self, size: int, ttl: timedelta | None) -> None:
        self._size, self._ttl = size, ttl
        self._stretch: int | None = None
        self._rows = self._old_rows = 0  # so far, of the new and of the old timeline
        self._first = self._old_first = 0  # where the stretch begins in these
        self._last_added = self._last_removed = -1
        self._times = np.empty(0, dtype=np.int64)  # of the last rows that may be met, with a ttl

    def compare(self, rows: MergedRows) -> NewWindows:
        """Compare the windows of the next rows; those that were removed have none."""
        position = _count_before(~rows.removed, self._rows)
        old_position = _count_before(~rows.added, self._old_rows)
        begins = rows.stretch != np.concatenate([rows.stretch[:1] - 1, rows.stretch[:-1]])
        begins[:1] = rows.stretch[:1] != self._stretch
        first = _last(begins, position, self._first)
        old_first = _last(begins, old_position, self._old_first)
        last_added = _last(rows.added, position, self._last_added)
        last_removed = _last(rows.removed, old_position, self._last_removed)
        old_start = np.maximum(old_position - rows.old_size, old_first)
        stay = ~rows.removed
        start = self._starts(rows.time[stay], first[stay])
        changed = (last_added[stay] >= start) | (last_removed >= old_start)[stay]
        is_other = position[stay] - start != (old_position - old_start)[stay]
        changed |= rows.other_cache[stay] & is_other
        if len(position):
            self._stretch = int(rows.stretch[-1])
            self._rows, self._old_rows = (
                int(places[-1]) + (not is_absent[-1])
                for places, is_absent in ((position, rows.removed), (old_position, rows.added))
            )
            self._first, self._old_first = int(first[-1]), int(old_first[-1])
            self._last_added, self._last_removed = int(last_added[-1]), int(last_removed[-1])
        return NewWindows(start, np.asarray(changed, dtype=np.bool_))

    def _starts(self, times: Int64s, first: Int64s) -> Int64s:
        """Where the windows of the next rows of the new timeline begin."""
        earlier = self._rows - len(self._times)  # position of the first time that is known
        known = np.concatenate([self._times, times])
        own = slice(len(self._times), None)
        bounds = np.concatenate([np.zeros(len(self._times), dtype=np.int64), first - earlier])
        start = window_starts(known, self._size, self._ttl, bounds)[own] + earlier
        if self._ttl is not None:
            self._times = known[max(len(known) - self._size, 0) :]
        return start


def _count_before(rows: Bools, before: int) -> Int64s:
    """How many of some rows come before each row, and before all of them."""
    return np.asarray(before + np.cumsum(rows) - rows, dtype=np.int64)


def _last(rows: Bools, positions: Int64s, before: int) -> Int64s:
    """The position of the last of some rows up to each row; a running maximum."""
    return np.maximum.accumulate(np.where(rows, positions, before))


def taking_part(timeline: pl.LazyFrame, at_once: int = _ROWS_AT_ONCE) -> Bools:
    """Tell which rows take part in the replay: those to replay, and those in their windows.

    A row does where the next window to be replayed has begun; since starts ascend, the next row to
    be replayed has the first of them: a running minimum from the end.

    Args:
        timeline: `start`, the first row that each row meets, ascending; and `replay`, whether it is
            to be replayed.
        at_once: so many rows are read at a time.

    Returns:
        bool, shape (rows of the timeline,).
    """
    length = timeline.select(pl.len()).collect().item()
    result = np.empty(length, dtype=np.bool_)
    next_start = length
    for first in reversed(range(0, length, at_once)):
        rows = timeline.select("start", "replay").slice(first, at_once).collect()
        start = rows.select(pl.when("replay").then("start").otherwise(length)).to_series()
        upcoming = np.minimum(start.reverse().cum_min().reverse().to_numpy(), next_start)
        position = np.arange(first, first + len(rows))
        result[position] = upcoming <= position
        next_start = int(upcoming[0])
    return result


@dataclass(frozen=True)
class Span:
    """Rows `first` to `last` (excluded) of those that take part in the replay.

    The window of the first one to be replayed begins at `warm`.
    """

    warm: int
    first: int
    last: int


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
