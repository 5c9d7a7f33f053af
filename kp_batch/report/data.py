"""The data of the report as small frames: DuckDB aggregates them, however many traces there are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl

from kp_batch.duck import SQL, identifier, sql, statement
from kp_batch.runs.reasons import Reason, setting_changes
from kp_batch.runs.record import (
    RunRecord,
    incomparable,
    last_done,
    profile_name,
    same_encoders,
)
from kp_batch.text import shortened

LABEL = 40  # the most characters of a domain's label
_APART = 9  # domains with a label of their own; one more label, the others', uses up the colours
_BINS = 20  # of the histogram, as in its SQL
# Labels that no domain gets: those with another meaning, and the properties of every JavaScript
# object, since Vega stacks bars in an object whose keys are the domains.
_RESERVED = (
    *("all domains", "(unknown)", "(never scored)"),
    *("__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
    *("toLocaleString", "toString", "valueOf"),
)
# Units of time, with the days of the longest of each. The report takes the first unit of which
# about `_STEPS` hold all traces.
_STEPS = 120
_GRAINS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366, "decade": 3660}
_INTERVALS = {"quarter": "3 months"}
_RUNS = """
    SELECT * EXCLUDE (inputs)
    FROM runs
    QUALIFY row_number() OVER (PARTITION BY status ORDER BY number DESC) <= 2
    ORDER BY number DESC
"""


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows. Each frame is the result of the SQL file of its name.

    In the frames, `domain` is a domain's label; null stands for all domains together.
    """

    run: RunRecord | None  # the last run that is done
    before: RunRecord | None  # the run that was done before it
    failed: RunRecord | None  # the last run if it failed
    labels: list[str]  # of the domains with most traces, then one label for all others
    others: str | None  # the last label if it stands for several domains
    grain: str  # the unit of time
    totals: Mapping[str, Any]  # the one row of sql/totals.sql
    date_outliers: pl.DataFrame
    domains: pl.DataFrame
    histogram: pl.DataFrame
    over_time: pl.DataFrame
    dimensions: pl.DataFrame
    overrides: pl.DataFrame
    novelty_and_age: pl.DataFrame
    thresholds: pl.DataFrame
    weights: pl.DataFrame
    drift: pl.DataFrame
    recorded: pl.DataFrame
    domain_changes: pl.DataFrame
    rejects: pl.DataFrame
    gaps: pl.DataFrame
    traces: pl.DataFrame

    def bins(self, domain: str | None) -> list[int]:
        """Count the scores in each bin of the histogram: a domain's, or all scores if None."""
        counts = [0] * _BINS
        for label, low, _, traces in self.histogram.iter_rows():
            if domain in (None, label):
                counts[round(low * _BINS)] += traces
        return counts

    @property
    def own_domains(self) -> pl.DataFrame:
        """The rows of `domains` that stand for a single domain."""
        single = pl.col("domain").is_not_null() & pl.col("domain").ne_missing(self.others)
        return self.domains.filter(single)

    @property
    def omitted(self) -> int:
        """How many traces are dated so far from the others that no chart over time shows them."""
        counts = dict(self.date_outliers.select("kind", "traces").iter_rows())
        usual = counts.pop("usual", 0)
        return sum(counts.values()) if usual else 0

    @property
    def incomparable(self) -> list[Reason]:
        """What makes the last two runs' scores incomparable: other formulas or another encoder."""
        return incomparable(self.before, self.run) if self.before and self.run else []

    @property
    def changed_settings(self) -> list[Reason]:
        """The settings that differ between the last two runs."""
        if not (self.before and self.run):
            return []
        return [*setting_changes(self.before.settings, self.run.settings)]

    @property
    def no_trend(self) -> str | None:
        """Why scores moved since the previous run other than by their traces; None if they did not.

        The threshold moves no score, and neither do texts in the report, audits, weights that no
        score bears, the cache where there is no encoder, nor the precision where there is no model.
        """
        runs = [run for run in (self.before, self.run) if run]
        profiles = {profile_name(name) for run in runs for name in run.fingerprints["profile_id"]}
        embedders = {run.settings["embedder"] for run in runs}
        idle = {"threshold", "text", "audit"}
        idle |= {"precision"} if embedders <= {"hashing", "none"} else set()
        idle |= {"cache_size", "ttl", "cache_by"} if embedders == {"none"} else set()
        moving = (
            change.of in profiles if change.code == "weights" else change.code not in idle
            for change in self.changed_settings
        )
        return "settings or formulas changed" if self.incomparable or any(moving) else None


