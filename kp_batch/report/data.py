"""The data of the report as small frames: DuckDB aggregates them, however many traces there are.

A scope is what the page shows at once: all domains together, or one of them, chosen by its label.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl

from kp_batch.duck import SQL, frame_of, identifier, literal, sql, statement
from kp_batch.report.labels import ALL, distinct, distinct_labels
from kp_batch.report.periods import SPANS, Span, span, step_of
from kp_batch.warehouse.reasons import Reason, setting_changes
from kp_batch.warehouse.run_record import (
    RunRecord,
    incomparable,
    last_done,
    profile_name,
    same_encoders,
)

_APART = 9  # domains with a label of their own, at most; all others share one more
# Domains of fewer traces than this, and than a hundredth of all, share a label.
_SMALL = 30
MIN_TRACES = 30  # of a domain or a period, to be worth a sentence
_FILLING = 0.1  # of the traces, the most that came to a cache that was filling, to compare
# Of more traces, the questions that go by tasks are asked of a sample: of all traces of one in so
# many tasks. A million distinct tasks take each seconds of a processor, and more memory than ours.
_MOST, _SAMPLE = 500_000, 250_000
_PERIODS = {"hour": "day", "decade": "year", "century": "year"}  # of changes; else the grain
_RUNS = """
    SELECT * EXCLUDE (inputs)
    FROM runs
    QUALIFY row_number() OVER (PARTITION BY status ORDER BY number DESC) <= 2
    ORDER BY number DESC
"""


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows. Each frame is the result of the SQL file of its name.

    In the frames of scopes, `domain` is the label of a domain, or `ALL`.
    """

    run: RunRecord | None  # the last run that is done
    before: RunRecord | None  # the run that was done before it
    failed: RunRecord | None  # the last run if it failed
    labels: list[str]  # of the domains with most traces, then one label for all others
    names: Mapping[str, str]  # the domain of each label that stands for one alone
    spans: Mapping[str, Span]  # of each scope
    period: str  # of the changes: day to year
    one_in: int  # of so many tasks one is asked for doubt, changes and drivers; 1: all of them
    paired_in: int  # of so many tasks one is asked who differs on the same ones; 1: all of them
    totals: Mapping[str, Any]  # the one row of sql/totals.sql
    # Of scopes:
    domains: pl.DataFrame
    over_time: pl.DataFrame
    other_times: pl.DataFrame
    histogram: pl.DataFrame
    drivers: pl.DataFrame
    agents: pl.DataFrame
    frameworks: pl.DataFrame
    success: pl.DataFrame
    calibration: pl.DataFrame
    changes: pl.DataFrame
    domain_changes: pl.DataFrame
    drift: pl.DataFrame
    # Of all domains:
    recorded: pl.DataFrame
    implausible_dates: pl.DataFrame
    gap: pl.DataFrame
    weights: pl.DataFrame
    came_and_went: pl.DataFrame
    rejects: pl.DataFrame
    traces: pl.DataFrame

    @property
    def scopes(self) -> list[str]:
        """The labels of all scopes, the first that of all domains; none where there is no trace."""
        return [ALL, *self.labels] if self.labels else []

    @property
    def others(self) -> str | None:
        """The last label if it stands for several domains."""
        return next((label for label in self.labels if label not in self.names), None)

    def of(self, name: str, scope: str) -> pl.DataFrame:
        """The rows of a frame that are of a scope."""
        frame: pl.DataFrame = getattr(self, name)
        return frame.filter(domain=scope)

    def changes_of(self, scope: str) -> pl.DataFrame:
        """A scope's changes from period to period; of all domains with what they are made of."""
        return self.of("changes" if scope == ALL else "domain_changes", scope)

    def comparable(self, scope: str) -> pl.DataFrame:
        """A scope's changes of the periods that are over and compare with the four before.

        They have enough traces, and tasks for an interval; and hardly any came while their cache
        was filling, which makes traces look novel.
        """
        enough = pl.col("traces") >= MIN_TRACES
        known = self.changes_of(scope).filter("is_over", enough).drop_nulls("low")
        return known.filter(pl.max_horizontal("filling", "filling_before") <= _FILLING)

    @property
    def has_novelty(self) -> bool:
        """Whether novelty was measured: without an encoder it is a placeholder."""
        return self.run is None or self.run.settings["embedder"] != "none"

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
_UNITS = {"agents": "agent_id", "frameworks": "framework"}  # the column that each is about
_CHANGES = ("changes", "domain_changes")


