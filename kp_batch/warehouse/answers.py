"""Writes a query's answer: laid out for reading, as CSV, or as JSON."""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import duckdb

from kp_batch.errors import KpBatchError
from kp_batch.text import printable_lines
from kp_batch.warehouse.answer_text import answer_text

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_ROWS_AT_ONCE = 10_000


def write_answer(
    connection: duckdb.DuckDBPyConnection, query: str, output_format: str, out: IO[str], width: int
) -> None:
    """Write the answer to a query; of several statements, the answer to each that has one.

    Args:
        connection: the catalog.
        query: SQL over its views.
        output_format: table (as line where it is too wide), line (a line for each value), csv or
            json (a list of objects), which hold one answer.
        out: where the answer goes; control characters are written out for reading, and wherever
            `out` is a terminal.
        width: of a table, in characters.

    Raises:
        KpBatchError: DuckDB refuses the query, and the message is its own; or csv or json would
            hold several answers.
    """
    try:
        statements = connection.extract_statements(query)
        if output_format in _WRITERS:
            safe = _Terminal(out) if out.isatty() else out
            _write_data(connection, statements, output_format, safe)
        else:
            _write_text(connection, statements, None if output_format == "line" else width, out)
    except duckdb.Error as error:
        raise KpBatchError(str(error).expandtabs(2)) from error


def _write_text(
    connection: duckdb.DuckDBPyConnection,
    statements: Sequence[duckdb.Statement],
    width: int | None,
    out: IO[str],
) -> None:
    between = ""
    for statement in statements:
        answer = connection.sql(statement)
        if _has_answer(statement):
            out.write(f"{between}{answer_text(answer, width)}")
            between = "\n"


def _write_data(
    connection: duckdb.DuckDBPyConnection,
    statements: Sequence[duckdb.Statement],
    output_format: str,
    out: "SupportsWrite[str]",
) -> None:
    answers = sum(map(_has_answer, statements))
    if answers > 1:
        raise KpBatchError(
            f"{output_format} holds one answer, and these statements have {answers}; "
            "ask one at a time, or with --format table"
        )
    for statement in statements:
        cursor = connection.execute(statement)
        if _has_answer(statement):
            _WRITERS[output_format](cursor, out)


def _has_answer(statement: duckdb.Statement) -> bool:
    """Whether it reads; what others return says that they are done, or counts rows."""
    reads = statement.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT]
    return reads or statement.type is duckdb.StatementType.MULTI  # PIVOT


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
    before = "["
    for line in lines:
        out.write(f"{before}\n{line}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _columns(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(column[0]) for column in cursor.description or []]


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by null, however deep they stand."""
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


_WRITERS = {"csv": _write_csv, "json": _write_json}
