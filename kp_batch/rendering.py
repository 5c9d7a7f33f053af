"""The parts of a result for people: heads, lines, facts, tables and texts side by side.

A terminal shows them by `as_lines`, a notebook by `html.card`: both show the same words, and
numbers in the same form.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap

from kp_batch.text import aligned, one_line, padded, printable, shortened

_LINE = 120  # columns of a terminal
_TEXT = 5  # lines of a text next to another one, at most

Row = dict[str, str]  # the cells by their headings


@dataclass(frozen=True)
class TextSpan:
    """A part of a text that is shown next to another one."""

    text: str
    shared: bool  # whether the other text has it, too, in the same order


Spans = Sequence[TextSpan]


class Head(str):
    """The line above the parts that it describes."""

    __slots__ = ()


class Long(str):
    """The text of a fact that a terminal cuts at the end of the line."""

    __slots__ = ()


@dataclass(frozen=True)
class Facts:
    """Names with a text for each; a text without a name continues the one before."""

    facts: Sequence[tuple[str, str]]
    width: int = 10  # columns of a name in a terminal


@dataclass(frozen=True)
class Table:
    """Rows with the same headings.

    Attributes:
        rows: the texts of the cells.
        marked: the numbers of rows to highlight, from 0; their texts say why.
        remarks: a text after each row; empty: none.
        notes: a line below each row; empty: none.
        bars: the beginning and end of a bar for each row, 0..1; the row's numbers say the same.
    """

    rows: Sequence[Row]
    marked: Collection[int] = ()
    remarks: Sequence[str] = ()
    notes: Sequence[str] = ()
    bars: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class SideBySide:
    """Two texts side by side, and a line about them; shared spans are shown in «»."""

    about: str
    is_first: bool  # of several; notebooks show its texts, and fold the others'
    left: Spans
    right: Spans


Part = str | Facts | Table | SideBySide  # a plain text is a line, an empty one a blank line


def as_lines(parts: Iterable[Part]) -> Iterator[str]:
    """Return the lines of a result in a terminal."""
    for part in parts:
        if isinstance(part, str):
            yield str(part)
        elif isinstance(part, Facts):
            yield from (_fact_line(name, text, part.width) for name, text in part.facts)
        elif isinstance(part, Table):
            yield from _table_lines(part)
        else:
            yield from _lines_side_by_side(part)


def as_text(parts: Iterable[Part]) -> str:
    """Return a result as a terminal shows it."""
    return "\n".join(as_lines(parts))


def _fact_line(name: str, text: str, width: int) -> str:
    shown = shortened(text, _LINE - width - 3) if isinstance(text, Long) else text
    return f"  {name:<{width}} {shown}"


def rest_in(field: str) -> str:
    """Say where a result has the rows that are not shown: a field, which its JSON has, too."""
    return f"see --json, or {field} in Python"


def _table_lines(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    head, *lines = aligned([*table.rows])
    yield head
    for line, remark, note in zip_longest(lines, table.remarks, table.notes, fillvalue=""):
        yield f"{line}    {remark}".rstrip()
        if note:
            yield f"    {note}"


def _lines_side_by_side(texts: SideBySide) -> Iterator[str]:
    yield texts.about
    width = (_LINE - 11) // 2
    columns = (_wrapped(spans, width) for spans in (texts.left, texts.right))
    for left, right in zip_longest(*columns, fillvalue=""):
        yield f"    {padded(left, width)} | {right}".rstrip()


def _wrapped(spans: Spans, width: int) -> list[str]:
    marked = "".join(f"«{span.text}»" if span.shared else span.text for span in spans)
    return wrap(printable(one_line(marked)), width, max_lines=_TEXT, placeholder=" …")
