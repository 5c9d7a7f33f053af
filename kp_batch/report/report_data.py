"""What the report tells, as small frames: aggregated by DuckDB, whatever the number of traces."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any, cast

import duckdb
import polars as pl

from kp_batch.text import shortened

_APART = 9  # domains with a name of their own: with the others, as many as there are colours
_BINS = 20  # of the histogram, as in its SQL
LABEL = 40  # characters
# No domain is called so: what stands for something else, and what every object of JavaScript has,
# since Vega keeps what it stacks in an object, by the domain's name.
_TAKEN = (
    *("all domains", "(unknown)", "(never scored)"),
    *("__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
    *("toLocaleString", "toString", "valueOf"),
)
# Steps of time, with the days of the longest: the first of which about so many hold all is taken.
_STEPS = 120
_GRAINS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366, "decade": 3660}
_INTERVALS = {"quarter": "3 months"}
_RUNS = """
    SELECT
        run_id, status, reason, started_at, finished_at,
        config, counts, seconds, versions, fingerprints
    FROM runs
    QUALIFY row_number() OVER (PARTITION BY status ORDER BY started_at DESC, run_id DESC) <= 2
    ORDER BY started_at DESC, run_id DESC
"""


@dataclass(frozen=True)
class Figures:
    """All that the report tells; each frame is what the SQL file of its name gives.

    `domain` is a domain's label, and null stands for all domains together.
    """

    run: Mapping[str, Any]  # the last run that is done; empty before there is one
    before: Mapping[str, Any]  # the one that was done before it; empty likewise
    failed: Mapping[str, Any]  # the last run, where it failed; else empty
    labels: list[str]  # the domains with most traces, then one label for all the others
    others: str | None  # the last of these, where there are others
    grain: str  # the unit of time
    whole: Mapping[str, Any]
    domains: pl.DataFrame
    histogram: pl.DataFrame
    over_time: pl.DataFrame
    dimensions: pl.DataFrame
    overrides: pl.DataFrame
    novelty_and_age: pl.DataFrame
    thresholds: pl.DataFrame
    drift: pl.DataFrame
    turnover: pl.DataFrame
    rejects: pl.DataFrame
    gaps: pl.DataFrame
    traces: pl.DataFrame

    def bins(self, domain: str | None) -> list[int]:
        """How many of a domain's scores, or of all, fall into each of the histogram's bins."""
        counts = [0] * _BINS
        for of, low, _, traces in self.histogram.iter_rows():
            if domain in (None, of):
                counts[round(low * _BINS)] += traces
        return counts


_FRAMES = tuple(field.name for field in fields(Figures) if field.type is pl.DataFrame)


def gather(connection: duckdb.DuckDBPyConnection) -> Figures:
    """Ask the catalog for all that the report tells.

    Args:
        connection: a warehouse's catalog, in UTC. It gets a temporary view and some variables.
    """
    runs = list(connection.sql(_RUNS).to_arrow_table().to_pylist())
    done = [run for run in runs if run["status"] == "done"]
    labels, others = _label(connection)
    whole = _frame(connection, "whole").row(0, named=True)
    grain = _grain(whole)
    for name, value in {
        "last_run": done[0]["run_id"] if done else None,
        "run_before": done[1]["run_id"] if len(done) > 1 else None,
        "grain": grain,
        "step": _INTERVALS.get(grain, f"1 {grain}"),
    }.items():
        connection.execute(f"SET VARIABLE {name} = ?::VARCHAR", [value])
    return Figures(
        run=done[0] if done else {},
        before=done[1] if len(done) > 1 else {},
        failed=runs[0] if runs and runs[0]["status"] == "failed" else {},
        labels=labels,
        others=others,
        grain=grain,
        whole=whole,
        **{name: _frame(connection, name) for name in _FRAMES},
    )


def _label(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], str | None]:
    """Make the view `labels`: what each domain is called, and whether it is shown apart."""
    domains = "SELECT task_domain FROM score_distribution ORDER BY traces DESC, task_domain"
    names = [name for (name,) in connection.execute(domains).fetchall()]
    apart = len(names) if len(names) <= _APART + 1 else _APART
    labels: list[str] = []
    for name in names[:apart]:
        labels.append(_unlike(labels, shortened(name, LABEL)))
    others = len(names) - apart
    if others:
        labels.append(_unlike(labels, f"{others:,} others"))
    rows = pl.DataFrame(
        {
            "task_domain": names,
            "domain": labels[:apart] + labels[apart:] * others,
            "apart": [True] * apart + [False] * others,
        },
        schema={"task_domain": pl.String, "domain": pl.String, "apart": pl.Boolean},
    )
    connection.register("labels", rows.to_arrow())
    return labels, labels[-1] if others else None


def _unlike(labels: list[str], label: str) -> str:
    """The label, told apart from those that are the same."""
    while label in labels or label in _TAKEN:
        label += "*"
    return label


def _grain(whole: Mapping[str, Any]) -> str:
    """The finest unit of time of which the traces fill no more than about `_STEPS`."""
    days = (whole["last_day"] - whole["first_day"]).days + 1 if whole["first_day"] else 1
    fitting = (grain for grain, length in _GRAINS.items() if days <= _STEPS * length)
    return next(fitting, "century")


def _frame(connection: duckdb.DuckDBPyConnection, name: str) -> pl.DataFrame:
    sql = files("kp_batch.report").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return cast("pl.DataFrame", pl.from_arrow(connection.sql(sql).to_arrow_table()))
