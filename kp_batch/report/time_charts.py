"""What the charts over time have in common, and these."""

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
from kp_batch.report.report_data import Figures

_MEASURES = ("mean score", "mean novelty")
_BEGUN = 0.5  # opacity of a step of time that is not over
_FEW = 31  # days, each of which has its tick
# Where ticks stand, and how they are written, by the unit of time; of longer ones, some years.
_TICKS: dict[str, Literal["week", "month", "year"]] = {
    "day": "week",
    "week": "month",
    "month": "year",
    "quarter": "year",
}
_LABELS = {"day": "%Y-%m-%d", "week": "%Y-%m"}


def over_time(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A line for the mean score and one for the mean novelty, their dots as large as the steps."""
    means = summed(frame, "start", "end").transform_calculate(
        middle="(toDate(datum.start) + toDate(datum.end)) / 2"
    )
    lines = means.transform_fold([*_MEASURES], as_=["measure", "value"]).encode(
        _times(figures, frame, "middle"),
        alt.Y("value:Q", scale=SCORES, title="mean", axis=MEANS),
        alt.Color("measure:N", scale=alt.Scale(domain=_MEASURES, scheme=SCHEME), title=None),
    )
    size = alt.Size("traces:Q", scale=alt.Scale(range=[16, 80]), legend=None)
    told = [_step(figures), *numbers(**dict.fromkeys(_MEASURES, ".3f"), traces=",")]
    # All of a step of time answers to the pointer.
    steps = means.mark_rect(opacity=0).encode(_times(figures, frame), alt.X2("end:T"), tooltip=told)
    return alt.layer(
        lines.mark_line(strokeWidth=1.5), lines.mark_circle(opacity=1).encode(size), steps
    )


def volume(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """The traces of each step of time, the domains on top of each other."""
    # The first and the last step stay, also where they are empty: the chart above has them, too.
    ends = pl.col("start").is_in([frame["start"].min(), frame["start"].max()])
    there = chosen(frame.filter((pl.col("traces") > 0) | ends))
    stacked = there.transform_stack(stack="traces", as_=["low", "high"], groupby=["start"])
    bars = stacked.mark_rect().encode(
        _times(figures, frame),
        alt.X2("end:T"),
        alt.Y("low:Q", title=f"traces a {figures.grain}", axis=COUNTS_UP),
        alt.Y2("high:Q"),
        colour(figures),
        opacity=alt.condition("datum.is_over", alt.value(1), alt.value(_BEGUN)),
        tooltip=["domain:N", _step(figures), *numbers(traces=",")],
    )
    return bars.properties(height=110)


def _times(figures: Figures, frame: pl.DataFrame, name: str = "start") -> alt.X:
    """The steps of time along the chart; their ends are the channel x2."""
    few = figures.grain == "day" and frame["start"].n_unique() <= _FEW
    ticks = "day" if few else _TICKS.get(figures.grain, alt.Undefined)
    axis = alt.Axis(tickCount=ticks, format=_LABELS.get(figures.grain, "%Y"))
    return alt.X(f"{name}:T", scale=alt.Scale(type="utc"), title=None, axis=axis)


def _step(figures: Figures) -> alt.Tooltip:
    """The tooltip of a step of time."""
    return alt.Tooltip(
        "utcyearmonthdate(start):T", title=f"{figures.grain} from", format="%Y-%m-%d"
    )
