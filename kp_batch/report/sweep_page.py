"""The page of a sweep: what other caches and thresholds would do to the scores."""

from dataclasses import dataclass
from functools import partial

import polars as pl

from kp_batch.report.charts import (
    CHOSEN,
    HEIGHT,
    ROW,
    SCHEME,
    Spec,
    chosen,
    drawn_from,
    height,
    marks,
    nominal,
    ordinal,
    quantitative,
)
from kp_batch.report.data import distinct_labels
from kp_batch.report.page import panel_values, render
from kp_batch.report.panels import Panel

_DOMAINS = 10  # shown at the most
_CACHE = ("cache size", "ttl", "cache by")  # texts that identify a cache
_BY_THRESHOLD = ("threshold", "worth sharing", "now reach", "no longer reach")
_DRAWN = ("share", "mean_novelty", "mean_score", "rank_correlation", "recorded_error")
_ROW = 16  # pixels of a domain, for each threshold
_GREY = "#8a8f98"  # of legends for what is no colour, on either paper
_COLOURS: Spec = {"scheme": SCHEME}
_IN_FORCE: Spec = {"transform": [{"filter": "datum.in_force"}]}


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

    def tooltip(self, *, has_thresholds: bool = True) -> list[Spec]:
        """The texts of a point; without thresholds, those that are the same for all of them."""
        hidden = () if has_thresholds else _BY_THRESHOLD
        names = (name for name in ("domain", *self.texts) if name not in hidden)
        return [nominal(name) for name in names]


def _over_caches(name: str, form: str, data: SweepData, rows: pl.DataFrame) -> Spec:
    """Draw a number over the caches, in its format: a line for each that is not along the axis."""
    has_thresholds = name == "share"
    if not has_thresholds:  # of several, one point a cache
        cache = ["domain", *_CACHE]
        rows = rows.with_columns(pl.col("in_force").any().over(cache))
        rows = rows.unique(cache, keep="first", maintain_order=True)
    base = {
        "x": ordinal("along", sort=None, title=data.along),
        "y": quantitative(name, title=None, scale={"zero": False}, axis={"format": form}),
        "tooltip": data.tooltip(has_thresholds=has_thresholds),
    }
    coloured = {**base, "color": nominal("apart", sort=None, title=data.apart, scale=_COLOURS)}
    dashed = coloured
    if has_thresholds and rows["threshold"].n_unique() > 1:
        legend = {"symbolType": "stroke", "symbolStrokeColor": _GREY, "symbolStrokeWidth": 2}
        dashed = {**coloured, "strokeDash": nominal("threshold", legend=legend)}
    layers = [
        marks("line", dashed, strokeWidth=2),
        marks("circle", coloured, size=60, opacity=1),
        {**_IN_FORCE, **marks("point", base, size=220, strokeWidth=2)},  # a ring
    ]
    return {**drawn_from(rows, f"datum.domain == {CHOSEN}"), "layer": layers, "height": HEIGHT}


def _domains(data: SweepData, rows: pl.DataFrame) -> Spec:
    """A row for each domain and threshold: a point for each cache, a tick for the one in force."""
    thresholds = rows["threshold"].unique(maintain_order=True).to_list()  # the lowest first
    axis = {"format": ".1%", "tickCount": 8}
    base = {
        "x": quantitative("share", title="share worth sharing", axis=axis),
        "y": nominal("domain", title=None, scale={"domain": data.labels}),
        "yOffset": nominal("threshold", scale={"domain": thresholds}),
        "tooltip": data.tooltip(),
    }
    legend = {"symbolFillColor": _GREY}
    caches = {
        **base,
        "color": nominal("along", sort=None, title=data.along, scale=_COLOURS),
        "shape": nominal("apart", sort=None, title=data.apart, legend=legend),
    }
    layers = [
        marks("point", caches, filled=True, size=60, opacity=0.85),
        {**_IN_FORCE, **marks("tick", base, size=14, thickness=2)},
    ]
    drawn = chosen(rows.filter(pl.col("domain") != ""))
    return {**drawn, "layer": layers, "height": height(rows, max(_ROW * len(thresholds), ROW))}


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
