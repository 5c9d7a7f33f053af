"""The tables behind the charts: the same numbers as texts, with plain headings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

import polars as pl

TIME = "%Y-%m-%d"  # the form of times; those within a day also have the time of day
_TINY = 0.0005  # a smaller number would be written as 0.0%


@dataclass(frozen=True)
class ChartColumn:
    """A column of a table, and the columns of the frame that it shows."""

    title: str  # the heading for readers
    name: str
    form: str = ""  # the form of its numbers, or `TIME`; texts have none
    low: str = ""  # the ends of its interval, if it has one
    high: str = ""

    @property
    def names(self) -> list[str]:
        """The columns of the frame that it shows."""
        return [name for name in (self.name, self.low, self.high) if name]

    def cell(self, row: dict[str, Any]) -> str:
        """Return the text for a row: the value, and its interval if known."""
        value = written(row[self.name], self.form)
        if not self.low or row[self.low] is None:
            return value
        low, high = (written(row[name], self.form) for name in (self.low, self.high))
        return f"{value} ({low} to {high})"


def written(value: float | str | date | None, form: str = "") -> str:
    """Return a value for people: empty if there is none, and never "0.0%" for a small number."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, date):
        if isinstance(value, datetime) and value.time() != time():
            return value.replace(tzinfo=None).isoformat(" ", "minutes")
        return value.isoformat()[: len("2026-01-05")]
    if form == ".1%" and 0 < value < _TINY:
        return "<0.1%"
    if form == ".1%" and 1 - _TINY < value < 1:
        return ">99.9%"
    return format(value + 0, form)


def columns_of(frame: pl.DataFrame, columns: Sequence[ChartColumn]) -> list[ChartColumn]:
    """Return the columns for which a frame has all that they show."""
    return [column for column in columns if {*column.names} <= {*frame.columns}]


def table(frame: pl.DataFrame, columns: Sequence[ChartColumn]) -> pl.DataFrame:
    """Return the columns of a frame as texts."""
    rows = frame.to_dicts()
    return pl.DataFrame({column.title: [column.cell(row) for row in rows] for column in columns})
