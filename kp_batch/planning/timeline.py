"""Finds the stretch of time around the changes, and which of its traces to replay.

A late trace changes what the traces after it met: those stand here beside it, in replay order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from kp_batch.contracts import TIMESTAMP
from kp_batch.ingest.staged_rows import RowGroups
from kp_batch.novelty.windows import window_starts
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.sizes import rows_in_part
from kp_batch.planning.stretches import LookedAt, Marked, Marker, Stretch, stretches
from kp_batch.planning.windows import Span, affected_days, spans
from kp_batch.run import Run

# Rows planned at once: some 100 MB.
_STRETCH_ROWS = 524_288
# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
# Of each row of the timeline: what it is scored by, and what has to be done with it.
MARKS = pl.Schema(
    {
        "task_domain": pl.String,
        "day": pl.Date,
        "profile_id": pl.String,  # as published
        "profile_id_after": pl.String,  # that the run gives it
        "facts_changed": pl.Boolean,
        "replay": pl.Boolean,
    }
)
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
    MARKS.to_frame().write_parquet(run.staging.marks)
    stale = published.filter(scorer.replay_is_stale())
    touched = sorted(detected.changes.days | set(stale.get_column("day")))
    if not touched:
        return Timeline(frozenset(), ())
    by_day = published.group_by("day").agg(pl.col("traces").sum()).sort("day").rows()
    reach = max([run.config.cache_size, *published.get_column("met")])
    days = affected_days(by_day, touched[0], touched[-1], reach)
    detected.write_timeline(days)
    if not _mark(run, scorer, reach):
        return Timeline(frozenset(days), ())
    rows = pl.scan_parquet(run.staging.replay, glob=False)
    limit = min(RANGE_ROWS, rows_in_part([run.staging.replay]))
    return Timeline(frozenset(days), spans(rows, limit))


def _mark(run: Run, scorer: Scorer, reach: int) -> bool:
    """Stage the marks, and the rows that take part in the replay; returns whether any does."""
    timeline = pl.scan_parquet(run.staging.timeline, glob=False)
    length = timeline.select(pl.len()).collect().item()
    marks = RowGroups(run.staging.marks, MARKS, RANGE_ROWS)
    replay = RowGroups(run.staging.replay, REPLAY, RANGE_ROWS)
    marker, most = Marker(), rows_in_part([run.staging.timeline])
    for stretch in stretches(length, reach, _STRETCH_ROWS):
        rows = _rows(run, scorer, stretch)
        marked = marker.mark(stretch, _looked_at(run, scorer, rows))
        own = rows[stretch.inside].with_columns(replay=pl.Series(marked.replay))
        marks.add(own)
        for part in _taking_part(timeline, stretch, marked, most) if scorer.has_encoder else ():
            replay.add(part)
    marks.close()
    return bool(replay.close())


def _rows(run: Run, scorer: Scorer, stretch: Stretch) -> pl.DataFrame:
    """The columns that planning needs of the rows looked at; -1 where a row is not published."""
    is_stale = scorer.replay_is_stale()
    return (
        pl.scan_parquet(run.staging.timeline, glob=False)
        .slice(stretch.begin, stretch.end - stretch.begin)
        .with_columns(day=pl.col("created_at").dt.date())
        .select(
            *("task_domain", "day", "profile_id", "facts_changed"),
            pl.col("created_at").to_physical(),
            pl.col("old_position", "cache_size").fill_null(-1),
            profile_id_after=scorer.profile_id(),
            same_cache=~is_stale.fill_null(value=True),
            stale_replay=is_stale.fill_null(value=False),
        )
        .collect()
    )


def _looked_at(run: Run, scorer: Scorer, rows: pl.DataFrame) -> LookedAt:
    times = rows.get_column("created_at").to_numpy()
    met = run.config.cache_size, run.config.ttl
    return LookedAt(
        # A row that no encoder sees meets none.
        starts=window_starts(times, *met) if scorer.has_encoder else np.arange(len(rows)),
        old_position=rows.get_column("old_position").to_numpy(),
        old_size=rows.get_column("cache_size").to_numpy(),
        same_cache=rows.get_column("same_cache").to_numpy(),
        stale=rows.get_column("stale_replay").to_numpy(),
    )


def _taking_part(
    timeline: pl.LazyFrame, stretch: Stretch, marked: Marked, most: int
) -> Iterator[pl.DataFrame]:
    """The rows of a stretch that take part in the replay: frames of `REPLAY`.

    Args:
        timeline: all rows.
        stretch: which of them.
        marked: what is to be done with these.
        most: rows to hold at a time, since ids may be long.
    """
    told = timeline.with_row_index("position").select(
        "position", "trace_id", "created_at", "text_hash"
    )
    taken = 0
    for first in range(stretch.first, stretch.last, most):
        part = slice(first - stretch.first, min(first + most, stretch.last) - stretch.first)
        takes_part = marked.takes_part[part]
        rows = told.slice(first, len(takes_part)).collect().filter(pl.Series(takes_part))
        start = marked.start[taken : taken + len(rows)]
        taken += len(rows)
        replay = pl.Series(marked.replay[part][takes_part])
        yield rows.with_columns(start=pl.Series(start), replay=replay)
