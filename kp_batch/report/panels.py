"""The panels of the report, in their order, and the rows of its data for each."""

from collections.abc import Callable, Iterator
from typing import cast

import polars as pl

from kp_batch.report import charts
from kp_batch.report.chart_tables import TIME, ChartColumn, written
from kp_batch.report.charts import CHANCE, MORE_THAN_CHANCE, NOT_COMPARED, WARMING_UP
from kp_batch.report.data import MIN_TRACES, ReportData
from kp_batch.report.kinds.outcomes import is_of_outcomes
from kp_batch.report.labels import ALL, distinct_labels
from kp_batch.report.panel import Panel, Taking
from kp_batch.report.periods import shift, starting
from kp_batch.text import count_of

_MOST_UNITS = 12  # agents or frameworks in a panel
_NOTABLE = 0.05  # the smallest reported change of a domain's share of the traces
_SHARED = 5  # shared tasks, for a difference to be shown
_NOVELTY = ("novelty", "novelty_low", "novelty_high")
_ON_THE_SAME_TASKS = "On the same tasks"


def _frame(name: str) -> Taking:
    return lambda data, scope: data.of(name, scope)


def _over_time(data: ReportData, scope: str) -> pl.DataFrame:
    rows = data.of("over_time", scope)
    if not data.has_novelty:
        rows = rows.with_columns(pl.lit(None, pl.Float64).alias(name) for name in _NOVELTY)
    usual = rows.filter(pl.col("traces") > 0)["traces"].median() or 0
    return rows.with_columns(
        warming_up=2 * pl.col("cache_warming_up") > pl.col("traces"),
        is_few=pl.col("traces") < min(MIN_TRACES, cast("float", usual) / 2),
    )


def _all_times(data: ReportData, scope: str) -> pl.DataFrame:
    """Return the steps with traces, and before them the times outside of the span."""
    rows = _over_time(data, scope).filter(pl.col("traces") > 0)
    said = {
        WARMING_UP: pl.col("warming_up"),
        "few traces": pl.col("is_few"),
        "not over": ~pl.col("is_over"),
    }
    note = pl.concat_str(
        [pl.when(holds).then(pl.lit(text)) for text, holds in said.items()],
        separator=", ",
        ignore_nulls=True,
    )
    start = pl.Series([written(start) for start in rows["start"]], dtype=pl.String)
    steps = rows.with_columns(start=start, note=note)
    others = data.of("other_times", scope).rename({"time": "start"})
    outside = others.with_columns(note=pl.lit("not in the chart"))
    return pl.concat([outside, steps], how="diagonal")


def _other_times(data: ReportData, scope: str) -> Iterator[str]:
    others = data.of("other_times", scope)
    if not others.is_empty():
        times = " to ".join(dict.fromkeys([others["time"][0], others["time"][-1]]))
        count = count_of(sum(others["traces"].to_list()), "trace")
        yield f"The table also lists {count} outside this time, from {times}."


def _changes(data: ReportData, scope: str) -> pl.DataFrame:
    """Return the changes of a scope, if there are any, each with its verdict."""
    rows = data.changes_of(scope)
    if rows["change"].is_null().all():
        return rows.clear().with_columns(ends=None, verdict=None)
    is_compared = pl.col("begins").is_in(data.comparable(scope)["begins"].implode())
    moved = pl.lit(0).is_between("low", "high").not_() if scope == ALL else pl.col("moved")
    said = pl.when(moved).then(pl.lit(MORE_THAN_CHANCE)).otherwise(pl.lit(CHANCE))
    return rows.with_columns(
        ends=pl.col("begins").dt.offset_by(shift(1, data.period)),
        verdict=pl.when(is_compared).then(said).otherwise(pl.lit(NOT_COMPARED)),
    )


def _of_changes(data: ReportData, scope: str) -> Iterator[str]:
    yield f"A period is a {data.period}."
    if scope == ALL:
        yield (
            "Bars: the parts of the change, which add up to it. Mix: the shares of the domains "
            "changed. Within: scores in the domains changed. Entered and exited: domains with "
            "traces only now, or only before. Filled dot: more than chance; by chance alone, one "
            "dot in twenty is filled."
        )
    else:
        yield (
            "Filled dot: more than chance, corrected for the number of domains (by Holm). So an "
            "interval may exclude 0 although its dot is not filled."
        )
    yield (
        "Faint: not comparable, because the period is not over, has few traces or tasks, or the "
        "cache was warming up."
    )
    yield from _shares(data, scope)


