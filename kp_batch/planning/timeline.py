"""The part of the timeline that a run looks at: which traces meet others now, whose texts count."""

from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from kp_batch.archive.ledger import Ledger
from kp_batch.archive.sources import SourceFile
from kp_batch.embedding.store import VectorStore
from kp_batch.errors import ArchiveError
from kp_batch.novelty.replay import window_starts
from kp_batch.planning.changes import Archive, Changes
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.windows import Bools, Int64s, Span, around, meets_others, needed, spans
from kp_batch.run import Run
from kp_batch.text import printable
from kp_batch.warehouse.layout import Layout

# Traces replayed at once: their vectors are 50 MB at 384 dimensions.
RANGE_ROWS = 32_768
_LOOKED_AT = {
    "task_domain": pl.String,
    "day": pl.Date,
    "profile_id": pl.String,
    "in_range": pl.Boolean,
    "restated": pl.Boolean,
}


@dataclass(frozen=True)
class Timeline:
    """The traces around what changed; `stage.timeline` holds them whole."""

    days: frozenset[date]  # all published traces of these days stand in it
    rows: pl.DataFrame  # of each: domain, day, published profile, in_range, restated, replay
    spans: tuple[Span, ...]  # the rows to replay, in pieces

    @property
    def replay(self) -> Bools:
        """Which rows have to be replayed."""
        return self.rows.get_column("replay").to_numpy()


@dataclass(frozen=True)
class Texts:
    """The texts of the traces that take part in the replay."""

    distinct: int
    missing: pl.Series  # the hashes of those without a vector
    sources: tuple[SourceFile, ...]  # files to read once more for those that were not just read


def look_around(
    run: Run, archive: Archive, scorer: Scorer, changes: Changes, published: pl.DataFrame
) -> Timeline:
    """Find what has to be replayed.

    Args:
        run: the run.
        archive: the archive, settled.
        scorer: what the run scores with.
        changes: the traces that differ.
        published: what computed the published scores, see `Archive.fingerprints`.
    """
    otherwise = published.filter(scorer.met_otherwise() & run.in_range("day"))
    touched = sorted(changes.days | set(otherwise.get_column("day")))
    if not touched:
        nothing = pl.DataFrame(schema={**_LOOKED_AT, "replay": pl.Boolean})
        return Timeline(frozenset(), nothing, ())
    by_day = published.group_by("day").agg(pl.col("traces").sum()).sort("day").rows()
    reach = max([run.config.cache_size, *published.get_column("met")])
    days = around(by_day, touched[0], touched[-1], reach)
    archive.write_timeline(days)
    rows = _rows(run, scorer)
    starts = _starts(run, scorer, rows)
    others = meets_others(
        starts,
        rows.get_column("was").to_numpy(),
        rows.get_column("cache_size").to_numpy(),
        comparable=rows.get_column("comparable").to_numpy(),
    )
    replay = others | rows.get_column("outdated").to_numpy()
    marked = rows.select(*_LOOKED_AT, replay=pl.Series(replay))
    return Timeline(frozenset(days), marked, tuple(spans(replay, starts, RANGE_ROWS)))


def _rows(run: Run, scorer: Scorer) -> pl.DataFrame:
    """What has to be known of each row of the timeline; null where it is not published: -1."""
    otherwise = scorer.met_otherwise()
    return (
        pl.scan_parquet(run.stage.timeline, glob=False)
        .with_columns(day=pl.col("created_at").dt.date())
        .select(
            *("task_domain", "day", "profile_id", "restated"),
            pl.col("created_at").to_physical(),
            pl.col("was", "cache_size").fill_null(-1),
            in_range=run.in_range("day"),
            comparable=~otherwise.fill_null(value=True),
            outdated=(otherwise & run.in_range("day")).fill_null(value=False),
        )
        .collect()
    )


def _starts(run: Run, scorer: Scorer, rows: pl.DataFrame) -> Int64s:
    """The first row that each row meets; itself where there is no encoder."""
    if not scorer.has_encoder:
        return np.arange(len(rows), dtype=np.int64)
    times = rows.get_column("created_at").to_numpy()
    return window_starts(times, run.config.cache_size, run.config.ttl)


def texts_for(
    run: Run, archive: Archive, scorer: Scorer, timeline: Timeline, ledger: Ledger
) -> Texts:
    """Find the texts that the replay needs vectors of.

    Raises:
        ArchiveError: a text without a vector stands only in files that are gone or unreadable.
    """
    none = pl.Series("text_hash", [], dtype=pl.String)
    if not (scorer.has_encoder and timeline.spans):
        return Texts(0, none, ())
    hashes = pl.read_parquet(run.stage.timeline, columns=["text_hash"], glob=False)
    taking_part = pl.Series(needed(timeline.spans, len(hashes)))
    distinct = hashes.filter(taking_part).unique(maintain_order=True).get_column("text_hash")
    store = VectorStore(Layout(run.config.warehouse).vectors(scorer.encoder_id))
    missing = store.missing(distinct)
    staged = pl.scan_parquet(run.stage.rows, glob=False).select("text_hash").unique().collect()
    elsewhere = missing.filter(~missing.is_in(staged.get_column("text_hash").implode()))
    readable, lost = archive.locate(elsewhere) if len(elsewhere) else (set[str](), set[str]())
    if lost:
        raise ArchiveError(
            f"traces of {len(lost):,} files that are gone or unreadable (such as "
            f"{printable(min(lost))}) have no vectors of the encoder {scorer.encoder_id}; bring "
            "these files back, or remove their traces with --prune"
        )
    return Texts(len(distinct), missing, tuple(ledger[path].source for path in sorted(readable)))
