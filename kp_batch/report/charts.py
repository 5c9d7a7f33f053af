"""Draws the data as Altair charts; a theme sets their colours and fonts."""

from typing import Any, Literal

import altair as alt
import polars as pl

from kp_batch.report.data import ReportData

# The parameter of every chart that the page sets to a domain's label; empty for all domains.
CHOSEN = "chosen"
ROW = 24  # pixels a domain
HEIGHT = 240
SCHEME = "dark2"  # for anything but domains, whose colours the theme sets
SCORES = alt.Scale(domain=[0, 1])
# Pixels for the labels: the same in all charts, so that charts above each other align in time.
_EXTENT = 44
MEANS = alt.Axis(minExtent=_EXTENT, maxExtent=_EXTENT)
# No fractions of a trace as labels, however few traces there are.
_WHOLE_NUMBERS = "datum.value % 1 ? '' : datum.label"
COUNTS_UP = alt.Axis(format=",d", labelExpr=_WHOLE_NUMBERS, minExtent=_EXTENT, maxExtent=_EXTENT)
COUNTS_ALONG = alt.Axis(format=",d", labelExpr=_WHOLE_NUMBERS)
_SIGNED = alt.Axis(format="+")

_OVERRIDES = ("single thought", "recovery bonus", "low diversity penalty")
_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
_GREY = "#8a8f98"  # for rejected rows whose domain is unknown or has no score
_AGES = ("<1 s", "<1 min", "<10 min", "<1 h", "<6 h", "<1 d", "<7 d", "<30 d", "≥30 d")
_MEASURES = ("mean score", "mean novelty")
_BEGUN = 0.5  # opacity of a step of time that is not over
_FEW = 31  # days, up to which each day has a tick
# The places of ticks and the form of their labels, by the unit of time; longer units: some years.
_TICKS: dict[str, Literal["week", "month", "year"]] = {
    "day": "week",
    "week": "month",
    "month": "year",
    "quarter": "year",
}
_LABELS = {"day": "%Y-%m-%d", "week": "%Y-%m"}

# `alt.layer` is typed to return a facet chart, too.
Drawing = alt.Chart | alt.LayerChart | alt.FacetChart


def as_spec(chart: Drawing, caption: str) -> dict[str, Any]:
    """A chart as Vega-Lite, as wide as the element that holds it.

    The theme with which the page draws it sets colours and fonts.
    """
    autosize = alt.AutoSizeParams(type="fit-x", contains="padding")
    with_domain = chart.add_params(alt.param(CHOSEN, value=""))
    sized = with_domain.properties(width="container", autosize=autosize, description=caption)
    # Altair types the end of the context by what an error passes to it alone.
    with alt.data_transformers.disable_max_rows():  # pyrefly: ignore[bad-context-manager]
        return sized.to_dict(validate=False)  # which takes as long as all else of a page


def chosen(frame: pl.DataFrame) -> alt.Chart:
    """A chart of the rows of the domain that the page has chosen."""
    return alt.Chart(frame).transform_filter(f"{CHOSEN} == '' || datum.domain == {CHOSEN}")


def summed(frame: pl.DataFrame, *by: str) -> alt.Chart:
    """A chart of the means over the chosen domains together, from the sums of each domain."""
    names = [name for name in ("score", "novelty") if name in frame.columns]
    sums: dict[str, Any] = {name: f"sum({name})" for name in ("traces", *names)}
    # Without traces the mean is null, which breaks the line.
    means = {f"mean {name}": f"datum.traces ? datum.{name} / datum.traces : null" for name in names}
    return chosen(frame).transform_aggregate(groupby=[*by], **sums).transform_calculate(**means)


def over_threshold(data: ReportData, *layers: alt.Chart) -> Drawing:
    """Lay a line at the threshold over charts that run from 0 to 1."""
    line = alt.Chart(alt.InlineData([{"threshold": data.totals["threshold"]}]))
    rule = line.mark_rule(strokeDash=[4, 3]).encode(alt.X("threshold:Q"))
    return alt.layer(*layers, rule).properties(height=HEIGHT)


def unit(name: str, title: str, **more: Any) -> alt.X:
    """The horizontal channel for a value from 0 to 1."""
    axis = alt.Axis(tickCount=10, format=".1f")
    return alt.X(f"{name}:Q", scale=SCORES, title=title, axis=axis, **more)


def rows(data: ReportData, frame: pl.DataFrame) -> alt.Y:
    """The vertical channel with a row for each domain of the frame, whichever is chosen."""
    present = set(frame["domain"])
    labels = [label for label in data.labels if label in present]
    return alt.Y("domain:N", scale=alt.Scale(domain=labels), title=None)


def height(frame: pl.DataFrame, row: float = ROW, by: str = "domain") -> float:
    """The height in pixels of a chart with a row for each value of the column `by`."""
    return row * frame[by].n_unique() + 10


def colour(data: ReportData) -> alt.Color:
    """The domain's colour, the same in all charts; the page's domain buttons are the legend."""
    return alt.Color("domain:N", scale=alt.Scale(domain=data.labels), legend=None)