def _shares(data: ReportData, scope: str) -> Iterator[str]:
    """Yield the domain whose share of all traces changed most, in the last comparable period.

    It shows a changed mix, which may hide what happened within domains.
    """
    last = data.comparable(ALL).tail(1)
    if scope != ALL or last.is_empty():
        return
    [(begins, traces, before)] = last.select("begins", "traces", "traces_before").rows()
    first = pl.lit(begins).dt.offset_by(shift(-4, data.period))
    of_domains = data.domain_changes.filter(pl.col("begins").is_between(first, begins))
    is_now = pl.col("begins") == begins
    rows = of_domains.group_by("domain").agg(
        share=pl.col("traces").filter(is_now).sum() / traces,
        before=pl.col("traces").filter(~is_now).sum() / before,
    )
    moved = rows.with_columns(by=(pl.col("share") - pl.col("before")).abs()).sort("by", "domain")
    if not moved.is_empty() and moved["by"][-1] >= _NOTABLE:
        domain, share, before, _ = moved.row(-1)
        when = starting(begins, data.period)
        yield (
            f"{when[:1].upper()}{when[1:]}, {domain} had {share:.0%} of the traces; in the "
            f"previous four {data.period}s, {before:.0%}."
        )


def _domains(data: ReportData, scope: str) -> pl.DataFrame:
    """Return all domains, whichever is chosen, and all together, unless there is only one."""
    chosen = pl.lit(value=True) if scope == ALL else pl.col("domain") == scope
    is_shown = (pl.col("domain") != ALL) | (len(data.labels) > 1)
    return data.domains.filter(is_shown).with_columns(is_chosen=chosen)


def _drivers(data: ReportData, scope: str) -> pl.DataFrame:
    """Return the parts of a score, without unused overrides; the largest share first."""
    rows = data.of("drivers", scope).filter(~pl.col("is_override") | pl.col("traces").is_not_null())
    kind = pl.when("is_override").then(pl.lit("override")).otherwise(pl.lit("dimension"))
    known = rows.drop_nulls("share_of_variance").with_columns(kind=kind)
    return known.sort("share_of_variance", descending=True, maintain_order=True)


def _one_confidence(data: ReportData, scope: str) -> Iterator[str]:
    bins = data.of("calibration", scope)
    if bins.height == 1:
        stated = bins["confidence"][0]
        yield f"All traces state a confidence of about {stated:.2f}: there is nothing to compare."
    if is_of_outcomes(data, scope):
        yield (
            "In each bin all traces succeed or all fail: the confidence seems to be derived from "
            "the outcome, so it is not a forecast."
        )


def _units(name: str) -> Taking:
    """Return the agents or frameworks with most traces."""

    def take(data: ReportData, scope: str) -> pl.DataFrame:
        rows = data.of(name, scope).filter(pl.col("place") <= _MOST_UNITS)
        return rows.with_columns(unit=pl.Series(distinct_labels(rows["unit"]), dtype=pl.String))

    return take


def _of_units(name: str) -> Callable[[ReportData, str], Iterator[str]]:
    def note(data: ReportData, scope: str) -> Iterator[str]:
        more = data.of(name, scope).height - _MOST_UNITS
        if more > 0:
            yield f"Not shown: {more:,} with fewer traces."
        if not _sharing(name, data, scope).is_empty():
            yield f"For a fair comparison see “{_ON_THE_SAME_TASKS}”, or ask differences_by."

    return note


def _sharing(name: str, data: ReportData, scope: str) -> pl.DataFrame:
    """Return the agents, or frameworks, that share tasks with others of their kind."""
    return _units(name)(data, scope).filter(pl.col("shared_tasks") >= _SHARED)


def _paired(data: ReportData, scope: str) -> pl.DataFrame:
    """Return agents and frameworks that share tasks with others of their kind."""
    both = [
        _sharing(name, data, scope).with_columns(kind=pl.lit(kind))
        for name, kind in (("agents", "agent"), ("frameworks", "framework"))
    ]
    rows = pl.concat(both)
    apart = pl.format("{} ({})", "unit", "kind")  # a framework may be named like an agent
    is_same = pl.col("unit").is_duplicated()
    return rows.with_columns(unit=pl.when(is_same).then(apart).otherwise("unit"))


def _drift(data: ReportData, scope: str) -> pl.DataFrame:
    return data.drift if scope == ALL else data.of("drift", scope)


def _unlike_before(data: ReportData, _scope: str) -> Iterator[str]:
    if data.no_trend:
        yield f"This is not a trend, because {data.no_trend}."


