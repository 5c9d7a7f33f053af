"""Removes what no recent run needs: old versions, facts, vectors and raw rows."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from kp_batch.archive.validation import SUPERSEDED, with_message
from kp_batch.duck import statement
from kp_batch.embedding.vector_store import chunk_files, count_vectors
from kp_batch.operations.retention import (
    FactsRewrite,
    Keep,
    count_other_vectors,
    keep_vectors,
    restored_tables,
    sorted_runs,
)
from kp_batch.pipeline.rescore import warn_of_unfinished_forget
from kp_batch.runs.staging import Staging
from kp_batch.schemas import GROWING, TABLES
from kp_batch.warehouse.bucket.mirror import may_remove
from kp_batch.warehouse.delta import DeltaTables, files_at, unneeded_files
from kp_batch.warehouse.layout import Layout, check_links
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import publish, writing
from kp_batch.warehouse.snapshot import PublishedSnapshot, published

_ROWS_IN_FILE = 1_000_000  # of facts, at the least: some 100 MB
_ROW = ("file_id", "row")  # of content, whatever files have it


@dataclass(frozen=True)
class VacuumResult:
    """How many of each were removed, or would be."""

    files: int  # of tables
    facts: int  # rows, of replaced files
    raw_rows: int  # the JSON of rejects
    vectors: int
    lost: tuple[str, ...] = ()  # the runs that --as-of could read until now, the first one first
    readable: tuple[str, ...] = ()  # those that it still can


def vacuum(
    warehouse: Path, keep: timedelta, now: datetime, *, dry_run: bool = False
) -> VacuumResult:
    """Remove what neither the published state needs nor any recent run.

    Args:
        warehouse: the folder of the tables.
        keep: the tables that runs of this last time left stay readable with --as-of.
        now: the time.
        dry_run: tell what would be removed, and change nothing.

    Raises:
        WarehouseError: it is no warehouse, or a run is writing.
    """
    require_manifest(warehouse)
    if dry_run:
        check_links(warehouse)
        plan = _planned(warehouse, now - keep)
        return plan.result(_count_other_vectors(plan))
    with writing(warehouse, wait=False):
        warn_of_unfinished_forget(warehouse)
        plan = _planned(warehouse, now - keep)
        return plan.result(_carry_out(plan))


@dataclass(frozen=True)
class _Plan:
    """What goes, of what is published and of older runs."""

    published: PublishedSnapshot
    files: Sequence[Path]  # of tables
    facts: FactsRewrite
    old_raw: pl.DataFrame  # see `_old_raw`
    encoders: Sequence[Path]  # the folders of vectors that made no published score
    vectors: int  # that these hold
    lost: Sequence[str]  # see `VacuumResult`
    readable: Sequence[str]

    def result(self, other_vectors: int) -> VacuumResult:
        """What is told of it, with the vectors that nothing needs of other encoders."""
        return VacuumResult(
            files=len(self.files),
            facts=self.facts.removed,
            raw_rows=int(self.old_raw.get_column("copies").sum()),
            vectors=self.vectors + other_vectors,
            lost=tuple(self.lost),
            readable=tuple(self.readable),
        )


def _planned(warehouse: Path, since: datetime) -> _Plan:
    """Plan to leave what is published, and the runs that ended since a time."""
    snapshot = published(warehouse)
    runs = snapshot.runs()
    kept = [record for record in runs if record.finished_at >= since]
    # Who reads what was published until now reads on.
    manifests = [snapshot.tables, *(run.published["tables"] for run in kept)]
    versions = {name: {each[name] for each in manifests if name in each} for name in TABLES}
    needed = {
        name: files_at(Layout(warehouse).table(name), each) for name, each in versions.items()
    }
    lost, readable = sorted_runs(warehouse, runs, needed)
    old = _old_raw(snapshot, {each.run_id for each in runs} - {each.run_id for each in kept})
    facts = FactsRewrite.of(snapshot, _of_ledger(snapshot, old), at_least=_ROWS_IN_FILE)
    files = [path for name in TABLES for path in unneeded_files(warehouse, name, versions[name])]
    encoders = _needless_encoders(snapshot)
    vectors = sum(map(count_vectors, encoders))
    return _Plan(snapshot, files, facts, old, encoders, vectors, lost, readable)


def _carry_out(plan: _Plan) -> int:
    """Remove it; gives how many vectors of the other encoders were removed."""
    snapshot, warehouse = plan.published, plan.published.warehouse
    tables = restored_tables(snapshot)
    plan.facts.carry_out(warehouse, tables)
    _drop_raw(warehouse, tables, plan.old_raw)
    for name in GROWING:  # each run adds a file
        if len(PublishedSnapshot(warehouse, tables.versions).files(name)) > 1:
            tables.overwrite(name, snapshot.scan(name).collect().sort("run_id"))
    left = replace(snapshot.manifest, tables=tables.versions)
    publish(warehouse, left)
    may_remove(warehouse)
    for path in plan.files:
        path.unlink()
    for folder in plan.encoders:
        for path in chunk_files(folder):
            path.unlink()
        with suppress(OSError):  # somebody else's files stand there, too
            folder.rmdir()
    return keep_vectors(PublishedSnapshot(warehouse, left.tables, left))


def _of_ledger(snapshot: PublishedSnapshot, old: pl.DataFrame) -> Keep:
    """Keeps the facts of content that the ledger names, without old JSON."""
    ledger = snapshot.scan("files").select("file_id")

    def kept(rows: pl.LazyFrame) -> pl.LazyFrame:
        known = rows.join(ledger, on="file_id", how="semi", maintain_order="left")
        return _without_raw(known, old).drop("is_old")

    return kept


def _old_raw(snapshot: PublishedSnapshot, old: Collection[str]) -> pl.DataFrame:
    """The rows whose JSON goes, since old runs alone rejected them first, and their copies' number.

    Of a copy that came later the content is the same: then it stays of all copies. So does that of
    content which the published rejects, of a failed run say, do not name.
    """
    with_raw = snapshot.scan("rejects").filter(pl.col("raw").is_not_null())
    is_old = pl.col("run_id").is_in(list(old)).all()
    by_row = with_raw.group_by(_ROW).agg(is_old=is_old, copies=pl.len())
    return by_row.filter("is_old").drop("is_old").collect()


def _without_raw(rows: pl.LazyFrame, old: pl.DataFrame) -> pl.LazyFrame:
    """The rows of `facts` or `rejects`, the old ones, in `is_old`, without their JSON."""
    marked = old.lazy().select(*_ROW, is_old=pl.lit(value=True))
    known = rows.join(marked, on=_ROW, how="left", maintain_order="left")
    is_old = pl.col("is_old").fill_null(value=False)
    return known.with_columns(raw=pl.when(~is_old).then("raw"), is_old=is_old)


def _drop_raw(warehouse: Path, tables: DeltaTables, old: pl.DataFrame) -> None:
    """Drop the JSON of the rows that old runs rejected, and what their messages tell of it."""
    if not old.is_empty():
        left = _without_raw(PublishedSnapshot(warehouse, tables.versions).scan("rejects"), old)
        has_value = pl.col("is_old") & ~pl.col("reasons").list.contains(SUPERSEDED)
        told = left.with_columns(message=pl.when(~has_value).then("message")).drop("is_old")
        tables.overwrite("rejects", with_message(told.collect()))


def _needless_encoders(snapshot: PublishedSnapshot) -> list[Path]:
    """The folders of the vectors of encoders that made no published score."""
    scores = snapshot.scan("scores")
    encoders = scores.select(pl.col("encoder_id").unique()).collect().get_column("encoder_id")
    names = set(encoders)
    folders = sorted(Layout(snapshot.warehouse).all_vectors.glob("*"))
    return [folder for folder in folders if folder.name not in names]


def _count_other_vectors(plan: _Plan) -> int:
    """Count the vectors that nothing needs of the other encoders."""
    needed = {*Layout(plan.published.warehouse).all_vectors.glob("*")} - {*plan.encoders}
    ledger = plan.published.relation("files")
    stays = statement("SEMI JOIN $ledger AS ledger USING (file_id)", ledger=ledger)
    with Staging.temporary() as staging:
        return count_other_vectors(plan.published, staging, needed, stays)
