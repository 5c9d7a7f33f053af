"""Questions to a warehouse, and what Polars makes of the scores by itself."""

import math
from datetime import timedelta
from itertools import pairwise
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


def assert_same(table: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Equal to 1e-12, whatever order the rows of the second stand in."""
    exact = [name for name, kind in table.schema.items() if not kind.is_float()]
    keys = [*exact, *(pl.col(name).round(9) for name in table.columns if name not in exact)]
    assert table.columns == wanted.columns
    assert len(table) == len(wanted)
    left, right = (frame.sort(keys, nulls_last=True) for frame in (table, wanted))
    for name, kind in table.schema.items():
        if kind.is_float():
            for a, b in zip(left[name], right[name], strict=True):
                assert a is b is None or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12), name
        else:
            assert left[name].to_list() == right[name].to_list(), name


def day() -> pl.Expr:
    return pl.col("created_at").dt.convert_time_zone("UTC").dt.date()


def gaps(scores: pl.DataFrame) -> pl.DataFrame:
    days = sorted(set(scores.select(day()).to_series()))
    return pl.DataFrame(
        [
            {
                "first_day": a + timedelta(1),
                "last_day": b - timedelta(1),
                "days": (b - a).days - 1,
            }
            for a, b in pairwise(days)
            if b - a > timedelta(1)
        ],
        schema={"first_day": pl.Date, "last_day": pl.Date, "days": pl.Int64},
    )