FRAMES = tuple(field.name for field in fields(ReportData) if field.type is pl.DataFrame)


def gather(connection: duckdb.DuckDBPyConnection) -> ReportData:
    """Query the catalog for everything that the report shows.

    Args:
        connection: a warehouse's catalog, in UTC. It gets views of a file that is removed when this
            returns.
    """
    with TemporaryDirectory() as folder:
        _set(connection, scores_extract=f"{folder}/scores_extract.parquet")
        return _report_data(connection)


def _report_data(connection: duckdb.DuckDBPyConnection) -> ReportData:
    connection.execute("SET preserve_insertion_order = false")  # or many files take much memory
    runs = [RunRecord.of(row) for row in connection.sql(_RUNS).to_arrow_table().to_pylist()]
    run = last_done(runs)
    before = last_done(each for each in runs if each != run)
    function = _function(connection)
    connection.execute(sql(__name__, "scores_extract.sql", function=function))
    labels, others = _label(connection)
    connection.execute(sql(__name__, "labelled_views.sql", function=function))
    _set(
        connection,
        others=others,
        last_run=run.run_id if run else None,
        run_before=before.run_id if before else None,
        run_to_compare=before.run_id if run and before and same_encoders(before, run) else None,
        ended=run.finished_at.date() if run else None,
    )
    times = _frame(connection, "date_outliers")
    span = _span(times)
    grain = _grain(span)
    _set(connection, **span, grain=grain, step=_INTERVALS.get(grain, f"1 {grain}"))
    return ReportData(
        run=run,
        before=before,
        failed=runs[0] if runs and runs[0].status == "failed" else None,
        labels=labels,
        others=others,
        grain=grain,
        totals=_frame(connection, "totals").row(0, named=True),
        date_outliers=times,
        **{name: _frame(connection, name) for name in FRAMES if name != "date_outliers"},
    )


def _label(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], str | None]:
    """Create the view `labels`: each domain's label, and whether it has one of its own."""
    domains = (
        "SELECT task_domain FROM scores_extract GROUP BY ALL ORDER BY count(*) DESC, task_domain"
    )
    names = pl.DataFrame(connection.sql(domains).to_arrow_table())
    apart = len(names) if len(names) <= _APART + 1 else _APART
    labels = distinct_labels(names.get_column("task_domain").head(apart))
    others = len(names) - apart
    if others:
        labels.append(_distinct(labels, f"{others:,} others"))
    rank = pl.int_range(pl.len())
    rows = names.with_columns(
        domain=pl.lit(pl.Series(labels, dtype=pl.String)).gather(rank.clip(upper_bound=apart)),
        apart=rank < apart,
    )
    connection.register("labels", rows.to_arrow())
    return labels, labels[-1] if others else None


def distinct_labels(domains: Iterable[str]) -> list[str]:
    """A label for each domain: its name, in short, and no other's."""
    labels: list[str] = []
    for name in domains:
        labels.append(_distinct(labels, shortened(name, LABEL)))
    return labels


def _distinct(labels: list[str], label: str) -> str:
    """Add stars to the label until no other label is the same."""
    while label in labels or label in _RESERVED:
        label += "*"
    return label


def _function(connection: duckdb.DuckDBPyConnection) -> SQL:
    """The function of which the view scores has its rows, and which the questions ask."""
    [(name,)] = connection.sql("SELECT 'scores of ' || warehouse FROM kp.manifest").fetchall()
    return identifier(name)


def _set(connection: duckdb.DuckDBPyConnection, **variables: str | date | None) -> None:
    for name, value in variables.items():
        connection.execute(statement("SET VARIABLE $name = ?::VARCHAR", name=name), [value])


def _span(times: pl.DataFrame) -> dict[str, date | None]:
    """The first and the last day of the usual times, or of all where none are usual."""
    usual = times.filter(kind="usual")
    shown = times if usual.is_empty() else usual
    return {
        "first_day": min(shown["first_day"].to_list(), default=None),
        "last_day": max(shown["last_day"].to_list(), default=None),
    }


def _grain(span: Mapping[str, Any]) -> str:
    """The finest unit of time of which the span holds about `_STEPS` at most."""
    days = (span["last_day"] - span["first_day"]).days + 1 if span["first_day"] else 1
    fitting = (grain for grain, length in _GRAINS.items() if days <= _STEPS * length)
    return next(fitting, "century")


def _frame(connection: duckdb.DuckDBPyConnection, name: str) -> pl.DataFrame:
    return pl.DataFrame(connection.sql(sql(__name__, f"sql/{name}.sql")).to_arrow_table())
