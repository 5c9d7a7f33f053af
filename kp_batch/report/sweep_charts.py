"""Draws what other caches and thresholds would do to the scores."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from kp_batch.report.chart_parts import (
    CHOSEN,
    HEIGHT,
    ROW,
    SCHEME,
    Drawing,
    as_spec,
    chosen,
    height,
    numbers,
)

# Of a row of `sweep_page.ROWS`; its tooltip tells all that a point stands for.
_TOOLTIP = [
    "domain:N",
    "ttl:N",
    *numbers(
        cache_size=",",
        threshold="",
        traces=",",
        worth_sharing=",",
        share=".2%",
        mean_novelty=".4f",
        mean_score=".4f",
        rank_correlation=".4f",
    ),
]
_GREY = "#8a8f98"  # of legends for what is no colour, on either paper
_ROW = 16  # pixels of a domain, for each threshold


@dataclass(frozen=True)
class SweepPanel:
    """A chart of one column of the rows, over the caches."""

    name: str  # the column
    title: str
    about: str  # what the chart shows, in which units
    form: str  # of its numbers
    by_threshold: bool = False  # whether the threshold changes it

    def spec(self, rows: pl.DataFrame) -> dict[str, Any]:
        """The chart as Vega-Lite, of the domain that the page has chosen."""
        cache = ["domain", "cache_size", "ttl"]
        if not self.by_threshold:
            any_in_force = rows.with_columns(pl.col("in_force").any().over(cache))
            rows = any_in_force.unique(cache, keep="first", maintain_order=True)
        return as_spec(_over_caches(self, rows), self.about)


PANELS = (
    SweepPanel(
        "share",
        "Worth sharing, by cache",
        "Which share of the traces reaches the threshold; the ring is the combination in force.",
        ".2%",
        by_threshold=True,
    ),
    SweepPanel(
        "mean_novelty",
        "Novelty, by cache",
        "Mean novelty of the traces, 0 to 1; the ring is the cache in force.",
        ".3f",
    ),
    SweepPanel(
        "mean_score",
        "Score, by cache",
        "Mean score of the traces, 0 to 1; the ring is the cache in force.",
        ".3f",
    ),
    SweepPanel(
        "rank_correlation",
        "Order of the traces, by cache",
        "Rank correlation of the scores with those of the cache in force: 1 where all traces keep "
        "their order.",
        ".3f",
    ),
)


def domains_spec(rows: pl.DataFrame, labels: list[str], about: str) -> dict[str, Any]:
    """A row for each domain and threshold: a point for each cache, a tick for the one in force."""
    thresholds = rows["threshold"].n_unique()
    coloured, shaped = _varied(rows)
    base = chosen(rows.filter(pl.col("domain") != "")).encode(
        alt.X("share:Q", title="share worth sharing", axis=alt.Axis(format=".1%", tickCount=8)),
        alt.Y("domain:N", title=None, scale=alt.Scale(domain=labels)),
        alt.YOffset(
            "threshold:N", scale=alt.Scale(domain=rows["threshold"].unique().sort().to_list())
        ),
        tooltip=_TOOLTIP,
    )
    shapes = alt.Legend(symbolFillColor=_GREY, **_form(shaped))
    points = base.mark_point(filled=True, size=60, opacity=0.85).encode(
        _colour(coloured),
        alt.Shape(f"{shaped}:N", title=_title(shaped), sort=None, legend=shapes),
    )
    ticks = base.transform_filter("datum.in_force").mark_tick(size=14, thickness=2)
    return as_spec(
        alt.layer(points, ticks).properties(height=height(rows, max(_ROW * thresholds, ROW))), about
    )


def _over_caches(panel: SweepPanel, rows: pl.DataFrame) -> Drawing:
    """Lines along what varies, one for each value of the other."""
    along, apart = _varied(rows)
    base = alt.Chart(rows).transform_filter(f"datum.domain == {CHOSEN}")
    base = base.encode(
        alt.X(f"{along}:O", sort=None, title=_title(along), axis=alt.Axis(**_form(along))),
        alt.Y(
            f"{panel.name}:Q",
            title=None,
            scale=alt.Scale(zero=False, nice=True),
            axis=alt.Axis(format=panel.form),
        ),
        tooltip=_TOOLTIP,
    )
    coloured = base.encode(_colour(apart))
    lines = coloured.mark_line(strokeWidth=2)
    if panel.by_threshold and rows["threshold"].n_unique() > 1:
        legend = alt.Legend(symbolType="stroke", symbolStrokeColor=_GREY, symbolStrokeWidth=2)
        lines = lines.encode(alt.StrokeDash("threshold:N", title="threshold", legend=legend))
    points = coloured.mark_circle(size=60, opacity=1).encode(detail="threshold:N")
    ring = base.transform_filter("datum.in_force").mark_point(size=220, strokeWidth=2)
    return alt.layer(lines, points, ring).properties(height=HEIGHT)


def _varied(rows: pl.DataFrame) -> tuple[str, str]:
    """What the caches differ by, the size first unless they all have one."""
    is_one = rows["cache_size"].n_unique() == 1
    return ("ttl", "cache_size") if is_one else ("cache_size", "ttl")


def _colour(name: str) -> alt.Color:
    return alt.Color(
        f"{name}:O",
        sort=None,
        title=_title(name),
        scale=alt.Scale(scheme=SCHEME),
        legend=alt.Legend(**_form(name)),
    )


def _title(name: str) -> str:
    return name.replace("_", " ")


def _form(name: str) -> dict[str, Any]:
    """The format of its labels: a ttl is text."""
    return {"format": ",d"} if name == "cache_size" else {}