def numbers(**formats: str) -> list[alt.Tooltip]:
    """Tooltips for columns, each in its format."""
    return [
        alt.Tooltip(f"{name}:Q", format=form, title=name.replace("_", " "))
        for name, form in formats.items()
    ]


def _or_none(name: str, form: str, why: str) -> tuple[dict[str, str], alt.Tooltip]:
    """A text and its tooltip for a column in a format, in which Vega would write null as 0."""
    value, title = f"datum['{name}']", name.replace("_", " ")
    text = f"isValid({value}) ? format({value}, '{form}') : 'none: {why}'"
    return {f"{name} text": text}, alt.Tooltip(f"{name} text:N", title=title)


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
        (pl.col("mean") + sign * pl.col("stddev").fill_null(0)).clip(0, 1) for sign in (-1, 1)
    )
    spread = frame.with_columns(low=low, high=high)
    text, deviation = _or_none("stddev", ".3f", "a single trace")
    base = (
        chosen(spread)
        .transform_calculate(**text)
        .encode(
            y=rows(data, frame),
            yOffset=alt.YOffset("dimension:N"),
            color=alt.Color(
                "dimension:N",
                scale=alt.Scale(scheme=SCHEME),
                title=None,
                legend=alt.Legend(symbolOpacity=1),
            ),
            tooltip=["domain:N", "dimension:N", *numbers(mean=".3f"), deviation],
        )
    )
    return alt.layer(
        base.mark_rule(strokeWidth=2, opacity=0.4).encode(
            unit("low", "mean ± one standard deviation"), alt.X2("high:Q")
        ),
        base.mark_circle(size=55, opacity=1).encode(alt.X("mean:Q")),
    ).properties(height=height(frame, ROW * 1.7))


def overrides(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a bar for each override's effect, to the left or right of zero."""
    effect = alt.X("effect_on_mean:Q", title="effect on the mean score")
    kinds = alt.Color("override:N", scale=alt.Scale(domain=_OVERRIDES, scheme=SCHEME), title=None)
    tooltip = numbers(traces=",", share=".1%", mean_effect="+.3f", effect_on_mean="+.4f")
    return _bars(data, frame, effect, kinds, "override:N", *tooltip)


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
    text, index = _or_none("stability_index", ".4f", "fewer than 200 traces")
    tooltip = [*numbers(traces_a=",", traces_b=",", **shifts), index]
    shift = alt.X("mean_shift:Q", title="shift of the mean score", axis=_SIGNED)
    return _bars(data, frame, shift, colour(data), *tooltip).transform_calculate(**text)


def recorded(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw a bar for each domain, to the left or right of zero."""
    tooltip = numbers(
        traces=",",
        placeholders=",",
        mean_difference="+.4f",
        mean_absolute_difference=".4f",
        now_reaching=",",
        no_longer_reaching=",",
    )
    above = alt.X("mean_difference:Q", title="score above the recorded one", axis=_SIGNED)
    return _bars(data, frame, above, colour(data), *tooltip)


def _bars(
    data: ReportData, frame: pl.DataFrame, x: alt.X, color: alt.Color, *tooltip: alt.Tooltip | str
) -> Drawing:
    bars = chosen(frame).mark_bar(size=14)
    encoded = bars.encode(x, rows(data, frame), color, tooltip=["domain:N", *tooltip])
    return encoded.properties(height=height(frame))


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


def over_time(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw lines for the mean score and the mean novelty, with larger dots for more traces."""
    known = [_or_none(name, ".3f", "no trace") for name in _MEASURES]
    means = summed(frame, "start", "end").transform_calculate(
        middle="(toDate(datum.start) + toDate(datum.end)) / 2",
        **{name: text for texts, _ in known for name, text in texts.items()},
    )
    lines = means.transform_fold([*_MEASURES], as_=["measure", "value"]).encode(
        _times(data, frame, "middle"),
        alt.Y("value:Q", scale=SCORES, title="mean", axis=MEANS),
        alt.Color("measure:N", scale=alt.Scale(domain=_MEASURES, scheme=SCHEME), title=None),
    )
    size = alt.Size("traces:Q", scale=alt.Scale(range=[16, 80]), legend=None)
    tooltip = [_step(data), *(mean for _, mean in known), *numbers(traces=",")]
    # The tooltip shows wherever the pointer is within a step of time.
    steps = means.mark_rect(opacity=0).encode(_times(data, frame), alt.X2("end:T"), tooltip=tooltip)
    return alt.layer(
        lines.mark_line(strokeWidth=1.5), lines.mark_circle(opacity=1).encode(size), steps
    )


def volume(data: ReportData, frame: pl.DataFrame) -> Drawing:
    """Draw the traces of each step of time, the domains stacked."""
    # Without empty steps but the first and the last, so that this chart aligns with the one above.
    ends = pl.col("start").is_in([frame["start"].min(), frame["start"].max()])
    filled = chosen(frame.filter((pl.col("traces") > 0) | ends))
    stacked = filled.transform_stack(stack="traces", as_=["low", "high"], groupby=["start"])
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
    return alt.Tooltip("utcyearmonthdate(start):T", title=f"{data.grain} from", format="%Y-%m-%d")
