"""Draws the data as charts: specs of Vega-Lite, whose colours and fonts a theme sets."""

from typing import Any

import polars as pl

from kp_batch.report.data import ReportData

VEGA_LITE = "6.4"  # the version for which these specs are written, and that draws them
# The parameter of every chart that the page sets to a domain's label; empty for all domains.
CHOSEN = "chosen"
ROW = 24  # pixels a domain
HEIGHT = 240
SCHEME = "dark2"  # for anything but domains, whose colours the theme sets

Spec = dict[str, Any]  # a chart in Vega-Lite, or a part of one

_SCORES: Spec = {"domain": [0, 1]}
# Pixels for the labels: the same in all charts, so that charts above each other align in time.
_MEANS: Spec = {"minExtent": 44, "maxExtent": 44}
# No fractions of a trace as labels, however few traces there are.
_COUNTS_ALONG: Spec = {"format": ",d", "labelExpr": "datum.value % 1 ? '' : datum.label"}
_COUNTS_UP: Spec = {**_COUNTS_ALONG, **_MEANS}
_SIGNED: Spec = {"format": "+"}

_OVERRIDES = ("single thought", "recovery bonus", "low diversity penalty")
_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
_GREY = "#8a8f98"  # for rejected rows whose domain is unknown or has no score
_AGES = ("<1 s", "<1 min", "<10 min", "<1 h", "<6 h", "<1 d", "<7 d", "<30 d", "≥30 d")
_MEASURES = ("mean score", "mean novelty")
_BEGUN = 0.5  # opacity of a step of time that is not over
_FEW = 31  # days, up to which each day has a tick
# The places of ticks and the form of their labels, by the unit of time; longer units: some years.
_TIMES: dict[str, Spec] = {
    "day": {"tickCount": "week", "format": "%Y-%m-%d"},
    "week": {"tickCount": "month", "format": "%Y-%m"},
    "month": {"tickCount": "year", "format": "%Y"},
    "quarter": {"tickCount": "year", "format": "%Y"},
}


def as_spec(chart: Spec, caption: str) -> Spec:
    """A chart with its caption, as wide as the element that holds it."""
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE}.json",
        "description": caption,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": [{"name": CHOSEN, "value": ""}],
        **chart,
    }


def drawn_from(frame: pl.DataFrame, where: str, *transforms: Spec) -> Spec:
    """What a chart and all its layers are drawn from: the rows of a condition, transformed."""
    return {"data": {"values": frame.to_dicts()}, "transform": [{"filter": where}, *transforms]}


def chosen(frame: pl.DataFrame, *transforms: Spec) -> Spec:
    """Likewise, the rows of the domain that the page has chosen."""
    return drawn_from(frame, f"{CHOSEN} == '' || datum.domain == {CHOSEN}", *transforms)


def calculated(**columns: str) -> list[Spec]:
    """Transforms that add columns, each by its expression."""
    return [{"calculate": expression, "as": name} for name, expression in columns.items()]


def summed(frame: pl.DataFrame, *by: str) -> list[Spec]:
    """Transforms to the means over the chosen domains together, from the sums of each domain."""
    names = [name for name in ("score", "novelty") if name in frame.columns]
    sums = [{"op": "sum", "field": name, "as": name} for name in ("traces", *names)]
    # Without traces the mean is null, which breaks the line.
    means = {f"mean {name}": f"datum.traces ? datum.{name} / datum.traces : null" for name in names}
    return [{"aggregate": sums, "groupby": [*by]}, *calculated(**means)]


def marks(kind: str, encoding: Spec, **style: Any) -> Spec:
    """Marks of one kind and style; the encoding says what each of their channels shows."""
    return {"mark": {"type": kind, **style}, "encoding": encoding}


def quantitative(field: str, **more: Any) -> Spec:
    """A channel for a number."""
    return {"field": field, "type": "quantitative", **more}


def nominal(field: str, **more: Any) -> Spec:
    """A channel for a text whose values have no order."""
    return {"field": field, "type": "nominal", **more}


