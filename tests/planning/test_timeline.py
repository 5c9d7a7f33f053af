"""What a change asks for, against the cache itself, one trace at a time, before and after."""

import operator
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import groupby, pairwise
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kp_batch.planning.timeline
from kp_batch.duck import SQL, set_variables, sql
from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.replay import window_starts
from kp_batch.planning.timeline import (
    MergedRows,
    NewWindows,
    ReplaySpan,
    WindowComparison,
    rows_in_replay,
    spans,
)
from kp_batch.vectors import Bools, Int64s
from kp_batch.warehouse.catalog import create_macros

SECOND = timedelta(seconds=1)
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
FIRST_DAY = BEGIN.date()


class Trace(NamedTuple):
    """A trace on a timeline, in the order of the replay."""

    group: int
    second: int
    id: str
    text: str = "x"


class Cache(NamedTuple):
    size: int
    ttl: timedelta | None


caches = st.builds(
    Cache,
    st.integers(1, 6),
    st.none() | st.integers(1, 12).map(lambda seconds: seconds * SECOND) | st.just(timedelta.max),
)
traces = st.builds(
    Trace,
    st.integers(0, 2),
    st.integers(0, 12),
    st.sampled_from("abcdefghijklmnop"),
    st.sampled_from("xy"),
)


def in_order(some: Sequence[Trace]) -> list[Trace]:
    """The traces in the order of the replay, of each id the last."""
    return sorted({trace.id: trace for trace in some}.values())


@st.composite
def changed_timelines(draw: st.DrawFn) -> tuple[list[Trace], list[Trace]]:
    """A timeline, and the same with some traces removed, and some added, moved or changed."""
    old = in_order(draw(st.lists(traces, max_size=24)))
    removed = draw(st.sets(st.sampled_from("abcdefghijklmnop"), max_size=4))
    kept = [trace for trace in old if trace.id not in removed]
    return old, in_order([*kept, *draw(st.lists(traces, max_size=4))])


def windows(timeline: Sequence[Trace], cache: Cache) -> dict[Trace, list[Trace]]:
    """What a cache for each group held when each trace came, one at a time."""
    entries: dict[Trace, list[Trace]] = {}
    of_group = {trace.group: VectorCache(cache.size, 1, cache.ttl) for trace in timeline}
    for row, trace in enumerate(timeline):
        its, now = of_group[trace.group], BEGIN + trace.second * SECOND
        its.evict_expired(now)
        entries[trace] = list(timeline[row - its.size : row])
        its.add(np.ones(1, dtype=np.float32), now)
    return entries


def merged(
    old: Sequence[Trace], new: Sequence[Trace], sizes: Mapping[Trace, int], *, other: bool
) -> MergedRows:
    rows = sorted({*old, *new})
    was, is_now = set(old), set(new)
    return MergedRows(
        segment=np.array([row.group for row in rows], dtype=np.int64),
        time=np.array([row.second * 1_000_000 for row in rows], dtype=np.int64),
        added=np.array([row not in was for row in rows], dtype=np.bool_),
        removed=np.array([row not in is_now for row in rows], dtype=np.bool_),
        old_size=np.array([sizes.get(row, 0) for row in rows], dtype=np.int64),
        other_cache=np.full(len(rows), other, dtype=np.bool_),
    )


def compared(rows: MergedRows, cache: Cache, batch: int = 100) -> NewWindows:
    """What is found if the rows come in batches."""
    comparison = WindowComparison(*cache)
    parts = [
        comparison.compare(
            MergedRows(*(column[first : first + batch] for column in vars(rows).values()))
        )
        for first in range(0, len(rows.time), batch)
    ]
    return NewWindows(
        np.concatenate([np.empty(0, dtype=np.int64), *(part.start for part in parts)]),
        np.concatenate([np.empty(0, dtype=np.bool_), *(part.changed for part in parts)]),
    )


