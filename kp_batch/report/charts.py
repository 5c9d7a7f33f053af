"""The figures as Altair charts; their colours and fonts are left to a theme."""

import altair as alt
import polars as pl

from kp_batch.report.encodings import (
    HEIGHT,
    ROW,
    SCHEME,
    SCORES,
    Drawing,
    chosen,
    colour,
    day,
    height,
    numbers,
    over_threshold,
    rows,
    summed,
)
from kp_batch.report.figures import Figures

_MEASURES = ("mean score", "mean novelty")
_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
_UNKNOWN = "unknown domain"  # of a refused row or file
_AXIS = alt.Axis(minExtent=44, maxExtent=44)  # so that charts above each other share their time
_LEVEL = alt.Axis(labelAngle=0)


def histogram(figures: Figures) -> Drawing:
    """Bars of the histogram, the domains on top of each other."""
    bars = chosen(figures.histogram).mark_bar(binSpacing=1)
    return over_threshold(
        figures,
        bars.encode(
            alt.X("low:Q", bin="binned", scale=SCORES, title="score"),
            alt.X2("high:Q"),
            alt.Y("traces:Q", stack=True, title="traces"),
            colour(figures),
            tooltip=["domain:N", *numbers(low=".2f", high=".2f", traces=",")],
        ),
    )


def domains(figures: Figures) -> Drawing:
    """A line, a bar and a tick for the quantiles of each domain."""
    told = ["domain:N", *numbers(traces=",", **dict.fromkeys(_QUANTILES, ".3f"))]
    frame = figures.domains.drop_nulls("domain")
    base = chosen(frame).encode(y=rows(figures, frame), tooltip=told)
    coloured = base.encode(colour(figures))
    return over_threshold(
        figures,
        coloured.mark_rule(strokeWidth=2).encode(
            alt.X("p5:Q", scale=SCORES, title="score"), alt.X2("p95:Q")
        ),
        coloured.mark_bar(size=12).encode(alt.X("p25:Q"), alt.X2("p75:Q")),
        base.mark_tick(size=18, thickness=3).encode(alt.X("p50:Q")),
    ).properties(height=height(frame))


def over_time(figures: Figures) -> Drawing:
    """A line for the mean score and one for the mean novelty."""
    lines = summed(figures.over_time, "start").transform_fold(
        [*_MEASURES], as_=["measure", "value"]
    )
    return lines.mark_line(point=alt.OverlayMarkDef(size=18), strokeWidth=1.5).encode(
        alt.X("start:T", scale=alt.Scale(type="utc"), title=None),
        alt.Y("value:Q", scale=SCORES, title="mean", axis=_AXIS),
        alt.Color("measure:N", scale=alt.Scale(domain=_MEASURES, scheme=SCHEME), title=None),
        tooltip=[day(figures), "measure:N", *numbers(value=".3f", traces=",")],
    )


def volume(figures: Figures) -> Drawing:
    """The traces of each step of time, the domains on top of each other."""
    there = chosen(figures.over_time.filter(pl.col("traces") > 0))
    stacked = there.transform_stack(stack="traces", as_=["low", "high"], groupby=["start"])
    return (
        stacked.mark_rect()
        .encode(
            alt.X("start:T", scale=alt.Scale(type="utc"), title=None),
            alt.X2("end:T"),
            alt.Y("low:Q", title=f"traces a {figures.grain}", axis=_AXIS),
            alt.Y2("high:Q"),
            colour(figures),
            tooltip=["domain:N", day(figures), *numbers(traces=",")],
        )
        .properties(height=110)
    )


def dimensions(figures: Figures) -> Drawing:
    """A dot for each dimension's mean, and a line for its spread."""
    low, high = (
        (pl.col("mean") + sign * pl.col("deviation").fill_null(0)).clip(0, 1) for sign in (-1, 1)
    )
    frame = figures.dimensions.with_columns(low=low, high=high)
    base = chosen(frame).encode(
        y=rows(figures, frame),
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
            alt.X("low:Q", scale=SCORES, title="mean ± one standard deviation"), alt.X2("high:Q")
        ),
        base.mark_circle(size=55, opacity=1).encode(alt.X("mean:Q")),
    ).properties(height=height(frame, ROW * 1.7))


