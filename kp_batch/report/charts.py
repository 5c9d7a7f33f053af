"""The figures as Altair charts; their colours and fonts are left to a theme."""

import altair as alt
import polars as pl

from kp_batch.report.encodings import (
    COUNTS_ALONG,
    COUNTS_UP,
    HEIGHT,
    MEANS,
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
    step,
    summed,
    times,
    unit,
)
from kp_batch.report.figures import Figures

_MEASURES = ("mean score", "mean novelty")
_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
_GREY = "#8a8f98"  # of refused rows whose domain is unknown, or has no score
_AGES = alt.Scale(domain=["1 s", "1 min", "10 min", "1 h", "6 h", "1 d", "7 d", "30 d", "more"])


def histogram(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """Bars of the histogram, the domains on top of each other."""
    bars = (
        chosen(frame)
        .mark_bar(binSpacing=1)
        .encode(
            unit("low", "score", bin="binned"),
            alt.X2("high:Q"),
            alt.Y("traces:Q", stack=True, title="traces", axis=COUNTS_UP),
            colour(figures),
            tooltip=["domain:N", *numbers(low=".2f", high=".2f", traces=",")],
        )
    )
    return over_threshold(figures, bars)


def domains(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A line, a bar and a tick for the quantiles of each domain."""
    told = ["domain:N", *numbers(traces=",", **dict.fromkeys(_QUANTILES, ".3f"))]
    base = chosen(frame).encode(y=rows(figures, frame), tooltip=told)
    coloured = base.encode(colour(figures))
    return over_threshold(
        figures,
        coloured.mark_rule(strokeWidth=2).encode(unit("p5", "score"), alt.X2("p95:Q")),
        coloured.mark_bar(size=12).encode(alt.X("p25:Q"), alt.X2("p75:Q")),
        base.mark_tick(size=18, thickness=3).encode(alt.X("p50:Q")),
    ).properties(height=height(frame))


def over_time(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A line for the mean score and one for the mean novelty, their dots as large as the steps."""
    means = summed(frame, "start", "end").encode(times(figures, frame))
    lines = means.transform_fold([*_MEASURES], as_=["measure", "value"]).encode(
        alt.Y("value:Q", scale=SCORES, title="mean", axis=MEANS),
        alt.Color("measure:N", scale=alt.Scale(domain=_MEASURES, scheme=SCHEME), title=None),
    )
    size = alt.Size("traces:Q", scale=alt.Scale(range=[4, 60]), legend=None)
    told = [step(figures), *numbers(**dict.fromkeys(_MEASURES, ".3f"), traces=",")]
    # All of a step of time answers to the pointer.
    steps = means.mark_rect(opacity=0).encode(alt.X2("end:T"), tooltip=told)
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
        times(figures, frame),
        alt.X2("end:T"),
        alt.Y("low:Q", title=f"traces a {figures.grain}", axis=COUNTS_UP),
        alt.Y2("high:Q"),
        colour(figures),
        tooltip=["domain:N", step(figures), *numbers(traces=",")],
    )
    return bars.properties(height=110)


def dimensions(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A dot for each dimension's mean, and a line for its spread."""
    low, high = (
        (pl.col("mean") + sign * pl.col("deviation").fill_null(0)).clip(0, 1) for sign in (-1, 1)
    )
    spread = frame.with_columns(low=low, high=high)
    base = chosen(spread).encode(
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
            unit("low", "mean ± one standard deviation"), alt.X2("high:Q")
        ),
        base.mark_circle(size=55, opacity=1).encode(alt.X("mean:Q")),
    ).properties(height=height(frame, ROW * 1.7))


def overrides(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """Bars of what each override does, to either side."""
    bars = chosen(frame).mark_bar(size=14)
    return bars.encode(
        alt.X("effect_on_mean:Q", title="effect on the mean score"),
        rows(figures, frame),
        alt.Color("override:N", scale=alt.Scale(scheme=SCHEME), title=None),
        tooltip=[
            "domain:N",
            "override:N",
            *numbers(traces=",", share=".1%", mean_effect="+.3f", effect_on_mean="+.4f"),
        ],
    ).properties(height=height(frame))


def novelty_and_age(_figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A field for each age and novelty, and a line for the mean."""
    age = alt.X("age:O", scale=_AGES, title="age of the nearest trace, less than")
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


def thresholds(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A falling curve for each domain."""
    base = chosen(frame).encode(
        unit("threshold", "threshold"),
        alt.Y("share:Q", title="share of traces", axis=alt.Axis(format=".0%")),
        colour(figures),
        tooltip=["domain:N", *numbers(threshold=".3f", share=".2%", reaching=",")],
    )
    touched = base.mark_circle(size=120, opacity=0)  # a line alone is hard to point at
    return over_threshold(figures, base.mark_line(strokeWidth=2), touched)


def drift(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A bar for each domain, to either side."""
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


def rejects(figures: Figures, frame: pl.DataFrame) -> Drawing:
    """A bar for each reason."""
    most = frame.group_by("code").agg(pl.col("refused").sum()).sort("refused", "code")
    codes = most["code"].reverse().to_list()
    bars = chosen(frame).mark_bar(size=14)
    return bars.encode(
        alt.X("refused:Q", title="rows and files", axis=COUNTS_ALONG),
        alt.Y("code:N", scale=alt.Scale(domain=codes), title=None),
        color=alt.condition(
            alt.FieldOneOfPredicate("domain", figures.labels), colour(figures), alt.value(_GREY)
        ),
        tooltip=["code:N", "domain:N", *numbers(refused=",")],
    ).properties(height=height(frame, by="code"))