@pytest.mark.telling
@pytest.mark.slow
@settings(max_examples=500)
@given(timelines=changed_timelines(), before=caches, now=caches, batch=st.integers(1, 9))
@example(timelines=([], []), before=Cache(1, None), now=Cache(1, None), batch=1)
@example(
    timelines=([Trace(0, 0, "a"), Trace(0, 1, "b")], [Trace(0, 1, "b")]),
    before=Cache(1, SECOND),
    now=Cache(1, SECOND),
    batch=1,
)
def test_law_a_trace_is_replayed_exactly_where_its_window_holds_others(
    timelines: tuple[list[Trace], list[Trace]], before: Cache, now: Cache, batch: int
) -> None:
    old, new = timelines
    new_windows = windows(new, now)
    # With the cache of before, the lengths of windows decide nothing.
    for earlier, other in ((before, before != now), (now, True), (now, False)):
        old_windows = windows(old, earlier)
        sizes = {trace: len(window) for trace, window in old_windows.items()}
        result = compared(merged(old, new, sizes, other=other), now, batch)
        assert result.changed.tolist() == [
            old_windows.get(trace) != new_windows[trace] for trace in new
        ]
        sizes_now = (np.arange(len(new)) - result.start).tolist()
        assert sizes_now == [len(new_windows[trace]) for trace in new]


TIMELINE = [Trace(0, second, f"id{second}") for second in range(6)]


@pytest.mark.parametrize(
    ("new", "rows"),
    [
        (TIMELINE, []),
        (TIMELINE[:-1], []),
        ([*TIMELINE, Trace(0, 9, "new")], [6]),
        ([*TIMELINE[:2], *TIMELINE[3:]], [2, 3]),
        ([Trace(0, -1, "new"), *TIMELINE], [0, 1, 2]),
        ([*TIMELINE[:2], Trace(0, 2, "id2", "y"), *TIMELINE[3:]], [2, 3, 4]),
        ([*TIMELINE[:2], Trace(0, 2, "other"), *TIMELINE[3:]], [2, 3, 4]),
        (TIMELINE[3:], [0, 1]),
        ([*TIMELINE[:2], *TIMELINE[3:], Trace(1, 2, "id2")], [2, 3, 5]),
    ],
    ids=["nothing", "last gone", "one after", "gone", "before", "text", "id", "many gone", "group"],
)
def test_a_change_reaches_as_many_traces_as_the_cache_holds(
    new: list[Trace], rows: list[int]
) -> None:
    cache = Cache(2, None)
    sizes = {trace: len(window) for trace, window in windows(TIMELINE, cache).items()}
    changed = compared(merged(TIMELINE, new, sizes, other=False), cache).changed
    assert np.flatnonzero(changed).tolist() == rows


@pytest.mark.parametrize("batch", [1, 5, 100])
def test_a_trace_that_met_some_of_days_that_are_not_looked_at_stays(batch: int) -> None:
    rows = MergedRows(
        segment=np.array([0] * 7 + [1] * 3, dtype=np.int64),
        time=np.arange(10, dtype=np.int64),
        added=np.zeros(10, dtype=np.bool_),
        removed=np.arange(10) == 4,
        old_size=np.full(10, 4, dtype=np.int64),  # the first four of each group met earlier ones
        other_cache=np.zeros(10, dtype=np.bool_),
    )
    changed = compared(rows, Cache(4, None), batch).changed
    assert np.flatnonzero(changed).tolist() == [4, 5]


@st.composite
def marked_timelines(draw: st.DrawFn) -> tuple[Bools, Int64s]:
    """Some rows of a timeline, and the first row that each meets."""
    times = sorted(draw(st.lists(st.integers(0, 30), max_size=30)))
    rows = draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    cache = draw(caches)
    starts = window_starts(np.array(times, dtype=np.int64) * 1_000_000, *cache)
    return np.array(rows, dtype=np.bool_), starts


@pytest.mark.slow
@settings(max_examples=150)
@given(marked_timelines(), st.integers(1, 8))
def test_law_exactly_the_marked_rows_and_those_that_they_meet_take_part(
    timeline: tuple[Bools, Int64s], batch: int
) -> None:
    rows, starts = timeline
    expected = {
        index for row in np.flatnonzero(rows) for index in range(int(starts[row]), int(row) + 1)
    }
    frame = pl.LazyFrame({"start": starts, "replay": rows})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kp_batch.planning.timeline, "STARTS_AT_ONCE", batch)
        result = rows_in_replay(frame)
    assert (result.dtype, result.shape) == (np.bool_, rows.shape)
    assert set(np.flatnonzero(result).tolist()) == expected