def ordinal(field: str, **more: Any) -> Spec:
    """A channel for a text whose values have an order."""
    return {"field": field, "type": "ordinal", **more}


def temporal(field: str, **more: Any) -> Spec:
    """A channel for a time."""
    return {"field": field, "type": "temporal", **more}


def unit(field: str, title: str, **more: Any) -> Spec:
    """The horizontal channel for a value from 0 to 1."""
    axis = {"tickCount": 10, "format": ".1f"}
    return quantitative(field, scale=_SCORES, title=title, axis=axis, **more)


def rows(data: ReportData, frame: pl.DataFrame) -> Spec:
    """The vertical channel with a row for each domain of the frame, whichever is chosen."""
    present = set(frame["domain"])
    labels = [label for label in data.labels if label in present]
    return nominal("domain", scale={"domain": labels}, title=None)


def height(frame: pl.DataFrame, row: float = ROW, by: str = "domain") -> float:
    """The height in pixels of a chart with a row for each value of the column `by`."""
    return row * frame[by].n_unique() + 10


def colour(data: ReportData) -> Spec:
    """The domain's colour, the same in all charts; the page's domain buttons are the legend."""
    return nominal("domain", scale={"domain": data.labels}, legend=None)


def numbers(**formats: str) -> list[Spec]:
    """Tooltips for columns, each in its format."""
    return [
        quantitative(name, format=form, title=name.replace("_", " "))
        for name, form in formats.items()
    ]


def threshold_line(data: ReportData) -> Spec:
    """A line at the threshold, in a chart that runs from 0 to 1."""
    rule = marks("rule", {"x": quantitative("threshold")}, strokeDash=[4, 3])
    return {"data": {"values": [{"threshold": data.totals["threshold"]}]}, **rule}


def _or_none(name: str, form: str, why: str) -> tuple[dict[str, str], Spec]:
    """A text and its tooltip for a column in a format, in which Vega would write null as 0."""
    value, title = f"datum['{name}']", name.replace("_", " ")
    text = f"isValid({value}) ? format({value}, '{form}') : 'none: {why}'"
    return {f"{name} text": text}, nominal(f"{name} text", title=title)


