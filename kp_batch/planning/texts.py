"""Finds the texts whose vectors the replay reads, and which of these have none yet."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.ledger import as_ledger
from kp_batch.duck import read_parquet, statement
from kp_batch.embedding.vector_store import HASH, VectorStore
from kp_batch.errors import ArchiveError
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.planning.changes import Detected
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Timeline
from kp_batch.runs.run import Run
from kp_batch.text import number, printable
from kp_batch.warehouse.layout import Layout

# The texts that the replay reads.
_WANTED = "CREATE TEMP TABLE wanted AS SELECT DISTINCT text_hash FROM $replay"
# The missing ones that were not just read.
_UNREAD = """
    CREATE TEMP TABLE unread AS
    FROM $missing AS missing ANTI JOIN $staged AS staged USING (text_hash)
"""


@dataclass(frozen=True)
class Texts:
    """How many texts the replay reads; the hashes of the missing ones are `staging.missing`."""

    distinct: int
    missing: int  # those without a vector
    sources: tuple[SourceFile, ...] = ()  # files to read again, for the texts of `staging.unread`


def missing_texts(
    run: Run, detected: Detected, scorer: Scorer, timeline: Timeline, scan: ArchiveScan
) -> Texts:
    """Find the texts whose vectors the replay reads, and stage the hashes of those without one.

    Raises:
        ArchiveError: a text without a vector stands only in files that are gone or unreadable.
    """
    if not timeline.spans:
        return Texts(0, 0)
    connection = detected.snapshot.connection
    replay = read_parquet(run.staging.replay)
    [(distinct,)] = connection.execute(statement(_WANTED, replay=replay)).fetchall()
    store = VectorStore(Layout(run.config.warehouse).vectors(scorer.encoder_id), connection)
    missing = store.write_missing("wanted", run.staging.missing)
    connection.execute("DROP TABLE wanted")
    return Texts(distinct, missing, _sources(run, detected, scorer, scan) if missing else ())


def _sources(
    run: Run, detected: Detected, scorer: Scorer, scan: ArchiveScan
) -> tuple[SourceFile, ...]:
    """The files to read again for missing texts that were not just read, whose hashes it stages."""
    if not _stage_unread(run, detected, scan):
        return ()
    readable, lost = detected.locate("unread")
    if lost:
        raise ArchiveError(
            f"traces of {number(len(lost), 'file')}, gone or unreadable (such as "
            f"{printable(min(lost))}) have no vectors of the encoder {scorer.encoder_id}; bring "
            "back what is missing, or remove their traces with --prune"
        )
    ledger = as_ledger(pl.read_parquet(run.staging.table("files"), glob=False))
    return tuple(ledger[path].source for path in sorted(readable))


def _stage_unread(run: Run, detected: Detected, scan: ArchiveScan) -> int:
    """Stage the hashes of the missing texts that were not just read; returns how many."""
    connection = detected.snapshot.connection
    none = statement("(SELECT '' AS text_hash WHERE false)")
    staged = read_parquet(*scan.texts) if scan.texts else none
    query = statement(_UNREAD, missing=read_parquet(run.staging.missing), staged=staged)
    [(count,)] = connection.execute(query).fetchall()
    if count:
        path = run.staging.unread
        hashes = np.lib.format.open_memmap(path, mode="w+", dtype=HASH, shape=(count,))
        first = 0
        for batch in connection.sql("FROM unread ORDER BY text_hash").to_arrow_reader():
            last = first + len(batch)
            hashes[first:last] = batch.column(0).to_pylist()
            first = last
    return int(count)
