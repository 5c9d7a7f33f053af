"""Findings about success, and the confidence in it."""

import math
from collections.abc import Iterator
from itertools import combinations

import polars as pl

from kp_batch.report.data import MIN_TRACES, ReportData
from kp_batch.report.finding import (
    Finding,
    Row,
    Untrusted,
    Value,
    clearly,
    labels_of,
    only,
    percent,
    query,
    rows_of,
    sizes,
    weight_of,
)
from kp_batch.report.labels import LABEL
from kp_batch.text import shortened

_OFF = 0.05  # the smallest gap between confidence and success that is worth a sentence

_BY_BIN = "FROM means_by(['task_domain', 'score_bin'], ['success'])"


def confidence(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find agents whose stated confidence differs from their success.

    If the confidence follows from outcomes, there are none.
    """
    rows = [
        row
        for row in rows_of(data, scope, "agents")
        if row["overconfidence_low"] is not None and not is_of_outcomes(data, row["domain"])
    ]
    for row in rows:
        over, low, high = (row[f"overconfidence{end}"] for end in ("", "_low", "_high"))
        far = clearly(len(rows), row["effective_tasks"]) * max(high - over, over - low)
        if row["traces"] < MIN_TRACES or abs(over) <= max(far, _OFF):
            continue
        yield Finding(
            "confidence",
            (
                "In ",
                Untrusted(row["domain"]),
                ", ",
                Untrusted(shortened(row["unit"], LABEL)),
                (
                    f" states a confidence of {row['confidence']:.2f} on average, but "
                    f"{percent(row['success'])} of its {row['traces']:,} traces succeed: it is "
                    f"{'overconfident' if over > 0 else 'underconfident'} by {abs(over):.2f} "
                    f"{sizes(low, high, '.2f')}."
                ),
            ),
            query(
                "FROM confidence_calibration",
                task_domain=data.names[row["domain"]],
                agent_id=row["unit"],
            ),
            only(
                row,
                *("traces", "overconfidence", "overconfidence_low", "overconfidence_high"),
                agent_id="unit",
                mean_confidence="confidence",
                success_rate="success",
            ),
            row["traces"],
            abs(over) * weight_of(data, row["domain"], "outcome confidence"),
        )


def is_of_outcomes(data: ReportData, scope: str) -> bool:
    """Whether all traces fail up to a tenth of confidence, and all succeed above it."""
    bins = data.of("calibration", scope).sort("low")
    rates = bins["success"].to_list()
    enough = sum(bins["traces"].to_list()) >= MIN_TRACES
    return enough and rates == sorted(rates) and {*rates} == {0.0, 1.0}


def success(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find where traces of higher scores succeed less often than those of lower ones.

    The opposite says little, because a failure lowers the outcome confidence.
    """
    pairs = {label: _pairs(data, label) for label in labels_of(data, scope)}
    among = sum(map(len, pairs.values()))
    for label, of_label in pairs.items():
        apart = [pair for pair in of_label if _is_apart(*pair, among)]
        if not apart:
            continue
        low, high = max(apart, key=lambda pair: pair[0]["success"] - pair[1]["success"])
        lowers = weight_of(data, label, "outcome confidence") > 0
        yield Finding(
            "success",
            (
                "In ",
                Untrusted(label),
                (
                    f", {_often(low)} of the traces that score {_bin(low)} succeed, but only "
                    f"{_often(high)} of those that score {_bin(high)}"
                    f"{', although a failure lowers the score' * lowers}."
                ),
            ),
            query(_BY_BIN, task_domain=data.names[label]),
            _of_sides(low=low, high=high),
            low["traces"],
            high["mean"] - low["mean"],
        )


def _pairs(data: ReportData, label: str) -> list[tuple[Row, Row]]:
    """Return bins of scores with enough traces, each with every higher one."""
    known = data.of("success", label).filter(pl.col("traces") >= MIN_TRACES)
    return [*combinations(known.drop_nulls("success_low").sort("low").to_dicts(), 2)]


def _is_apart(low: Row, high: Row, among: int) -> bool:
    """Whether traces of the lower bin succeed more often: by Newcombe, with disjoint intervals."""
    difference = low["success"] - high["success"]
    margins = low["success"] - low["success_low"], high["success_high"] - high["success"]
    tasks = min(low["effective_tasks"], high["effective_tasks"])
    far = clearly(among, tasks) * math.hypot(*margins)
    return difference > max(far, sum(margins))


def _of_sides(**sides: Row) -> dict[str, Value]:
    names = ("traces", "success", "success_low", "success_high")
    return {
        f"{side}_{name}": value
        for side, row in sides.items()
        for name, value in only(row, *names, least="low").items()
    }


def _bin(row: Row) -> str:
    return f"{row['low']:.1f} to {row['high']:.1f}"


def _often(row: Row) -> str:
    return (
        f"{percent(row['success'])} "
        f"({percent(row['success_low'])} to {percent(row['success_high'])})"
    )
