"""Finds the stretch of time around the changes, which of its traces to replay, and their texts.

A late trace changes what the traces after it met: those stand here beside it, in replay order.
"""

from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from kp_batch.archive.ledger import Ledger
from kp_batch.archive.sources import SourceFile
from kp_batch.embedding.store import VectorStore
from kp_batch.errors import ArchiveError
from kp_batch.novelty.replay import window_starts
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.windows import Span, affected_days, rows_read, spans, window_changed
from kp_batch.run import Run
from kp_batch.text import printable
from kp_batch.vectors import Bools, Int64s
from kp_batch.warehouse.layout import Layout

# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
_COLUMNS = {
    "task_domain": pl.String,
    "day": pl.Date,
    "profile_id": pl.String,
    "in_range": pl.Boolean,
    "facts_changed": pl.Boolean,
}


@dataclass(frozen=True)
class Timeline:
    """The traces around what changed, in replay order; `staging.timeline` holds them whole."""

    days: frozenset[date]  # all published traces of these days stand in it
    rows: pl.DataFrame  # of each: domain, day, published profile, in_range, facts_changed, replay
    spans: tuple[Span, ...]  # the rows to replay, in pieces

    @property
    def replay(self) -> Bools:
        """Which rows have to be replayed."""
        return self.rows.get_column("replay").to_numpy()


@dataclass(frozen=True)
class MissingTexts:
    """The texts whose vectors the replay reads, and which of these have none yet."""

    distinct: int
    missing: pl.Series  # hashes of those without a vector
    sources: tuple[SourceFile, ...]  # files to read again, for texts that were not just read


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
        nothing = pl.DataFrame(schema={**_COLUMNS, "replay": pl.Boolean})
        return Timeline(frozenset(), nothing, ())
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
    marked = rows.select(*_COLUMNS, replay=pl.Series(replay))
    return Timeline(frozenset(days), marked, tuple(spans(replay, starts, RANGE_ROWS)))


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


def missing_texts(
    run: Run, detected: Detected, scorer: Scorer, timeline: Timeline, ledger: Ledger
) -> MissingTexts:
    """Find the texts whose vectors the replay reads.

    Raises:
        ArchiveError: a text without a vector stands only in files that are gone or unreadable.
    """
    none = pl.Series("text_hash", [], dtype=pl.String)
    if not (scorer.has_encoder and timeline.spans):
        return MissingTexts(0, none, ())
    hashes = pl.read_parquet(run.staging.timeline, columns=["text_hash"], glob=False)
    taking_part = pl.Series(rows_read(timeline.spans, len(hashes)))
    distinct = hashes.filter(taking_part).unique(maintain_order=True).get_column("text_hash")
    store = VectorStore(Layout(run.config.warehouse).vectors(scorer.encoder_id))
    missing = store.missing(distinct)
    staged = pl.scan_parquet(run.staging.rows, glob=False).select("text_hash").unique().collect()
    elsewhere = missing.filter(~missing.is_in(staged.get_column("text_hash").implode()))
    readable, lost = detected.locate(elsewhere) if len(elsewhere) else (set[str](), set[str]())
    if lost:
        raise ArchiveError(
            f"traces of {len(lost):,} files that are gone or unreadable (such as "
            f"{printable(min(lost))}) have no vectors of the encoder {scorer.encoder_id}; bring "
            "these files back, or remove their traces with --prune"
        )
    return MissingTexts(
        len(distinct), missing, tuple(ledger[path].source for path in sorted(readable))
    )
