"""The page of a sweep: what other caches and thresholds would do to the scores."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from kp_batch.report.labels import ALL, distinct_labels
from kp_batch.report.page import render
from kp_batch.report.panel import Panel, Taking, panel_values
from kp_batch.report.vega_lite import (
    HEIGHT,
    ROW,
    Shown,
    Spec,
    marks,
    nominal,
    ordinal,
    quantitative,
)

_DOMAINS = 10  # shown at the most
_CACHE = ("cache size", "ttl", "cache by")  # texts that identify a cache
_BY_THRESHOLD = ("threshold", "worth sharing", "now reach", "no longer reach")
_DRAWN = ("share", "mean_novelty", "mean_score", "rank_correlation", "recorded_error")
_ROW = 16  # pixels of a domain, for each threshold
_GREY = "#8a8f98"  # of legends for what is no colour, on either paper
_IN_FORCE: Spec = {"transform": [{"filter": "datum.in_force"}]}


@dataclass(frozen=True)
class SweepData:
    """The data of the charts.

    Attributes:
        rows: the outcomes of all domains and of the largest ones, by cache size: their `domain`
            (a label, or `ALL`), the numbers that are drawn, their texts, and `along` and `apart`,
            what the axis and the colours of most charts tell apart.
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
        label_of = pl.DataFrame({"task_domain": [None, *names], "domain": [ALL, *labels]})
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


def _tooltip(shown: Shown[SweepData]) -> Spec:
    return {
        "tooltip": [nominal(name) for name in ("domain", *shown.data.texts) if name in shown.rows]
    }


def _by_cache(name: str) -> Taking[SweepData]:
    """A number of a scope, by cache and threshold; of those without one, a row for each cache."""

    def take(data: SweepData, scope: str) -> pl.DataFrame:
        rows = data.rows.filter(domain=scope).drop_nulls(name)
        drawn = rows.select("domain", "in_force", "along", "apart", *data.texts, name)
        if name == "share":
            return drawn
        in_force = pl.col("in_force").any().over(_CACHE)
        caches = drawn.with_columns(in_force).unique(_CACHE, keep="first", maintain_order=True)
        return caches.drop(_BY_THRESHOLD, strict=False)

    return take


def _over_caches(name: str, form: str) -> Callable[[Shown[SweepData]], Spec]:
    """Draw a number over the caches, in its format: a line for each that is not along the axis."""

    def draw(shown: Shown[SweepData]) -> Spec:
        base = {
            "x": ordinal("along", sort=None, title=shown.data.along),
            "y": quantitative(name, title=None, scale={"zero": False}, axis={"format": form}),
            **_tooltip(shown),
        }
        apart = nominal("apart", sort=None, title=shown.data.apart)
        coloured = {**base, "color": apart}
        layers = [
            marks("line", {**coloured, **_dashes(shown.rows)}, strokeWidth=2),
            marks("circle", coloured, size=60, opacity=1),
            {**_IN_FORCE, **marks("point", base, size=220, strokeWidth=2)},  # a ring
        ]
        return {"layer": layers, "height": HEIGHT}

    return draw


def _dashes(rows: pl.DataFrame) -> Spec:
    """What tells the lines of several thresholds apart."""
    if "threshold" not in rows or rows["threshold"].n_unique() == 1:
        return {}
    legend = {"symbolType": "stroke", "symbolStrokeColor": _GREY, "symbolStrokeWidth": 2}
    return {"strokeDash": nominal("threshold", legend=legend)}


def _of_domains(data: SweepData, scope: str) -> pl.DataFrame:
    shown = data.labels if scope == ALL else [scope]
    rows = data.rows.filter(pl.col("domain").is_in(shown))
    return rows.select("domain", "in_force", "along", "apart", *data.texts, "share")


def _domains(shown: Shown[SweepData]) -> Spec:
    """A row for each domain and threshold: a point for each cache, a tick for the one in force."""
    thresholds = shown.rows["threshold"].unique(maintain_order=True).to_list()  # the lowest first
    labels = [label for label in shown.data.labels if label in shown.rows["domain"]]
    axis = {"format": ".1%", "tickCount": 8}
    base = {
        "x": quantitative("share", title="share worth sharing", axis=axis),
        "y": nominal("domain", title=None, scale={"domain": labels}),
        "yOffset": nominal("threshold", scale={"domain": thresholds}),
        **_tooltip(shown),
    }
    legend = {"symbolFillColor": _GREY}
    caches = {
        **base,
        "color": nominal("along", sort=None, title=shown.data.along),
        "shape": nominal("apart", sort=None, title=shown.data.apart, legend=legend),
    }
    layers = [
        marks("point", caches, filled=True, size=60, opacity=0.85),
        {**_IN_FORCE, **marks("tick", base, size=14, thickness=2)},
    ]
    return {"layer": layers, "height": max(_ROW * len(thresholds), ROW) * len(labels) + 10}


PANELS: tuple[Panel[SweepData], ...] = (
    Panel(
        "share",
        "Worth sharing, by cache",
        "Which share of the traces reaches the threshold; the ring is the combination in force.",
        _by_cache("share"),
        _over_caches("share", ".2%"),
    ),
    Panel(
        "mean_novelty",
        "Novelty, by cache",
        "Mean novelty of the traces, 0 to 1; the ring is the cache in force.",
        _by_cache("mean_novelty"),
        _over_caches("mean_novelty", ".3f"),
    ),
    Panel(
        "mean_score",
        "Score, by cache",
        "Mean score of the traces, 0 to 1; the ring is the cache in force.",
        _by_cache("mean_score"),
        _over_caches("mean_score", ".3f"),
    ),
    Panel(
        "rank_correlation",
        "Order of the traces, by cache",
        "Rank correlation of the scores with those of the cache in force: 1 where all traces keep "
        "their order.",
        _by_cache("rank_correlation"),
        _over_caches("rank_correlation", ".3f"),
    ),
    Panel(
        "recorded_error",
        "Recorded scores, by cache",
        "Mean difference of the scores from the recorded ones that show novelty, where every trace "
        "that an empty cache alone explains is a restart; the ring is the cache in force.",
        _by_cache("recorded_error"),
        _over_caches("recorded_error", ".4f"),
        empty="no trace carries a score that a live engine gave it, and that shows its novelty",
    ),
    Panel(
        "domains",
        "Worth sharing, domains side by side",
        "Which share of the traces of each domain reaches the threshold, of several the lowest on "
        "top, with each cache; the tick is the combination in force.",
        _of_domains,
        _domains,
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
    shown = panel_values(PANELS, data, [ALL, *data.labels])
    return render("sweep.html", panels=PANELS, data=data, more=more, shown=shown, **head)
