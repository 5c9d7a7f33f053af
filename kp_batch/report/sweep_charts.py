"""Draws what other caches and thresholds would do to the scores."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from kp_batch.report.chart_parts import (
    CHOSEN,
    HEIGHT,
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
    *(alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in ("cache_size", "ttl")),
    "threshold:N",
    *numbers(
        traces=",",
        worth_sharing=",",
        share=".2%",
        mean_novelty=".4f",
        mean_score=".4f",
        rank_correlation=".4f",
    ),
]
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


def domains_spec(rows: pl.DataFrame, about: str) -> dict[str, Any]:
    """A row for each domain and threshold: a point for each cache, a tick for the one in force."""
    base = chosen(rows.filter(pl.col("domain") != "")).encode(
        alt.X("share:Q", title="share worth sharing", axis=alt.Axis(format=".1%")),
        alt.Y("domain:N", title=None, sort=None),
        tooltip=_TOOLTIP,
    )
    thresholds = rows["threshold"].n_unique()
    if thresholds > 1:
        base = base.encode(yOffset=alt.YOffset("threshold:N", title="threshold"))
    points = base.mark_point(filled=True, size=60, opacity=0.85).encode(
        alt.Color("cache_size:O", title="cache size", scale=alt.Scale(scheme=SCHEME)),
        alt.Shape("ttl:N", title="ttl", sort=None),
    )
    ticks = base.transform_filter("datum.in_force").mark_tick(size=14, thickness=2)
    rows_high = height(rows, max(_ROW * thresholds, 24))
    return as_spec(alt.layer(points, ticks).properties(height=rows_high), about)


def _over_caches(panel: SweepPanel, rows: pl.DataFrame) -> Drawing:
    """Lines over the cache sizes, one for each ttl, or the other way round for a single size."""
    across, apart = ("cache_size", "ttl")
    if rows["cache_size"].n_unique() == 1:
        across, apart = apart, across
    axis = alt.Axis(format=",d") if across == "cache_size" else alt.Axis()
    base = alt.Chart(rows).transform_filter(f"datum.domain == {CHOSEN}")
    base = base.encode(
        alt.X(f"{across}:O", sort=None, title=across.replace("_", " "), axis=axis),
        alt.Y(
            f"{panel.name}:Q",
            title=None,
            scale=alt.Scale(zero=False, nice=True),
            axis=alt.Axis(format=panel.form),
        ),
        tooltip=_TOOLTIP,
    )
    coloured = base.encode(
        alt.Color(
            f"{apart}:N", sort=None, title=apart.replace("_", " "), scale=alt.Scale(scheme=SCHEME)
        )
    )
    if panel.by_threshold and rows["threshold"].n_unique() > 1:
        coloured = coloured.encode(strokeDash=alt.StrokeDash("threshold:N", title="threshold"))
    ring = base.transform_filter("datum.in_force").mark_point(size=220, strokeWidth=2)
    return alt.layer(
        coloured.mark_line(strokeWidth=2), coloured.mark_circle(size=60, opacity=1), ring
    ).properties(height=HEIGHT)
