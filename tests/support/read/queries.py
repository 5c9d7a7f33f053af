"""Questions to a warehouse."""

from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.warehouse.reader import connect


def ask(warehouse: Path, query: str, zone: str = "UTC") -> pl.DataFrame:
    with connect(warehouse) as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        return pl.DataFrame(connection.sql(query).to_arrow_table())


def ask_rows(warehouse: Path, query: str) -> list[tuple[Any, ...]]:
    with connect(warehouse) as connection:
        return connection.execute(query).fetchall()