@pytest.mark.slow
@settings(max_examples=150)
@given(marked_timelines(), st.integers(1, 8))
def test_law_every_marked_row_is_in_one_span_with_its_whole_window(
    timeline: tuple[Bools, Int64s], limit: int
) -> None:
    rows, starts = timeline
    pieces = spans(pl.LazyFrame({"start": starts, "replay": rows}), limit)
    for row in np.flatnonzero(rows):
        [span] = [piece for piece in pieces if piece.first <= row < piece.last]
        assert span.warm <= starts[row]
    for span in pieces:
        assert 0 < span.last - span.first <= limit
        assert span.warm == starts[span.first] <= span.first
        assert rows[span.first]
        assert rows[span.last - 1]
    assert [piece.first for piece in pieces] == sorted({piece.first for piece in pieces})


def test_spans_are_cut_by_their_rows_and_not_by_the_gaps_between_them() -> None:
    rows = np.zeros(20, dtype=np.bool_)
    rows[[0, 3, 5, 9, 10, 19]] = True
    starts = np.maximum(np.arange(20) - 2, 0)
    frame = pl.LazyFrame({"start": starts, "replay": rows})
    assert spans(frame, 10) == (ReplaySpan(0, 0, 10), ReplaySpan(8, 10, 20))
    assert spans(frame.with_columns(replay=pl.lit(value=False)), 2) == ()


Days = list[tuple[int, int]]  # group and number of the day


def segments(
    counts: Mapping[tuple[int, int], int],
    changed: AbstractSet[tuple[int, int]],
    stale: AbstractSet[int],
    max_window: int,
) -> list[Days]:
    """What segments.sql gives for so many rows by group and day."""
    diff = [("1", BEGIN + timedelta(1), "1", BEGIN + timedelta(1), True)]  # stays in place
    for number, (group, day) in enumerate(sorted(changed)):
        sides = [name_of(group), BEGIN + timedelta(day), None, None]
        row = sides if number % 2 else sides[2:] + sides[:2]  # added ones and removed ones
        diff.append((*row, False))
    groups, days = [name_of(group) for group, _ in counts], [day_at(day) for _, day in counts]
    with database().cursor() as connection:
        query = """CREATE TEMP TABLE counts AS SELECT unnest(?::VARCHAR[]) AS cache_group,
            unnest(?::DATE[]) AS day, unnest(?::INT[]) AS rows"""
        connection.execute(query, [groups, days, [*counts.values()]])
        query = """CREATE TEMP TABLE diff AS SELECT unnest(?::VARCHAR[]) AS cache_group,
            unnest(?::TIMESTAMPTZ[]) AS created_at, unnest(?::VARCHAR[]) AS old_cache_group,
            unnest(?::TIMESTAMPTZ[]) AS old_created_at, unnest(?::BOOLEAN[]) AS in_place"""
        connection.execute(query, [*zip(*diff, strict=True)])
        set_variables(connection, stale=[day_at(day) for day in stale], max_window=max_window)
        bury(connection)
        connection.execute(sql("kp_batch.planning.x", "segments.sql", counts=SQL("counts")))
        segment_rows = connection.sql("FROM segments ORDER BY segment, day").fetchall()
    return [
        [(0 if group is None else int(group), (day - FIRST_DAY).days) for group, day, _ in rows]
        for _, rows in groupby(segment_rows, operator.itemgetter(2))
    ]


@cache
def database() -> duckdb.DuckDBPyConnection:
    """A database that has the macros: to open it and create them takes long."""
    connection = duckdb.connect()
    create_macros(connection)
    return connection


def name_of(group: int) -> str | None:
    return str(group) if group else None


