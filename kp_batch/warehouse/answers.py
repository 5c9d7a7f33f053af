"""Writes a query's answer as a table, as CSV, or as JSON."""

import csv
import json
import math
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, cast

import duckdb

from kp_batch.errors import KpBatchError
from kp_batch.text import printable_lines

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_ROWS_AT_ONCE = 10_000
_ROWS_SHOWN = 100  # in a table; csv and json have all rows


def write_answer(
    connection: duckdb.DuckDBPyConnection, query: str, output_format: str, out: IO[str], width: int
) -> None:
    """Write the answer to a query.

    Args:
        connection: the catalog.
        query: SQL over its views.
        output_format: table, csv or json (a list of objects).
        out: where the answer goes; control characters are written out in a table, and wherever
            `out` is a terminal.
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
    """A terminal to which control characters are written out, so that it obeys none."""

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
    """Replace NaN and infinities, which JSON does not have, by null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_WRITERS = {"csv": _write_csv, "json": _write_json}
