"""Findings about agents and frameworks."""

import math
from collections.abc import Iterator

import polars as pl

from kp_batch.report.data import MIN_TRACES, ReportData
from kp_batch.report.finding import (
    MATTERS,
    Finding,
    Row,
    Untrusted,
    clearly,
    interval,
    labels_of,
    made_of,
    only,
    query,
    rows_of,
    sizes,
)
from kp_batch.report.labels import LABEL
from kp_batch.text import shortened

UNITS = {"agents": "agent_id", "frameworks": "framework"}  # frames and their columns

_MIN_TASKS = 10  # shared tasks
_MIN_AGENTS = 8  # agents, to compare ranks
_FOLLOWS, _HARDLY = 0.5, 0.3  # correlations of ranks: at least, and at most
_ALIKE = 0.1  # the largest difference between success rates that are about the same
_SPEARMANS = 1.06  # the variance of a rank correlation, relative to Fisher's
_SUM = pl.col("traces").sum()
_RANKED = (
    "SELECT task_domain, agents, success.correlation AS success, tools.correlation AS tools "
    "FROM (FROM agent_rank_correlations WHERE measure = 'success') AS success "
    "JOIN (FROM agent_rank_correlations WHERE measure = 'tools') AS tools "
    "USING (task_domain, agents)"
)


def ranking(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find where agents that score higher use more tools, but hardly succeed more often."""
    of_labels = {label: data.of("agents", label) for label in labels_of(data, scope)}
    compared = {label: rows for label, rows in of_labels.items() if len(rows) >= _MIN_AGENTS}
    for label, agents in compared.items():
        found = _correlations(agents)
        tools, success = found["tools"], found["success"]
        if tools is None or success is None or success > _HARDLY:
            continue
        if found["traces"] < MIN_TRACES or not _follows(tools, len(agents), len(compared)):
            continue
        often = "succeed less often" if success < -_HARDLY else "hardly succeed more often"
        yield Finding(
            "ranking",
            (
                "In ",
                Untrusted(label),
                (
                    ", agents that score higher use more tools (rank correlation "
                    f"{tools:.2f} over {len(agents):,} agents), but {often} ({success:.2f}). The "
                    "agents have different tasks. A ranking by score is not a ranking by success."
                ),
            ),
            query(_RANKED, task_domain=data.names[label]),
            {"agents": len(agents), "success": success, "tools": tools},
            found["traces"],
            found["off"],
        )


def _correlations(agents: pl.DataFrame) -> Row:
    """Return the rank correlations of agents by score, and their mean distance from the mean score.

    None if a side never varies, or if more than half of its agents share one value.
    """
    score = pl.col("mean").round(12).rank()
    mean = (pl.col("traces") * pl.col("mean")).sum() / _SUM
    success, tools = pl.col("success").round(12).rank(), pl.col("tools").round(12).rank()
    return agents.select(
        success=pl.when(_varies(score, success)).then(pl.corr(score, success)).fill_nan(None),
        tools=pl.when(_varies(score, tools)).then(pl.corr(score, tools)).fill_nan(None),
        off=(pl.col("traces") * (pl.col("mean") - mean).abs()).sum() / _SUM,
        traces=_SUM,
    ).row(0, named=True)


def _varies(*ranks: pl.Expr) -> pl.Expr:
    """Whether at most half of the agents share one rank, on each side."""
    tied = (each.value_counts(name="n").struct.field("n").max() for each in ranks)
    return pl.max_horizontal(*tied) <= pl.len() / 2


def _follows(correlation: float, agents: int, among: int) -> bool:
    """Whether ranks correlate by more than chance, by Fisher's transformation."""
    margin = 1.96 * math.sqrt(_SPEARMANS / (agents - 3))
    far = math.atanh(max(-0.999, min(correlation, 0.999)))
    return correlation >= _FOLLOWS and far > clearly(among, math.inf) * margin


def clear_differences(data: ReportData, scope: str, frame: str) -> list[Row]:
    """Return who differs from the others on shared tasks by more than chance."""
    rows = [row for row in rows_of(data, scope, frame) if _shares(row)]
    return [row for row in rows if abs(row["score_difference"]) > _least(row, len(rows))]


def _least(row: Row, among: int) -> float:
    margin = (row["score_high"] - row["score_low"]) / 2
    return max(clearly(among, row["shared_tasks"]) * margin, MATTERS)


def paired(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find who differs from the others on shared tasks, and why."""
    for frame, column in UNITS.items():
        for row in clear_differences(data, scope, frame):
            difference, low, high = (row[f"score_{name}"] for name in ("difference", "low", "high"))
            parts, said = made_of(data.parts.get((row["domain"], frame, row["unit"])))
            yield Finding(
                f"paired_{frame}",
                (
                    "In ",
                    Untrusted(row["domain"]),
                    f", on {row['shared_tasks']:,} shared tasks, ",
                    Untrusted(shortened(row["unit"], LABEL)),
                    (
                        f" scores {abs(difference):.3f} {'above' if difference > 0 else 'below'} "
                        f"the others {sizes(low, high)}{parts}. {_succeeds(row)}."
                    ),
                ),
                query(
                    f"FROM differences_from_others('{column}', ['score', 'success'])",
                    task_domain=data.names[row["domain"]],
                    **{column: row["unit"]},
                ),
                only(
                    row,
                    *("unit", "score_difference", "score_low", "score_high", "success_difference"),
                    traces="shared_traces",
                    tasks="shared_tasks",
                    success_low="success_difference_low",
                    success_high="success_difference_high",
                )
                | said,
                row["shared_traces"],
                abs(difference),
            )


def _shares(row: Row) -> bool:
    return (
        row["score_low"] is not None
        and row["shared_tasks"] >= _MIN_TASKS
        and row["shared_traces"] >= MIN_TRACES
    )


def _succeeds(row: Row) -> str:
    low, high = row["success_difference_low"], row["success_difference_high"]
    if low > 0 or high < 0:
        often = "more" if low > 0 else "less"
        by = f"{abs(row['success_difference']):.2f} {sizes(low, high, '.2f')}"
        return f"It succeeds {often} often, by {by}"
    is_alike = max(-low, high) <= _ALIKE
    unclear = "It is not clear whether it succeeds more often"
    return f"{'It succeeds about as often' if is_alike else unclear} {interval(low, high, '+.2f')}"
