"""The page of a sweep: what other caches and thresholds would do to the scores."""

from dataclasses import dataclass
from functools import partial

import altair as alt
import polars as pl

from kp_batch.report.charts import CHOSEN, HEIGHT, ROW, SCHEME, Drawing, chosen, height
from kp_batch.report.data import distinct_labels
from kp_batch.report.page import panel_values, render
from kp_batch.report.panels import Panel

_DOMAINS = 10  # shown at the most
_CACHE = ("cache size", "ttl", "cache by")  # texts that identify a cache
_BY_THRESHOLD = ("threshold", "worth sharing", "now reach", "no longer reach")
_DRAWN = ("share", "mean_novelty", "mean_score", "rank_correlation", "recorded_error")
_ROW = 16  # pixels of a domain, for each threshold
_GREY = "#8a8f98"  # of legends for what is no colour, on either paper
_COLOURS = alt.Scale(scheme=SCHEME)


@dataclass(frozen=True)
class SweepData:
    """The data of the charts.

    Attributes:
        rows: the outcomes of all domains and of the largest ones, by cache size: their `domain`
            (a label; '' for all domains), the numbers that are drawn, their texts, and `along` and
            `apart`, what the axis and the colours of most charts tell apart.
        labels: of the domains.
        texts: the names of the texts.
        along: the text that `along` has.
        apart: the texts that `apart` joins.
    """

    rows: pl.DataFrame
    labels: list[str]
    texts: list[str]
    along: str
    apart: str

    @classmethod
    def of(cls, outcomes: pl.DataFrame, texts: pl.DataFrame) -> "SweepData":
        """Take the outcomes of the largest domains; see `sweep_page`."""
        sizes = outcomes.drop_nulls("task_domain").unique("task_domain", maintain_order=True)
        names = sizes.top_k(_DOMAINS, by="traces").get_column("task_domain").sort()
        labels = distinct_labels(names)
        label_of = pl.DataFrame({"task_domain": [None, *names], "domain": ["", *labels]})
        along, *others = [name for name in _CACHE if texts[name].n_unique() > 1] or _CACHE[:2]
        apart = others or [next(name for name in _CACHE if name != along)]
        numbers = outcomes.select("task_domain", "in_force", "cache_size", *_DRAWN)
        rows = (
            pl.concat([numbers, texts], how="horizontal")
            .with_row_index("place")
            .join(label_of, on="task_domain", nulls_equal=True)
            .sort("cache_size", "place")
            .drop("task_domain", "cache_size")
            .with_columns(along=pl.col(along), apart=pl.concat_str(apart, separator=", "))
        )
        return cls(rows, labels, texts.columns, along, ", ".join(apart))

    @property
    def recorded(self) -> pl.DataFrame:
        """The rows that have recorded scores."""
        return self.rows.drop_nulls("recorded_error")

    def tooltip(self, *, has_thresholds: bool = True) -> list[alt.Tooltip]:
        """The texts of a point; without thresholds, those that are the same for all of them."""
        hidden = () if has_thresholds else _BY_THRESHOLD
        names = (name for name in ("domain", *self.texts) if name not in hidden)
        return [alt.Tooltip(f"{name}:N") for name in names]


