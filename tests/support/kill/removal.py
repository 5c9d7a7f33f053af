"""Warehouses of several runs, from which something is removed, and the kill in between."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import WarehouseError
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.schemas import TABLES, VIEWS
from kp_batch.warehouse import snapshot
from kp_batch.warehouse.manifest import Manifest, read_manifest
from kp_batch.warehouse.unneeded import Unneeded
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.publications import files_of
from tests.support.make.runs import config
from tests.support.oracle.tables import tables
from tests.support.read.folders import keep


class Killed(BaseException):
    """As SIGKILL: nothing that follows is done."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def said(number: int | str, words: str, hour: int, **more: Any) -> dict[str, Any]:
    """A trace whose text is `words words`."""
    own = {"steps": [step("thought", words)], "created_at": f"2026-01-05T{hour:02d}:00:00Z"}
    return trace(**{"id": f"kp:trace:{number}", "objective": words, **own, **more})


def refused(number: int | str, **more: Any) -> dict[str, Any]:
    return said(number, "refused words", 8, **{"confidence": 7.0, **more})


def settings_of(folder: Path, **changes: Any) -> RescoreConfig:
    return config(folder, folder / "archive", **{"max_reject_share": 1, **changes})


def write(folder: Path, content: dict[str, list[Any]], without: Iterable[str] = ()) -> None:
    """The archive; a row that is left out leaves a blank line, so that the others keep theirs."""
    for name, rows in content.items():
        lines = [b"" if row["id"] in without else row for row in rows]
        write_jsonl(folder / "archive" / name, lines)


def published(warehouse: Path) -> Manifest:
    manifest = read_manifest(warehouse)
    assert manifest
    return manifest


def parquet(warehouse: Path) -> set[Path]:
    return {path for name in TABLES for path in (warehouse / name).rglob("*.parquet")}


def needed(warehouse: Path) -> set[Path]:
    """The files of all that is published."""
    return {path for name in published(warehouse).tables for path in files_of(warehouse, name)}


def can_be_read(warehouse: Path, run_id: str) -> bool:
    """Whether all rows as of a run are there; no catalog is built to tell it."""
    try:
        tables_then = snapshot.published(warehouse, run_id)
        return all(tables_then.scan(name).collect().width for name in VIEWS)
    except WarehouseError:
        return False


def of_a_full_run(settings: RescoreConfig) -> dict[str, pl.DataFrame]:
    """The tables of a full run over the archive as it is, in a new warehouse."""
    warehouse = settings.warehouse.with_name("reference")
    shutil.rmtree(warehouse, ignore_errors=True)
    rescore_archive(settings.model_copy(update={"warehouse": warehouse}))
    return tables(warehouse)


def assert_same(tables_found: dict[str, pl.DataFrame], wanted: dict[str, pl.DataFrame]) -> None:
    for name, each in wanted.items():
        assert tables_found[name].equals(each), f"{name}\n{tables_found[name]}\n{each}"


def left_by_three_runs(folder: Path, older: Any, newer: Any, **last: Any) -> Path:
    """What runs over two archives and one more with another setting leave; see `restore`."""
    write(folder, older)
    rescore_archive(settings_of(folder))
    write(folder, newer)
    rescore_archive(settings_of(folder))
    rescore_archive(settings_of(folder, **last))
    keep(folder)
    return folder


def killed_in_removal(warehouse: Path) -> None:
    """Leave a warehouse as a `forget` does that is killed while it removes files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unneeded, "remove", killed)
        with pytest.raises(Killed):
            forget(warehouse, ["kp:trace:1"])
