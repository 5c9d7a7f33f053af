"""The answer to a query: as a table, a line for each value, CSV, JSON, or a frame."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from decimal import Decimal
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, cast

import duckdb

from kp_batch.duck import SQL, frame_of, identifier, joined, statement
from kp_batch.errors import KpBatchError
from kp_batch.text import Terminal, count_of, drawn, padded, printable, printable_lines, width
from kp_batch.warehouse.questions import questions

if TYPE_CHECKING:
    import polars as pl
    from _typeshed import SupportsWrite

_ROWS_AT_ONCE = 10_000
# DuckDB's errors when a macro is named like a view, or a view is called like a macro.
_NOT_FOUND = re.compile(r"""(?:name|column|Function) "?(\w+)"? (?:does|was|not|is)""")
# Types that Polars cannot read, or reads as bytes or without the zone.
_NOT_OF_POLARS = re.compile(r"\b(INTERVAL|UNION|BIT|BIGNUM|VARINT|TIME WITH TIME ZONE)\b")
_OTHERS = ("Did you mean ", "Candidate bindings: ")
_TO_BE_QUOTED = re.compile(r'[",\r\n]')
_ROWS_SHOWN = 100
_ROWS_FETCHED = 5_000  # up to so many are counted at once; more would take memory
_ANY_WIDTH = 10**6  # characters; with less, DuckDB hides columns that do not fit
# To 4 decimals, or below 0.1 to 4 significant digits, so that no number becomes 0.
_ROUNDED = """if(isfinite($number) AND $number <> 0,
   round($number, greatest(4, 3 - floor(log10(abs($number))))::INTEGER), $number)"""
_READABLE = frozenset(range(32, 127)) - set(b"\\'\"")  # bytes


def write_answer(
    connection: duckdb.DuckDBPyConnection, query: str, output_format: str, out: IO[str], room: int
) -> bool:
    """Write the answer to a query; if it has several statements, each answer of theirs.

    Args:
        connection: the catalog.
        query: SQL over its views.
        output_format: table (line if it is too wide), line (a line for each value), csv, or json (a
            list of objects); csv and json have one answer.
        out: where to write. Control characters are escaped in a table and in lines, and always if
            `out` is a terminal.
        room: the greatest width of a table, in characters.

    Returns:
        Whether any answer has a row.

    Raises:
        KpBatchError: DuckDB refuses the query, with its message; or csv or json would have several
            answers.
    """
    try:
        statements = connection.extract_statements(query)
        if output_format in _WRITERS:
            safe = Terminal(out) if out.isatty() else out
            return _write_data(connection, statements, output_format, safe)
        return _write_text(connection, statements, None if output_format == "line" else room, out)
    except duckdb.Error as error:
        raise KpBatchError(_refusal(str(error).expandtabs(2))) from error


def frame_answer(connection: duckdb.DuckDBPyConnection, query: str) -> "pl.DataFrame":
    """Return the answer to a query as a frame, with exact numbers.

    Args:
        connection: the catalog.
        query: SQL over its views: one statement, or several of which only the last has an answer.

    Raises:
        KpBatchError: DuckDB refuses the query, with its message; or it has no answer, several, two
            columns of one name, or a type that Polars lacks.
    """
    try:
        statements = connection.extract_statements(query)
        if [*map(_has_answer, statements)] != [False] * (len(statements) - 1) + [True]:
            raise KpBatchError("a frame holds one result: run one statement at a time")
        for before in statements[:-1]:
            connection.execute(before)
        answer = connection.sql(statements[-1])
        _check_named_apart(answer.columns)
        _check_types(answer)
        return frame_of(answer)
    except duckdb.Error as error:
        raise KpBatchError(_refusal(str(error).expandtabs(2))) from error


def register_frames(connection: duckdb.DuckDBPyConnection, frames: Mapping[str, Any]) -> None:
    """Make frames tables of a connection, by their names.

    Args:
        connection: the catalog.
        frames: frames of polars (also lazy) or pandas, and tables of Arrow.

    Raises:
        KpBatchError: a name is that of a view, or a value is not a frame.
    """
    views = {
        name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()
    }
    for name, frame in frames.items():
        if name.lower() in views:
            raise KpBatchError(f"{name} is a view of the warehouse; give the frame another name")
        table = frame.collect() if hasattr(frame, "collect") else frame
        if not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "to_records")):
            kind = type(frame).__name__
            raise KpBatchError(f"{name} is of type {kind}; give a frame of polars, pandas or Arrow")
        connection.register(name, table)


def _check_types(answer: duckdb.DuckDBPyRelation) -> None:
    """Refuse types that Polars cannot read, or reads as other values."""
    for name, dtype in zip(answer.columns, map(str, answer.types), strict=True):
        if lacking := _NOT_OF_POLARS.search(dtype):
            instead = (
                "epoch(…), its seconds" if lacking[0] == "INTERVAL" else "…::VARCHAR, its text"
            )
            raise KpBatchError(f"{name} is of type {dtype}, which Polars lacks; select {instead}")


def _refusal(text: str) -> str:
    """Return DuckDB's message; if a question's name was not found, add how to ask it."""
    message = text.removeprefix("Invalid Input Error: ")  # from a question that refuses a value
    if "to DECIMAL(38,0)" in message:  # see `frame_of`
        instead = "…::VARCHAR, its text"
        return f"{message}\nask for {instead}"
    named = _NOT_FOUND.search(message)
    asked = next((known for known in questions() if named and known.name == named[1]), None)
    if asked is None:
        return message
    lines = (line for line in message.splitlines() if not line.startswith(_OTHERS))
    return "\n".join([*lines, f"ask {asked.call} as in: {asked.example}"])


def _write_text(
    connection: duckdb.DuckDBPyConnection,
    statements: Sequence[duckdb.Statement],
    room: int | None,
    out: IO[str],
) -> bool:
    separator, has_rows = "", False
    for query in statements:
        answer = connection.sql(query)
        if _has_answer(query):
            text, rows = _answer_text(answer, room)
            out.write(drawn(f"{separator}{text}", out))
            separator, has_rows = "\n", has_rows or rows > 0
    return has_rows


def _answer_text(answer: duckdb.DuckDBPyRelation, room: int | None) -> tuple[str, int]:
    """Lay out an answer's first rows with rounded numbers; return the text and their number.

    It is a table. If that is wider than `room`, or `room` is None, it has a line for each value.
    """
    first = answer.limit(_ROWS_FETCHED + 1).materialize()
    fetched = len(first)
    is_cut = fetched > _ROWS_SHOWN
    shown = _rounded(first.limit(_ROWS_SHOWN), answer.columns)
    laid_out = len(shown)
    rows = count_of(len(answer) if fetched > _ROWS_FETCHED else fetched, "row")
    cut = f", the first {_ROWS_SHOWN} of them shown; --format csv or json has all" if is_cut else ""
    if room is not None and (table := _table(shown)).index("\n") <= room:
        return (f"{table}{rows}{cut}\n" if is_cut else table), laid_out
    return f"{_lines(shown, answer.columns)}{rows}{cut}\n", laid_out


def _rounded(shown: duckdb.DuckDBPyRelation, columns: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """Round the numbers of an answer; by position, because two columns may have one name."""
    values = joined(
        statement(
            "$value AS $name", value=_rounded_value(str(kind), position), name=identifier(name)
        )
        for position, (kind, name) in enumerate(zip(shown.types, columns, strict=True), 1)
    )
    return shown.project(str(values))  # a subclass of str is refused


def _rounded_value(kind: str, position: int) -> SQL:
    value = statement("#$position", position=position)
    if kind in ("DOUBLE", "FLOAT"):
        return statement(_ROUNDED, number=value)
    if kind in ("DOUBLE[]", "FLOAT[]"):
        item = statement(_ROUNDED, number="item")
        return statement("list_transform($value, lambda item: $item)", value=value, item=item)
    return value


def _table(shown: duckdb.DuckDBPyRelation) -> str:
    with redirect_stdout(StringIO()) as output:
        shown.show(max_width=_ANY_WIDTH, max_rows=_ROWS_SHOWN)
    return f"{printable_lines(output.getvalue().rstrip())}\n"


def _lines(shown: duckdb.DuckDBPyRelation, columns: Sequence[str]) -> str:
    """Write a line for each value, and an empty one after each row; without rows, the columns."""
    heads = [printable(column) for column in columns]
    widest = max(map(width, heads))
    # Further lines of a value are indented, so that they do not look like other values.
    next_line = "\n" + " " * (widest + 2)
    values = joined(
        statement("#$position::VARCHAR", position=position) for position, _ in enumerate(heads, 1)
    )
    texts = shown.project(str(values))
    lines: list[str] = []
    for row in texts.fetchall():
        for head, value in zip(heads, row, strict=True):
            text = "NULL" if value is None else next_line.join(map(printable, value.split("\n")))
            lines.append(f"{padded(head, widest)}  {text}")
        lines.append("")
    return "\n".join([*(lines or heads), ""])


def _write_data(
    connection: duckdb.DuckDBPyConnection,
    statements: Sequence[duckdb.Statement],
    output_format: str,
    out: "SupportsWrite[str]",
) -> bool:
    answers = sum(map(_has_answer, statements))
    if answers > 1:
        raise KpBatchError(
            f"{output_format} holds one result, and these statements return {answers}; run one at "
            "a time, or use --format table"
        )
    rows = 0
    for query in statements:
        cursor = connection.execute(query)
        if _has_answer(query):
            rows += _WRITERS[output_format](cursor, out)
    return rows > 0


def _has_answer(query: duckdb.Statement) -> bool:
    """Whether a statement reads rows; others return a success, or a number of rows."""
    reads = query.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT]
    return reads or query.type is duckdb.StatementType.MULTI  # PIVOT


def _write_csv(cursor: duckdb.DuckDBPyConnection, out: "SupportsWrite[str]") -> int:
    out.write(_csv_line(_columns(cursor)))
    count = 0
    for row in _rows(cursor):
        out.write(_csv_line(row))
        count += 1
    return count


def _csv_line(row: Iterable[Any]) -> str:
    return f"{','.join(map(_csv_value, row))}\n"


def _csv_value(value: Any) -> str:
    """Return a value of CSV as DuckDB reads it: null is empty, and an empty text is quoted."""
    if value is None:
        return ""
    text = _json(value) if isinstance(value, (list, tuple, dict)) else _text(value)
    if text and not _TO_BE_QUOTED.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _write_json(cursor: duckdb.DuckDBPyConnection, out: "SupportsWrite[str]") -> int:
    columns = _columns(cursor)
    _check_named_apart(columns)
    count = 0
    for row in _rows(cursor):
        before = "," if count else "["
        out.write(f"{before}\n{_json(dict(zip(columns, row, strict=True)))}")
        count += 1
    out.write("\n]\n" if count else "[]\n")
    return count


def _check_named_apart(columns: Sequence[str]) -> None:
    if len(set(columns)) < len(columns):
        raise KpBatchError(f"several columns have the same name; give each its own: {columns}")


def _columns(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(column[0]) for column in cursor.description or []]


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def _json(value: Any) -> str:
    """Return a value as JSON, with all digits of decimals; a key of any type is its text.

    NaN and infinities, which JSON does not have, are null.
    """
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return f"{{{', '.join(f'{_json(_key(key))}: {_json(item)}' for key, item in pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_json, cast('Sequence[Any]', value)))}]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    is_json = value is None or isinstance(value, int | float)
    return json.dumps(value if is_json else _text(value), ensure_ascii=False)


def _key(key: Any) -> str:
    return _json(key) if isinstance(key, (bool, list, tuple, dict)) else _text(key)


def _text(value: Any) -> str:
    r"""A value as text: a decimal with all digits, bytes as DuckDB prints them, such as a\xFF."""
    if isinstance(value, bytes):
        return "".join(chr(byte) if byte in _READABLE else f"\\x{byte:02X}" for byte in value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


_WRITERS = {"csv": _write_csv, "json": _write_json}
