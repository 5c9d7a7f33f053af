"""What a change asks for, against naive references that look at the windows themselves."""

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kp_batch.novelty.windows import window_starts
from kp_batch.planning.stretches import LookedAt, Marked, Marker, stretches
from kp_batch.planning.windows import Span, affected_days, spans, taking_part
from kp_batch.sql import SQL, sql
from kp_batch.vectors import Bools, Int64s

Trace = tuple[int, str, str]  # time in seconds, id, text
SECOND = timedelta(seconds=1)
FIRST_DAY = date(2026, 1, 5)

ttls = st.none() | st.integers(1, 12).map(lambda seconds: seconds * SECOND)
capacities = st.integers(1, 6)
limits = st.integers(1, 9)
traces = st.tuples(st.integers(0, 12), st.sampled_from("abcdefghijkl"), st.sampled_from("xy"))


def in_order(some: Sequence[Trace]) -> list[Trace]:
    """The traces in replay order, of each id the last."""
    return sorted({identity: (time, identity, text) for time, identity, text in some}.values())


@st.composite
def changed_timelines(draw: st.DrawFn) -> tuple[list[Trace], list[Trace]]:
    """A timeline, and the same with some traces removed, and some added or changed."""
    old = in_order(draw(st.lists(traces, max_size=20)))
    removed = draw(st.sets(st.sampled_from("abcdefghijkl"), max_size=4))
    kept = [trace for trace in old if trace[1] not in removed]
    return old, in_order([*kept, *draw(st.lists(traces, max_size=4))])


def starts_of(timeline: Sequence[Trace], size: int, ttl: timedelta | None) -> Int64s:
    times = np.array([time * 1_000_000 for time, *_ in timeline], dtype=np.int64)
    return window_starts(times, size, ttl)


def windows(timeline: Sequence[Trace], starts: Int64s) -> dict[Trace, tuple[Trace, ...]]:
    """What each trace meets, the trace being as it is."""
    return {
        trace: tuple(timeline[start:row])
        for row, (trace, start) in enumerate(zip(timeline, starts.tolist(), strict=True))
    }


def marked(rows: LookedAt, reach: int, limit: int) -> Marked:
    """What a marker says of a timeline that is cut into stretches, all together."""
    marker = Marker()
    parts = []
    for stretch in stretches(len(rows.starts), reach, limit):
        looked_at = slice(stretch.begin, stretch.end)
        part = {name: each[looked_at] for name, each in vars(rows).items()}
        part["starts"] = np.maximum(rows.starts[looked_at] - stretch.begin, 0)
        parts.append(marker.mark(stretch, LookedAt(**part)))
    joined = {
        name: np.concatenate([kind(()), *(getattr(part, name) for part in parts)])
        for name, kind in (("replay", _bools), ("takes_part", _bools), ("start", _int64s))
    }
    return Marked(**joined)


def _bools(values: Sequence[bool]) -> Bools:
    return np.array(values, dtype=np.bool_)