def overrides(figures: Figures) -> Drawing:
    """Bars of what each override does, to either side."""
    bars = chosen(figures.overrides).mark_bar(size=14)
    return bars.encode(
        alt.X("effect_on_mean:Q", title="effect on the mean score"),
        rows(figures, figures.overrides),
        alt.Color("override:N", scale=alt.Scale(scheme=SCHEME), title=None),
        tooltip=[
            "domain:N",
            "override:N",
            *numbers(traces=",", share=".1%", mean_effect="+.3f", effect_on_mean="+.4f"),
        ],
    ).properties(height=height(figures.overrides))


def novelty_and_age(figures: Figures) -> Drawing:
    """A field for each age and novelty, and a line for the mean."""
    ages = figures.novelty_and_age["age"].unique(maintain_order=True).to_list()
    age = alt.X("age:O", sort=ages, title="age of the nearest trace, less than", axis=_LEVEL)
    squares = chosen(figures.novelty_and_age).mark_rect()
    line = summed(figures.novelty_and_age, "age").mark_line(
        style="ink-line", point=alt.OverlayMarkDef(style="ink-point")
    )
    return alt.layer(
        squares.encode(
            age,
            alt.Y("low:Q", bin="binned", scale=SCORES, title="novelty"),
            alt.Y2("high:Q"),
            alt.Color("sum(traces):Q", scale=alt.Scale(type="sqrt"), title="traces"),
            tooltip=["age:O", *numbers(low=".1f", high=".1f"), alt.Tooltip("sum(traces):Q")],
        ),
        line.encode(
            age,
            alt.Y("mean novelty:Q"),
            tooltip=["age:O", alt.Tooltip("mean novelty:Q", format=".3f"), *numbers(traces=",")],
        ),
    ).properties(height=HEIGHT)


def thresholds(figures: Figures) -> Drawing:
    """A falling curve for each domain."""
    base = chosen(figures.thresholds).encode(
        alt.X("threshold:Q", scale=SCORES),
        alt.Y("share:Q", title="share of traces", axis=alt.Axis(format=".0%")),
        colour(figures),
        tooltip=["domain:N", *numbers(threshold=".3f", share=".2%", reaching=",")],
    )
    touched = base.mark_circle(size=120, opacity=0)  # a line alone is hard to point at
    return over_threshold(figures, base.mark_line(strokeWidth=2), touched)


def drift(figures: Figures) -> Drawing:
    """A bar for each domain, to either side."""
    frame = figures.drift.drop_nulls("domain")
    bars = chosen(frame).mark_bar(size=14)
    shifts = dict.fromkeys(("mean_shift", "p5_shift", "p50_shift", "p95_shift"), "+.4f")
    return bars.encode(
        alt.X("mean_shift:Q", title="shift of the mean score", axis=alt.Axis(format="+")),
        rows(figures, frame),
        colour(figures),
        tooltip=[
            "domain:N",
            *numbers(traces_a=",", traces_b=",", **shifts, stability_index=".4f"),
        ],
    ).properties(height=height(frame))


def rejects(figures: Figures) -> Drawing:
    """A bar for each reason."""
    frame = figures.rejects.fill_null(_UNKNOWN)
    most = frame.group_by("code").agg(pl.col("refused").sum()).sort("refused", "code")
    codes = most["code"].reverse().to_list()
    bars = chosen(frame).mark_bar(size=14)
    return bars.encode(
        alt.X("refused:Q", title="rows and files", axis=alt.Axis(tickMinStep=1)),
        alt.Y("code:N", scale=alt.Scale(domain=codes), title=None),
        colour(figures, _UNKNOWN),
        tooltip=["code:N", "domain:N", *numbers(refused=",")],
    ).properties(height=height(frame, by="code"))
