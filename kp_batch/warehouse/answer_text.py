"""Lays out an answer for reading: as a table, or where that is too wide, a line for each value."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO

import duckdb

from kp_batch.sql import SQL, identifier, joined, statement
from kp_batch.text import number, padded, printable, printable_lines, width

_ROWS_SHOWN = 100
_ANY_WIDTH = 10**6  # characters; of less, DuckDB hides the columns that do not fit
# To 4 decimals; a number below 0.1 to its first 4 digits, so that none becomes 0.
_ROUNDED = """if(isfinite($number) AND $number <> 0,
   round($number, greatest(4, 3 - floor(log10(abs($number))))::INTEGER), $number)"""


def answer_text(answer: duckdb.DuckDBPyRelation, room: int | None) -> tuple[str, int]:
    """Lay out an answer, its numbers rounded and its control characters written out.

    Args:
        answer: of many rows the first ones are laid out, and how many there are is told.
        room: how wide a table may be, in characters; None: none is made.

    Returns:
        A table, or where it is too wide, a line for each value; of no rows the columns at least.
        And how many rows are laid out.
    """
    first = answer.limit(_ROWS_SHOWN + 1).materialize()
    is_cut = len(first) > _ROWS_SHOWN
    shown = _rounded(first.limit(_ROWS_SHOWN), answer.columns)
    laid_out = len(shown)
    rows = number(len(answer) if is_cut else laid_out, "row")
    cut = f", the first {_ROWS_SHOWN} of them shown; --format csv or json has all" if is_cut else ""
    if room is not None and (table := _table(shown)).index("\n") <= room:
        return (f"{table}{rows}{cut}\n" if is_cut else table), laid_out
    return f"{_lines(shown, answer.columns)}{rows}{cut}\n", laid_out


def _rounded(shown: duckdb.DuckDBPyRelation, columns: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """By place, as two columns may have one name."""
    values = joined(
        statement("$value AS $name", value=_readable(str(kind), place), name=identifier(name))
        for place, (kind, name) in enumerate(zip(shown.types, columns, strict=True), 1)
    )
    return shown.project(str(values))  # which takes no subclass of str for SQL


def _readable(kind: str, place: int) -> SQL:
    value = statement("#$place", place=place)
    if kind in ("DOUBLE", "FLOAT"):
        return statement(_ROUNDED, number=value)
    if kind in ("DOUBLE[]", "FLOAT[]"):
        each = statement(_ROUNDED, number="each")
        return statement("list_transform($value, lambda each: $each)", value=value, each=each)
    return value


def _table(shown: duckdb.DuckDBPyRelation) -> str:
    with redirect_stdout(StringIO()) as drawn:
        shown.show(max_width=_ANY_WIDTH, max_rows=_ROWS_SHOWN)
    return f"{printable_lines(drawn.getvalue().rstrip())}\n"


def _lines(shown: duckdb.DuckDBPyRelation, columns: Sequence[str]) -> str:
    """A line for each value and an empty one after each row; of no rows, the columns."""
    heads = [printable(column) for column in columns]
    widest = max(map(width, heads))
    # A value of several lines stays in its place, so that none of them looks like another value.
    next_line = "\n" + " " * (widest + 2)
    places = joined(statement("#$place::VARCHAR", place=place) for place, _ in enumerate(heads, 1))
    texts = shown.project(str(places))
    lines: list[str] = []
    for row in texts.fetchall():
        for head, value in zip(heads, row, strict=True):
            text = "NULL" if value is None else next_line.join(map(printable, value.split("\n")))
            lines.append(f"{padded(head, widest)}  {text}")
        lines.append("")
    return "\n".join([*(lines or heads), ""])
