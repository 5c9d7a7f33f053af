"""Runs of a test, and what they leave."""

from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import files_of


def config(tmp_path: Path, *archive: Path, **settings: Any) -> RescoreConfig:
    usual = {"warehouse": tmp_path / "warehouse", "embedder": "hashing"}
    return RescoreConfig.model_validate({"archive": tuple(map(str, archive)), **usual, **settings})


def two_nights(folder: Path) -> None:
    """Two runs over a file each, and a file of a day between theirs that a third one has to read.

    Each file has a row that is rejected.
    """
    for name, number, day in (("a", 1, 5), ("b", 2, 7), ("c", 3, 6)):
        at = f"2026-01-{day:02d}T08:00:00Z"
        row = trace(id=f"kp:trace:{number}", created_at=at, objective=f"fix {number}")
        write_jsonl(folder / "archive" / f"{name}.jsonl", [row, trace(success=None)])
        if name != "c":
            run_night(folder)


def run_night(folder: Path, **settings: Any) -> None:
    rescore_archive(config(folder, folder / "archive", max_reject_share=1, **settings))


def scores(settings: RescoreConfig) -> pl.DataFrame:
    with connect(settings.warehouse) as connection:
        table = connection.sql("SELECT * EXCLUDE (run_id) FROM scores ORDER BY trace_id")
        return pl.DataFrame(table.to_arrow_table())


def facts(settings: RescoreConfig) -> pl.DataFrame:
    manifest = read_manifest(settings.warehouse)
    assert manifest
    return pl.read_parquet(files_of(settings.warehouse, "facts"))


def least(**settings: Any) -> RescoreConfig:
    return RescoreConfig.model_validate({"archive": ("a",), "warehouse": Path("w"), **settings})
