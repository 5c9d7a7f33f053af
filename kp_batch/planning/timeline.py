"""Decide which traces to replay, and stage the days on which anything differs.

A late trace changes the windows of the later traces of its group. A trace must be replayed if its
window in the cache contains other traces than before. First, only the columns that place a trace
are read, for the days around the changes. Then full rows are read, for the days with a replayed or
changed trace.

The window of a trace is a contiguous run of the traces before it, and its novelty depends on
nothing else. So the positions of added and removed traces decide, without any vector.

**Theorem.** Merge the old and the new timeline in replay order. A trace that stays has one row. A
trace with another time, group or text has two: one where it is removed and one where it is added. A
trace that stays must be replayed if and only if

1. its new window contains an added trace: the last one added before it is at the start of the
   window or after it; or
2. its old window contained a removed trace: the same for the last one removed before it; or
3. its new window and its old one differ in length.

*Proof.* If the two windows are equal, none of the three is true. If neither 1 nor 2 is true, all
traces of the new window are in the old timeline, and all of the old window in the new one: both are
runs of the traces that stay, and end just before this one. If they also have the same length, they
are equal.

With the same size and ttl, 3 implies 1 or 2; it decides if the cache has other settings now. The
last added and the last removed trace are running maxima: one pass with bounded memory decides.

A trace that has been forgotten is a removed one without an id, a tombstone. Its time places it
after all others of that time. These are replayed, whatever their windows contained.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta

import duckdb
import numpy as np
import polars as pl

from kp_batch.duck import SQL, columns, read_parquet, set_variables, sql, statement
from kp_batch.ingest.staged_rows import parquet_batches
from kp_batch.novelty.replay import window_starts
from kp_batch.planning.cache_groups import rows_by_group
from kp_batch.planning.changes import ChangeDetection
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.write_tasks import rows_in_part
from kp_batch.runs.run import Run
from kp_batch.schemas import NOVELTY, OWN_COLUMNS, SCORED_COLUMNS, SCORES, TIMESTAMP
from kp_batch.vectors import Bools, Int64s
from kp_batch.warehouse.staging import Staging

STARTS_AT_ONCE = 524_288  # rows to read at once, of two columns
# Rows to read at once: ids may have 10,000 letters.
_ROWS_AT_ONCE = 16_384
# Traces to replay at once: their vectors take 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
# The current columns of a trace, its published ones, and the work on it.
TIMELINE = pl.Schema(
    {
        **{name: dtype for name, dtype in SCORES.items() if name != "date"},
        "facts_changed": pl.Boolean,
        "replay": pl.Boolean,
    }
)
_UNLIKE = {"trace_id", "nearest_trace_id", "text_hash", "content_hash"}  # differ in every row
_REPEATED = [name for name, dtype in TIMELINE.items() if dtype == pl.String and name not in _UNLIKE]
_OWN = (*OWN_COLUMNS, "source_file", "cache_group")
_SCORED = (*NOVELTY, *SCORED_COLUMNS)
# The columns that place a trace, sorted by group, then in replay order.
REPLAY = pl.Schema(
    {
        "trace_id": pl.String,
        "created_at": TIMESTAMP,
        "text_hash": pl.String,
        "start": pl.Int64,  # the first row of its window
        "replay": pl.Boolean,  # false: it is only in others' windows
    }
)
# `window_changed`: the only reason why it is replayed.
_WINDOW_ROWS = pl.Schema({**REPLAY, "window_changed": pl.Boolean})

_NO_DAYS = '(SELECT NULL::VARCHAR AS cache_group, NULL::DATE AS day, 0 AS "rows" WHERE false)'
# If all traces share a cache, the counts are known already.
_BY_DAY = "(SELECT NULL AS cache_group, * FROM rows_by_day)"
_CHANGED_GROUPS = """(
    SELECT cache_group FROM diff WHERE NOT in_place
    UNION
    SELECT old_cache_group FROM diff WHERE NOT in_place
    UNION
    SELECT cache_group FROM published.tombstones
)"""
_REPLAYED = "(SELECT trace_id FROM $window_rows WHERE window_changed)"
_NO_TRACES = "(SELECT '' AS trace_id WHERE false)"


@dataclass(frozen=True)
class MergedRows:
    """Rows of a merged timeline, sorted by segment, then in replay order.

    A segment belongs to one group, and no window crosses segments. All arrays have shape (n,).
    """

    segment: Int64s  # equal within a segment
    time: Int64s  # microseconds
    added: Bools  # only in the new timeline
    removed: Bools  # only in the old timeline
    old_size: Int64s  # of its window at the last replay
    other_cache: Bools  # whether that replay had a cache of another size or ttl


@dataclass(frozen=True)
class NewWindows:
    """The windows of some rows of the new timeline; positions count from 0, over all segments."""

    start: Int64s  # position of the first row of each window
    changed: Bools  # whether it differs from the last replay


class WindowComparison:
    """Compare the new windows of a merged timeline with the old ones, batch by batch.

    Args:
        size: the cache's capacity; 0 without a cache: all windows are empty.
        ttl: its time to live; None for no limit.
    """

    def __init__(self, size: int, ttl: timedelta | None) -> None:
        self._size, self._ttl = size, ttl
        self._segment: int | None = None
        self._rows = self._old_rows = 0  # rows so far, in the new and the old timeline
        self._first = self._old_first = 0  # where the segment begins in each
        self._last_added = self._last_removed = -1
        self._times = np.empty(0, dtype=np.int64)  # times of the last rows, for windows with a ttl

    def compare(self, rows: MergedRows) -> NewWindows:
        """Compare the windows of the next rows; removed rows have none."""
        position = _count_before(~rows.removed, self._rows)
        old_position = _count_before(~rows.added, self._old_rows)
        begins = rows.segment != np.concatenate([rows.segment[:1] - 1, rows.segment[:-1]])
        begins[:1] = rows.segment[:1] != self._segment
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
            self._segment = int(rows.segment[-1])
            self._rows, self._old_rows = (
                int(places[-1]) + (not is_absent[-1])
                for places, is_absent in ((position, rows.removed), (old_position, rows.added))
            )
            self._first, self._old_first = int(first[-1]), int(old_first[-1])
            self._last_added, self._last_removed = int(last_added[-1]), int(last_removed[-1])
        return NewWindows(start, np.asarray(changed, dtype=np.bool_))

    def _starts(self, times: Int64s, first: Int64s) -> Int64s:
        """Return where the windows of the next rows of the new timeline begin."""
        earlier = self._rows - len(self._times)  # position of the first known time
        all_times = np.concatenate([self._times, times])
        own = slice(len(self._times), None)
        bounds = np.concatenate([np.zeros(len(self._times), dtype=np.int64), first - earlier])
        start = window_starts(all_times, self._size, self._ttl, bounds)[own] + earlier
        if self._ttl is not None:
            self._times = all_times[max(len(all_times) - self._size, 0) :]
        return start


def _count_before(rows: Bools, before: int) -> Int64s:
    """Count the given rows before each row, and before all of them."""
    return np.asarray(before + np.cumsum(rows) - rows, dtype=np.int64)


def _last(rows: Bools, positions: Int64s, before: int) -> Int64s:
    """Return the position of the last given row up to each row: a running maximum."""
    return np.maximum.accumulate(np.where(rows, positions, before))


def rows_in_replay(timeline: pl.LazyFrame) -> Bools:
    """Find the rows that take part in the replay: the rows to replay, and those in their windows.

    A row takes part if the window of the next row to replay has begun, because starts ascend. That
    is a running minimum from the end.

    Args:
        timeline: `start`, the first row of each row's window, ascending; and `replay`, whether to
            replay it.

    Returns:
        bool, shape (rows of the timeline,).
    """
    length = timeline.select(pl.len()).collect().item()
    result = np.empty(length, dtype=np.bool_)
    next_start = length
    for first in reversed(range(0, length, STARTS_AT_ONCE)):
        rows = timeline.select("start", "replay").slice(first, STARTS_AT_ONCE).collect()
        start = rows.select(pl.when("replay").then("start").otherwise(length)).to_series()
        upcoming = np.minimum(start.reverse().cum_min().reverse().to_numpy(), next_start)
        position = np.arange(first, first + len(rows))
        result[position] = upcoming <= position
        next_start = int(upcoming[0])
    return result


@dataclass(frozen=True)
class ReplaySpan:
    """Rows `first` to `last` (excluded) of those that take part in the replay.

    The window of its first row to replay begins at `warm`.
    """

    warm: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many rows it has, including its warm-up."""
        return self.last - self.warm

    def read(self, staging: Staging) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Read its rows of `staging.replay`, and the places of their vectors."""
        rows, places = (
            pl.scan_parquet(path, glob=False).slice(self.warm, self.rows).collect()
            for path in (staging.replay, staging.vectors)
        )
        return rows, places


def spans(rows: pl.LazyFrame, limit: int) -> tuple[ReplaySpan, ...]:
    """Cut rows that all take part in the replay into spans of at most `limit` rows.

    This bounds the work of a span, however far apart its rows are in the timeline.

    Args:
        rows: `start`, the first row of each row's window, ascending; and `replay`, whether to
            replay it.
        limit: the length of a span without its warm-up.
    """
    replayed = rows.with_row_index("row").filter("replay")
    bounds = replayed.group_by(pl.col("row") // limit).agg(
        warm=pl.col("start").min(), first=pl.col("row").min(), last=pl.col("row").max() + 1
    )
    spans_frame = bounds.select("warm", "first", "last").sort("first").collect(engine="streaming")
    return tuple(ReplaySpan(*bound) for bound in spans_frame.iter_rows())


@dataclass(frozen=True)
class Timeline:
    """The days on which anything differs, in time order: `staging.timeline`.

    If there are spans, `staging.replay` contains the traces that take part in the replay.
    """

    days: frozenset[date]  # the days, with all of their traces
    spans: tuple[ReplaySpan, ...]  # spans of rows of `staging.replay`


def affected_timeline(
    run: Run, detected: ChangeDetection, scorer: Scorer, published: pl.DataFrame
) -> Timeline:
    """Find the traces to replay, and stage their days and all others that differ.

    The ids of the published scores are those of `OpenSnapshot.fingerprints`.
    """
    TIMELINE.to_frame().write_parquet(run.staging.timeline)
    days = set(detected.changes.days)
    has_window_rows = _stage_window_rows(run, detected, scorer, published)
    if has_window_rows:
        replayed = pl.scan_parquet(run.staging.window_rows, glob=False).filter("replay")
        days |= set(replayed.select(pl.col("created_at").dt.date().unique()).collect().to_series())
    if days:
        _stage_timeline(run, detected, scorer, sorted(days), has_window_rows=has_window_rows)
    if not has_window_rows or not scorer.has_encoder or not _stage_replay(run):
        return Timeline(frozenset(days), ())
    rows = pl.scan_parquet(run.staging.replay, glob=False)
    limit = min(RANGE_ROWS, rows_in_part([run.staging.replay]))
    return Timeline(frozenset(days), spans(rows, limit))


def _stage_window_rows(
    run: Run, detected: ChangeDetection, scorer: Scorer, published: pl.DataFrame
) -> bool:
    """Stage the traces around the changes, and which to replay; return whether there are any."""
    days = _segments(run, detected, scorer, published)
    if not days:
        return False
    size = run.config.cache_size if scorer.has_encoder else 0
    comparison = WindowComparison(size, run.config.ttl)
    merged = sql(__name__, "merged.sql", scores=_scores(run, detected, days))
    with parquet_batches(run.staging.window_rows, _WINDOW_ROWS, RANGE_ROWS) as window_rows:
        for rows in _batches(detected.snapshot.connection.sql(merged)):
            windows = comparison.compare(_merged_rows(scorer, rows))
            changed = pl.Series(windows.changed) | pl.col("tied")
            replay = scorer.novelty_is_stale() | changed
            stay = rows.remove("removed").with_columns(start=windows.start, replay=replay)
            replaced = pl.col("added") | scorer.novelty_is_stale()
            window_rows.add(stay.with_columns(window_changed=pl.col("replay") & ~replaced))
    return bool(window_rows.files)


def _scores(run: Run, detected: ChangeDetection, days: Iterable[date]) -> SQL:
    """Return the published scores of some days; none if every trace is in another group now."""
    return detected.snapshot.scores_of([] if run.regroups else days)


def _segments(
    run: Run, detected: ChangeDetection, scorer: Scorer, published: pl.DataFrame
) -> list[date]:
    """Find the segments around the changes, see segments.sql; return their days."""
    snapshot = detected.snapshot
    stale = published.filter(scorer.replay_is_stale()).get_column("day").unique().to_list()
    if not (stale or detected.changes.days or run.has_tombstones):
        return []
    by_day = published.group_by("day").agg(rows=pl.col("traces").sum())
    snapshot.connection.register("rows_by_day", by_day.to_arrow())
    max_window = max([run.config.cache_size, *published.get_column("max_window").drop_nulls()])
    set_variables(snapshot.connection, stale=stale, max_window=max_window)
    counts = _counts(run, is_stale=bool(stale))
    snapshot.connection.execute(sql(__name__, "segments.sql", counts=counts))
    return sorted(snapshot.ask("SELECT DISTINCT day FROM segments").to_series())


def _counts(run: Run, *, is_stale: bool) -> SQL:
    """Return how many published traces each group has by day; none if all groups differ now."""
    if run.regroups:
        return statement(_NO_DAYS)
    if not run.config.cache_by:
        return statement(_BY_DAY)
    changed = None if is_stale else statement(_CHANGED_GROUPS)
    return rows_by_group(statement("published.scores"), changed)


def _batches(rows: duckdb.DuckDBPyRelation) -> Iterator[pl.DataFrame]:
    for batch in rows.to_arrow_reader(_ROWS_AT_ONCE):
        yield pl.DataFrame(batch)


def _merged_rows(scorer: Scorer, rows: pl.DataFrame) -> MergedRows:
    merged = rows.select(
        "segment",
        pl.col("created_at").to_physical(),
        *("added", "removed"),
        pl.col("cached_vectors").fill_null(0),
        other_cache=scorer.cache_is_stale(),
    )
    return MergedRows(*(column.to_numpy() for column in merged))


def _stage_timeline(
    run: Run,
    detected: ChangeDetection,
    scorer: Scorer,
    days: Iterable[date],
    *,
    has_window_rows: bool,
) -> None:
    """Stage all traces of some days."""
    replayed = statement(_NO_TRACES)
    if has_window_rows:
        replayed = statement(_REPLAYED, window_rows=read_parquet(run.staging.window_rows))
    query = sql(
        __name__,
        "timeline.sql",
        scores=_scores(run, detected, days),
        new_own=columns(_OWN, "new"),
        old_own=columns(_OWN, "old"),
        old_scored=columns(_SCORED, "old"),
        replayed=replayed,
    )
    with (
        _unordered(detected.snapshot.connection),
        parquet_batches(run.staging.timeline, TIMELINE, RANGE_ROWS, _REPEATED) as timeline,
    ):
        for rows in _batches(detected.snapshot.connection.sql(query)):
            timeline.add(rows.with_columns(pl.col("replay") | scorer.novelty_is_stale()))


@contextmanager
def _unordered(connection: duckdb.DuckDBPyConnection) -> Generator[None]:
    """Let the instance of a connection read rows in any order, for a query that sorts them.

    Keeping the order of a million wide rows until the sort took more than a gigabyte.
    """
    connection.execute("SET preserve_insertion_order = false")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # after an error that left the instance unusable
            connection.execute("RESET preserve_insertion_order")


def _stage_replay(run: Run) -> bool:
    """Stage the rows that take part in the replay; return whether there are any."""
    window_rows = pl.scan_parquet(run.staging.window_rows, glob=False)
    takes_part = rows_in_replay(window_rows)
    most = rows_in_part([run.staging.window_rows])  # because ids may be long
    taken = latest = 0
    with parquet_batches(run.staging.replay, REPLAY, RANGE_ROWS) as replay:
        for first in range(0, len(takes_part), most):
            part = takes_part[first : first + most]
            if not part.any():
                continue
            rows = (
                window_rows.select(list(REPLAY))
                .slice(first, len(part))
                .collect()
                .filter(pl.Series(part))
            )
            position = first + np.flatnonzero(part)
            left_out = position - np.arange(taken, taken + len(rows))  # left-out rows before each
            # The window of a row that is not replayed may lack rows: its start is meaningless.
            start = np.maximum.accumulate(
                np.maximum(rows.get_column("start").to_numpy() - left_out, latest)
            )
            taken, latest = taken + len(rows), int(start[-1])
            replay.add(rows.with_columns(start=start))
    return bool(replay.files)
