"""Finds the stretch of time around the changes, and which of its traces to replay.

A late trace changes what the traces after it met: those stand here beside it, in replay order.
"""

from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from kp_batch.novelty.windows import window_starts
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.windows import Span, affected_days, spans, taking_part, window_changed
from kp_batch.run import Run
from kp_batch.vectors import Bools, Int64s

# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
# Of each row of the timeline: what it is scored by, and what has to be done with it.
MARKS = pl.Schema(
    {
        "task_domain": pl.String,
        "day": pl.Date,
        "profile_id": pl.String,  # as published
        "in_range": pl.Boolean,
        "facts_changed": pl.Boolean,
        "replay": pl.Boolean,
    }
)


@dataclass(frozen=True)
class Timeline:
    """The traces around what changed, in replay order: `staging.timeline` and `staging.marks`.

    `staging.replay` holds those that take part in the replay, if there are spans.
    """

    days: frozenset[date]  # all published traces of these days stand in it
    spans: tuple[Span, ...]  # of the rows of `staging.replay`


def affected_timeline(
    run: Run, detected: Detected, scorer: Scorer, published: pl.DataFrame
) -> Timeline:
    """Find the traces to replay, and stage the stretch of time around them.

    Args:
        run: the run.
        detected: the traces that differ.
        scorer: what the run scores with.
        published: what computed the published scores, see `State.fingerprints`.
    """
    stale = published.filter(scorer.replay_is_stale() & run.in_range("day"))
    touched = sorted(detected.changes.days | set(stale.get_column("day")))
    if not touched:
        MARKS.to_frame().write_parquet(run.staging.marks)
        return Timeline(frozenset(), ())
    by_day = published.group_by("day").agg(pl.col("traces").sum()).sort("day").rows()
    reach = max([run.config.cache_size, *published.get_column("met")])
    days = affected_days(by_day, touched[0], touched[-1], reach)
    detected.write_timeline(days)
    rows = _rows(run, scorer)
    starts = _starts(run, scorer, rows)
    changed = window_changed(
        starts,
        rows.get_column("old_position").to_numpy(),
        rows.get_column("cache_size").to_numpy(),
        same_cache=rows.get_column("same_cache").to_numpy(),
    )
    replay = changed | rows.get_column("stale_replay").to_numpy()
    marks = rows.with_columns(replay=pl.Series(replay)).select(MARKS.names())
    marks.write_parquet(run.staging.marks)
    return Timeline(frozenset(days), _spans(run, replay, starts) if scorer.has_encoder else ())


def _rows(run: Run, scorer: Scorer) -> pl.DataFrame:
    """The columns of the timeline that planning needs; -1 where a row is not published."""
    is_stale = scorer.replay_is_stale()
    return (
        pl.scan_parquet(run.staging.timeline, glob=False)
        .with_columns(day=pl.col("created_at").dt.date())
        .select(
            *("task_domain", "day", "profile_id", "facts_changed"),
            pl.col("created_at").to_physical(),
            pl.col("old_position", "cache_size").fill_null(-1),
            in_range=run.in_range("day"),
            same_cache=~is_stale.fill_null(value=True),
            stale_replay=(is_stale & run.in_range("day")).fill_null(value=False),
        )
        .collect()
    )


def _starts(run: Run, scorer: Scorer, rows: pl.DataFrame) -> Int64s:
    """The first row that each row meets; the row itself if there is no encoder."""
    if not scorer.has_encoder:
        return np.arange(len(rows), dtype=np.int64)
    times = rows.get_column("created_at").to_numpy()
    return window_starts(times, run.config.cache_size, run.config.ttl)


def _spans(run: Run, replay: Bools, starts: Int64s) -> tuple[Span, ...]:
    """Stage the rows that take part in the replay, one after the other, and cut them into spans."""
    takes_part = taking_part(replay, starts)
    place = np.cumsum(takes_part) - 1  # of each row of the timeline among those that take part
    start = np.maximum(place[starts], 0)[takes_part]
    rows = np.flatnonzero(takes_part)
    chosen = pl.DataFrame(
        {"position": rows, "start": start, "replay": replay[takes_part]},
        schema_overrides={"position": pl.UInt32},
    ).lazy()
    timeline = pl.scan_parquet(run.staging.timeline, glob=False).with_row_index("position")
    timeline.select("position", "trace_id", "created_at", "text_hash").join(
        chosen, on="position", how="inner", maintain_order="left"
    ).sink_parquet(run.staging.replay)
    return tuple(spans(replay[takes_part], start, RANGE_ROWS))
