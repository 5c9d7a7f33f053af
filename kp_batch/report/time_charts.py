"""Draws the charts over time."""

from typing import Literal

import altair as alt
import polars as pl

from kp_batch.report.chart_parts import (
    COUNTS_UP,
    MEANS,
    SCHEME,
    SCORES,
    Drawing,
    chosen,
    colour,
    numbers,
    summed,
)
from kp_batch.report.report_data import ReportData

_MEASURES = ("mean score", "mean novelty")
_BEGUN = 0.5  # opacity of a step of time that is not over
_FEW = 31  # days, up to which each day has a tick
# Where ticks stand and how they are written, by the unit of time; for longer units, some years.
_TICKS: dict[str, Literal["week", "month", "year"]] = {
    "day": "week",
    "week": "month",
    "month": "year",
    "quarter": "year",
}
_LABELS = {"day": "%Y-%m-%d", "week": "%Y-%m"}


def over_time(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw lines for the mean score and the mean novelty, with larger dots for more traces."""
    means = summed(frame, "start", "end").transform_calculate(
        middle="(toDate(datum.start) + toDate(datum.end)) / 2"
    )
    lines = means.transform_fold([*_MEASURES], as_=["measure", "value"]).encode(
        _times(data, frame, "middle"),
        alt.Y("value:Q", scale=SCORES, title="mean", axis=MEANS),
        alt.Color("measure:N", scale=alt.Scale(domain=_MEASURES, scheme=SCHEME), title=None),
    )
    size = alt.Size("traces:Q", scale=alt.Scale(range=[16, 80]), legend=None)
    tooltip = [_step(data), *numbers(**dict.fromkeys(_MEASURES, ".3f"), traces=",")]
    # The tooltip shows wherever the pointer is within a step of time.
    steps = means.mark_rect(opacity=0).encode(_times(data, frame), alt.X2("end:T"), tooltip=tooltip)
    return alt.layer(
        lines.mark_line(strokeWidth=1.5), lines.mark_circle(opacity=1).encode(size), steps
    )


def volume(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw the traces of each step of time, the domains stacked."""
    # Empty steps go, except the first and the last, so that this chart aligns with the one above.
    ends = pl.col("start").is_in([frame["start"].min(), frame["start"].max()])
    there = chosen(frame.filter((pl.col("traces") > 0) | ends))
    stacked = there.transform_stack(stack="traces", as_=["low", "high"], groupby=["start"])
    bars = stacked.mark_rect().encode(
        _times(data, frame),
        alt.X2("end:T"),
        alt.Y("low:Q", title=f"traces a {data.grain}", axis=COUNTS_UP),
        alt.Y2("high:Q"),
        colour(data),
        opacity=alt.condition("datum.is_over", alt.value(1), alt.value(_BEGUN)),
        tooltip=["domain:N", _step(data), *numbers(traces=",")],
    )
    return bars.properties(height=110)


def _times(data: ReportData, frame: pl.DataFrame, name: str = "start") -> alt.X:
    """The horizontal channel for the start of a step of time; its end is the channel x2."""
    few = data.grain == "day" and frame["start"].n_unique() <= _FEW
    ticks = "day" if few else _TICKS.get(data.grain, alt.Undefined)
    axis = alt.Axis(tickCount=ticks, format=_LABELS.get(data.grain, "%Y"))
    return alt.X(f"{name}:T", scale=alt.Scale(type="utc"), title=None, axis=axis)


def _step(data: ReportData) -> alt.Tooltip:
    """The tooltip for a step of time."""
    return alt.Tooltip("utcyearmonthdate(start):T", title=f"{data.grain} from", format="%Y-%m-%d")
