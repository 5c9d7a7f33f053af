"""The page of a sweep: what other caches and thresholds would do to the scores."""

from dataclasses import dataclass
from typing import Any, Literal

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
from kp_batch.report.page import rendered
from kp_batch.report.report_data import LABEL, distinct_label
from kp_batch.text import shortened

_DOMAINS = 10  # shown at the most
_BY_DOMAIN = (
    "Which share of the traces of each domain reaches the threshold, of several the lowest on top, "
    "with each cache; the tick is the combination in force."
)
# Of a row; its tooltip tells all that a point stands for.
_TOOLTIP = [
    "domain:N",
    alt.Tooltip("cache_by:N", title="cache by"),
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
        recorded_error=".6f",
    ),
]
_GREY = "#8a8f98"  # of legends for what is no colour, on either paper
_CACHE = ("cache_size", "ttl", "cache_by")  # columns that tell caches apart
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
        cache = ["domain", *_CACHE]
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
    SweepPanel(
        "recorded_error",
        "Recorded scores, by cache",
        "Mean difference of the scores from the recorded ones that show novelty, where every trace "
        "that an empty cache alone explains is a restart; the ring is the cache in force.",
        ".4f",
    ),
)


def sweep_page(outcomes: pl.DataFrame, *, better_fit: str, encoder_id: str, traces: int) -> str:
    """Write a sweep as HTML; see `Sweep`, whose fields and sentence these are.

    Args:
        outcomes: a column for each field of `Outcome`.
        better_fit: which cache fits the recorded scores better, in words.
        encoder_id: what made the vectors.
        traces: how many there are.
    """
    domains = outcomes["task_domain"].n_unique() - 1
    rows, labels = _labelled(outcomes)
    has_recorded = bool(rows["recorded"].sum())
    panels = [each for each in PANELS if has_recorded or each.name != "recorded_error"]
    specs = {each.name: each.spec(rows) for each in panels}
    specs["domains"] = domains_spec(rows, labels, _BY_DOMAIN)
    return rendered(
        "sweep.html",
        about=_BY_DOMAIN,
        better_fit=better_fit,
        encoder_id=encoder_id,
        has_recorded=has_recorded,
        labels=labels,
        more=domains - len(labels),
        panels=panels,
        rows=rows.to_dicts(),
        shown={name: {"spec": spec, "domains": labels} for name, spec in specs.items()},
        traces=traces,
    )


def _labelled(outcomes: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows of the largest domains with these domains' labels; empty for all domains."""
    sizes = outcomes.drop_nulls("task_domain").unique("task_domain", maintain_order=True)
    names = sizes.top_k(_DOMAINS, by="traces").get_column("task_domain").sort()
    labels: list[str] = []
    for name in names:
        labels.append(distinct_label(labels, shortened(name, LABEL)))
    label_of = pl.DataFrame({"task_domain": [None, *names], "domain": ["", *labels]})
    rows = outcomes.join(
        label_of, on="task_domain", nulls_equal=True, maintain_order="left"
    ).with_columns(share=pl.col("worth_sharing") / pl.col("traces"))
    return rows.drop("task_domain"), labels


def domains_spec(rows: pl.DataFrame, labels: list[str], about: str) -> dict[str, Any]:
    """A row for each domain and threshold: a point for each cache, a tick for the one in force."""
    thresholds = rows["threshold"].n_unique()
    along, apart = _varied(rows)
    rows = rows.with_columns(_apart(apart))
    base = chosen(rows.filter(pl.col("domain") != "")).encode(
        alt.X("share:Q", title="share worth sharing", axis=alt.Axis(format=".1%", tickCount=8)),
        alt.Y("domain:N", title=None, scale=alt.Scale(domain=labels)),
        alt.YOffset(
            "threshold:N", scale=alt.Scale(domain=rows["threshold"].unique().sort().to_list())
        ),
        tooltip=_TOOLTIP,
    )
    shapes = alt.Legend(symbolFillColor=_GREY)
    points = base.mark_point(filled=True, size=60, opacity=0.85).encode(
        _colour(along, _title(along), legend=alt.Legend(**_form(along))),
        alt.Shape("apart:N", title=_title(*apart), sort=None, legend=shapes),
    )
    ticks = base.transform_filter("datum.in_force").mark_tick(size=14, thickness=2)
    return as_spec(
        alt.layer(points, ticks).properties(height=height(rows, max(_ROW * thresholds, ROW))), about
    )


def _over_caches(panel: SweepPanel, rows: pl.DataFrame) -> Drawing:
    """Lines along what varies, one for each value of the others."""
    along, apart = _varied(rows)
    axis = alt.Axis(**_form(along))
    base = alt.Chart(rows.with_columns(_apart(apart))).transform_filter(f"datum.domain == {CHOSEN}")
    base = base.encode(
        alt.X(f"{along}:O", sort=_sort(along), title=_title(along), axis=axis),
        alt.Y(
            f"{panel.name}:Q",
            title=None,
            scale=alt.Scale(zero=False, nice=True),
            axis=alt.Axis(format=panel.form),
        ),
        tooltip=_TOOLTIP,
    )
    coloured = base.encode(_colour("apart", _title(*apart)))
    lines = coloured.mark_line(strokeWidth=2)
    if panel.by_threshold and rows["threshold"].n_unique() > 1:
        legend = alt.Legend(symbolType="stroke", symbolStrokeColor=_GREY, symbolStrokeWidth=2)
        lines = lines.encode(alt.StrokeDash("threshold:N", title="threshold", legend=legend))
    points = coloured.mark_circle(size=60, opacity=1).encode(detail="threshold:N")
    ring = base.transform_filter("datum.in_force").mark_point(size=220, strokeWidth=2)
    return alt.layer(lines, points, ring).properties(height=HEIGHT)


def _varied(rows: pl.DataFrame) -> tuple[str, list[str]]:
    """What the caches differ by, the size first, and what else; never nothing."""
    along, *others = [name for name in _CACHE if rows[name].n_unique() > 1] or _CACHE[:2]
    return along, others or [next(name for name in _CACHE if name != along)]


def _apart(names: list[str]) -> pl.Expr:
    """The values of these columns as one, `apart`."""
    return pl.concat_str(names, separator=", ").alias("apart")


def _colour(name: str, title: str, **more: Any) -> alt.Color:
    scale = alt.Scale(scheme=SCHEME)
    return alt.Color(f"{name}:O", sort=_sort(name), title=title, scale=scale, **more)


def _sort(name: str) -> Literal["ascending"] | None:
    """The order of its values; None: as the rows have them."""
    return "ascending" if name == "cache_size" else None


def _title(*names: str) -> str:
    return ", ".join(names).replace("_", " ")


def _form(name: str) -> dict[str, Any]:
    """The format of its labels: the others are texts."""
    return {"format": ",d"} if name == "cache_size" else {}
