"""What is kept and what is removed for good: old versions, and traces that must be forgotten."""

import json
import shutil
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.contracts import TABLES
from kp_batch.embedding.store import VectorStore
from kp_batch.errors import WarehouseError
from kp_batch.executors.prefect_records import remove_records
from kp_batch.facts import id_hash
from kp_batch.pipeline.rescore import carry_out, planned, running
from kp_batch.run import Run
from kp_batch.warehouse.catalog import publish
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import writing
from kp_batch.warehouse.manifest import Manifest, require_manifest
from kp_batch.warehouse.relations import scan
from kp_batch.warehouse.tables import DeltaTables, files_of, remove_unneeded

_DROPPED = '"removed by kp-batch vacuum"'  # not null, or the next run would read the row again
_HOLDING_TRACES = ("scores", "rejects", "facts")


def vacuum(warehouse: Path, keep: timedelta, now: datetime) -> dict[str, int]:
    """Remove what no run of the last time, and nothing that is published, needs.

    Args:
        warehouse: the folder of the tables.
        keep: what runs that ended since then left stays readable with --as-of.
        now: the time.

    Returns:
        How many of what were removed: files of tables, facts of replaced files, raw rows of
        rejects, vectors, Prefect's records of runs.

    Raises:
        WarehouseError: it is no warehouse, or a run is writing.
    """
    require_manifest(warehouse)
    with writing(warehouse, wait=False):
        published = require_manifest(warehouse)
        runs = _rows(warehouse, "runs", published)
        recent = pl.col("finished_at") >= now - keep
        tables = _restored(warehouse, published)
        facts = _compact_facts(warehouse, tables)
        raw = _drop_raw(warehouse, tables, runs.filter(~recent).get_column("run_id"))
        for name in ("runs", "distributions"):  # each run adds a file
            if len(files_of(warehouse, name, tables.versions.get(name))) > 1:
                tables.overwrite(name, [_rows(warehouse, name, published).sort("run_id")])
        left = Manifest(published.threshold, tables.versions)
        publish(warehouse, left)
        told = runs.filter(recent).get_column("published")
        # Who reads what was published until now reads on.
        manifests = [left.tables, published.tables, *(json.loads(each)["tables"] for each in told)]
        files = _remove_files(warehouse, TABLES, manifests)
        vectors = _remove_vectors(warehouse, left)
        records = remove_records(warehouse, now - keep)
    return {
        "files": files,
        "facts": facts,
        "raw rows": raw,
        "vectors": vectors,
        "Prefect records": records,
    }


def forget(warehouse: Path, ids: Sequence[str]) -> dict[str, Any]:
    """Remove traces for good, as if they had never been in the archive.

    They leave scores, rejects, facts and all history of these; the traces after them are replayed;
    vectors of their texts go unless another trace has the same; later runs pass them over.

    Args:
        warehouse: the folder of the tables.
        ids: the traces' ids.

    Returns:
        The summary of the run that replayed the others.

    Raises:
        WarehouseError: it is no warehouse, nothing was ever scored in it, or a run is writing.
    """
    with running(_last_config(warehouse)) as run:
        run.tables = _without(run, ids)
        summary = carry_out(run, planned(run, forgetting=ids))
        now = require_manifest(warehouse)
        left = Manifest(now.threshold, _restored(warehouse, now).versions)
        publish(warehouse, left)
        _remove_files(warehouse, _HOLDING_TRACES, [left.tables])
        _keep_vectors(warehouse, left)
    return summary


def _restored(warehouse: Path, published: Manifest) -> DeltaTables:
    """The tables, without what killed runs wrote and did not publish."""
    tables = DeltaTables(warehouse, published.tables, "upkeep")
    for name in TABLES:
        if tables.undo_unpublished(name):
            shutil.rmtree(Layout(warehouse).table(name))
    return tables


def _rows(warehouse: Path, name: str, published: Manifest) -> pl.DataFrame:
    """All rows of a published table."""
    return scan(warehouse, name, published.tables.get(name)).collect()