def _over_caches(name: str, form: str, data: SweepData, rows: pl.DataFrame) -> Drawing:
    """Draw a number over the caches, in its format: a line for each that is not along the axis."""
    has_thresholds = name == "share"
    if not has_thresholds:  # of several, one point a cache
        cache = ["domain", *_CACHE]
        rows = rows.with_columns(pl.col("in_force").any().over(cache))
        rows = rows.unique(cache, keep="first", maintain_order=True)
    base = alt.Chart(rows).transform_filter(f"datum.domain == {CHOSEN}")
    base = base.encode(
        alt.X("along:O", sort=None, title=data.along),
        alt.Y(f"{name}:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format=form)),
        tooltip=data.tooltip(has_thresholds=has_thresholds),
    )
    coloured = base.encode(alt.Color("apart:N", sort=None, title=data.apart, scale=_COLOURS))
    lines = coloured.mark_line(strokeWidth=2)
    if has_thresholds and rows["threshold"].n_unique() > 1:
        legend = alt.Legend(symbolType="stroke", symbolStrokeColor=_GREY, symbolStrokeWidth=2)
        lines = lines.encode(alt.StrokeDash("threshold:N", legend=legend))
    ring = base.transform_filter("datum.in_force").mark_point(size=220, strokeWidth=2)
    points = coloured.mark_circle(size=60, opacity=1)
    return alt.layer(lines, points, ring).properties(height=HEIGHT)


def _domains(data: SweepData, rows: pl.DataFrame) -> Drawing:
    """A row for each domain and threshold: a point for each cache, a tick for the one in force."""
    thresholds = rows["threshold"].unique(maintain_order=True).to_list()  # the lowest first
    base = chosen(rows.filter(pl.col("domain") != "")).encode(
        alt.X("share:Q", title="share worth sharing", axis=alt.Axis(format=".1%", tickCount=8)),
        alt.Y("domain:N", title=None, scale=alt.Scale(domain=data.labels)),
        alt.YOffset("threshold:N", scale=alt.Scale(domain=thresholds)),
        tooltip=data.tooltip(),
    )
    shapes = alt.Legend(symbolFillColor=_GREY)
    points = base.mark_point(filled=True, size=60, opacity=0.85).encode(
        alt.Color("along:N", sort=None, title=data.along, scale=_COLOURS),
        alt.Shape("apart:N", sort=None, title=data.apart, legend=shapes),
    )
    ticks = base.transform_filter("datum.in_force").mark_tick(size=14, thickness=2)
    rows_high = height(rows, max(_ROW * len(thresholds), ROW))
    return alt.layer(points, ticks).properties(height=rows_high)


PANELS = (
    Panel(
        "share",
        "Worth sharing, by cache",
        "Which share of the traces reaches the threshold; the ring is the combination in force.",
        partial(_over_caches, "share", ".2%"),
        of="rows",
    ),
    Panel(
        "mean_novelty",
        "Novelty, by cache",
        "Mean novelty of the traces, 0 to 1; the ring is the cache in force.",
        partial(_over_caches, "mean_novelty", ".3f"),
        of="rows",
    ),
    Panel(
        "mean_score",
        "Score, by cache",
        "Mean score of the traces, 0 to 1; the ring is the cache in force.",
        partial(_over_caches, "mean_score", ".3f"),
        of="rows",
    ),
    Panel(
        "rank_correlation",
        "Order of the traces, by cache",
        "Rank correlation of the scores with those of the cache in force: 1 where all traces keep "
        "their order.",
        partial(_over_caches, "rank_correlation", ".3f"),
        of="rows",
    ),
    Panel(
        "recorded_error",
        "Recorded scores, by cache",
        "Mean difference of the scores from the recorded ones that show novelty, where every trace "
        "that an empty cache alone explains is a restart; the ring is the cache in force.",
        partial(_over_caches, "recorded_error", ".4f"),
        of="recorded",
        empty="No trace carries a score that a live engine gave it, and that shows its novelty.",
    ),
    Panel(
        "domains",
        "Worth sharing, domains side by side",
        "Which share of the traces of each domain reaches the threshold, of several the lowest on "
        "top, with each cache; the tick is the combination in force.",
        _domains,
        of="rows",
        is_wide=True,
    ),
)


def sweep_page(outcomes: pl.DataFrame, texts: pl.DataFrame, **head: str | int) -> str:
    """Write a sweep as HTML; see `Sweep`.

    Args:
        outcomes: a column for each field of `Outcome`, and its `share`.
        texts: of the same rows, a column for each text that the table shows.
        head: the fields `encoder_id` and `traces`, and `better_fit`.
    """
    data = SweepData.of(outcomes, texts)
    more = outcomes["task_domain"].n_unique() - 1 - len(data.labels)
    return render("sweep.html", more=more, **panel_values(PANELS, data), **head)
