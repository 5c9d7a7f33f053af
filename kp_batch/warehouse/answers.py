"""Questions to what is published."""

import csv
import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any, cast

import duckdb

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.text import one_line, printable_lines

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

CATALOG = "kp.duckdb"
_ROWS_AT_ONCE = 10_000
_ROWS_SHOWN = 100  # of a table; csv and json give all


def open_catalog(warehouse: Path) -> duckdb.DuckDBPyConnection:
    """The warehouse's catalog as it is now, opened for reading.

    A copy of the file, since whoever holds the file itself open for writing, which is DuckDB's
    default, locks all others out.

    Raises:
        WarehouseError: it cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:  # an open file outlives its name
        try:
            copy = shutil.copyfile(warehouse / CATALOG, Path(folder) / CATALOG)
            return duckdb.connect(str(copy), read_only=True)
        except (OSError, duckdb.Error) as error:
            raise WarehouseError(
                f"{warehouse / CATALOG} cannot be read ({one_line(str(error))}); remove it "
                f"and run: {rebuilding(warehouse)}"
            ) from error


def connect(warehouse: Path, as_of: str | None = None) -> duckdb.DuckDBPyConnection:
    """The warehouse's catalog for questions, in UTC.

    Args:
        warehouse: the folder of the tables.
        as_of: a run_id: the tables as that run left them; None: as they are published now.

    Raises:
        WarehouseError: there is none, it cannot be read, the folder was moved since it was made, or
            what the run left is not there any more.
    """
    if not (warehouse / CATALOG).exists():
        raise WarehouseError(
            f"no {CATALOG} in {warehouse}; run an archive first, or if it was lost: "
            f"{rebuilding(warehouse)}"
        )
    connection = open_catalog(warehouse)
    [(made_for,)] = connection.execute("SELECT warehouse FROM manifest").fetchall()
    if Path(made_for) != warehouse.resolve():
        connection.close()
        raise WarehouseError(
            f"the warehouse was moved here from {made_for}; run: {rebuilding(warehouse)}"
        )
    if as_of is not None:
        from kp_batch.warehouse.reader import open_as_of  # it reads Delta's log

        with connection as now:
            connection = open_as_of(warehouse, as_of, now)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def rebuilding(warehouse: Path) -> str:
    """The command that makes the catalog anew."""
    return f"kp-batch catalog --warehouse {quote(str(warehouse))}"


def write_answer(
    connection: duckdb.DuckDBPyConnection, query: str, output_format: str, out: IO[str], width: int
) -> None:
    """Answer a query.

    Args:
        connection: the catalog.
        query: SQL over its views.
        output_format: table, csv or json (a list of objects).
        out: where it goes; a terminal, and a table, get control characters written out.
        width: of the table, in characters.

    Raises:
        KpBatchError: DuckDB refuses the query; the message is its own.
    """
    try:
        if output_format != "table":
            _WRITERS[output_format](
                connection.execute(query), _Terminal(out) if out.isatty() else out
            )
        elif answer := cast("duckdb.DuckDBPyRelation | None", connection.sql(query)):
            with redirect_stdout(StringIO()) as shown:
                answer.show(max_width=width, max_rows=_ROWS_SHOWN)
            out.write(printable_lines(shown.getvalue()))
    except duckdb.Error as error:
        raise KpBatchError(str(error)) from error


class _Terminal:
    """A terminal that obeys nothing of what is written to it."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(printable_lines(text))


def _write_csv(cursor: duckdb.DuckDBPyConnection, out: "SupportsWrite[str]") -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_columns(cursor))
    writer.writerows(_rows(cursor))


def _write_json(cursor: duckdb.DuckDBPyConnection, out: "SupportsWrite[str]") -> None:
    columns = _columns(cursor)
    if len(set(columns)) < len(columns):
        raise KpBatchError(f"an object holds a name once; name the columns apart: {columns}")
    objects = (dict(zip(columns, map(_finite, row), strict=True)) for row in _rows(cursor))
    lines = (json.dumps(each, ensure_ascii=False, default=str) for each in objects)
    out.write("[")
    for number, line in enumerate(lines):
        out.write(f"{',' if number else ''}\n{line}")
    out.write("\n]\n")


def _columns(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(column[0]) for column in cursor.description or []]


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_WRITERS = {"csv": _write_csv, "json": _write_json}
