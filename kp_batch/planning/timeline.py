"""Decides which traces are replayed, and stages the days on which anything differs.

A late trace changes what the traces of its group after it met. What places a trace is looked at
first, of the days around the changes; see windows.py. Whole rows are read only of the days that
hold a trace which is replayed or has changed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

import duckdb
import numpy as np
import polars as pl

from kp_batch.duck import SQL, columns, read_parquet, set_variables, sql, statement
from kp_batch.ingest.staged_rows import parquet_batches
from kp_batch.planning.cache_groups import rows_by_group
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.sizes import rows_in_part
from kp_batch.planning.windows import MergedRows, Span, WindowComparison, spans, taking_part
from kp_batch.runs.run import Run
from kp_batch.schemas import NOVELTY, OWN_COLUMNS, SCORED_COLUMNS, SCORES, TIMESTAMP

# Rows at a time: their ids may have 10,000 letters.
_ROWS_AT_ONCE = 16_384
# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
# A trace as it is now, what is published of it, and what has to be done with it.
TIMELINE = pl.Schema(
    {
        **{name: dtype for name, dtype in SCORES.items() if name != "date"},
        "facts_changed": pl.Boolean,
        "replay": pl.Boolean,
    }
)
_UNLIKE = {"trace_id", "nearest_trace_id", "text_hash", "content_hash"}  # in each row
_REPEATED = [name for name, each in TIMELINE.items() if each == pl.String and name not in _UNLIKE]
_OWN = (*OWN_COLUMNS, "source_file", "cache_group")
_MET = (*NOVELTY, *SCORED_COLUMNS)
# What places a trace, one group after the other, in each in replay order.
REPLAY = pl.Schema(
    {
        "trace_id": pl.String,
        "created_at": TIMESTAMP,
        "text_hash": pl.String,
        "start": pl.Int64,  # the first row that it meets
        "replay": pl.Boolean,  # else others may meet it
    }
)
# `window_changed`: it is replayed for that alone.
_PLACED = pl.Schema({**REPLAY, "window_changed": pl.Boolean})

_NO_DAYS = '(SELECT NULL::VARCHAR AS cache_group, NULL::DATE AS day, 0 AS "rows" WHERE false)'
# Where all traces share a cache, that is known already.
_BY_DAY = "(SELECT NULL AS cache_group, * FROM rows_by_day)"
_CHANGED_GROUPS = """(
    SELECT cache_group FROM diff WHERE NOT in_place
    UNION
    SELECT old_cache_group FROM diff WHERE NOT in_place
)"""
_REPLAYED = "(SELECT trace_id FROM $placed WHERE window_changed)"
_NOBODY = "(SELECT '' AS trace_id WHERE false)"


@dataclass(frozen=True)
class Timeline:
    """The days on which anything differs, in time order: `staging.timeline`.

    `staging.replay` holds the traces that take part in the replay, if there are spans.
    """

    days: frozenset[date]  # all traces of these days stand in it
    spans: tuple[Span, ...]  # of the rows of `staging.replay`


def affected_timeline(
    run: Run, detected: Detected, scorer: Scorer, published: pl.DataFrame
) -> Timeline:
    """Find the traces to replay, and stage the days that hold them or any other that differs.

    Args:
        run: the run.
        detected: the traces that differ.
        scorer: what the run scores with.
        published: what computed the published scores, see `State.fingerprints`.
    """
    TIMELINE.to_frame().write_parquet(run.staging.timeline)
    days = set(detected.changes.days)
    is_placed = _stage_placed(run, detected, scorer, published)
    if is_placed:
        replayed = pl.scan_parquet(run.staging.placed, glob=False).filter("replay")
        days |= set(replayed.select(pl.col("created_at").dt.date().unique()).collect().to_series())
    if days:
        _stage_timeline(run, detected, scorer, sorted(days), is_placed=is_placed)
    if not is_placed or not scorer.has_encoder or not _stage_replay(run):
        return Timeline(frozenset(days), ())
    rows = pl.scan_parquet(run.staging.replay, glob=False)
    limit = min(RANGE_ROWS, rows_in_part([run.staging.replay]))
    return Timeline(frozenset(days), spans(rows, limit))


def _stage_placed(run: Run, detected: Detected, scorer: Scorer, published: pl.DataFrame) -> bool:
    """Stage the traces around the changes, and which are replayed; returns whether any is."""
    days = _stretches(run, detected, scorer, published)
    if not days:
        return False
    size = run.config.cache_size if scorer.has_encoder else 0
    comparison = WindowComparison(size, run.config.ttl)
    merged = sql(__name__, "merged.sql", scores=_scores(run, detected, days))
    with parquet_batches(run.staging.placed, _PLACED, RANGE_ROWS) as placed:
        for rows in _batches(detected.snapshot.connection.sql(merged)):
            windows = comparison.compare(_merged_rows(scorer, rows))
            replay = _is_stale(scorer) | pl.Series(windows.changed)
            stay = rows.remove("removed").with_columns(start=windows.start, replay=replay)
            moved = pl.col("added") | _is_stale(scorer)
            placed.add(stay.with_columns(window_changed=pl.col("replay") & ~moved))
    return bool(placed.files)


def _scores(run: Run, detected: Detected, days: Iterable[date]) -> SQL:
    """The published scores of some days; none where each trace is in another group than it was."""
    return detected.snapshot.scores_of([] if run.regroups else days)


def _is_stale(scorer: Scorer) -> pl.Expr:
    return scorer.novelty_is_stale().fill_null(value=False)


def _stretches(run: Run, detected: Detected, scorer: Scorer, published: pl.DataFrame) -> list[date]:
    """Find the days that can matter of each group, see stretches.sql; returns all of them."""
    snapshot = detected.snapshot
    stale = published.filter(scorer.replay_is_stale()).get_column("day").unique().to_list()
    if not stale and not detected.changes.days:
        return []
    by_day = published.group_by("day").agg(rows=pl.col("traces").sum())
    snapshot.connection.register("rows_by_day", by_day.to_arrow())
    reach = max([run.config.cache_size, *published.get_column("met").drop_nulls()])
    set_variables(snapshot.connection, stale=stale, reach=reach)
    counts = _counts(run, is_stale=bool(stale))
    snapshot.connection.execute(sql(__name__, "stretches.sql", published=counts))
    return sorted(snapshot.ask("SELECT DISTINCT day FROM stretches").to_series())


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
    found = rows.select(
        "stretch",
        pl.col("created_at").to_physical(),
        *("added", "removed"),
        pl.col("cache_size").fill_null(0),
        other_cache=scorer.cache_is_stale().fill_null(value=False),
    )
    return MergedRows(*(column.to_numpy() for column in found))


def _stage_timeline(
    run: Run, detected: Detected, scorer: Scorer, days: Iterable[date], *, is_placed: bool
) -> None:
    """Stage all traces of some days."""
    replayed = statement(_NOBODY)
    if is_placed:
        replayed = statement(_REPLAYED, placed=read_parquet(run.staging.placed))
    query = sql(
        __name__,
        "timeline.sql",
        scores=_scores(run, detected, days),
        new_own=columns(_OWN, "new"),
        old_own=columns(_OWN, "old"),
        old_met=columns(_MET, "old"),
        replayed=replayed,
    )
    with parquet_batches(run.staging.timeline, TIMELINE, RANGE_ROWS, _REPEATED) as timeline:
        for rows in _batches(detected.snapshot.connection.sql(query)):
            timeline.add(rows.with_columns(pl.col("replay") | _is_stale(scorer)))


def _stage_replay(run: Run) -> bool:
    """Stage the rows that take part in the replay; returns whether any does."""
    placed = pl.scan_parquet(run.staging.placed, glob=False)
    takes_part = taking_part(placed)
    most = rows_in_part([run.staging.placed])  # since ids may be long
    taken = latest = 0
    with parquet_batches(run.staging.replay, REPLAY, RANGE_ROWS) as replay:
        for first in range(0, len(takes_part), most):
            part = takes_part[first : first + most]
            if not part.any():
                continue
            rows = (
                placed.select(list(REPLAY))
                .slice(first, len(part))
                .collect()
                .filter(pl.Series(part))
            )
            position = first + np.flatnonzero(part)
            left_out = position - np.arange(taken, taken + len(rows))  # rows before it
            # A row that is only met may meet some that are left out: its start is of no use.
            start = np.maximum.accumulate(
                np.maximum(rows.get_column("start").to_numpy() - left_out, latest)
            )
            taken, latest = taken + len(rows), int(start[-1])
            replay.add(rows.with_columns(start=start))
    return bool(replay.files)
