"""Finds the texts whose vectors the replay reads, and which of these have none yet."""

from dataclasses import dataclass

import polars as pl

from kp_batch.archive.ledger import as_ledger
from kp_batch.archive.sources import SourceFile
from kp_batch.embedding.store import VectorStore
from kp_batch.errors import ArchiveError
from kp_batch.ingest.observe import Observed
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Timeline
from kp_batch.run import Run
from kp_batch.text import printable
from kp_batch.warehouse.layout import Layout


@dataclass(frozen=True)
class Texts:
    """How many texts the replay reads; the hashes of the missing ones are `staging.missing`."""

    distinct: int
    missing: int  # those without a vector
    sources: tuple[SourceFile, ...] = ()  # files to read again, for texts that were not just read


def missing_texts(
    run: Run, detected: Detected, scorer: Scorer, timeline: Timeline, observed: Observed
) -> Texts:
    """Find the texts whose vectors the replay reads, and stage the hashes of those without one.

    Raises:
        ArchiveError: a text without a vector stands only in files that are gone or unreadable.
    """
    if not timeline.spans:
        return Texts(0, 0)
    rows = pl.scan_parquet(run.staging.replay, glob=False).select("text_hash")
    distinct = rows.unique(maintain_order=True).collect().get_column("text_hash")
    store = VectorStore(Layout(run.config.warehouse).vectors(scorer.encoder_id))
    missing = store.missing(distinct)
    missing.sort().to_frame("text_hash").write_parquet(run.staging.missing)
    sources = _sources(run, detected, scorer, observed, missing)
    return Texts(len(distinct), len(missing), sources)


def _sources(
    run: Run, detected: Detected, scorer: Scorer, observed: Observed, missing: pl.Series
) -> tuple[SourceFile, ...]:
    """The files to read again for texts that were not just read."""
    staged = pl.Series("text_hash", [], dtype=pl.String)
    if observed.texts:
        texts = pl.scan_parquet(list(observed.texts), glob=False).select("text_hash")
        staged = texts.unique().collect().get_column("text_hash")
    elsewhere = missing.filter(~missing.is_in(staged.implode()))
    if elsewhere.is_empty():
        return ()
    readable, lost = detected.locate(elsewhere)
    if lost:
        raise ArchiveError(
            f"traces of {len(lost):,} files that are gone or unreadable (such as "
            f"{printable(min(lost))}) have no vectors of the encoder {scorer.encoder_id}; bring "
            "these files back, or remove their traces with --prune"
        )
    ledger = as_ledger(pl.read_parquet(run.staging.table("files"), glob=False))
    return tuple(ledger[path].source for path in sorted(readable))
