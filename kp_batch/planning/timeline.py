"""Stages the traces around what changed, in replay order, and which of them to replay.

A late trace changes what the traces after it met: those stand here beside it. See windows.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import duckdb
import numpy as np
import polars as pl

from kp_batch.contracts import SCORES, TIMESTAMP
from kp_batch.ingest.staged_rows import RowGroups
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.sizes import rows_in_part
from kp_batch.planning.windows import (
    MergedRows,
    Span,
    WindowComparison,
    affected_days,
    spans,
    taking_part,
)
from kp_batch.run import Run

# Rows of the merged timeline at a time: their ids may have 10,000 letters.
_MERGED_ROWS = 16_384
# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
# A trace of the timeline: as it is now, what is published of it, and what has to be done with it.
TIMELINE = pl.Schema(
    {
        **{name: dtype for name, dtype in SCORES.items() if name != "date"},
        "facts_changed": pl.Boolean,
        "replay": pl.Boolean,
        "start": pl.Int64,  # the first row of the timeline that it meets
    }
)
_UNLIKE = {"trace_id", "nearest_trace_id", "text_hash", "content_hash"}  # in each row
_REPEATED = [name for name, each in TIMELINE.items() if each == pl.String and name not in _UNLIKE]
# Of each row that takes part in the replay.
REPLAY = pl.Schema(
    {
        "position": pl.UInt32,  # on the timeline
        "trace_id": pl.String,
        "created_at": TIMESTAMP,
        "text_hash": pl.String,
        "start": pl.Int64,  # the first one that it meets, counted among them
        "replay": pl.Boolean,  # else others meet it
    }
)


@dataclass(frozen=True)
class Timeline:
    """The traces around what changed, in replay order: `staging.timeline`.

    `staging.replay` holds those that take part in the replay, if there are spans.
    """

    days: frozenset[date]  # all published traces of these days stand in it
    spans: tuple[Span, ...]  # of the rows of `staging.replay`


def affected_timeline(
    run: Run, detected: Detected, scorer: Scorer, published: pl.DataFrame
) -> Timeline:
    """Find the traces to replay, and stage the stretches of time around them.

    Args:
        run: the run.
        detected: the traces that differ.
        scorer: what the run scores with.
        published: what computed the published scores, see `State.fingerprints`.
    """
    TIMELINE.to_frame().write_parquet(run.staging.timeline)
    stale = published.filter(scorer.replay_is_stale())
    changed = detected.changes.days | set(stale.get_column("day"))
    by_day = published.group_by("day").agg(pl.col("traces").sum()).sort("day").rows()
    reach = max([run.config.cache_size, *published.get_column("met")])
    stretches = affected_days(by_day, changed, reach)
    days = frozenset(day for stretch in stretches for day in stretch)
    if not changed or not _stage_timeline(run, detected, scorer, stretches):
        return Timeline(days, ())
    if not scorer.has_encoder or not _stage_replay(run):
        return Timeline(days, ())
    rows = pl.scan_parquet(run.staging.replay, glob=False)
    limit = min(RANGE_ROWS, rows_in_part([run.staging.replay]))
    return Timeline(days, spans(rows, limit))


def _stage_timeline(
    run: Run, detected: Detected, scorer: Scorer, stretches: Sequence[Sequence[date]]
) -> bool:
    """Stage the timeline of some stretches of days; returns whether it has any trace."""
    size = run.config.cache_size if scorer.has_encoder else 0
    comparison = WindowComparison(size, run.config.ttl)
    timeline = RowGroups(run.staging.timeline, TIMELINE, RANGE_ROWS, _REPEATED)
    first_days = pl.Series([stretch[0] for stretch in stretches], dtype=pl.Date)
    merged = detected.merged_timeline(day for stretch in stretches for day in stretch)
    for rows in _batches(merged):
        day = rows.get_column("created_at").dt.date()
        group = first_days.search_sorted(day, side="right").cast(pl.Int64)
        windows = comparison.compare(_merged_rows(scorer, rows, group))
        stale = scorer.novelty_is_stale().fill_null(value=False)
        stay = rows.remove("removed").with_columns(start=windows.start)
        timeline.add(stay.with_columns(replay=stale | pl.Series(windows.changed)))
    return bool(timeline.close())


def _batches(rows: duckdb.DuckDBPyRelation) -> Iterator[pl.DataFrame]:
    for batch in rows.to_arrow_reader(_MERGED_ROWS):
        yield pl.DataFrame(batch)


def _merged_rows(scorer: Scorer, rows: pl.DataFrame, group: pl.Series) -> MergedRows:
    columns = rows.select(
        pl.col("created_at").to_physical(),
        *("added", "removed"),
        pl.col("cache_size").fill_null(0),
        other_cache=scorer.cache_is_stale().fill_null(value=False),
    )
    return MergedRows(group.to_numpy(), *(column.to_numpy() for column in columns))


def _stage_replay(run: Run) -> bool:
    """Stage the rows that take part in the replay; returns whether any does."""
    timeline = pl.scan_parquet(run.staging.timeline, glob=False)
    replay = RowGroups(run.staging.replay, REPLAY, RANGE_ROWS)
    takes_part = taking_part(timeline)
    columns = [name for name in REPLAY if name != "position"]
    most = rows_in_part([run.staging.timeline])  # since ids may be long
    taken = latest = 0
    for first in range(0, len(takes_part), most):
        part = takes_part[first : first + most]
        if not part.any():
            continue
        rows = timeline.select(columns).slice(first, len(part)).collect().filter(pl.Series(part))
        position = first + np.flatnonzero(part)
        left_out = position - np.arange(taken, taken + len(rows))  # rows before it
        # A row that is only met may meet some that are left out: its start is of no use.
        start = np.maximum.accumulate(
            np.maximum(rows.get_column("start").to_numpy() - left_out, latest)
        )
        taken, latest = taken + len(rows), int(start[-1])
        replay.add(rows.with_columns(start=start, position=position.astype(np.uint32)))
    return bool(replay.close())