def bury(connection: duckdb.DuckDBPyConnection, *times: str) -> None:
    """The tombstones of forgotten traces."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS published")
    connection.execute(
        "CREATE OR REPLACE TABLE published.tombstones AS "
        "SELECT unnest(?::TIMESTAMPTZ[]) AS created_at, NULL::VARCHAR AS cache_group",
        [times],
    )


def day_at(number: int) -> date:
    return FIRST_DAY + timedelta(number)


group_days = st.tuples(st.integers(0, 2), st.integers(0, 20))


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.dictionaries(group_days, st.integers(1, 9), max_size=30),
    st.sets(group_days, max_size=4),
    st.sets(st.integers(0, 20), max_size=2),
    st.integers(1, 12),
)
def test_law_the_days_around_changes_hold_the_caches_capacity_on_both_sides(
    counts: dict[tuple[int, int], int],
    changed: set[tuple[int, int]],
    stale: set[int],
    max_window: int,
) -> None:
    result = segments(counts, changed, stale, max_window)
    chosen = [group_day for segment in result for group_day in segment]
    assert len(chosen) == len({*chosen})
    changes = changed | {group_day for group_day in counts if group_day[1] in stale}
    for group, day in {*counts, *changed}:  # chosen has fewer rows between itself and a change
        between = [
            sum(
                rows
                for (other, number), rows in counts.items()
                if other == group and min(day, at) < number < max(day, at)
            )
            for of, at in changes
            if of == group
        ]
        assert ((group, day) in chosen) == (min(between, default=max_window) < max_window)
    for segment in result:
        assert len({group for group, _ in segment}) == 1
    for one, other in pairwise(sorted(chosen)):
        left_out = any(one < group_day < other for group_day in {*counts} - {*chosen})
        together = any({one, other} <= {*segment} for segment in result)
        assert together == (one[0] == other[0] and not left_out)


def test_the_days_around_changes() -> None:
    counts = {(0, day): 3 for day in range(12)}

    def days(*changed: int, max_window: int) -> list[list[int]]:
        result = segments(counts, {(0, day) for day in changed}, set(), max_window)
        return [[day for _, day in segment] for segment in result]

    assert days(4, max_window=4) == [[2, 3, 4, 5, 6]]
    assert days(4, 5, max_window=1) == [[3, 4, 5, 6]]
    assert days(1, 9, max_window=3) == [[0, 1, 2], [8, 9, 10]]
    assert days(1, 5, max_window=6) == [[*range(8)]]
    assert days(0, 11, max_window=100) == [[*range(12)]]
    assert days(12, max_window=3) == [[11, 12]]
    assert segments({}, {(0, 0)}, set(), 3) == [[(0, 0)]]
    assert segments(counts, set(), set(), 3) == []
    assert segments(counts, set(), {3}, 1) == [[(0, 2), (0, 3), (0, 4)]]


def test_a_change_in_one_group_asks_for_no_day_of_another() -> None:
    counts = {(group, day): 3 for group in (0, 1) for day in range(6)}
    assert segments(counts, {(1, 2)}, set(), 1) == [[(1, 1), (1, 2), (1, 3)]]


PLACED = "trace_id, created_at, text_hash, cache_group"


def test_a_trace_with_another_time_text_or_group_is_removed_and_added() -> None:
    old = """('c', '2026-01-05 02:00Z', 'x', NULL), ('b', '2026-01-05 01:00Z', 'x', NULL),
        ('a', '2026-01-05 01:00Z', 'x', NULL), ('d', '2026-01-05 04:00Z', 'x', NULL),
        ('e', '2026-01-05 05:00Z', 'x', NULL), ('f', '2026-01-06 05:00Z', 'x', NULL)"""
    new = """('c', '2026-01-05 03:00Z', 'x', NULL), ('b', '2026-01-05 01:00Z', 'y', NULL),
        ('a', '2026-01-05 01:00Z', 'x', NULL), ('e', '2026-01-05 05:00Z', 'x', 'g')"""
    with duckdb.connect() as connection:
        create_macros(connection)
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in (("scores", old), ("current", new)):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT * REPLACE (created_at::TIMESTAMPTZ AS created_at), "
                "'id' AS encoder_id, 'id' AS cache_id, 1 AS cached_vectors "
                f"FROM (VALUES {rows}) AS rows({PLACED})"
            )
        connection.execute(
            "CREATE TABLE diff AS SELECT current.*, trace_id = 'a' AS in_place FROM current"
        )
        connection.execute(
            "CREATE TABLE segments AS FROM (VALUES (NULL, DATE '2026-01-05', 1), "
            "('g', DATE '2026-01-05', 2)) AS rows(cache_group, day, segment)"
        )
        bury(connection, "2026-01-05 04:00Z")
        query = sql("kp_batch.planning.x", "merged.sql", scores=SQL("scores"))
        merged = connection.sql(query)
        rows = merged.select("segment, trace_id, hour(created_at), added, removed").fetchall()
        tied = connection.sql(query).filter("tied").select("trace_id").fetchall()
    assert tied == [("d",)]
    rows = [(segment, name or "forgotten", *rest) for segment, name, *rest in rows]
    places = [(segment, hour, name) for segment, name, hour, *_ in rows]
    assert places == sorted(places)
    assert sorted(rows) == [
        (1, "a", 1, False, False),
        (1, "b", 1, False, True),
        (1, "b", 1, True, False),
        (1, "c", 2, False, True),
        (1, "c", 3, True, False),
        (1, "d", 4, False, False),
        (1, "e", 5, False, True),
        (1, "forgotten", 4, False, True),
        (2, "e", 5, True, False),
    ]
