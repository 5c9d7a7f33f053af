"""A panel of a page: a title, a chart, a caption and a table, in each scope."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars import selectors

from kp_batch.report.chart_tables import TIME, ChartColumn, columns_of, table
from kp_batch.report.data import ReportData
from kp_batch.report.vega_lite import Shown, Spec, as_spec

Taking = Callable[[ReportData, str], pl.DataFrame]  # the rows of a scope
_DIGITS = 6  # decimals of the numbers that are shown


@dataclass(frozen=True)
class Panel:
    """One chart of a page, its caption and its table; each scope has its own rows."""

    name: str  # the name of the question that it shows, or similar
    title: str
    about: str  # what the chart shows, with units
    take: Taking  # the rows of chart and table
    draw: Callable[[Shown], Spec]  # the chart of these rows, without the rows
    drawn: tuple[str, ...] = ()  # the columns that the chart needs, if a scope has them; none: all
    columns: tuple[ChartColumn, ...] = ()  # of the table and tooltips; none: there is no table
    listed: Taking | None = None  # the rows of the table, if these differ
    frames: tuple[str, ...] = ()  # the frames of the data that it needs
    is_wide: bool = False
    notes: Callable[[ReportData, str], Iterable[str]] = (
        lambda _data, _scope: ()
    )  # what else readers must know
    empty: str = "no trace is scored"  # why no scope has rows

    def rows(self, data: ReportData, scope: str) -> pl.DataFrame:
        """Return the rows of the chart: numbers rounded, times as texts in UTC."""
        frame = self.take(data, scope)
        drawn = [name for name in self.drawn or frame.columns if name in frame.columns]
        rows = _rounded(frame.select(drawn))
        return rows.with_columns(map(_as_text, rows.select(selectors.temporal())))

    def table(self, data: ReportData, scope: str) -> pl.DataFrame:
        """Return the table behind the chart: texts, with plain headings."""
        frame = _rounded((self.listed or self.take)(data, scope))
        return table(frame, columns_of(frame, self.columns))

    def caption(self, data: ReportData, scope: str) -> str:
        """Return what the chart shows, and what readers must know about it in a scope."""
        return " ".join([self.about, *self.notes(data, scope)])

    def spec(self, data: ReportData, scope: str, rows: pl.DataFrame) -> Spec:
        """Return the chart of these rows in Vega-Lite, see `as_spec`; the page adds the rows."""
        shown = Shown(data, scope, rows, columns_of(rows, self.columns))
        return as_spec(shown, self.draw(shown))


def panel_values(
    panels: Sequence[Panel], data: ReportData, scopes: Sequence[str]
) -> dict[str, Any]:
    """Return the panels in all scopes as page.js takes them.

    Returns:
        `specs`, the different ones; and `panels`, by name and by scope, if there are rows: the
            place of the `spec`, the `caption`, the `columns` and `rows` of the chart, and the
            `table` (its `columns` and `rows`, of texts; None if the panel has none).
    """
    specs: list[Spec] = []
    shown: dict[str, dict[str, Any]] = {panel.name: {} for panel in panels}
    for panel in panels:
        for scope in scopes:
            rows = panel.rows(data, scope)
            if rows.is_empty():
                continue
            spec = panel.spec(data, scope, rows)
            if spec not in specs:
                specs.append(spec)
            shown[panel.name][scope] = {
                "spec": specs.index(spec),
                "caption": panel.caption(data, scope),
                **_listed(rows),
                "table": _listed(panel.table(data, scope)) if panel.columns else None,
            }
    return {"specs": specs, "panels": shown}


def _listed(frame: pl.DataFrame) -> dict[str, Any]:
    return {"columns": frame.columns, "rows": [list(row) for row in frame.iter_rows()]}


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Round numbers for charts, whose tooltips round again, and for tables: no -0.0, no NaN."""
    return frame.with_columns((selectors.float().round(_DIGITS) + 0.0).fill_nan(None))


def _as_text(times: pl.Series) -> pl.Series:
    """Return times as JavaScript reads them, in UTC."""
    is_by_day = times.dtype == pl.Date or (times == times.dt.truncate("1d")).all()
    return times.dt.strftime(TIME if is_by_day else f"{TIME}T%H:%MZ")
