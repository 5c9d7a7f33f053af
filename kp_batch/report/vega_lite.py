"""Parts of charts in Vega-Lite: marks, channels, and tooltips."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from kp_batch.report.chart_tables import TIME, ChartColumn
from kp_batch.report.data import ReportData

VEGA_LITE = "6.4"  # the version of these specs, and of the script that draws them
ROW = 24  # pixels of a row
HEIGHT = 240

Spec = dict[str, Any]  # a chart in Vega-Lite, or a part of one


@dataclass(frozen=True)
class Shown:
    """What a chart shows: rows of a page's data in a scope."""

    data: ReportData
    scope: str
    rows: pl.DataFrame
    columns: Sequence[ChartColumn]  # the columns in its tooltips

    @property
    def tooltip(self) -> Spec:
        """The channels of the tooltip, and of the same for screen readers; see `as_spec`."""
        lines = [nominal(f"tooltip{at}", title=column.title) for at, column in self._numbered]
        return {"tooltip": lines, "description": nominal("tooltip")}

    @property
    def texts(self) -> list[Spec]:
        """The transforms that add the texts of the tooltip."""
        texts = {f"tooltip{at}": _as_text(column) for at, column in self._numbered}
        each = (f"'{column.title}: ' + datum.tooltip{at}" for at, column in self._numbered)
        return calculated(**texts, tooltip=" + '; ' + ".join(each)) if texts else []

    @property
    def _numbered(self) -> list[tuple[int, ChartColumn]]:
        return list(enumerate(self.columns))

    def height(self, row: int = ROW) -> int:
        """Return the height in pixels of a chart with so many pixels for each row."""
        return row * self.rows.height + 10


def as_spec(shown: Shown, chart: Spec) -> Spec:
    """Return a chart, as wide as the element that contains it."""
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE}.json",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        **chart,
        "transform": [*shown.texts, *chart.get("transform", ())],
    }


def _as_text(column: ChartColumn) -> str:
    """Return the expression of a column's text, as in tables."""
    value, *ends = (_written(name, column.form) for name in column.names)
    if ends:
        interval = " + ' to ' + ".join(ends)
        value += f" + (isValid(datum.{column.low}) ? ' (' + {interval} + ')' : '')"
    return f"isValid(datum.{column.name}) ? {value} : ''"


def _written(name: str, form: str) -> str:
    if form != TIME:
        return f"format(datum.{name}, '{form}')" if form else f"datum.{name}"
    time = f"toDate(datum.{name})"
    return f"utcFormat({time}, utchours({time}) ? '{TIME} %H:%M' : '{TIME}')"


def marks(kind: str, encoding: Spec, *where: str, **style: Any) -> Spec:
    """Return marks of one kind and style, for the rows that meet all conditions.

    Screen readers read only marks with a tooltip.
    """
    filters = {"transform": [{"filter": each} for each in where]} if where else {}
    silent = {} if "tooltip" in encoding else {"aria": False}
    return {**filters, "mark": {"type": kind, **silent, **style}, "encoding": encoding}


def quantitative(field: str, **more: Any) -> Spec:
    """Return a channel for a number."""
    return {"field": field, "type": "quantitative", **more}


def nominal(field: str, **more: Any) -> Spec:
    """Return a channel for a text whose values have no order."""
    return {"field": field, "type": "nominal", **more}


def in_order(field: str) -> Spec:
    """Return the vertical channel with a row for each text, in the order of the rows."""
    return nominal(field, sort=None, title=None)


def calculated(**columns: str) -> list[Spec]:
    """Return transforms that add columns, each by its expression."""
    return [{"calculate": expression, "as": name} for name, expression in columns.items()]
