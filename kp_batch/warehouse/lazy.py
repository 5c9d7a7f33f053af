"""The rows of a view as a lazy frame of Polars."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import duckdb
import polars as pl
from polars.io.plugins import register_io_source

from kp_batch.duck import columns, statement
from kp_batch.errors import WarehouseError, explain_mendable
from kp_batch.schemas import TABLES
from kp_batch.warehouse.bucket.location import shown
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
        Times are Datetime("us", "UTC"). Collected, it raises a WarehouseError where the tables were
        removed meanwhile; Polars' streaming engine makes a ComputeError of it, of the same words.

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
        with told_if_gone(snapshot, "frame"), connect_to(snapshot) as connection:
            for batch in connection.sql(query).to_arrow_reader(rows or _ROWS):
                frame = pl.DataFrame(batch)
                yield frame if predicate is None else frame.filter(predicate)

    with connect_to(snapshot) as connection:
        schema = frame_of(connection.sql(statement("FROM $name LIMIT 0", name=name))).schema
    return register_io_source(batches, schema=schema, is_pure=True)


@contextmanager
def told_if_gone(snapshot: PublishedSnapshot, user: str) -> Generator[None]:
    """Say what became of tables that cannot be read any more: no command is there to do it.

    Args:
        snapshot: the tables.
        user: what was made to read them, such as a frame.

    Raises:
        KpBatchError: they are gone, or the disk, say, is at fault.
    """
    try:
        yield
    except (WarehouseError, duckdb.Error) as error:
        mendable = _gone(snapshot, user) if _are_gone(snapshot) else explain_mendable(error)
        if mendable is None or mendable is error:
            raise
        raise mendable from error


def _gone(snapshot: PublishedSnapshot, user: str) -> WarehouseError:
    return WarehouseError(
        f"the tables of this {user} are gone from {shown(snapshot.warehouse)}: since it was made, "
        "they were moved, or a vacuum or a forget removed them; make it again",
        code="file_gone",
    )


def _are_gone(snapshot: PublishedSnapshot) -> bool:
    try:
        return not all(path.exists() for name in TABLES for path in snapshot.files(name))
    except WarehouseError:  # of the table's log
        return True