def _last_config(warehouse: Path) -> RescoreConfig:
    """What the last successful run was told."""
    done = _rows(warehouse, "runs", require_manifest(warehouse)).filter(pl.col("status") == "done")
    if done.is_empty():
        raise WarehouseError(f"nothing was scored in {warehouse} yet; run an archive first")
    told = json.loads(done.sort("started_at").item(-1, "config"))
    changes = {"warehouse": str(warehouse), "wait": False}
    # The traces after those that go are replayed, and keep their weights: no day is weighted anew.
    changes |= {"profiles": None, "since": str(date.max), "until": None}
    return RescoreConfig.model_validate({**told, **changes})


def _without(run: Run, ids: Sequence[str]) -> dict[str, int]:
    """The tables without these traces in facts, and with their ids' hashes in `forgotten`."""
    warehouse, published = run.config.warehouse, run.published
    tables = DeltaTables(warehouse, published.tables, run.run_id)
    known = _rows(warehouse, "forgotten", published)
    hashes = pl.DataFrame({"trace_id": list(ids)}).select(id_hash=id_hash())
    tables.overwrite("forgotten", [pl.concat([known, hashes]).unique(maintain_order=True)])
    facts = scan(warehouse, "facts", published.tables.get("facts"))
    rest = facts.filter(~pl.col("trace_id").is_in(list(ids)).fill_null(value=False))
    tables.overwrite("facts", rest.collect_batches(maintain_order=True))
    return tables.versions


def _compact_facts(warehouse: Path, tables: DeltaTables) -> int:
    """Keep the facts of content that the ledger names, in few files."""
    ledger = scan(warehouse, "files", tables.versions.get("files")).select("file_id").collect()
    facts = scan(warehouse, "facts", tables.versions.get("facts"))
    needed = facts.filter(pl.col("file_id").is_in(ledger.get_column("file_id").implode()))
    before, after = (each.select(pl.len()).collect().item() for each in (facts, needed))
    if before > after or len(files_of(warehouse, "facts", tables.versions.get("facts"))) > 1:
        tables.overwrite("facts", needed.collect_batches(maintain_order=True))
    return before - after


def _drop_raw(warehouse: Path, tables: DeltaTables, runs: pl.Series) -> int:
    """Drop the JSON of the rows that old runs refused."""
    rejects = scan(warehouse, "rejects", tables.versions.get("rejects")).collect()
    old = pl.col("run_id").is_in(runs.implode())
    dropping = old & pl.col("raw").is_not_null() & (pl.col("raw") != _DROPPED)
    dropped = rejects.select(dropping.sum()).item()
    raw = pl.when(dropping).then(pl.lit(_DROPPED)).otherwise("raw")
    if dropped:
        tables.overwrite("rejects", [rejects.with_columns(raw=raw)])
    return dropped


def _remove_files(
    warehouse: Path, names: Sequence[str] | dict[str, Any], manifests: list[dict[str, int]]
) -> int:
    return sum(
        remove_unneeded(warehouse, name, {each[name] for each in manifests if name in each})
        for name in names
    )


def _remove_vectors(warehouse: Path, published: Manifest) -> int:
    """Remove the vectors that no published score's encoder made, and those of unknown texts."""
    scores = scan(warehouse, "scores", published.tables.get("scores")).select(
        pl.col("encoder_id").unique()
    )
    encoders = scores.collect().get_column("encoder_id").to_list()
    removed = 0
    for folder in Layout(warehouse).all_vectors.glob("*"):
        if folder.name not in encoders:
            removed += len(VectorStore(folder))
            shutil.rmtree(folder)
    return removed + _keep_vectors(warehouse, published)


def _keep_vectors(warehouse: Path, published: Manifest) -> int:
    """Keep only the vectors of texts that an accepted row of known content has."""
    facts = scan(warehouse, "facts", published.tables.get("facts")).filter(
        pl.col("reasons").list.len() == 0
    )
    hashes = facts.select(pl.col("text_hash").unique()).collect().get_column("text_hash")
    return sum(VectorStore(each).keep(hashes) for each in Layout(warehouse).all_vectors.glob("*"))