def _int64s(values: Sequence[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


def replayed(
    old: Sequence[Trace],
    new: Sequence[Trace],
    starts: Int64s,
    old_starts: Int64s,
    limit: int = 100,
    **more: Any,
) -> list[bool]:
    """Which traces are replayed, asked as the tables are: by position, and how many were met."""
    was = {trace: row for row, trace in enumerate(old)}
    met = {trace: row - int(old_starts[row]) for trace, row in was.items()}
    rows = LookedAt(
        starts=starts,
        old_position=_int64s([was.get(trace, -1) for trace in new]),
        old_size=_int64s([met.get(trace, -1) for trace in new]),
        stale=_bools([False] * len(new)),
        **{"same_cache": _bools([trace in was for trace in new])} | more,
    )
    sizes = np.arange(len(starts)) - starts
    result = marked(rows, max([0, *met.values(), *sizes.tolist()]), limit).replay
    assert (result.dtype, result.shape) == (np.bool_, (len(new),))
    return result.tolist()


@settings(max_examples=1_000, deadline=None)
@given(timelines=changed_timelines(), size=capacities, ttl=ttls, limit=limits)
@example(timelines=([], []), size=1, ttl=None, limit=1)
@example(timelines=([(0, "a", "x")], []), size=1, ttl=None, limit=1)
@example(timelines=([(0, "a", "x"), (1, "b", "x")], [(1, "b", "x")]), size=1, ttl=SECOND, limit=1)
def test_law_a_trace_is_replayed_exactly_where_its_window_holds_others(
    timelines: tuple[list[Trace], list[Trace]], size: int, ttl: timedelta | None, limit: int
) -> None:
    old, new = timelines
    old_starts, starts = starts_of(old, size, ttl), starts_of(new, size, ttl)
    before, now = windows(old, old_starts), windows(new, starts)
    expected = [before.get(trace) != now[trace] for trace in new]
    assert replayed(old, new, starts, old_starts, limit) == expected


@settings(max_examples=1_000, deadline=None)
@given(
    timelines=changed_timelines(), sizes=st.tuples(capacities, capacities), ttl=ttls, limit=limits
)
def test_law_a_trace_of_another_cache_is_replayed_where_what_it_met_or_would_meet_is_other(
    timelines: tuple[list[Trace], list[Trace]],
    sizes: tuple[int, int],
    ttl: timedelta | None,
    limit: int,
) -> None:
    old, new = timelines
    old_starts, starts = starts_of(old, sizes[0], None), starts_of(new, sizes[1], ttl)
    expected = []
    for row, trace in enumerate(new):
        was = old.index(trace) if trace in old else -1
        reach = max(row - int(starts[row]), was - int(old_starts[was]) if was >= 0 else 0)
        then, now = old[max(was - reach, 0) : was], new[max(row - reach, 0) : row]
        expected.append(was < 0 or then != now)
    same_cache = np.zeros(len(new), dtype=np.bool_)
    assert replayed(old, new, starts, old_starts, limit, same_cache=same_cache) == expected


TIMELINE = [(second, f"id{second}", "x") for second in range(6)]


@pytest.mark.parametrize(
    ("new", "rows"),
    [
        (TIMELINE, []),
        (TIMELINE[:-1], []),
        ([*TIMELINE, (9, "new", "x")], [6]),
        ([*TIMELINE[:2], *TIMELINE[3:]], [2, 3]),
        ([(-1, "new", "x"), *TIMELINE], [0, 1, 2]),
        ([*TIMELINE[:2], (2, "id2", "y"), *TIMELINE[3:]], [2, 3, 4]),
        ([*TIMELINE[:2], (2, "other", "x"), *TIMELINE[3:]], [2, 3, 4]),
        (TIMELINE[3:], [0, 1]),
    ],
    ids=["nothing", "the last gone", "one after", "gone", "before", "text", "id", "many gone"],
)
def test_a_change_reaches_as_many_traces_as_the_cache_holds(
    new: list[Trace], rows: list[int]
) -> None:
    result = replayed(TIMELINE, new, starts_of(new, 2, None), starts_of(TIMELINE, 2, None))
    assert [row for row, is_marked in enumerate(result) if is_marked] == rows


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_a_trace_that_met_fewer_before_the_looked_at_ones_began_stays(limit: int) -> None:
    rows = np.arange(6, dtype=np.int64)
    timeline = LookedAt(
        starts=np.maximum(rows - 4, 0),
        old_position=_int64s([0, 1, 2, 3, 5, 6]),  # 4 is gone
        old_size=np.full(6, 4, dtype=np.int64),  # the first four met traces of days before
        same_cache=np.ones(6, dtype=np.bool_),
        stale=np.zeros(6, dtype=np.bool_),
    )
    assert marked(timeline, 4, limit).replay.tolist() == [False] * 4 + [True] * 2


@settings(max_examples=500, deadline=None)
@given(data=st.data(), timelines=changed_timelines(), size=capacities, ttl=ttls, limit=limits)
def test_law_the_cut_into_stretches_changes_nothing(
    data: st.DataObject,
    timelines: tuple[list[Trace], list[Trace]],
    size: int,
    ttl: timedelta | None,
    limit: int,
) -> None:
    old, new = timelines
    was = {trace: row for row, trace in enumerate(old)}
    length = len(new)
    some = st.lists(st.booleans(), min_size=length, max_size=length).map(_bools)
    rows = LookedAt(
        starts=starts_of(new, size, ttl),
        old_position=_int64s([was.get(trace, -1) for trace in new]),
        old_size=_int64s([min(was.get(trace, -1), size) for trace in new]),
        same_cache=data.draw(some),
        stale=data.draw(some),
    )
    whole, cut = marked(rows, size, length + 1), marked(rows, size, limit)
    assert whole.replay.tolist() == cut.replay.tolist()
    assert whole.takes_part.tolist() == cut.takes_part.tolist()
    assert whole.start.tolist() == cut.start.tolist()
    position = np.flatnonzero(whole.takes_part)
    is_replayed = whole.replay[position]
    assert position[whole.start[is_replayed]].tolist() == rows.starts[whole.replay].tolist()


@st.composite
def marked_timelines(draw: st.DrawFn) -> tuple[Bools, Int64s]:
    """Some rows of a timeline, and the first row that each meets."""
    times = sorted(draw(st.lists(st.integers(0, 30), max_size=30)))
    timeline = [(time, "", "") for time in times]
    rows = draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    return np.array(rows, dtype=np.bool_), starts_of(timeline, draw(capacities), draw(ttls))


@settings(max_examples=500, deadline=None)
@given(marked_timelines())
def test_law_exactly_the_marked_rows_and_those_that_they_meet_take_part(
    timeline: tuple[Bools, Int64s],
) -> None:
    rows, starts = timeline
    met = {each for row in np.flatnonzero(rows) for each in range(int(starts[row]), int(row) + 1)}
    result = taking_part(rows, starts)
    assert (result.dtype, result.shape) == (np.bool_, rows.shape)
    assert set(np.flatnonzero(result).tolist()) == met


@settings(max_examples=500, deadline=None)
@given(marked_timelines(), st.integers(1, 8))
def test_law_every_marked_row_stands_in_one_span_with_its_whole_window(
    timeline: tuple[Bools, Int64s], limit: int
) -> None:
    rows, starts = timeline
    pieces = spans(pl.LazyFrame({"start": starts, "replay": rows}), limit)
    for row in np.flatnonzero(rows):
        [span] = [each for each in pieces if each.first <= row < each.last]
        assert span.warm <= starts[row]
    for span in pieces:
        assert 0 < span.last - span.first <= limit
        assert span.warm == starts[span.first] <= span.first
        assert rows[span.first]
        assert rows[span.last - 1]
    assert [each.first for each in pieces] == sorted({each.first for each in pieces})


def test_spans_are_cut_by_their_rows_and_not_by_the_gaps_between_them() -> None:
    rows = np.zeros(20, dtype=np.bool_)
    rows[[0, 3, 5, 9, 10, 19]] = True
    starts = np.maximum(np.arange(20) - 2, 0)
    frame = pl.LazyFrame({"start": starts, "replay": rows})
    assert spans(frame, 10) == (Span(0, 0, 10), Span(8, 10, 20))
    assert spans(frame.with_columns(replay=pl.lit(value=False)), 2) == ()


@settings(max_examples=500, deadline=None)
@given(st.data(), st.dictionaries(st.integers(0, 40), st.integers(1, 9), max_size=15))
def test_law_the_days_around_a_change_hold_the_caches_capacity_on_both_sides(
    data: st.DataObject, counts: dict[int, int]
) -> None:
    days = [(FIRST_DAY + timedelta(day), counts[day]) for day in sorted(counts)]
    first, last = sorted(
        FIRST_DAY + timedelta(data.draw(st.integers(-1, 41), label=label))
        for label in ("one day", "another")
    )
    size = data.draw(st.integers(1, 12), label="size")
    chosen = affected_days(days, first, last, size)
    stretch = [day for day, _ in days if chosen and chosen[0] <= day <= chosen[-1]]
    assert chosen == stretch
    assert {day for day, _ in days if first <= day <= last} <= set(chosen)
    for side in (
        [(day, count) for day, count in days if day > last],
        [(day, count) for day, count in reversed(days) if day < first],
    ):
        taken = [count for day, count in side if day in chosen]
        assert sum(taken) >= min(size, sum(count for _, count in side))
        assert sum(taken[:-1]) < size  # no day more than it takes


def test_the_days_around_a_change() -> None:
    days = [(FIRST_DAY + timedelta(number), 3) for number in range(9)]
    dates = [day for day, _ in days]
    assert affected_days(days, dates[4], dates[4], 4) == dates[2:7]
    assert affected_days(days, dates[4], dates[5], 1) == dates[3:7]
    assert affected_days(days, dates[0], dates[8], 1) == dates
    assert affected_days(days, dates[8] + timedelta(1), dates[8] + timedelta(1), 3) == dates[8:]
    assert affected_days([], FIRST_DAY, FIRST_DAY, 3) == []


def test_a_published_trace_has_its_place_in_time_wherever_its_row_stands(tmp_path: Path) -> None:
    columns = "trace_id, created_at, text_hash, content_hash"
    rows = "('c', 2, 'x', 'x'), ('b', 1, 'x', 'x'), ('a', 1, 'x', 'x')"
    query = sql(
        "kp_batch.planning.changes",
        "timeline.sql",
        scores=SQL(f"(VALUES {rows}) AS rows({columns})"),
        new_own=SQL("new.trace_id, new.created_at"),
        old_own=SQL("old.trace_id, old.created_at"),
        old_met=SQL("old.text_hash"),
    )
    path = tmp_path / "timeline.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE current ({columns.replace(',', ' VARCHAR,')} VARCHAR)")
        connection.execute("CREATE TABLE unchanged (trace_id VARCHAR)")
        connection.execute("CREATE TABLE compared (trace_id VARCHAR, differs BOOLEAN)")
        connection.execute("SET VARIABLE timeline = ?", [str(path)])
        connection.execute(query)
    found = pl.read_parquet(path).select("trace_id", "old_position").rows()
    assert found == [("a", 0), ("b", 1), ("c", 2)]
