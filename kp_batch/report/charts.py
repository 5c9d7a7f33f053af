"""Draws the data as Altair charts; a theme sets their colours and fonts."""

import altair as alt
import polars as pl

from kp_batch.report.chart_parts import (
    COUNTS_ALONG,
    COUNTS_UP,
    HEIGHT,
    ROW,
    SCHEME,
    SCORES,
    Drawing,
    chosen,
    colour,
    height,
    numbers,
    over_threshold,
    rows,
    summed,
    unit,
)
from kp_batch.report.report_data import ReportData

_OVERRIDES = ("single thought", "recovery bonus", "low diversity penalty")
_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
_GREY = "#8a8f98"  # for rejected rows whose domain is unknown or has no score
_AGES = ("<1 s", "<1 min", "<10 min", "<1 h", "<6 h", "<1 d", "<7 d", "<30 d", "≥30 d")


def histogram(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw the histogram, the domains stacked."""
    bars = (
        chosen(frame)
        .mark_bar(binSpacing=1)
        .encode(
            unit("low", "score", bin="binned"),
            alt.X2("high:Q"),
            alt.Y("traces:Q", stack=True, title="traces", axis=COUNTS_UP),
            colour(data),
            tooltip=["domain:N", *numbers(low=".2f", high=".2f", traces=",")],
        )
    )
    return over_threshold(data, bars)


def domains(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a line, a bar and a tick for the quantiles of each domain."""
    tooltip = ["domain:N", *numbers(traces=",", **dict.fromkeys(_QUANTILES, ".3f"))]
    base = chosen(frame).encode(y=rows(data, frame), tooltip=tooltip)
    coloured = base.encode(colour(data))
    return over_threshold(
        data,
        coloured.mark_rule(strokeWidth=2).encode(unit("p5", "score"), alt.X2("p95:Q")),
        coloured.mark_bar(size=12).encode(alt.X("p25:Q"), alt.X2("p75:Q")),
        base.mark_tick(size=18, thickness=3).encode(alt.X("p50:Q")),
    ).properties(height=height(frame))


def dimensions(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a dot for each dimension's mean, and a line for its spread."""
    low, high = (
        (pl.col("mean") + sign * pl.col("deviation").fill_null(0)).clip(0, 1) for sign in (-1, 1)
    )
    spread = frame.with_columns(low=low, high=high)
    base = chosen(spread).encode(
        y=rows(data, frame),
        yOffset=alt.YOffset("dimension:N"),
        color=alt.Color(
            "dimension:N",
            scale=alt.Scale(scheme=SCHEME),
            title=None,
            legend=alt.Legend(symbolOpacity=1),
        ),
        tooltip=["domain:N", "dimension:N", *numbers(mean=".3f", deviation=".3f")],
    )
    return alt.layer(
        base.mark_rule(strokeWidth=2, opacity=0.4).encode(
            unit("low", "mean ± one standard deviation"), alt.X2("high:Q")
        ),
        base.mark_circle(size=55, opacity=1).encode(alt.X("mean:Q")),
    ).properties(height=height(frame, ROW * 1.7))


def overrides(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a bar for each override's effect, to the left or right of zero."""
    bars = chosen(frame).mark_bar(size=14)
    return bars.encode(
        alt.X("effect_on_mean:Q", title="effect on the mean score"),
        rows(data, frame),
        alt.Color("override:N", scale=alt.Scale(domain=_OVERRIDES, scheme=SCHEME), title=None),
        tooltip=[
            "domain:N",
            "override:N",
            *numbers(traces=",", share=".1%", mean_effect="+.3f", effect_on_mean="+.4f"),
        ],
    ).properties(height=height(frame))


def novelty_and_age(_data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a field for each age and novelty, and a line for the mean."""
    scale, axis = alt.Scale(domain=_AGES), alt.Axis(labelOverlap="greedy")
    age = alt.X("age:O", scale=scale, axis=axis, title="age of the nearest trace")
    squares = chosen(frame).mark_rect()
    line = summed(frame, "age").mark_line(point=True)
    return alt.layer(
        squares.encode(
            age,
            alt.Y("low:Q", bin="binned", scale=SCORES, title="novelty"),
            alt.Y2("high:Q"),
            alt.Color("sum(traces):Q", scale=alt.Scale(type="sqrt"), title="traces"),
            tooltip=[
                "age:O",
                *numbers(low=".1f", high=".1f"),
                alt.Tooltip("sum(traces):Q", title="traces", format=","),
            ],
        ),
        line.encode(
            age,
            alt.Y("mean novelty:Q"),
            tooltip=["age:O", alt.Tooltip("mean novelty:Q", format=".3f"), *numbers(traces=",")],
        ),
    ).properties(height=HEIGHT)


def thresholds(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a falling curve for each domain."""
    base = chosen(frame).encode(
        unit("threshold", "threshold"),
        alt.Y("share:Q", title="share of traces", axis=alt.Axis(format=".0%")),
        colour(data),
        tooltip=["domain:N", *numbers(threshold=".3f", share=".2%", reaching=",")],
    )
    touched = base.mark_circle(size=120, opacity=0)  # a line alone is hard to point at
    return over_threshold(data, base.mark_line(strokeWidth=2), touched)


def drift(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a bar for each domain, to the left or right of zero."""
    shifts = dict.fromkeys(("mean_shift", "p5_shift", "p50_shift", "p95_shift"), "+.4f")
    told = numbers(traces_a=",", traces_b=",", **shifts, stability_index=".4f")
    return _about_zero(data, frame, "mean_shift", "shift of the mean score", told)


def recorded(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a bar for each domain, to the left or right of zero."""
    told = numbers(
        traces=",",
        placeholders=",",
        mean_difference="+.4f",
        mean_absolute_difference=".4f",
        now_reaching=",",
        no_longer_reaching=",",
    )
    return _about_zero(data, frame, "mean_difference", "score above the recorded one", told)


def _about_zero(
    data: ReportData, frame: pl.DataFrame, value: str, title: str, told: list[alt.Tooltip]
) -> Drawing:
    bars = chosen(frame).mark_bar(size=14)
    return bars.encode(
        alt.X(f"{value}:Q", title=title, axis=alt.Axis(format="+")),
        rows(data, frame),
        colour(data),
        tooltip=["domain:N", *told],
    ).properties(height=height(frame))


def rejects(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a bar for each reason."""
    most = frame.group_by("code").agg(pl.col("rejected").sum()).sort("rejected", "code")
    codes = most["code"].reverse().to_list()
    bars = chosen(frame).mark_bar(size=14)
    return bars.encode(
        alt.X("rejected:Q", title="rows and files", axis=COUNTS_ALONG),
        alt.Y("code:N", scale=alt.Scale(domain=codes), title=None),
        color=alt.condition(
            alt.FieldOneOfPredicate("domain", data.labels), colour(data), alt.value(_GREY)
        ),
        tooltip=["code:N", "domain:N", *numbers(rejected=",")],
    ).properties(height=height(frame, by="code"))
