"""Warehouses that the kp_batch before recorded scores left: none of their traces is lost."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from kp_batch.config import RescoreConfig
from kp_batch.contracts import PARTITIONED_BY, TABLES, arrow_schema
from kp_batch.errors import ArchiveError, WarehouseError
from kp_batch.operations.forget import forget
from kp_batch.operations.verify import verify
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.staging import Staging
from kp_batch.warehouse import catalog
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import publish, rebuild, writing
from kp_batch.warehouse.reader import is_current
from kp_batch.warehouse.versions import additions
from tests.answers import ask
from tests.archives import trace, write_jsonl

CAME = "recorded_score"
WITH_IT = ("scores", "facts")


def config(folder: Path, **changes: Any) -> RescoreConfig:
    where = {"archive": (str(folder / "archive"),), "warehouse": folder / "warehouse"}
    return RescoreConfig(**where, embedder="hashing", **changes)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A warehouse of three days, of which one file is gone by now."""
    for day in range(3):
        rows = [
            trace(
                id=f"t{day}{n}",
                created_at=f"2026-01-{5 + day:02d}T0{n}:00:00Z",
                objective=f"Do {n}",
                quality_score=n / 10,
            )
            for n in range(3)
        ]
        write_jsonl(tmp_path / "archive" / f"{day}.jsonl", rows)
    rescore_archive(config(tmp_path))
    as_earlier(tmp_path / "warehouse")
    (tmp_path / "archive" / "2.jsonl").unlink()
    return tmp_path


def as_earlier(warehouse: Path) -> None:
    """Take the column out of the tables, and the version of the facts out of the file_ids."""
    before = require_manifest(warehouse)
    tables = dict(before.tables)
    for name in (*WITH_IT, "files"):
        folder = warehouse / name
        paths = additions(warehouse, name, tables[name])["path"]
        added = [rewritten(folder, path) for path in paths]
        fields = [each for each in arrow_schema(TABLES[name]) if each.name != CAME]
        schema = Schema.from_arrow(pa.schema(fields))
        table = DeltaTable(str(folder))
        table.create_write_transaction([*added], "overwrite", schema, PARTITIONED_BY.get(name))
        tables[name] = DeltaTable(str(folder)).version()
    publish(warehouse, replace(before, tables=tables))


def rewritten(folder: Path, path: str) -> AddAction:
    rows = pl.read_parquet(folder / path, hive_partitioning=False).drop(CAME, strict=False)
    if "file_id" in rows.columns:
        rows = rows.with_columns(pl.col("file_id").str.replace("-v[0-9]+$", "-v1"))
    made = Path(path).with_name(f"{uuid4().hex}.parquet")
    rows.write_parquet(folder / made)
    name, _, value = made.parent.name.partition("=")
    return AddAction(
        path=str(made),
        size=(folder / made).stat().st_size,
        partition_values={name: value} if value else {},
        modification_time=0,
        data_change=True,
        stats=f'{{"numRecords":{len(rows)}}}',
    )


def recorded(warehouse: Path) -> Sequence[tuple[str, float | None]]:
    return ask(warehouse, f"SELECT trace_id, {CAME} FROM scores ORDER BY ALL").rows()


ALL = [(f"t{day}{n}", n / 10) for day in range(3) for n in range(3)]


def test_its_scores_are_read_with_nulls_for_what_came_since(earlier: Path) -> None:
    assert recorded(earlier / "warehouse") == [(name, None) for name, _ in ALL]


def test_a_run_takes_what_came_since_and_keeps_what_is_gone(earlier: Path) -> None:
    warehouse = earlier / "warehouse"
    before = ask(warehouse, f"SELECT * EXCLUDE ({CAME}, run_id) FROM scores ORDER BY trace_id")
    summary = rescore_archive(config(earlier))
    assert (summary.counts.replayed, summary.counts.restated) == (0, 6)
    gone = [(name, None if name[1] == "2" else at) for name, at in ALL]
    assert recorded(warehouse) == gone
    now = ask(warehouse, f"SELECT * EXCLUDE ({CAME}, run_id) FROM scores ORDER BY trace_id")
    assert now.equals(before)
    assert rescore_archive(config(earlier)).run_id is None


