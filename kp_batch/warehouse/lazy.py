"""The rows of a view as a lazy frame of Polars."""

from collections.abc import Iterator

import polars as pl
from polars.io.plugins import register_io_source

from kp_batch.duck import columns, statement
from kp_batch.warehouse.reader import connect_to
from kp_batch.warehouse.snapshot import PublishedSnapshot, frame_of

_ROWS = 65_536  # of a batch


def lazy_view(snapshot: PublishedSnapshot, name: str) -> pl.LazyFrame:
    """The rows of a view of some tables: DuckDB reads them when they are collected.

    It reads the columns alone that are asked for. Runs that are published later change nothing.

    Args:
        snapshot: the tables.
        name: of the view.

    Returns:
        Times are Datetime("us", "UTC"). Collected, it raises a polars.exceptions.ComputeError where
        the tables were removed meanwhile.

    Raises:
        WarehouseError: they cannot be read.
    """

    def batches(
        names: list[str] | None, predicate: pl.Expr | None, most: int | None, rows: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = columns(names) if names else statement("*")
        query = statement("SELECT $wanted FROM $name", wanted=wanted, name=name)
        if most is not None:
            query = statement("$query LIMIT $most", query=query, most=most)
        with connect_to(snapshot) as connection:
            for batch in connection.sql(query).to_arrow_reader(rows or _ROWS):
                frame = pl.DataFrame(batch)
                yield frame if predicate is None else frame.filter(predicate)

    with connect_to(snapshot) as connection:
        schema = frame_of(connection.sql(statement("FROM $name LIMIT 0", name=name))).schema
    return register_io_source(batches, schema=schema, is_pure=True)
