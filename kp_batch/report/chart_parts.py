"""Parts that charts share: rows, colours, formats, and the line at the threshold."""

from typing import Any

import altair as alt
import polars as pl

from kp_batch.report.report_data import ReportData

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

# `alt.layer` is typed to return a facet chart, too.
Drawing = alt.Chart | alt.LayerChart | alt.FacetChart


def as_spec(chart: Drawing, caption: str) -> dict[str, Any]:
    """A chart as Vega-Lite, as wide as the element that holds it.

    The theme with which the page draws it sets colours and fonts.
    """
    autosize = alt.AutoSizeParams(type="fit-x", contains="padding")
    with_domain = chart.add_params(alt.param(CHOSEN, value=""))
    sized = with_domain.properties(width="container", autosize=autosize, description=caption)
    with alt.data_transformers.disable_max_rows():
        return sized.to_dict()


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
        alt.Tooltip(f"{name}:Q", format=each, title=name.replace("_", " "))
        for name, each in formats.items()
    ]
