"""The charts of the report: specs of Vega-Lite without rows; themes set colours and fonts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from kp_batch.report.chart_tables import TIME
from kp_batch.report.data import ReportData
from kp_batch.report.labels import ALL
from kp_batch.report.vega_lite import (
    HEIGHT,
    Shown,
    Spec,
    calculated,
    in_order,
    marks,
    nominal,
    quantitative,
)

SCORE, NOVELTY, SUCCESS, STATED = "mean score", "mean novelty", "success", "stated confidence"
PARTS = ("mix", "within", "entered", "exited")  # parts of the change of a mean
WARMING_UP = "cache warming up"
# The verdicts about a change.
MORE_THAN_CHANCE, CHANCE, NOT_COMPARED = "more than chance", "within chance", "not comparable"
_UNIT: Spec = {"domain": [0, 1]}
# The same width of labels in all charts of time, so that they align.
_ALIGNED: Spec = {"minExtent": 44, "maxExtent": 44}
# No fractions of traces as labels, however few traces there are.
_COUNTS: Spec = {"format": ",d", "labelExpr": "datum.value % 1 ? '' : datum.label"}
_ROOMY: Spec = {"zero": False, "padding": 8}  # pixels, so that no dot is cut off
_SIGNED: Spec = {"format": "+", "labelExpr": "datum.value ? datum.label : '0'"}
_LEGEND: Spec = {"symbolOpacity": 1}
_GREY = "#8a8f98"  # visible on light and dark
_SURE, _UNSURE = 1, 0.35  # opacity
_DASHED = [4, 3]
_TWO_ROWS = 30  # pixels, the height of a row with two measures
_APART = 5  # pixels from the row's middle to each
_UPRIGHT: Spec = {"shape": "stroke", "angle": 90, "size": 120, "strokeWidth": 2, "opacity": 1}
_FEW = 31  # days: with fewer, each has a tick
_VERY_FEW = 10  # steps of longer units: with fewer, each has a tick
# The places of ticks and the form of their labels, by unit of time; longer units show years.
_TIMES: dict[str, Spec] = {
    "hour": {"format": "%m-%d %H:%M"},
    "day": {"tickCount": "week", "format": TIME},
    "week": {"tickCount": "month", "format": "%Y-%m"},
    "month": {"format": "%Y-%m"},
    "quarter": {"tickCount": "year", "format": "%Y"},
}


def _line_at(axis: str, value: float, **style: Any) -> Spec:
    """Return a line across the chart."""
    rule = marks("rule", {axis: quantitative("at")}, **style)
    return {"data": {"values": [{"at": value}]}, **rule}


def _threshold(data: ReportData) -> Spec:
    return _line_at("x", data.totals["threshold"], strokeDash=_DASHED)


def _known(rows: pl.DataFrame, name: str, *layers: Spec) -> list[Spec]:
    """Return layers for the rows in which a column is known; none if it never is: no scale fits."""
    if rows[name].is_null().all():
        return []
    known = {"filter": f"isValid(datum.{name})"}
    return [{**layer, "transform": [known, *layer.get("transform", ())]} for layer in layers]


def _interval(
    rows: pl.DataFrame, axis: str, low: str, high: str, encoding: Spec, **style: Any
) -> list[Spec]:
    """Return lines from one end of an interval to the other, where it is known."""
    ends = {axis: quantitative(low), f"{axis}2": {"field": high}}
    return _known(rows, low, marks("rule", {**encoding, **ends}, **style))


@dataclass(frozen=True)
class _ChartMeasure:
    """One of several numbers in a row of a chart, and the columns of its interval."""

    title: str
    name: str
    low: str = ""  # empty: it has no interval
    high: str = ""

    def layers(self, *layers: Spec) -> list[Spec]:
        """Return layers with a column `measure`, whose colours tell the measures apart."""
        named = calculated(measure=f"'{self.title}'")
        return [{**layer, "transform": [*layer.get("transform", ()), *named]} for layer in layers]


def _colour(*measures: _ChartMeasure, **more: Any) -> Spec:
    """Return the colours of measures; the legend says which of them have an interval."""
    scale = {"domain": [measure.title for measure in measures]}
    titles = [measure.title for measure in measures if measure.low]
    label = f"datum.label + (indexof({titles}, datum.label) < 0 ? '' : ', 95% interval')"
    legend = {**_LEGEND, "labelExpr": label, "labelLimit": 0, **more}
    return nominal("measure", scale=scale, title=None, legend=legend)


_OVER_TIME = (
    _ChartMeasure(SCORE, "mean", "low", "high"),
    _ChartMeasure(NOVELTY, "novelty", "novelty_low", "novelty_high"),
)
_OF_UNITS = (
    _ChartMeasure(SCORE, "mean", "low", "high"),
    _ChartMeasure(SUCCESS, "success", "success_low", "success_high"),
    _ChartMeasure(STATED, "confidence"),
)
_OF_PAIRS = (
    _ChartMeasure(SCORE, "score_difference", "score_low", "score_high"),
    _ChartMeasure(
        SUCCESS, "success_difference", "success_difference_low", "success_difference_high"
    ),
)


def over_time(shown: Shown) -> Spec:
    """Draw the means of score and novelty, each with the band of its interval."""
    step = {
        "x": _times(shown.data.spans[shown.scope].grain, shown.rows["start"]),
        "x2": {"field": "end"},
    }
    known = [measure for measure in _OVER_TIME if not shown.rows[measure.name].is_null().all()]
    layers = [
        *_warming_up(shown.rows, step),
        *(layer for measure in known for layer in _means(shown.rows, measure, known, step)),
        marks("rect", {**step, **shown.tooltip}, opacity=0),  # for the pointer anywhere in a step
    ]
    middle = "(toDate(datum.start) + toDate(datum.end)) / 2"
    return {"transform": calculated(middle=middle), "layer": layers, "height": 280}


def _warming_up(rows: pl.DataFrame, step: Spec) -> list[Spec]:
    """Shade the steps in which caches were warming up, and label the first of them."""
    warming_up = rows.with_row_index("place").filter("warming_up")
    if warming_up.is_empty():
        return []
    is_left = warming_up["place"][0] < rows.height / 2
    place = {"x": {**step["x"], "field": "at"}, "y": {"value": 4}}
    name = marks(
        "text",
        place,
        text=WARMING_UP,
        align="left" if is_left else "right",
        baseline="top",
        dx=4 if is_left else -4,
    )
    first = warming_up["start"][0] if is_left else warming_up["end"][0]
    return [
        marks("rect", step, "datum.warming_up", color=_GREY, opacity=0.1),
        {"data": {"values": [{"at": first}]}, **name},
    ]


def _means(
    rows: pl.DataFrame, measure: _ChartMeasure, measures: Sequence[_ChartMeasure], step: Spec
) -> list[Spec]:
    """Draw a line through well-known values, with its band, and faint dots for the rest."""
    y = quantitative(measure.name, title="mean, 0 to 1", scale=_ROOMY, axis=_ALIGNED)
    colour = _colour(*measures)
    ends = {"y": {**y, "field": measure.low}, "y2": {"field": measure.high}}
    at = {"x": {**step["x"], "field": "middle"}, "y": y, "color": colour}
    is_known = f"isValid(datum.{measure.low})"
    is_sure = f"{is_known} && datum.is_over && !datum.is_few"
    opacity = _faint_unless(is_sure)
    # The line breaks where nothing is known well.
    known = calculated(known=f"{is_sure} ? datum.{measure.name} : null")
    dash = {} if measure is measures[0] else {"strokeDash": _DASHED}
    line = {"transform": known, **marks("line", {**at, "y": {**y, "field": "known"}}, **dash)}
    band = marks("rect", {**step, **ends, "color": colour}, opacity=0.2)
    return measure.layers(
        *_known(rows, measure.low, band),
        *([] if rows[measure.low].is_null().all() else [line]),
        marks("circle", {**at, "opacity": opacity}, size=24),
    )


def _faint_unless(test: str) -> Spec:
    return {"condition": {"test": test, "value": _SURE}, "value": _UNSURE}


def volume(shown: Shown) -> Spec:
    """Draw the traces of each step of time."""
    grain = shown.data.spans[shown.scope].grain
    encoding = {
        "x": _times(grain, shown.rows["start"]),
        "x2": {"field": "end"},
        "y": quantitative(
            "traces",
            title=f"traces {'an' if grain == 'hour' else 'a'} {grain}",
            axis={**_COUNTS, **_ALIGNED},
        ),
        "opacity": _faint_unless("datum.is_over"),
        **shown.tooltip,
    }
    return {**marks("rect", encoding), "height": 110}


def changes(shown: Shown) -> Spec:
    """Draw the change to each period, and for all domains its parts."""
    x = _times(shown.data.period, shown.rows["begins"])
    step = {"x": x, "x2": {"field": "ends"}}
    middle = {"x": {**x, "field": "middle"}}
    y = quantitative("change", title="change of the mean", axis={**_SIGNED, **_ALIGNED})
    opacity = _faint_unless(f"datum.verdict != '{NOT_COMPARED}'")
    dots = {**middle, "y": y, "opacity": opacity}
    is_more = f"datum.verdict == '{MORE_THAN_CHANCE}'"
    has_more = MORE_THAN_CHANCE in shown.rows["verdict"]
    layers = [
        *(_parts(shown.rows, x) if shown.scope == ALL else []),
        _line_at("y", 0, strokeWidth=0.5),
        *_interval(shown.rows, "y", "low", "high", {**middle, "opacity": opacity}),
        *_known(shown.rows, "change", marks("point", dots, size=60)),
        *([marks("point", dots, is_more, size=60, filled=True)] if has_more else []),
        marks("rect", {**step, **shown.tooltip}, opacity=0),
    ]
    middle_of = "(toDate(datum.begins) + toDate(datum.ends)) / 2"
    return {"transform": calculated(middle=middle_of), "layer": layers, "height": HEIGHT}


def _parts(rows: pl.DataFrame, x: Spec) -> list[Spec]:
    """Return bars for the parts of each change, above and below zero."""
    stacked = [
        {"fold": [*PARTS], "as": ["part", "by"]},
        {"stack": "by", "groupby": ["begins"], "as": ["from", "to"]},
        *calculated(left=_within(0.15), right=_within(0.85)),
    ]
    encoding = {
        "x": {**x, "field": "left"},
        "x2": {"field": "right"},
        "y": quantitative("from"),
        "y2": {"field": "to"},
        "color": nominal("part", scale={"domain": [*PARTS]}, title=None, legend=_LEGEND),
    }
    bars = {"transform": stacked, **marks("rect", encoding, opacity=0.75)}
    return _known(rows, "mix", bars)


def _within(share: float) -> str:
    """Return the expression of a time within a period."""
    return f"{1 - share:g} * toDate(datum.begins) + {share:g} * toDate(datum.ends)"


def domains(shown: Shown) -> Spec:
    """Draw the mean of each domain with its interval, over the range of most of its scores."""
    opacity = _faint_unless("datum.is_chosen")
    base = {"y": in_order("domain"), "opacity": opacity, **shown.tooltip}
    scale = _unit_of(shown.rows, "low", "high")
    most = {**base, "x": _unit("p5", "score", scale), "x2": {"field": "p95"}}
    layers = [
        marks("bar", most, size=12, fillOpacity=0.3),
        *_interval(shown.rows, "x", "low", "high", base, strokeWidth=2),
        marks("circle", {**base, "x": quantitative("mean")}, size=60),
        _threshold(shown.data),
    ]
    return {"layer": layers, "height": shown.height()}


def _unit(field: str, title: str | None, scale: Spec = _UNIT, **more: Any) -> Spec:
    """Return the horizontal channel for a value from 0 to 1."""
    axis = {"tickCount": 10, "format": ".1f"}
    return quantitative(field, scale=scale, title=title, axis=axis, **more)


def _unit_of(rows: pl.DataFrame, *names: str) -> Spec:
    """Return a scale from 0 to 1, extended to the intervals in these columns."""
    ends = pl.concat([rows[name].cast(pl.Float64) for name in names]).drop_nulls().to_list()
    return {"domain": [min([0, *ends]), max([1, *ends])]}


def histogram(shown: Shown) -> Spec:
    """Draw the histogram and the threshold."""
    encoding = {
        "x": _unit("low", "score", bin="binned"),
        "x2": {"field": "high"},
        "y": quantitative("traces", title="traces", axis=_COUNTS),
        **shown.tooltip,
    }
    layers = [marks("bar", encoding, binSpacing=1), _threshold(shown.data)]
    return {"layer": layers, "height": HEIGHT}


def drivers(shown: Shown) -> Spec:
    """Draw the share of the variance of each part, with its weight."""
    base = {"y": in_order("part"), **shown.tooltip}
    title = "bar: share of the variance; line: weight"
    share = quantitative("share_of_variance", title=title, axis={"format": "%"})
    weight = {**base, "x": quantitative("weight", title=title)}
    layers = [
        marks("bar", {**base, "x": share}, size=14),
        _line_at("x", 0, strokeWidth=0.5),
        *_known(shown.rows, "weight", marks("tick", weight, size=20, thickness=3)),
    ]
    return {"layer": layers, "height": shown.height()}


def success(shown: Shown) -> Spec:
    """Draw the share of traces that succeed, by score."""
    return _succeeded(shown, _unit("mean", "score"))


def calibration(shown: Shown) -> Spec:
    """Draw the share of traces that succeed, by stated confidence."""
    chart = _succeeded(shown, _unit("confidence", "stated confidence"))
    both = {"x": quantitative("at"), "y": quantitative("at")}
    diagonal = marks("line", both, strokeDash=_DASHED, strokeWidth=1)
    ends = {"data": {"values": [{"at": 0}, {"at": 1}]}}
    return {**chart, "layer": [{**ends, **diagonal}, *chart["layer"]]}


def _succeeded(shown: Shown, x: Spec) -> Spec:
    base = {"x": x, **shown.tooltip}
    y = quantitative("success", title="succeeded", scale=_UNIT, axis={"format": "%"})
    size = quantitative("traces", title="size", scale={"range": [30, 250]}, legend=None)
    layers = [
        *_interval(shown.rows, "y", "success_low", "success_high", base),
        marks("circle", {**base, "y": y, "size": size}, opacity=1),
    ]
    return {"layer": layers, "height": HEIGHT}


def units(shown: Shown) -> Spec:
    """Draw the mean score and the success of each unit, with its stated confidence."""
    scale = _unit_of(shown.rows, "low", "high")
    return _side_by_side(shown, _OF_UNITS, _unit("", None, scale))


def paired(shown: Shown) -> Spec:
    """Draw how each unit differs from the others on the same tasks."""
    chart = _side_by_side(shown, _OF_PAIRS, quantitative("", title=None, axis=_SIGNED))
    return {**chart, "layer": [_line_at("x", 0, strokeWidth=0.5), *chart["layer"]]}


def _side_by_side(shown: Shown, measures: Sequence[_ChartMeasure], x: Spec) -> Spec:
    """Draw a row for each unit, with a dot and an interval for each of two measures.

    A third measure, without intervals, is a line next to the second.
    """
    base = {"y": in_order("unit"), "color": _colour(*measures), **shown.tooltip}
    layers: list[Spec] = []
    for measure, offset in zip(measures, (-_APART, _APART, _APART), strict=False):
        at = {**base, "x": {**x, "field": measure.name}}
        if measure.low:
            ends = _interval(shown.rows, "x", measure.low, measure.high, base, yOffset=offset)
            dots = marks("circle", at, yOffset=offset, opacity=1, size=40)
            layers += measure.layers(*ends, dots)
        else:
            layers += measure.layers(marks("point", at, yOffset=offset, **_UPRIGHT))
    return {"layer": layers, "height": shown.height(_TWO_ROWS)}


def drift(shown: Shown) -> Spec:
    """Draw how much the mean of each domain changed."""
    x = quantitative("mean_shift", title="shift of the mean score", axis=_SIGNED)
    bars = marks("bar", {"x": x, "y": in_order("domain"), **shown.tooltip}, size=14)
    return {"layer": [bars, _line_at("x", 0, strokeWidth=0.5)], "height": shown.height()}


def _times(grain: str, starts: pl.Series) -> Spec:
    """Return the horizontal channel for the start of a step of time; its end is the channel x2."""
    axis = _TIMES.get(grain, {"format": "%Y"})
    if grain == "day" and len(starts) <= _FEW:
        axis = {**axis, "tickCount": "day"}
    if grain not in {"hour", "day"} and len(starts) <= _VERY_FEW:
        form = {"week": TIME, "quarter": "%Y-%m"}.get(grain, axis["format"])
        axis = {"values": [_milliseconds(start) for start in starts], "format": form}
    return {
        "field": starts.name,
        "type": "temporal",
        "scale": {"type": "utc"},
        "title": None,
        "axis": axis,
    }


def _milliseconds(time: str) -> int:
    """Return a time of `Panel.rows` as Vega has it."""
    moment = datetime.fromisoformat(time).replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
