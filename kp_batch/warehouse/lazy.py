"""The rows of a view as a lazy frame of Polars."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import duckdb
import polars as pl

from kp_batch.schemas import VIEWS
from kp_batch.text import parse_duration
from kp_batch.warehouse.catalog import create_views
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.snapshot import PublishedSnapshot, parquet_relation


def lazy_view(snapshot: PublishedSnapshot, name: str) -> pl.LazyFrame:
    """Scan the files of a view that shows a table: Polars reads what a query needs of them.

    Later runs change nothing, because they write other files.

    Args:
        snapshot: the tables.
        name: the name of a view other than `runs`.

    Returns:
        Times are Datetime("us", "UTC"). When it is collected, Polars raises FileNotFoundError if a
            vacuum or a forget has removed the files.

    Raises:
        WarehouseError: the table cannot be opened.
    """
    rows = snapshot.scan(name)
    if name == "scores":
        rows = rows.with_columns(
            meets_threshold=pl.col("score") >= snapshot.manifest.threshold,
            cache_warming_up=warming_up(snapshot.manifest.settings),
        )
    return rows.select(_columns(name))


def warming_up(settings: Mapping[str, Any]) -> pl.Expr:
    """Whether a trace's cache was warming up, by the settings that a warehouse keeps.

    The views have the same condition in SQL, see `catalog`.
    """
    if settings.get("embedder") in {None, "none"}:
        return pl.lit(value=False)
    is_filling = pl.col("cached_vectors") < settings["cache_size"]
    ttl, time = parse_duration(settings["ttl"]), pl.col("created_at")
    return is_filling if ttl is None else is_filling & (time - ttl < time.min().over("cache_group"))


@cache
def _columns(name: str) -> list[str]:
    """Return the columns of a view, in their order, which only its SQL defines."""
    with duckdb.connect() as connection:
        rows = {view: parquet_relation(view, []) for view in VIEWS}
        create_views(connection, Manifest({}, {}), rows)
        return connection.table(name).columns
