"""Runs of a test, and what they leave."""

from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.warehouse.delta import files_of
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.reader import connect


def config(tmp_path: Path, *archive: Path, **settings: Any) -> RescoreConfig:
    settings = {"warehouse": tmp_path / "warehouse", "embedder": "hashing"} | settings
    return RescoreConfig(archive=tuple(map(str, archive)), **settings)


def ask(settings: RescoreConfig, query: str) -> list[tuple[Any, ...]]:
    with connect(settings.warehouse) as connection:
        return connection.execute(query).fetchall()


def scores(settings: RescoreConfig) -> pl.DataFrame:
    with connect(settings.warehouse) as connection:
        table = connection.sql("SELECT * EXCLUDE (run_id) FROM scores ORDER BY trace_id")
        return pl.DataFrame(table.to_arrow_table())


def facts(settings: RescoreConfig) -> pl.DataFrame:
    manifest = read_manifest(settings.warehouse)
    assert manifest
    return pl.read_parquet(files_of(settings.warehouse, "facts", manifest.tables["facts"]))


def least(**settings: Any) -> RescoreConfig:
    return RescoreConfig(**{"archive": ("a",), "warehouse": Path("w"), **settings})
