"""Removes what no recent run needs: old versions, facts, vectors and raw rows."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import polars as pl

from kp_batch.archive.reject_messages import with_message
from kp_batch.archive.validation import SUPERSEDED
from kp_batch.contracts import GROWING, TABLES
from kp_batch.embedding.chunks import chunk_files, count_vectors
from kp_batch.operations.history import sorted_runs
from kp_batch.operations.removal import (
    Keep,
    count_files,
    count_other_vectors,
    keep_vectors,
    published_rows,
    remove_files,
    restored_tables,
    rewrite_facts,
)
from kp_batch.operations.results import Removed
from kp_batch.pipeline.rescore import warn_of_unfinished_forget
from kp_batch.run_record import RunRecord
from kp_batch.sql import statement
from kp_batch.staging import Staging
from kp_batch.warehouse.delta import DeltaTables, files_at
from kp_batch.warehouse.layout import Layout, check_links
from kp_batch.warehouse.manifest import Manifest, require_manifest
from kp_batch.warehouse.publication import publish, writing
from kp_batch.warehouse.snapshot import PublishedSnapshot

_ROWS_IN_FILE = 1_000_000  # of facts, at the least: some 100 MB
_ROW = ("file_id", "row")  # of content, whatever files have it


def vacuum(warehouse: Path, keep: timedelta, now: datetime) -> Removed:
    """Remove what neither the published state needs nor any recent run.

    Args:
        warehouse: the folder of the tables.
        keep: the tables that runs of this last time left stay readable with --as-of.
        now: the time.

    Raises:
        WarehouseError: it is no warehouse, or a run is writing.
    """
    require_manifest(warehouse)
    with writing(warehouse, wait=False):
        warn_of_unfinished_forget(warehouse)
        state = _State.of(warehouse, now - keep)
        lost, readable = sorted_runs(warehouse, state.runs, state.needed)
        published = state.published
        tables = restored_tables(warehouse, published)
        old = _old_raw(warehouse, tables.versions, state.old)
        kept_facts = _of_ledger(warehouse, tables.versions, old)
        facts = rewrite_facts(warehouse, tables, kept_facts, at_least=_ROWS_IN_FILE)
        raw = _drop_raw(warehouse, tables, old)
        for name in GROWING:  # each run adds a file
            if len(PublishedSnapshot(warehouse, tables.versions).files(name)) > 1:
                tables.overwrite(name, published_rows(warehouse, name, published).sort("run_id"))
        left = replace(published, tables=tables.versions)
        publish(warehouse, left)
        files = remove_files(warehouse, TABLES, [left.tables, *state.manifests])
        vectors = _remove_vectors(warehouse, left)
    return Removed(files, facts, raw, vectors, lost, readable)


def what_to_remove(warehouse: Path, keep: timedelta, now: datetime) -> Removed:
    """Tell what `vacuum` would remove; nothing in the warehouse is changed.

    Args:
        warehouse: the folder of the tables.
        keep: as for `vacuum`.
        now: the time.

    Raises:
        WarehouseError: it is no warehouse.
    """
    check_links(warehouse)
    state = _State.of(warehouse, now - keep)
    tables = state.published.tables
    lost, readable = sorted_runs(warehouse, state.runs, state.needed)
    old = _old_raw(warehouse, tables, state.old)
    return Removed(
        files=count_files(warehouse, state.manifests),
        facts=_count_needless_facts(warehouse, tables),
        raw_rows=int(old.get_column("copies").sum()),
        vectors=_count_needless_vectors(warehouse, state.published),
        lost=lost,
        readable=readable,
    )


@dataclass(frozen=True)
class _State:
    """What is published, and what of it and of older runs has to stay."""

    published: Manifest
    runs: Sequence[RunRecord]  # all of them
    old: frozenset[str]  # the ids of those that nobody asks of any more
    manifests: Sequence[Mapping[str, int]]  # whose files stay
    needed: Mapping[str, frozenset[Path]]  # these files, by the name of each table

    @classmethod
    def of(cls, warehouse: Path, since: datetime) -> Self:
        """The state of a warehouse in which the runs that ended since a time have to stay."""
        published = require_manifest(warehouse)
        runs = PublishedSnapshot(warehouse, published.tables).runs()
        kept = [record for record in runs if record.finished_at >= since]
        old = {record.run_id for record in runs} - {record.run_id for record in kept}
        # Who reads what was published until now reads on.
        manifests = [published.tables, *(run.published["tables"] for run in kept)]
        needed = {
            name: files_at(
                Layout(warehouse).table(name), {each[name] for each in manifests if name in each}
            )
            for name in TABLES
        }
        return cls(published, runs, frozenset(old), manifests, needed)


def _of_ledger(warehouse: Path, tables: Mapping[str, int], old: pl.DataFrame) -> Keep:
    """Keeps the facts of content that the ledger names, without old JSON."""
    ledger = PublishedSnapshot(warehouse, tables).scan("files").select("file_id")

    def kept(rows: pl.LazyFrame) -> pl.LazyFrame:
        known = rows.join(ledger, on="file_id", how="semi", maintain_order="left")
        return _without_raw(known, old).drop("is_old")

    return kept


def _count_needless_facts(warehouse: Path, tables: Mapping[str, int]) -> int:
    facts = PublishedSnapshot(warehouse, tables).scan("facts").select("file_id")
    ledger = PublishedSnapshot(warehouse, tables).scan("files").select("file_id")
    needless = facts.join(ledger, on="file_id", how="anti").select(pl.len())
    return needless.collect(engine="streaming").item()


def _old_raw(warehouse: Path, tables: Mapping[str, int], old: Collection[str]) -> pl.DataFrame:
    """The rows whose JSON goes, since old runs alone rejected them first, and their copies' number.

    Of a copy that came later the content is the same: then it stays of all copies. So does that of
    content which the published rejects, of a failed run say, do not name.
    """
    with_raw = (
        PublishedSnapshot(warehouse, tables).scan("rejects").filter(pl.col("raw").is_not_null())
    )
    is_old = pl.col("run_id").is_in(list(old)).all()
    by_row = with_raw.group_by(_ROW).agg(is_old=is_old, copies=pl.len())
    return by_row.filter("is_old").drop("is_old").collect()


def _without_raw(rows: pl.LazyFrame, old: pl.DataFrame) -> pl.LazyFrame:
    """The rows of `facts` or `rejects`, the old ones, in `is_old`, without their JSON."""
    marked = old.lazy().select(*_ROW, is_old=pl.lit(value=True))
    known = rows.join(marked, on=_ROW, how="left", maintain_order="left")
    is_old = pl.col("is_old").fill_null(value=False)
    return known.with_columns(raw=pl.when(~is_old).then("raw"), is_old=is_old)


def _drop_raw(warehouse: Path, tables: DeltaTables, old: pl.DataFrame) -> int:
    """Drop the JSON of the rows that old runs rejected, and what their messages tell of it."""
    dropped = int(old.get_column("copies").sum())
    if dropped:
        left = _without_raw(PublishedSnapshot(warehouse, tables.versions).scan("rejects"), old)
        has_value = pl.col("is_old") & ~pl.col("reasons").list.contains(SUPERSEDED)
        told = left.with_columns(message=pl.when(~has_value).then("message")).drop("is_old")
        tables.overwrite("rejects", with_message(told.collect()))
    return dropped


def _remove_vectors(warehouse: Path, published: Manifest) -> int:
    """Remove the vectors that no published score's encoder made, and those of unknown texts."""
    _, needless = _vector_folders(warehouse, published)
    removed = sum(map(count_vectors, needless))
    for folder in needless:
        for path in chunk_files(folder):
            path.unlink()
        with suppress(OSError):  # somebody else's files stand there, too
            folder.rmdir()
    return removed + keep_vectors(warehouse, published)


def _count_needless_vectors(warehouse: Path, published: Manifest) -> int:
    needed, needless = _vector_folders(warehouse, published)
    ledger = PublishedSnapshot(warehouse, published.tables).relation("files")
    stays = statement("SEMI JOIN $ledger AS ledger USING (file_id)", ledger=ledger)
    with Staging.temporary() as staging:
        others = count_other_vectors(warehouse, published, staging, needed, stays)
    return sum(map(count_vectors, needless)) + others


def _vector_folders(warehouse: Path, published: Manifest) -> tuple[list[Path], list[Path]]:
    """The folders of encoders that made a published score, and of the others."""
    scores = PublishedSnapshot(warehouse, published.tables).scan("scores")
    encoders = scores.select(pl.col("encoder_id").unique()).collect().get_column("encoder_id")
    names = set(encoders)
    folders = sorted(Layout(warehouse).all_vectors.glob("*"))
    needed = [folder for folder in folders if folder.name in names]
    return needed, [folder for folder in folders if folder.name not in names]
