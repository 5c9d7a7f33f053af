"""Publications without a run, and all that is read of them."""

from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from kp_batch.schemas import PROFILES, VIEWS
from kp_batch.warehouse.delta import DeltaTables
from kp_batch.warehouse.manifest import Manifest, read_manifest
from kp_batch.warehouse.publication import publish


def profile(name: str) -> pl.DataFrame:
    row = [name, name, 0.25, 0.25, 0.25, 0.25, [None]]
    return pl.DataFrame([row], schema=PROFILES, orient="row")


def publish_profile(warehouse: Path, name: str) -> None:
    published = read_manifest(warehouse) or Manifest({"threshold": 0.75}, {})
    tables = DeltaTables(warehouse, published.tables, "a-run")
    tables.overwrite("profiles", profile(name))
    publish(warehouse, Manifest({"threshold": 0.75}, tables.versions))


Tables = dict[str, list[tuple[Any, ...]]]


def tables(connection: duckdb.DuckDBPyConnection) -> Tables:
    """All rows of all views."""
    return {name: connection.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in VIEWS}
