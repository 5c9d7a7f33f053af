"""Find the texts whose vectors the replay reads, and those without a vector yet.

With `restore_vectors`, the texts of all published traces count as well.
"""

from collections.abc import Collection
from dataclasses import dataclass
from shlex import quote

import numpy as np
import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.config import defaults
from kp_batch.duck import read_parquet, set_variables, statement
from kp_batch.embedding.chunks import HASH
from kp_batch.embedding.vector_store import VectorStore
from kp_batch.errors import NoTextsError
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.log import warn
from kp_batch.planning.changes import ChangeDetection
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Timeline
from kp_batch.runs.run import Run
from kp_batch.text import be, count_of, printable
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.reasons import OF_ENCODER, Reason, for_mail, setting_changes

_WANTED = "CREATE TEMP TABLE wanted AS SELECT DISTINCT text_hash FROM $texts"
_NONE = "(SELECT '' AS text_hash WHERE false)"
_PUBLISHED = """
    CREATE TEMP TABLE published_texts AS
    SELECT
        text_hash,
        min(source_file) AS source_file,
        text_hash IN (
            SELECT text_hash
            FROM facts
            JOIN ledger USING (file_id)
            WHERE status = 'read' AND len(facts.reasons) = 0
        ) AS is_readable
    FROM published.scores
    WHERE encoder_id = getvariable('encoder_id')
    GROUP BY text_hash
"""
_REPLAYED_OR_READABLE = """(
    SELECT text_hash FROM $replayed
    UNION ALL
    SELECT text_hash FROM published_texts WHERE is_readable
)"""
_UNREADABLE = "(FROM published_texts WHERE NOT is_readable)"
_FILE = "SELECT min(source_file) FROM published_texts SEMI JOIN $missing USING (text_hash)"
# The missing texts that this run has not read.
_TEXTS_TO_REREAD = """
    CREATE TEMP TABLE texts_to_reread AS
    FROM $missing AS missing ANTI JOIN $staged AS staged USING (text_hash)
"""


@dataclass(frozen=True)
class MissingEmbeddings:
    """The numbers of wanted texts; the missing hashes are in `staging.missing`."""

    distinct: int = 0
    missing: int = 0  # texts without a vector
    sources: tuple[SourceFile, ...] = ()  # files to read again, for `staging.texts_to_reread`


def missing_embeddings(
    run: Run, detected: ChangeDetection, scorer: Scorer, timeline: Timeline, scan: ArchiveScan
) -> MissingEmbeddings:
    """Find the texts whose vectors are wanted, and stage the hashes of those without one.

    Raises:
        NoTextsError: the replay needs a text without a vector that is only in files that are gone
            or unreadable.
    """
    texts = read_parquet(run.staging.replay) if timeline.spans else statement(_NONE)
    connection = detected.snapshot.connection
    store = VectorStore(Layout(run.config.warehouse).vectors(scorer.encoder_id), connection)
    if run.config.restore_vectors:
        set_variables(connection, encoder_id=scorer.encoder_id)
        connection.execute(_PUBLISHED)
        _warn_of_unreadable(run, detected, store)
        texts = statement(_REPLAYED_OR_READABLE, replayed=texts)
    elif not timeline.spans:
        return MissingEmbeddings()
    [(distinct,)] = connection.execute(statement(_WANTED, texts=texts)).fetchall()
    missing = store.write_missing("wanted", run.staging.missing)
    connection.execute("DROP TABLE wanted")
    return MissingEmbeddings(
        distinct, missing, _sources(run, detected, scorer, scan) if missing else ()
    )


def _warn_of_unreadable(run: Run, detected: ChangeDetection, store: VectorStore) -> None:
    """Warn about published traces whose texts have no vector and cannot be read again."""
    path = run.staging.missing
    if count := store.write_missing(statement(_UNREADABLE), path):
        file = detected.snapshot.ask(statement(_FILE, missing=read_parquet(path))).item()
        warn(
            f"the vectors of {count_of(count, 'text')} cannot be made again: their files are gone "
            f"or unreadable (such as {printable(file)}); restore them, and run again",
            recurring=True,
        )


def _sources(
    run: Run, detected: ChangeDetection, scorer: Scorer, scan: ArchiveScan
) -> tuple[SourceFile, ...]:
    """Return the files to read again for missing texts, and stage the hashes of these texts."""
    if not _stage_texts_to_reread(run, detected, scan):
        return ()
    readable, lost = detected.locate("texts_to_reread")
    if lost:
        raise NoTextsError(_without_vectors(run, scorer, lost))
    ledger = pl.read_parquet(run.staging.table("files"), glob=False)
    files = ledger.filter(pl.col("source_file").is_in([*readable])).sort("source_file")
    rows = files.select("source_file", "size", "mtime_ns", "version").iter_rows()
    return tuple(SourceFile(*row) for row in rows)


def _without_vectors(run: Run, scorer: Scorer, lost: Collection[str]) -> str:
    """Return the error about unreadable texts without a vector, with what changed the encoder."""
    changes = [
        change
        for change in setting_changes(run.published.settings, run.config.settings)
        if change.code in OF_ENCODER
    ]
    text = ", ".join(f"{for_mail(change.words)}{_place(run, change)}" for change in changes)
    back = "".join(f"{_way_back(run, change)}, " for change in changes)
    return (
        f"{f'settings changed: {text}; ' if text else ''}traces of {count_of(len(lost), 'file')} "
        f"that {be(len(lost))} gone, unreadable or excluded (such as {printable(min(lost))}) have "
        f"no vectors of the encoder {scorer.encoder_id}; {back}restore what is missing, or remove "
        "their traces with --prune"
    )


def _place(run: Run, change: Reason) -> str:
    """Return where a project has a setting, or that it leaves it out; empty if given separately."""
    project, name = run.config.project, change.code
    if project is None or project.values.get(name, defaults()[name]) != change.new:
        return ""
    where = f", {project.place(name)}" if name in project.values else " leaves it out"
    return f" ({project.name}{where})"


def _way_back(run: Run, change: Reason) -> str:
    """Return the advice that brings back the previous encoder."""
    was = printable(change.old)
    if run.config.project and _place(run, change):
        return f"go back with {change.code} = '{was}' in [settings] of {run.config.project.name}"
    return f"go back with --{change.code} {quote(was)}"


def _stage_texts_to_reread(run: Run, detected: ChangeDetection, scan: ArchiveScan) -> int:
    """Stage the hashes of missing texts that this run has not read; return how many."""
    connection = detected.snapshot.connection
    staged = read_parquet(*scan.texts) if scan.texts else statement(_NONE)
    query = statement(_TEXTS_TO_REREAD, missing=read_parquet(run.staging.missing), staged=staged)
    [(count,)] = connection.execute(query).fetchall()
    if count:
        path = run.staging.texts_to_reread
        hashes = np.lib.format.open_memmap(path, mode="w+", dtype=HASH, shape=(count,))
        first = 0
        for batch in connection.sql("FROM texts_to_reread ORDER BY text_hash").to_arrow_reader():
            last = first + len(batch)
            hashes[first:last] = batch.column(0).to_pylist()
            first = last
    return int(count)