_TRACES = ChartColumn("traces", "traces", ",")
_TASKS = ChartColumn("tasks", "tasks", ",")
_MEAN = ChartColumn("mean score", "mean", ".3f", "low", "high")
_SUCCESS = ChartColumn("success", "success", ".1%", "success_low", "success_high")
_BINS = (
    *("low", "high", "traces", "tasks"),
    *("success", "success_low", "success_high"),
)
_UNIT_DRAWN = (
    *("unit", "traces", "tasks", "mean", "low", "high"),
    *("success", "success_low", "success_high", "confidence"),
)
_CONFIDENCE = ChartColumn("stated confidence", "confidence", ".3f")
_OVERCONFIDENCE = ChartColumn(
    "overconfident by", "overconfidence", "+.3f", "overconfidence_low", "overconfidence_high"
)
_OF_UNIT = (_TRACES, _TASKS, _MEAN, _SUCCESS, _CONFIDENCE, _OVERCONFIDENCE)
_UNLIKE = (
    "Mean score, share of traces that succeed, and mean stated confidence, in the order of the "
    "number of traces. Tasks differ, so this is not a ranking."
)

PANELS: tuple[Panel, ...] = (
    Panel(
        "scores_over_time",
        "Score and novelty over time",
        "Mean score and mean novelty over time (UTC). Faint: few traces, too few "
        "tasks for an interval, or a period that is not over.",
        _over_time,
        charts.over_time,
        (
            *("start", "end", "traces", "tasks", "mean", "low", "high"),
            *("novelty", "novelty_low", "novelty_high", "warming_up", "is_over", "is_few"),
        ),
        (
            ChartColumn("from", "start", TIME),
            _TRACES,
            _TASKS,
            _MEAN,
            ChartColumn("mean novelty", "novelty", ".3f", "novelty_low", "novelty_high"),
            ChartColumn("note", "note"),
        ),
        listed=_all_times,
        is_wide=True,
        notes=_other_times,
        frames=("over_time", "other_times"),
    ),
    Panel(
        "traces_over_time",
        "Traces over time",
        "Number of traces in the same periods. Faint: a period that is not over.",
        _frame("over_time"),
        charts.volume,
        ("start", "end", "traces", "is_over"),
        (ChartColumn("from", "start", TIME), _TRACES),
        is_wide=True,
        frames=("over_time",),
    ),
    Panel(
        "mean_changes",
        "Change of the mean score",
        "Dot: change of the mean score from the four periods before. Line: its 95% interval.",
        _changes,
        charts.changes,
        (
            *("begins", "ends", "traces", "mean", "mean_before", "change", "low", "high"),
            *("mix", "within", "entered", "exited", "verdict"),
        ),
        (
            ChartColumn("from", "begins", TIME),
            _TRACES,
            ChartColumn("mean score", "mean", ".3f"),
            ChartColumn("mean score before", "mean_before", ".3f"),
            ChartColumn("change", "change", "+.3f", "low", "high"),
            *(ChartColumn(part, part, "+.3f") for part in charts.PARTS),
            ChartColumn("verdict", "verdict"),
        ),
        is_wide=True,
        notes=_of_changes,
        empty="only one period has traces",
        frames=("changes", "domain_changes"),
    ),
    Panel(
        "scores_by_domain",
        "Domains side by side",
        "Dot and line: the mean score of each domain and its 95% interval. Bar: the 5th to 95th "
        "percentile of its scores. Dashed: the threshold.",
        _domains,
        charts.domains,
        ("domain", "traces", "tasks", "mean", "low", "high", "p5", "p95", "is_chosen"),
        (
            ChartColumn("domain", "domain"),
            _TRACES,
            _TASKS,
            _MEAN,
            ChartColumn("5%", "p5", ".3f"),
            ChartColumn("95%", "p95", ".3f"),
            ChartColumn("at threshold", "at_threshold", ","),
            ChartColumn("share of traces", "share", ".1%", "share_low", "share_high"),
            _SUCCESS,
            ChartColumn("near repeats", "near_repeats", ".1%"),
        ),
        is_wide=True,
        frames=("domains",),
    ),
    Panel(
        "score_histogram",
        "How scores are distributed",
        "Traces by score, in twenty bins. Dashed: the threshold.",
        _frame("histogram"),
        charts.histogram,
        ("low", "high", "traces"),
        (ChartColumn("from", "low", ".2f"), ChartColumn("to", "high", ".2f"), _TRACES),
        frames=("histogram",),
    ),
    Panel(
        "dimension_effects",
        "What drives the score",
        "Bar: the share of the variance of the scores that a dimension or override accounts for; "
        "below zero, it offsets other parts. Line: the weight of a dimension in each score.",
        _drivers,
        charts.drivers,
        ("part", "kind", "weight", "share_of_variance", "traces", "mean_effect", "total_effect"),
        (
            ChartColumn("part", "part"),
            ChartColumn("kind", "kind"),
            ChartColumn("weight", "weight", ".2f"),
            ChartColumn("share of the variance", "share_of_variance", ".1%"),
            ChartColumn("overridden traces", "traces", ","),
            ChartColumn("mean effect on these", "mean_effect", "+.3f"),
            ChartColumn("total effect", "total_effect", "+,.1f"),
        ),
        empty="all scores are the same",
        frames=("drivers",),
    ),
    Panel(
        "success_by_score",
        "Do traces with higher scores succeed more often?",
        "Share of traces that succeed, by score, with its 95% interval. Larger dots: more traces. "
        "This is partly circular: a failure lowers outcome confidence, which is part of the score.",
        _frame("success"),
        charts.success,
        ("mean", *_BINS),
        (
            ChartColumn("score from", "low", ".1f"),
            ChartColumn("to", "high", ".1f"),
            *(_TRACES, _TASKS, ChartColumn("mean score", "mean", ".3f"), _SUCCESS),
        ),
        frames=("success",),
    ),
    Panel(
        "confidence_bins",
        "Is the stated confidence calibrated?",
        "Share of traces that succeed, by stated confidence, with its 95% interval. Larger dots: "
        "more traces. Dashed: perfect calibration. Below it: overconfident.",
        _frame("calibration"),
        charts.calibration,
        ("confidence", *_BINS),
        (
            ChartColumn("confidence from", "low", ".1f"),
            ChartColumn("to", "high", ".1f"),
            *(_TRACES, _TASKS, ChartColumn("mean confidence", "confidence", ".3f"), _SUCCESS),
        ),
        notes=_one_confidence,
        empty="no trace states a confidence",
        frames=("calibration",),
    ),
    Panel(
        "scores_by_agent",
        "Agents",
        _UNLIKE,
        _units("agents"),
        charts.units,
        _UNIT_DRAWN,
        (ChartColumn("agent", "unit"), *_OF_UNIT),
        notes=_of_units("agents"),
        empty="no agent is recorded",
        frames=("agents",),
    ),
    Panel(
        "scores_by_framework",
        "Frameworks",
        _UNLIKE,
        _units("frameworks"),
        charts.units,
        _UNIT_DRAWN,
        (ChartColumn("framework", "unit"), *_OF_UNIT),
        notes=_of_units("frameworks"),
        empty="no framework is recorded",
        frames=("frameworks",),
    ),
    Panel(
        "differences_from_others",
        _ON_THE_SAME_TASKS,
        "Difference of each agent and framework from all others of its kind, on the tasks that "
        "they share. The first attempt at a task gets more novelty, which is part of the score.",
        _paired,
        charts.paired,
        (
            *("unit", "kind", "shared_tasks", "score_difference", "score_low", "score_high"),
            *("success_difference", "success_difference_low", "success_difference_high"),
        ),
        (
            ChartColumn("agent or framework", "unit"),
            ChartColumn("kind", "kind"),
            ChartColumn("shared tasks", "shared_tasks", ","),
            ChartColumn("score", "score_difference", "+.3f", "score_low", "score_high"),
            ChartColumn(
                "success",
                "success_difference",
                "+.3f",
                "success_difference_low",
                "success_difference_high",
            ),
        ),
        empty=f"no agent or framework shares {_SHARED} tasks with another",
        frames=("agents", "frameworks"),
    ),
    Panel(
        "drift",
        "What the last run changed",
        "Change of the mean score of each domain from the previous run to the last one.",
        _drift,
        charts.drift,
        ("domain", "traces_before", "traces", "mean_shift", "p5_shift", "p50_shift", "p95_shift"),
        (
            ChartColumn("domain", "domain"),
            ChartColumn("traces before", "traces_before", ","),
            ChartColumn("now", "traces", ","),
            ChartColumn("mean", "mean_shift", "+.4f"),
            ChartColumn("5%", "p5_shift", "+.4f"),
            ChartColumn("median", "p50_shift", "+.4f"),
            ChartColumn("95%", "p95_shift", "+.4f"),
            ChartColumn("stability index", "stability_index", ".4f"),
        ),
        notes=_unlike_before,
        empty="there is no earlier run to compare with",
        frames=("drift",),
    ),
)
