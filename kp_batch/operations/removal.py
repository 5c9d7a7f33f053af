"""Removes files that nothing needs any more, for vacuum and forget."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import polars as pl
from polars.exceptions import PanicException

from kp_batch.contracts import TABLES
from kp_batch.embedding.store import VectorStore
from kp_batch.errors import StorageError
from kp_batch.sql import SQL, statement
from kp_batch.staging import Staging
from kp_batch.text import one_line
from kp_batch.warehouse.data_files import data_file, sink_data_file
from kp_batch.warehouse.delta import DeltaTables, remove_unneeded, unneeded_files
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, require_manifest
from kp_batch.warehouse.publication import publish
from kp_batch.warehouse.snapshot import PublishedSnapshot

# Leaves the rows that stay, in their order, each with its JSON or without.
Keep = Callable[[pl.LazyFrame], pl.LazyFrame]


def restored_tables(warehouse: Path, published: Manifest) -> DeltaTables:
    """Restore every table to what is published."""
    tables = DeltaTables(warehouse, published.tables, "upkeep")
    for name in TABLES:
        tables.undo_unpublished(name)
    return tables


def rewrite_facts(warehouse: Path, tables: DeltaTables, keep: Keep, *, at_least: int = 0) -> int:
    """Remove facts and JSON: the files that hold any become one without, the others stay.

    Args:
        warehouse: the folder of the tables.
        tables: they get the new version.
        keep: of rows with the columns of `FACTS`.
        at_least: files of fewer rows become part of that one file, too.

    Returns:
        How many were removed.
    """
    paths = PublishedSnapshot(warehouse, tables.versions).files("facts")
    if not paths:
        return 0
    rows = pl.scan_parquet(paths, glob=False, include_file_paths="path")
    counts = {"rows": pl.len(), "raw": pl.col("raw").is_not_null().sum()}
    both = (each.group_by("path").agg(**counts) for each in (rows, keep(rows)))
    by_file = next(both).join(next(both), on="path", how="left", suffix="_kept")
    found = by_file.collect(engine="streaming").fill_null(0).sort("path")
    losing = (pl.col("rows_kept") < pl.col("rows")) | (pl.col("raw_kept") < pl.col("raw"))
    chosen = found.filter(losing | (pl.col("rows") < at_least))
    removed = int(chosen.select((pl.col("rows") - pl.col("rows_kept")).sum()).item())
    if len(chosen.filter(losing)) or len(chosen) > 1:
        together = pl.scan_parquet(chosen.get_column("path").to_list(), glob=False)
        made = sink_data_file(warehouse, "facts", keep(together), f"facts-{uuid4().hex}")
        rest = set(paths) - {Path(path) for path in chosen.get_column("path")}
        tables.replace_files("facts", [*map(data_file, sorted(rest)), made], None)
    return removed


def published_rows(warehouse: Path, name: str, published: Manifest) -> pl.DataFrame:
    """All rows of a published table."""
    return PublishedSnapshot(warehouse, published.tables).scan(name).collect()


def remove_files(
    warehouse: Path, names: Iterable[str], manifests: Sequence[Mapping[str, int]]
) -> int:
    """Remove the files of tables that none of the manifests needs; returns how many."""
    return sum(remove_unneeded(warehouse, name, _versions(name, manifests)) for name in names)


def count_files(warehouse: Path, manifests: Sequence[Mapping[str, int]]) -> int:
    """Count the files of all tables that `remove_files` would remove."""
    return sum(len(unneeded_files(warehouse, name, _versions(name, manifests))) for name in TABLES)


def _versions(name: str, manifests: Sequence[Mapping[str, int]]) -> set[int]:
    return {each[name] for each in manifests if name in each}


def keep_vectors(warehouse: Path, published: Manifest) -> int:
    """Keep only the vectors of texts that an accepted row of known content has."""
    layout = Layout(warehouse)
    folders = list(layout.all_vectors.glob("*"))
    if not folders:
        return 0
    accepted = _accepted(warehouse, published, statement(""))
    staging = Staging(layout.staging(f"upkeep-{uuid4().hex}"))
    staging.make()
    with staging.connect() as connection:
        return sum(VectorStore(each, connection).keep(accepted) for each in folders)


def count_other_vectors(
    warehouse: Path, published: Manifest, staging: Staging, folders: Iterable[Path], stays: SQL
) -> int:
    """Count the vectors of texts that no accepted row will have.

    Args:
        warehouse: the folder of the tables.
        published: what is published.
        staging: what DuckDB cannot hold is spilled there.
        folders: of the encoders.
        stays: SQL, a join that leaves the rows of `facts` that stay.
    """
    accepted = _accepted(warehouse, published, stays)
    with staging.connect() as connection:
        return sum(VectorStore(each, connection).count_others(accepted) for each in folders)


def _accepted(warehouse: Path, published: Manifest, stays: SQL) -> SQL:
    facts = PublishedSnapshot(warehouse, published.tables).relation("facts")
    return statement(
        "(FROM $facts AS facts $stays WHERE len(reasons) = 0)", facts=facts, stays=stays
    )


def remove_what_held(warehouse: Path, names: Iterable[str]) -> int:
    """Remove the files of tables that hold forgotten traces, and the vectors of their texts.

    Only when all is published: a run may fail, and what it fails over is what was published before.

    Returns:
        How many vectors were removed.

    Raises:
        StorageError: not all could be removed.
    """
    try:
        now = require_manifest(warehouse)
        left = replace(now, tables=restored_tables(warehouse, now).versions)
        publish(warehouse, left)
        remove_files(warehouse, names, [left.tables])
        return keep_vectors(warehouse, left)
    except (Exception, PanicException) as error:
        raise StorageError(
            f"the traces are forgotten, but not all files that hold them are removed "
            f"({one_line(str(error))}); mend that, and give the same command again"
        ) from error