def histogram(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw the histogram, the domains stacked."""
    encoding = {
        "x": unit("low", "score", bin="binned"),
        "x2": {"field": "high"},
        "y": quantitative("traces", stack=True, title="traces", axis=_COUNTS_UP),
        "color": colour(data),
        "tooltip": [nominal("domain"), *numbers(low=".2f", high=".2f", traces=",")],
    }
    bars = marks("bar", encoding, binSpacing=1)
    return {**chosen(frame), "layer": [bars, threshold_line(data)], "height": HEIGHT}


def domains(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a line, a bar and a tick for the quantiles of each domain."""
    tooltip = numbers(traces=",", **dict.fromkeys(_QUANTILES, ".3f"))
    base = {"y": rows(data, frame), "tooltip": [nominal("domain"), *tooltip]}
    coloured = {**base, "color": colour(data)}
    most = {**coloured, "x": unit("p5", "score"), "x2": {"field": "p95"}}
    half = {**coloured, "x": quantitative("p25"), "x2": {"field": "p75"}}
    layers = [
        marks("rule", most, strokeWidth=2),
        marks("bar", half, size=12),
        marks("tick", {**base, "x": quantitative("p50")}, size=18, thickness=3),
        threshold_line(data),
    ]
    return {**chosen(frame), "layer": layers, "height": height(frame)}


def dimensions(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a dot for each dimension's mean, and a line for its spread."""
    low, high = (
        (pl.col("mean") + sign * pl.col("stddev").fill_null(0)).clip(0, 1) for sign in (-1, 1)
    )
    text, deviation = _or_none("stddev", ".3f", "a single trace")
    encoding = {
        "y": rows(data, frame),
        "yOffset": nominal("dimension"),
        "color": nominal(
            "dimension", scale={"scheme": SCHEME}, title=None, legend={"symbolOpacity": 1}
        ),
        "tooltip": [nominal("domain"), nominal("dimension"), *numbers(mean=".3f"), deviation],
    }
    spread = {"x": unit("low", "mean ± one standard deviation"), "x2": {"field": "high"}}
    layers = [
        marks("rule", {**encoding, **spread}, strokeWidth=2, opacity=0.4),
        marks("circle", {**encoding, "x": quantitative("mean")}, size=55, opacity=1),
    ]
    drawn = chosen(frame.with_columns(low=low, high=high), *calculated(**text))
    return {**drawn, "layer": layers, "height": height(frame, ROW * 1.7)}


def overrides(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a bar for each override's effect, to the left or right of zero."""
    effect = quantitative("effect_on_mean", title="effect on the mean score")
    kinds = nominal("override", scale={"domain": _OVERRIDES, "scheme": SCHEME}, title=None)
    tooltip = numbers(traces=",", share=".1%", mean_effect="+.3f", effect_on_mean="+.4f")
    return {**chosen(frame), **_bars(data, frame, effect, kinds, nominal("override"), *tooltip)}


def novelty_and_age(_data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a field for each age and novelty, and a line for the mean."""
    age = ordinal(
        "age",
        scale={"domain": _AGES},
        axis={"labelOverlap": "greedy"},
        title="age of the nearest trace",
    )
    traces = quantitative("traces", aggregate="sum", title="traces")
    mean = quantitative("mean novelty")
    fields = {
        "x": age,
        "y": quantitative("low", bin="binned", scale=_SCORES, title="novelty"),
        "y2": {"field": "high"},
        "color": {**traces, "scale": {"type": "sqrt"}},
        "tooltip": [ordinal("age"), *numbers(low=".1f", high=".1f"), {**traces, "format": ","}],
    }
    tooltip = [ordinal("age"), {**mean, "format": ".3f"}, *numbers(traces=",")]
    line = marks("line", {"x": age, "y": mean, "tooltip": tooltip}, point=True)
    layers = [marks("rect", fields), {"transform": summed(frame, "age"), **line}]
    return {**chosen(frame), "layer": layers, "height": HEIGHT}


def thresholds(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a falling curve for each domain."""
    encoding = {
        "x": unit("threshold", "threshold"),
        "y": quantitative("share", title="share of traces", axis={"format": ".0%"}),
        "color": colour(data),
        "tooltip": [nominal("domain"), *numbers(threshold=".3f", share=".2%", reaching=",")],
    }
    curves = marks("line", encoding, strokeWidth=2)
    touched = marks("circle", encoding, size=120, opacity=0)  # a line alone is hard to point at
    return {**chosen(frame), "layer": [curves, touched, threshold_line(data)], "height": HEIGHT}


def drift(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a bar for each domain, to the left or right of zero."""
    shifts = dict.fromkeys(("mean_shift", "p5_shift", "p50_shift", "p95_shift"), "+.4f")
    text, index = _or_none("stability_index", ".4f", "fewer than 200 traces")
    tooltip = [*numbers(traces_a=",", traces_b=",", **shifts), index]
    shift = quantitative("mean_shift", title="shift of the mean score", axis=_SIGNED)
    bars = _bars(data, frame, shift, colour(data), *tooltip)
    return {**chosen(frame, *calculated(**text)), **bars}


def recorded(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a bar for each domain, to the left or right of zero."""
    tooltip = numbers(
        traces=",",
        placeholders=",",
        mean_difference="+.4f",
        mean_absolute_difference=".4f",
        now_reaching=",",
        no_longer_reaching=",",
    )
    above = quantitative("mean_difference", title="score above the recorded one", axis=_SIGNED)
    return {**chosen(frame), **_bars(data, frame, above, colour(data), *tooltip)}


def _bars(data: ReportData, frame: pl.DataFrame, x: Spec, color: Spec, *tooltip: Spec) -> Spec:
    tooltips = [nominal("domain"), *tooltip]
    encoding = {"x": x, "y": rows(data, frame), "color": color, "tooltip": tooltips}
    return {**marks("bar", encoding, size=14), "height": height(frame)}


def rejects(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw a bar for each reason."""
    most = frame.group_by("code").agg(pl.col("rejected").sum()).sort("rejected", "code")
    codes = most["code"].reverse().to_list()
    is_scored = {"field": "domain", "oneOf": data.labels}
    encoding = {
        "x": quantitative("rejected", title="rows and files", axis=_COUNTS_ALONG),
        "y": nominal("code", scale={"domain": codes}, title=None),
        "color": {"condition": {"test": is_scored, **colour(data)}, "value": _GREY},
        "tooltip": [nominal("code"), nominal("domain"), *numbers(rejected=",")],
    }
    bars = marks("bar", encoding, size=14)
    return {**chosen(frame), **bars, "height": height(frame, by="code")}


def over_time(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw lines for the mean score and the mean novelty, with larger dots for more traces."""
    known = [_or_none(name, ".3f", "no trace") for name in _MEASURES]
    columns = {name: text for texts, _ in known for name, text in texts.items()}
    middle = "(toDate(datum.start) + toDate(datum.end)) / 2"
    drawn = chosen(frame, *summed(frame, "start", "end"), *calculated(middle=middle, **columns))
    encoding = {
        "x": _times(data, frame, "middle"),
        "y": quantitative("value", scale=_SCORES, title="mean", axis=_MEANS),
        "color": nominal("measure", scale={"domain": _MEASURES, "scheme": SCHEME}, title=None),
    }
    size = quantitative("traces", scale={"range": [16, 80]}, legend=None)
    folded = {"transform": [{"fold": _MEASURES, "as": ["measure", "value"]}]}
    # The tooltip shows wherever the pointer is within a step of time.
    step = {
        "x": _times(data, frame),
        "x2": {"field": "end"},
        "tooltip": [_step(data), *(mean for _, mean in known), *numbers(traces=",")],
    }
    layers = [
        {**folded, **marks("line", encoding, strokeWidth=1.5)},
        {**folded, **marks("circle", {**encoding, "size": size}, opacity=1)},
        marks("rect", step, opacity=0),
    ]
    return {**drawn, "layer": layers, "height": 300}


def volume(data: ReportData, frame: pl.DataFrame) -> Spec:
    """Draw the traces of each step of time, the domains stacked."""
    # Without empty steps but the first and the last, so that this chart aligns with the one above.
    ends = pl.col("start").is_in([frame["start"].min(), frame["start"].max()])
    filled = frame.filter((pl.col("traces") > 0) | ends)
    stack = {"stack": "traces", "as": ["low", "high"], "groupby": ["start"]}
    encoding = {
        "x": _times(data, frame),
        "x2": {"field": "end"},
        "y": quantitative("low", title=f"traces a {data.grain}", axis=_COUNTS_UP),
        "y2": {"field": "high"},
        "color": colour(data),
        "opacity": {"condition": {"test": "datum.is_over", "value": 1}, "value": _BEGUN},
        "tooltip": [nominal("domain"), _step(data), *numbers(traces=",")],
    }
    return {**chosen(filled, stack), **marks("rect", encoding), "height": 110}


def _times(data: ReportData, frame: pl.DataFrame, field: str = "start") -> Spec:
    """The horizontal channel for the start of a step of time; its end is the channel x2."""
    axis = _TIMES.get(data.grain, {"format": "%Y"})
    if data.grain == "day" and frame["start"].n_unique() <= _FEW:
        axis = {**axis, "tickCount": "day"}
    return temporal(field, scale={"type": "utc"}, title=None, axis=axis)


def _step(data: ReportData) -> Spec:
    return temporal(
        "start", timeUnit="utcyearmonthdate", title=f"{data.grain} from", format="%Y-%m-%d"
    )
