"""What the charts have in common: their rows, colours, formats and the line of the threshold."""

from typing import Any

import altair as alt
import polars as pl

from kp_batch.report.report_data import Figures

# The page sets this parameter of every chart to a domain's label; empty: all domains.
CHOSEN = "chosen"
ROW = 24  # pixels a domain
HEIGHT = 240
SCHEME = "dark2"  # of what is no domain, whose colours are the theme's
SCORES = alt.Scale(domain=[0, 1])
# Pixels of labels, so that charts above each other share their time.
_EXTENT = 44
MEANS = alt.Axis(minExtent=_EXTENT, maxExtent=_EXTENT)
# Of counts, however few there are: no fractions of a trace.
_WHOLE = "datum.value % 1 ? '' : datum.label"
COUNTS_UP = alt.Axis(format=",d", labelExpr=_WHOLE, minExtent=_EXTENT, maxExtent=_EXTENT)
COUNTS_ALONG = alt.Axis(format=",d", labelExpr=_WHOLE)

Drawing = alt.Chart | alt.LayerChart | alt.FacetChart  # the last since `layer` says so


def chosen(frame: pl.DataFrame) -> alt.Chart:
    """The rows of the domain that the page has chosen."""
    return alt.Chart(frame).transform_filter(f"{CHOSEN} == '' || datum.domain == {CHOSEN}")


def summed(frame: pl.DataFrame, *by: str) -> alt.Chart:
    """The means of what was summed, over the chosen domains together."""
    names = [name for name in ("score", "novelty") if name in frame.columns]
    sums: dict[str, Any] = {name: f"sum({name})" for name in ("traces", *names)}
    # Where there is no trace the mean is null, which breaks the line.
    means = {f"mean {name}": f"datum.traces ? datum.{name} / datum.traces : null" for name in names}
    return chosen(frame).transform_aggregate(groupby=[*by], **sums).transform_calculate(**means)


def over_threshold(figures: Figures, *layers: alt.Chart) -> Drawing:
    """Charts over 0 to 1, and a line at the threshold."""
    line = alt.Chart(alt.InlineData([{"threshold": figures.whole["threshold"]}]))
    rule = line.mark_rule(strokeDash=[4, 3]).encode(alt.X("threshold:Q"))
    return alt.layer(*layers, rule).properties(height=HEIGHT)


def unit(name: str, title: str, **more: Any) -> alt.X:
    """Something from 0 to 1 along the chart."""
    axis = alt.Axis(tickCount=10, format=".1f")
    return alt.X(f"{name}:Q", scale=SCORES, title=title, axis=axis, **more)


def rows(figures: Figures, frame: pl.DataFrame) -> alt.Y:
    """A row for each domain of the frame; they stay where they are, whichever is chosen."""
    there = set(frame["domain"])
    labels = [label for label in figures.labels if label in there]
    return alt.Y("domain:N", scale=alt.Scale(domain=labels), title=None)


def height(frame: pl.DataFrame, row: float = ROW, by: str = "domain") -> float:
    """Pixels for so many rows."""
    return row * frame[by].n_unique() + 10


def colour(figures: Figures) -> alt.Color:
    """The domain's colour, the same in all charts; the page's chooser is the legend."""
    return alt.Color("domain:N", scale=alt.Scale(domain=figures.labels), legend=None)


def numbers(**formats: str) -> list[alt.Tooltip]:
    """Tooltips of columns, each in its format."""
    return [
        alt.Tooltip(f"{name}:Q", format=each, title=name.replace("_", " "))
        for name, each in formats.items()
    ]