def test_all_files_of_a_table_have_its_columns_then(earlier: Path) -> None:
    rescore_archive(config(earlier))
    tables = require_manifest(earlier / "warehouse").tables
    for name in WITH_IT:
        for path in additions(earlier / "warehouse", name, tables[name])["path"]:
            assert CAME in pl.read_parquet_schema(earlier / "warehouse" / name / path)
        table = DeltaTable(str(earlier / "warehouse" / name), version=tables[name])
        assert CAME in {each.name for each in table.schema().fields}


def test_a_run_that_fails_leaves_the_tables_as_they_were(earlier: Path) -> None:
    write_jsonl(earlier / "archive" / "3.jsonl", [trace(id="new"), trace(steps=[])])
    with pytest.raises(ArchiveError, match="rejected"):
        rescore_archive(config(earlier, max_reject_share=0))
    assert recorded(earlier / "warehouse") == [(name, None) for name, _ in ALL]
    (earlier / "archive" / "3.jsonl").unlink()
    rescore_archive(config(earlier))
    assert recorded(earlier / "warehouse")[:6] == ALL[:6]


def test_forgetting_and_a_copy_of_the_catalog_work_before_any_run(earlier: Path) -> None:
    warehouse = earlier / "warehouse"
    forget(warehouse, ["t00"])
    assert recorded(warehouse) == [(name, None) for name, _ in ALL[1:]]
    rescore_archive(config(earlier))
    assert recorded(warehouse)[:5] == ALL[1:6]


def test_a_catalog_of_other_sql_is_read_past_and_made_anew_by_who_writes(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = earlier / "warehouse"
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "catalog_id", lambda: "another")
        rebuild(warehouse)
    path = warehouse / "kp.duckdb"
    manifest = require_manifest(warehouse)
    assert not is_current(warehouse, manifest)
    before = path.read_bytes()
    assert len(recorded(warehouse)) == len(ALL)
    assert path.read_bytes() == before
    with writing(warehouse, wait=False):
        assert is_current(warehouse, manifest)


def test_runs_that_fail_leave_no_copies(earlier: Path) -> None:
    warehouse = earlier / "warehouse"
    before = {name: len([*(warehouse / name).rglob("*.parquet")]) for name in WITH_IT}
    write_jsonl(earlier / "archive" / "3.jsonl", [trace(id="new"), trace(steps=[])])
    for _ in range(2):
        with pytest.raises(ArchiveError, match="rejected"):
            rescore_archive(config(earlier, max_reject_share=0))
    now = {name: len([*(warehouse / name).rglob("*.parquet")]) for name in WITH_IT}
    assert now == before


def test_verify_takes_no_column_that_came_since_for_wrong(earlier: Path) -> None:
    staging = Staging(earlier / "staging")
    staging.make()
    found = verify(earlier / "warehouse", staging, traces=9, seed=1, embed=False)
    assert (found.checked, found.wrong) == (6, "")


def test_the_two_formats_before_are_read_and_the_one_before_those_refused(earlier: Path) -> None:
    warehouse = earlier / "warehouse"
    (warehouse / "kp.duckdb").unlink()
    for version in (8, 7, 6):
        manifest = replace(require_manifest(warehouse), salt=None)
        told = json.loads(manifest.as_json())
        told |= {"format_version": version, "publication": manifest.publication_in(version)}
        (warehouse / "manifest.json").write_text(json.dumps(told))
        if version > 6:
            assert len(recorded(warehouse)) == len(ALL)
    with pytest.raises(WarehouseError, match="has format 6"):
        recorded(warehouse)