def gather(
    connection: duckdb.DuckDBPyConnection,
    frames: Collection[str] = FRAMES,
    unit: str | None = None,
) -> ReportData:
    """Query the catalog for everything that the report shows, or for some of it.

    Args:
        connection: a warehouse's catalog, in UTC. It gets views of files that are removed when this
            returns.
        frames: the names of those that are needed; all others are empty, without columns.
        unit: of time, day to year, of the steps; None: each scope has one that suits its span.

    Raises:
        KpBatchError: a scope has too many steps of this unit.
    """
    with TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}.parquet" for name in ("scores_extract", "scores_sample")}
        _set(connection, **paths)
        return _report_data(connection, frames, unit)


def _report_data(
    connection: duckdb.DuckDBPyConnection, wanted: Collection[str], unit: str | None
) -> ReportData:
    connection.execute("SET preserve_insertion_order = false")  # or many files take much memory
    runs = [*map(RunRecord.of, frame_of(connection.sql(_RUNS)).to_dicts())]
    run = last_done(runs)
    before = last_done(each for each in runs if each != run)
    function = _function(connection)
    connection.execute(sql(__name__, "scores_extract.sql", function=function))
    labels, names = _label(connection)
    _set(
        connection,
        all_domains=ALL,
        others=labels[-1] if len(labels) > len(names) else None,
        last_run=run.run_id if run else None,
        run_before=before.run_id if before else None,
        run_to_compare=before.run_id if run and before and same_encoders(before, run) else None,
        ended=run.finished_at.replace(tzinfo=None).isoformat(" ") if run else None,
    )
    spans = _spans(connection, run, unit)
    period = _period(spans)
    one_in, paired_in = _scope(connection)
    frames = dict.fromkeys(FRAMES, pl.DataFrame())
    # As the catalog answers: by the names of the domains.
    _asked_of(connection, function, "scores_sample" if one_in > 1 else "scores_extract")
    texts = {"period": literal(period), "step": literal(step_of(period))}
    if changes := [name for name in _CHANGES if name in wanted]:
        connection.execute(sql(__name__, "filling.sql", period=texts["period"]))
        frames |= {name: _frame(connection, name, **texts) for name in changes}
    # By the labels of the scopes, so that the questions answer for these.
    _asked_of(connection, function, "scoped_tasks_sample" if paired_in > 1 else "scoped")
    units = {name: column for name, column in _UNITS.items() if name in wanted}
    for column in units.values():
        connection.execute(sql(__name__, "pairs.sql", unit=column))
    _asked_of(connection, function, "scoped_sample_in_time" if one_in > 1 else "scoped_in_time")
    frames |= {name: _frame(connection, "units", unit=column) for name, column in units.items()}
    others = (name for name in FRAMES if name in wanted and name not in {*_UNITS, *_CHANGES})
    frames |= {name: _frame(connection, name) for name in others}
    return ReportData(
        run=run,
        before=before,
        failed=runs[0] if runs and runs[0].status == "failed" else None,
        labels=labels,
        names=names,
        spans=spans,
        period=period,
        one_in=one_in,
        paired_in=paired_in,
        totals=_frame(connection, "totals").row(0, named=True),
        **frames,
    )


def _label(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], dict[str, str]]:
    """Create `labels`, each domain's, and whether it has one of its own; and `scopes`.

    Returns:
        All labels, and the domains that have one of their own, by it.
    """
    domains = (
        "SELECT task_domain, count(*) AS traces FROM scores_extract GROUP BY ALL "
        "ORDER BY traces DESC, task_domain"
    )
    found = frame_of(connection.sql(domains))
    small = pl.col("traces") < pl.min_horizontal(_SMALL, pl.col("traces").sum() / 100)
    are_small = found.select(small).to_series()
    apart = _apart(len(found), int(are_small.sum()))
    own = found["task_domain"].head(apart).to_list()
    labels = distinct_labels(own)
    names = dict(zip(labels, own, strict=True))
    if folded := len(found) - apart:
        what = "small ones" if are_small[apart] else "others"
        labels.append(distinct(labels, f"{folded:,} {what}"))
    rank = pl.int_range(pl.len())
    rows = found.select(
        "task_domain",
        domain=pl.lit(pl.Series(labels, dtype=pl.String)).gather(rank.clip(upper_bound=apart)),
        apart=rank < apart,
    )
    connection.register("labels", rows.to_arrow())
    everywhere = rows.select("task_domain", scope=pl.lit(ALL))
    scopes = pl.concat([rows.select("task_domain", scope="domain"), everywhere])
    connection.register("scopes", scopes.to_arrow())
    return labels, names


