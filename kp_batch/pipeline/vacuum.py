"""Remove what no recent run needs: old versions, facts, vectors and raw rows.

`forget` uses these functions, too.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self
from uuid import uuid4

import polars as pl

from kp_batch.archive.validation import SUPERSEDED, with_message
from kp_batch.duck import SQL, statement
from kp_batch.embedding.chunks import chunk_files, count_vectors, merge_small
from kp_batch.embedding.vector_store import VectorStore
from kp_batch.errors import WarehouseError
from kp_batch.schemas import GROWING
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.data_files import sink_data_file
from kp_batch.warehouse.layout import Layout, check_links
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import may_remove, publish, writing
from kp_batch.warehouse.run_record import RunRecord, last_done
from kp_batch.warehouse.snapshot import PublishedSnapshot, parquet_relation, published
from kp_batch.warehouse.staging import Staging
from kp_batch.warehouse.unneeded import Unneeded, kept_manifests
from kp_batch.warehouse.vacuum_result import VacuumResult

# Selects the rows that stay, in their order, with or without their JSON.
Keep = Callable[[pl.LazyFrame], pl.LazyFrame]

_ROWS_IN_FILE = 1_000_000  # the least number of facts: some 100 MB
_ROW = ("file_id", "row")  # identify a row of content, in any file


@dataclass(frozen=True)
class FactsRewrite:
    """The removal of facts and JSON: files with any are rewritten as one file, others stay."""

    keep: Keep  # of rows with the columns of `FACTS`
    files: tuple[Path, ...]  # to rewrite
    removed: int  # facts

    @classmethod
    def of(cls, snapshot: PublishedSnapshot, keep: Keep, *, at_least: int = 0) -> Self:
        """Find the files to rewrite.

        Args:
            snapshot: the state with the facts.
            keep: selects the rows that stay.
            at_least: files with fewer rows are rewritten, too, if there are several.
        """
        paths = snapshot.files("facts")
        if not paths:
            return cls(keep, (), 0)
        rows = pl.scan_parquet(paths, glob=False, include_file_paths="path")
        counts = {"rows": pl.len(), "raw": pl.col("raw").is_not_null().sum()}
        both = (part.group_by("path").agg(**counts) for part in (rows, keep(rows)))
        by_file = next(both).join(next(both), on="path", how="left", suffix="_kept")
        files = by_file.collect(engine="streaming").fill_null(0).sort("path")
        losing = (pl.col("rows_kept") < pl.col("rows")) | (pl.col("raw_kept") < pl.col("raw"))
        chosen = files.filter(losing | (pl.col("rows") < at_least))
        if len(chosen) < 2 and chosen.filter(losing).is_empty():
            return cls(keep, (), 0)
        removed = chosen.select((pl.col("rows") - pl.col("rows_kept")).sum()).item()
        return cls(keep, tuple(map(Path, chosen.get_column("path"))), int(removed))

    def carry_out(self, candidate: Candidate) -> Candidate:
        """Write the new file."""
        if not self.files:
            return candidate
        together = pl.scan_parquet(list(self.files), glob=False)
        name = f"facts-{uuid4().hex}"
        new = sink_data_file(candidate.folder, "facts", self.keep(together), name)
        return candidate.change("facts", [new], [path.name for path in self.files])


def vacuum(
    warehouse: Path,
    keep: timedelta,
    now: datetime,
    *,
    dry_run: bool = False,
    if_needed: bool = False,
) -> VacuumResult:
    """Remove what neither the published state nor any recent run needs, and merge small files.

    Args:
        warehouse: the folder of the tables.
        keep: runs that ended within this time stay readable with --as-of.
        now: the time.
        dry_run: only report what would be removed.
        if_needed: publish and merge nothing unless there is anything to remove.

    Raises:
        WarehouseError: there is no warehouse, a forget did not finish, or a run is writing.
    """
    require_manifest(warehouse)
    if dry_run:
        check_links(warehouse)
        plan = _plan(warehouse, now - keep)
        return plan.result(_count_mergeable(plan))
    with writing(warehouse, wait=False):
        plan = _plan(warehouse, now - keep)
        is_due = plan.removes_anything or not if_needed
        return plan.result(_carry_out(plan) if is_due else 0)


@dataclass(frozen=True)
class _VacuumPlan:
    """What to remove from the published state and from older runs."""

    published: PublishedSnapshot
    kept_from: int  # see `Manifest`
    unneeded: Unneeded
    facts: FactsRewrite
    old_raw: pl.DataFrame  # see `_old_raw`
    encoders: Sequence[Path]  # the folders of vectors that no published score needs
    vectors: int  # in these, and the unused ones of other encoders
    lost: Sequence[str]  # see `VacuumResult`
    readable: Sequence[str]

    @property
    def removes_anything(self) -> bool:
        """Whether anything is removed; old manifests and lists alone do not count."""
        return self.result(0).removes_anything

    def result(self, merged: int) -> VacuumResult:
        """Return its counts, with the number of merged files of vectors."""
        return VacuumResult(
            files=len(self.unneeded.data),
            facts=self.facts.removed,
            raw_rows=int(self.old_raw.get_column("copies").sum()),
            vectors=self.vectors,
            merged=merged,
            lost=tuple(self.lost),
            readable=tuple(self.readable),
        )


def _plan(warehouse: Path, since: datetime) -> _VacuumPlan:
    """Plan to keep the published state, and all runs from the first that ended since a time."""
    if Layout(warehouse).forgetting.exists():
        # It may be under way, in a bucket: past manifests are to name files that none does by now.
        raise WarehouseError(
            "nothing is removed, because a kp-batch forget did not finish; run the forget again, "
            "then this command",
            code="unfinished_forget",
        )
    snapshot = published(warehouse)
    runs = sorted(snapshot.runs(), key=lambda run: run.number)
    before = snapshot.manifest.kept_from
    kept_from = max(before, _kept_from(snapshot, runs, since))
    kept = kept_manifests(snapshot, runs, kept_from)
    old = _old_raw(snapshot, {run.run_id for run in runs if run.finished_at < since})
    encoders = _needless_encoders(snapshot)
    with _other_vectors(snapshot, encoders) as (stores, accepted):
        unused = sum(store.count_prunable(accepted) for store in stores)
    return _VacuumPlan(
        published=snapshot,
        kept_from=kept_from,
        unneeded=Unneeded.of(snapshot, kept),
        facts=FactsRewrite.of(snapshot, _of_ledger(snapshot, old), at_least=_ROWS_IN_FILE),
        old_raw=old,
        encoders=encoders,
        vectors=unused + sum(map(count_vectors, encoders)),
        lost=[run.run_id for run in runs if before <= run.number < kept_from],
        readable=[run.run_id for run in runs if run.number >= kept_from],
    )


def _kept_from(snapshot: PublishedSnapshot, runs: Sequence[RunRecord], since: datetime) -> int:
    """Return the number of the first publication to keep; the last successful run always stays."""
    last = last_done(runs)
    kept = [run.number for run in runs if run.finished_at >= since]
    return min([*kept, last.number if last else snapshot.manifest.number])


def _carry_out(plan: _VacuumPlan) -> int:
    """Carry out a plan, and return the number of merged files of vectors."""
    snapshot, warehouse = plan.published, plan.published.warehouse
    candidate = plan.facts.carry_out(Candidate(warehouse, snapshot.manifest, "upkeep"))
    candidate = _drop_raw(candidate, snapshot, plan.old_raw)
    for name in GROWING:  # each run adds a file
        if len(snapshot.files(name)) > 1:
            rows = snapshot.scan(name).collect().sort("run_id")
            candidate = candidate.overwrite(name, rows)
    manifest = snapshot.manifest
    publish(candidate, manifest.settings, failed=manifest.failed, kept_from=plan.kept_from)
    may_remove(warehouse, plan.unneeded.files)
    plan.unneeded.remove()
    for folder in plan.encoders:
        for path in chunk_files(folder):
            path.unlink()
        with suppress(OSError):  # it has other files, too
            folder.rmdir()
    prune_vectors(published(warehouse))
    return sum(map(merge_small, Layout(warehouse).all_vectors.glob("*")))


def _of_ledger(snapshot: PublishedSnapshot, old: pl.DataFrame) -> Keep:
    """Keep the facts of content that the ledger names, without old JSON."""
    ledger = snapshot.scan("files").select("file_id")

    def keep(rows: pl.LazyFrame) -> pl.LazyFrame:
        known = rows.join(ledger, on="file_id", how="semi", maintain_order="left")
        return _without_raw(known, old).drop("is_old")

    return keep


def _old_raw(snapshot: PublishedSnapshot, old: Collection[str]) -> pl.DataFrame:
    """Return the rows whose JSON is removed, with the number of their copies.

    Only old runs rejected them. If a later run rejected a copy, the JSON of all copies stays. So
    does that of content that the published rejects do not name, such as of a failed run.
    """
    with_raw = snapshot.scan("rejects").filter(pl.col("raw").is_not_null())
    is_old = pl.col("run_id").is_in(list(old)).all()
    by_row = with_raw.group_by(_ROW).agg(is_old=is_old, copies=pl.len())
    return by_row.filter("is_old").drop("is_old").collect()


def _without_raw(rows: pl.LazyFrame, old: pl.DataFrame) -> pl.LazyFrame:
    """Return the rows of `facts` or `rejects`, without the JSON of those marked in `is_old`."""
    marked = old.lazy().select(*_ROW, is_old=pl.lit(value=True))
    known = rows.join(marked, on=_ROW, how="left", maintain_order="left")
    is_old = pl.col("is_old").fill_null(value=False)
    return known.with_columns(raw=pl.when(~is_old).then("raw"), is_old=is_old)


def _drop_raw(candidate: Candidate, snapshot: PublishedSnapshot, old: pl.DataFrame) -> Candidate:
    """Drop the JSON of the rows that old runs rejected, and its values from their messages."""
    if old.is_empty():
        return candidate
    rows = _without_raw(snapshot.scan("rejects"), old)
    has_value = pl.col("is_old") & ~pl.col("reasons").list.contains(SUPERSEDED)
    rejects = rows.with_columns(message=pl.when(~has_value).then("message")).drop("is_old")
    return candidate.overwrite("rejects", with_message(rejects.collect()))


def _needless_encoders(snapshot: PublishedSnapshot) -> list[Path]:
    """Return the vector folders of encoders without published scores."""
    names, folders = snapshot.encoder_ids, Layout(snapshot.warehouse).all_vectors.glob("*")
    return sorted(folder for folder in folders if folder.name not in names)


def _count_mergeable(plan: _VacuumPlan) -> int:
    """Count the files of vectors to merge."""
    with _other_vectors(plan.published, plan.encoders) as (stores, accepted):
        return sum(store.count_mergeable(accepted) for store in stores)


@contextmanager
def _other_vectors(
    snapshot: PublishedSnapshot, needless: Collection[Path]
) -> Generator[tuple[Sequence[VectorStore], SQL]]:
    """Open the vectors of all but some encoders, with the rows whose texts will need a vector."""
    folders = sorted({*Layout(snapshot.warehouse).all_vectors.glob("*")} - {*needless})
    ledger = snapshot.relation("files")
    remaining = statement("SEMI JOIN $ledger AS ledger USING (file_id)", ledger=ledger)
    with Staging.temporary() as staging, staging.connect() as connection:
        stores = [VectorStore(folder, connection) for folder in folders]
        yield stores, _accepted(snapshot, remaining)


def prune_vectors(snapshot: PublishedSnapshot, others: Sequence[Path] = ()) -> int:
    """Remove the vectors of texts without an accepted row in the facts, and return their number.

    Rows in `others`, further files of facts, count as well.
    """
    layout = Layout(snapshot.warehouse)
    folders = list(layout.all_vectors.glob("*"))
    if not folders:
        return 0
    accepted = _accepted(snapshot, statement(""), others)
    staging = Staging(layout.staging(f"upkeep-{uuid4().hex}"))
    staging.make()
    with staging.connect() as connection:
        return sum(VectorStore(folder, connection).prune_to(accepted) for folder in folders)


def count_prunable_vectors(
    snapshot: PublishedSnapshot, staging: Staging, remaining: SQL, others: Sequence[Path]
) -> int:
    """Count the vectors that `prune_vectors` will remove.

    The SQL `remaining` is a join that selects the rows of `facts` that will remain.
    """
    accepted = _accepted(snapshot, remaining, others)
    folders = Layout(snapshot.warehouse).all_vectors.glob("*")
    with staging.connect() as connection:
        return sum(VectorStore(folder, connection).count_prunable(accepted) for folder in folders)


def _accepted(snapshot: PublishedSnapshot, remaining: SQL, others: Sequence[Path] = ()) -> SQL:
    return statement(
        "(FROM $facts AS facts $remaining WHERE len(reasons) = 0)",
        facts=parquet_relation("facts", [*snapshot.files("facts"), *others]),
        remaining=remaining,
    )
