"""Decides which traces are replayed, and stages the days on which anything differs.

A late trace changes the windows of the later traces of its group: to be replayed are those whose
window in the cache holds other traces than before. At first only the columns that place a trace are
read, of the days around the changes; then full rows, of the days that hold a trace which is
replayed or has changed.

The window of a trace is a contiguous run of the traces before it, and its novelty depends on
nothing else. So the positions of the added and removed traces decide, without any vector.

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

With the same size and ttl, 3 implies 1 or 2; it decides where the cache has others now. The last
one added and the last one removed are running maxima: one pass with bounded memory decides.

A trace that was forgotten since is a removed one without an id, a tombstone: its time places it
behind all others of that time, which are replayed, whatever their windows held.
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

_STARTS_AT_ONCE = 524_288  # rows of which two columns are read
# Rows at a time: their ids may have 10,000 letters.
_ROWS_AT_ONCE = 16_384
# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
# A trace as it is now, its published columns, and the work on it.
TIMELINE = pl.Schema(
    {
        **{name: dtype for name, dtype in SCORES.items() if name != "date"},
        "facts_changed": pl.Boolean,
        "replay": pl.Boolean,
    }
)
_UNLIKE = {"trace_id", "nearest_trace_id", "text_hash", "content_hash"}  # in each row
_REPEATED = [name for name, dtype in TIMELINE.items() if dtype == pl.String and name not in _UNLIKE]
_OWN = (*OWN_COLUMNS, "source_file", "cache_group")
_SCORED = (*NOVELTY, *SCORED_COLUMNS)
# The columns that place a trace, one group after the other, in each in replay order.
REPLAY = pl.Schema(
    {
        "trace_id": pl.String,
        "created_at": TIMESTAMP,
        "text_hash": pl.String,
        "start": pl.Int64,  # the first row of its window
        "replay": pl.Boolean,  # else it is only in windows of others
    }
)
# `window_changed`: it is replayed for that alone.
_WINDOW_ROWS = pl.Schema({**REPLAY, "window_changed": pl.Boolean})

_NO_DAYS = '(SELECT NULL::VARCHAR AS cache_group, NULL::DATE AS day, 0 AS "rows" WHERE false)'
# Where all traces share a cache, the counts are known already.
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
    """Rows of a merged timeline, one segment of it after the other, in each in replay order.

    A segment is of one group; no window reaches from one into another. All arrays have shape (n,).
    """

    segment: Int64s  # equal within a segment
    time: Int64s  # microseconds
    added: Bools  # only in the new timeline
    removed: Bools  # only in the old timeline
    old_size: Int64s  # of its window when it was replayed last
    other_cache: Bools  # whether that was with a cache of another size or ttl


@dataclass(frozen=True)
class NewWindows:
    """The windows of some rows of the new timeline; positions count from 0, over all segments."""

    start: Int64s  # position of the first row of each window
    changed: Bools  # whether it holds others than when the row was replayed last


class WindowComparison:
    """Compares the new windows of a merged timeline with the old ones, batch by batch.

    Args:
        size: the cache's capacity; 0 where there is none, and all windows are empty.
        ttl: its time to live, None for no limit.
    """

    def __init__(self, size: int, ttl: timedelta | None) -> None:
        self._size, self._ttl = size, ttl
        self._segment: int | None = None
        self._rows = self._old_rows = 0  # so far, of the new and of the old timeline
        self._first = self._old_first = 0  # where the segment begins in these
        self._last_added = self._last_removed = -1
        self._times = np.empty(0, dtype=np.int64)  # of the last rows, for windows with a ttl

    def compare(self, rows: MergedRows) -> NewWindows:
        """Compare the windows of the next rows; removed ones have none."""
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
        """Where the windows of the next rows of the new timeline begin."""
        earlier = self._rows - len(self._times)  # position of the first time that is known
        all_times = np.concatenate([self._times, times])
        own = slice(len(self._times), None)
        bounds = np.concatenate([np.zeros(len(self._times), dtype=np.int64), first - earlier])
        start = window_starts(all_times, self._size, self._ttl, bounds)[own] + earlier
        if self._ttl is not None:
            self._times = all_times[max(len(all_times) - self._size, 0) :]
        return start


def _count_before(rows: Bools, before: int) -> Int64s:
    """How many of some rows come before each row, and before all of them."""
    return np.asarray(before + np.cumsum(rows) - rows, dtype=np.int64)


def _last(rows: Bools, positions: Int64s, before: int) -> Int64s:
    """The position of the last of some rows up to each row; a running maximum."""
    return np.maximum.accumulate(np.where(rows, positions, before))


def rows_in_replay(timeline: pl.LazyFrame, at_once: int = _STARTS_AT_ONCE) -> Bools:
    """Find the rows that take part in the replay: those to replay, and those in their windows.

    A row does if the next window to be replayed has begun; since starts ascend, that is the window
    of the next row to be replayed: a running minimum from the end.

    Args:
        timeline: `start`, the first row of each row's window, ascending; and `replay`, whether it
            is to be replayed.
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
class ReplaySpan:
    """Rows `first` to `last` (excluded) of those that take part in the replay.

    The window of the first one to be replayed begins at `warm`.
    """

    warm: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many rows it has, its warm-up among them."""
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

    So the work of a span is bounded, however far apart its rows are in the timeline.

    Args:
        rows: `start`, the first row of each row's window, ascending; and `replay`, whether it is to
            be replayed.
        limit: the length of a span, its warm-up aside.
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

    `staging.replay` holds the traces that take part in the replay, if there are spans.
    """

    days: frozenset[date]  # whose traces it holds, all of them
    spans: tuple[ReplaySpan, ...]  # of the rows of `staging.replay`


def affected_timeline(
    run: Run, detected: ChangeDetection, scorer: Scorer, published: pl.DataFrame
) -> Timeline:
    """Find the traces to replay, and stage the days that hold them or any other that differs.

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
    """Stage the traces around the changes, and which are replayed; returns whether any is."""
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
    """The published scores of some days; none where each trace is in another group than it was."""
    return detected.snapshot.scores_of([] if run.regroups else days)


def _segments(
    run: Run, detected: ChangeDetection, scorer: Scorer, published: pl.DataFrame
) -> list[date]:
    """Find the segments around the changes, see segments.sql; returns their days."""
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
    """How many published traces each group has on each day; none where each is in another now."""
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

    To keep the order of a million wide rows until they are sorted, a gigabyte was too little.
    """
    connection.execute("SET preserve_insertion_order = false")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # after one that left the instance unusable
            connection.execute("RESET preserve_insertion_order")


def _stage_replay(run: Run) -> bool:
    """Stage the rows that take part in the replay; returns whether any does."""
    window_rows = pl.scan_parquet(run.staging.window_rows, glob=False)
    takes_part = rows_in_replay(window_rows)
    most = rows_in_part([run.staging.window_rows])  # since ids may be long
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
            left_out = position - np.arange(taken, taken + len(rows))  # rows before it
            # The window of a row that is not replayed may lack rows: its start is of no use.
            start = np.maximum.accumulate(
                np.maximum(rows.get_column("start").to_numpy() - left_out, latest)
            )
            taken, latest = taken + len(rows), int(start[-1])
            replay.add(rows.with_columns(start=start))
    return bool(replay.files)