def _apart(domains: int, small: int) -> int:
    """How many domains have a label of their own; a single one needs no label of others."""
    apart = domains - small if small > 1 else domains
    return apart if apart <= _APART + (apart == domains) else _APART


def _spans(
    connection: duckdb.DuckDBPyConnection, run: RunRecord | None, unit: str | None
) -> dict[str, Span]:
    """Create `scores_by_day`, and `spans`, in which each scope is shown."""
    connection.execute(sql(__name__, "scores_by_day.sql"))
    days = frame_of(connection.sql("FROM scores_by_day"))
    ended = run.finished_at.date() if run else None
    of_scopes = days.partition_by("domain", as_dict=True)
    spans = {scope: span(scope, rows, ended, unit) for (scope,), rows in of_scopes.items()}
    rows = pl.DataFrame([each.row() for each in spans.values()], SPANS)
    connection.register("spans", rows.to_arrow())
    connection.execute(sql(__name__, "steps_of_days.sql"))
    return spans


def _period(spans: Mapping[str, Span]) -> str:
    """The period of the changes: the unit of time of all domains."""
    grain = spans[ALL].grain if spans else "day"
    return _PERIODS.get(grain, grain)


def _scope(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Create views of the scopes, `means` and `effective_tasks`.

    Returns:
        Of how many tasks one is asked for those; and of how many one is compared. Many traces of
        few tasks compare on all of these: of a sample there would be hardly any.
    """
    [(traces, attempted)] = connection.sql(
        "SELECT count(*), "
        "approx_count_distinct(hash(objective_hash, task_domain, agent_id, framework)) "
        "FROM scores_extract"
    ).fetchall()
    one_in = 1 if traces <= _MOST else math.ceil(traces / _SAMPLE)
    paired_in = 1 if attempted <= _MOST else one_in
    _create_scoped(connection, "scoped", "scores_extract")
    if one_in == 1:
        connection.execute(sql(__name__, "means.sql"))
    else:
        connection.execute(sql(__name__, "frequent_tasks.sql"))
        [(frequent,)] = connection.sql("SELECT count(*) FROM frequent_tasks").fetchall()
        connection.execute(sql(__name__, "scores_sample.sql", one_in=one_in))
        _create_scoped(connection, "scoped_sample", "scores_sample")
        _create_scoped(connection, "scoped_tasks_sample", "tasks_sample")
        narrower = 1 if frequent else one_in
        connection.execute(sql(__name__, "sampled_means.sql", narrower=narrower))
    of_doubt = "scoped_sample" if one_in > 1 else "scoped"
    connection.execute(sql(__name__, "effective_tasks.sql", traces=of_doubt))
    connection.execute(statement("SET VARIABLE one_in = $one_in", one_in=one_in))
    connection.execute(statement("SET VARIABLE paired_in = $paired_in", paired_in=paired_in))
    return one_in, paired_in


def _create_scoped(connection: duckdb.DuckDBPyConnection, name: str, traces: str) -> None:
    connection.execute(sql(__name__, "scoped_scores.sql", name=name, traces=traces))


def _asked_of(connection: duckdb.DuckDBPyConnection, function: SQL, view: str) -> None:
    """Let the questions of the catalog ask a view: DuckDB finds a temporary function first."""
    create = "CREATE OR REPLACE TEMP MACRO $function() AS TABLE FROM $view"
    connection.execute(statement(create, function=function, view=view))


def _function(connection: duckdb.DuckDBPyConnection) -> SQL:
    """The function of which the view scores has its rows, and which the questions ask."""
    [(name,)] = connection.sql("SELECT 'scores of ' || publication FROM kp.manifest").fetchall()
    return identifier(name)


def _set(connection: duckdb.DuckDBPyConnection, **variables: str | None) -> None:
    for name, value in variables.items():
        connection.execute(statement("SET VARIABLE $name = ?::VARCHAR", name=name), [value])


def _frame(connection: duckdb.DuckDBPyConnection, name: str, **values: SQL | str) -> pl.DataFrame:
    return frame_of(connection.sql(sql(__name__, f"sql/{name}.sql", **values)))
