"""Removes what no recent run needs: old versions, facts, vectors and raw rows."""

import shutil
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from kp_batch.contracts import TABLES
from kp_batch.embedding.chunks import count_vectors
from kp_batch.operations.removal import (
    keep_vectors,
    published_rows,
    remove_files,
    restored_tables,
    rewrite_facts,
)
from kp_batch.operations.results import Removed
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, require_manifest
from kp_batch.warehouse.publication import publish, writing
from kp_batch.warehouse.relations import run_records, scan
from kp_batch.warehouse.tables import DeltaTables, files_of

_ROWS_IN_FILE = 1_000_000  # of facts, at the least: some 100 MB
_DROPPED = '"removed by kp-batch vacuum"'  # not null, or the next run would read the row again


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
        published = require_manifest(warehouse)
        runs = run_records(warehouse, published.tables.get("runs"))
        kept = [record for record in runs if record.finished_at >= now - keep]
        old = {record.run_id for record in runs} - {record.run_id for record in kept}
        tables = restored_tables(warehouse, published)
        facts = _compact_facts(warehouse, tables)
        raw = _drop_raw(warehouse, tables, old)
        for name in ("runs", "distributions"):  # each run adds a file
            if len(files_of(warehouse, name, tables.versions.get(name))) > 1:
                tables.overwrite(name, [published_rows(warehouse, name, published).sort("run_id")])
        left = replace(published, tables=tables.versions)
        publish(warehouse, left)
        # Who reads what was published until now reads on.
        manifests = [left.tables, published.tables, *(run.published["tables"] for run in kept)]
        files = remove_files(warehouse, TABLES, manifests)
        vectors = _remove_vectors(warehouse, left)
    return Removed(files=files, facts=facts, raw_rows=raw, vectors=vectors)


def _compact_facts(warehouse: Path, tables: DeltaTables) -> int:
    """Keep the facts of content that the ledger names, in few files."""
    ledger = scan(warehouse, "files", tables.versions.get("files")).select("file_id").collect()
    needed = pl.col("file_id").is_in(ledger.get_column("file_id").implode())
    return rewrite_facts(warehouse, tables, needed, at_least=_ROWS_IN_FILE)


def _drop_raw(warehouse: Path, tables: DeltaTables, runs: Collection[str]) -> int:
    """Drop the JSON of the rows that old runs refused."""
    rejects = scan(warehouse, "rejects", tables.versions.get("rejects")).collect()
    old = pl.col("run_id").is_in(list(runs))
    dropping = old & pl.col("raw").is_not_null() & (pl.col("raw") != _DROPPED)
    dropped = rejects.select(dropping.sum()).item()
    raw = pl.when(dropping).then(pl.lit(_DROPPED)).otherwise("raw")
    if dropped:
        tables.overwrite("rejects", [rejects.with_columns(raw=raw)])
    return dropped


def _remove_vectors(warehouse: Path, published: Manifest) -> int:
    """Remove the vectors that no published score's encoder made, and those of unknown texts."""
    scores = scan(warehouse, "scores", published.tables.get("scores")).select(
        pl.col("encoder_id").unique()
    )
    encoders = scores.collect().get_column("encoder_id").to_list()
    removed = 0
    for folder in Layout(warehouse).all_vectors.glob("*"):
        if folder.name not in encoders:
            removed += count_vectors(folder)
            shutil.rmtree(folder)
    return removed + keep_vectors(warehouse, published)
