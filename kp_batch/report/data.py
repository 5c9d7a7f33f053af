"""The data of the report as small frames, however many traces there are.

The scores are read once, as columns of numbers; everything else is made from sums over these. A
scope is what the page shows at once: all domains together, or one of them, chosen by its label.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from typing import Any

import duckdb
import polars as pl

from kp_batch.duck import SQL, frame_of, literal, set_variables, sql, statement
from kp_batch.report.groupings import Key, groupings, scoped
from kp_batch.report.labels import ALL, distinct, distinct_labels
from kp_batch.report.pairs import Pairs
from kp_batch.report.periods import SPANS, ChartSpan, span, step_of
from kp_batch.report.scores import Scores, read_scores
from kp_batch.report.spread import days_of, extremes_of, recorded_of, spread_of
from kp_batch.report.sums import ALL_OF, sums_of, totals_of
from kp_batch.report.windows import Periods, sums_of_changes
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
MIN_TRACES = 30  # in a domain or period, to be worth a sentence
_WARMING_UP = 0.1  # the largest comparable share of traces while the cache warmed up
_PERIODS = {"hour": "day", "decade": "year", "century": "year"}  # of changes; else the grain
_COMPARED_BY_WEEK = timedelta(weeks=6)  # or longer, so that weeks have four before
_RUNS = """
    SELECT * EXCLUDE (inputs)
    FROM runs
    QUALIFY row_number() OVER (PARTITION BY status ORDER BY number DESC) <= 2
    ORDER BY number DESC
"""


Parts = Mapping[str, float | None]  # as the column `parts` of the questions; see with_parts


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows. Each frame is the result of the SQL file of its name.

    In the frames of scopes, `domain` is the label of a domain, or `ALL`.
    """

    run: RunRecord | None  # the last run that is done
    before: RunRecord | None  # the run that was done before it
    failed: RunRecord | None  # the last run if it failed
    labels: list[str]  # for the domains with most traces, then one label for all others
    names: Mapping[str, str]  # the domain of each label of a single domain
    spans: Mapping[str, ChartSpan]  # of each scope
    period: str  # the period of changes: day to year
    totals: Mapping[str, Any]  # the one row of sql/totals.sql
    # Frames of scopes:
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
    # Frames of all domains:
    recorded: pl.DataFrame
    implausible_dates: pl.DataFrame
    gap: pl.DataFrame
    weights: pl.DataFrame
    entered_and_exited: pl.DataFrame
    rejects: pl.DataFrame
    traces: pl.DataFrame
    # For clear changes, by label and period; for differences, by label, frame and unit.
    parts: Mapping[tuple[object, ...], Parts] = field(default_factory=dict)

    @property
    def scopes(self) -> list[str]:
        """The labels of all scopes, first that of all domains; none if there are no traces."""
        return [ALL, *self.labels] if self.labels else []

    @property
    def others(self) -> str | None:
        """The last label if it is that of several domains."""
        return next((label for label in self.labels if label not in self.names), None)

    def of(self, name: str, scope: str) -> pl.DataFrame:
        """Return the rows of a frame that belong to a scope."""
        frame: pl.DataFrame = getattr(self, name)
        return frame.filter(domain=scope)

    def changes_of(self, scope: str) -> pl.DataFrame:
        """Return a scope's changes from period to period; for all domains with their parts."""
        return self.of("changes" if scope == ALL else "domain_changes", scope)

    def comparable(self, scope: str) -> pl.DataFrame:
        """Return a scope's changes of periods that are over and comparable with the previous four.

        They have enough traces, and tasks for an interval. Hardly any of these traces came while
        their cache was warming up, because that makes traces look novel.
        """
        enough = pl.col("traces") >= MIN_TRACES
        known = self.changes_of(scope).filter("is_over", enough).drop_nulls("low")
        return known.filter(pl.max_horizontal("warming_up", "warming_up_before") <= _WARMING_UP)

    @property
    def has_novelty(self) -> bool:
        """Whether novelty was measured: without an encoder it is a placeholder."""
        return self.run is None or self.run.settings["embedder"] != "none"

    @property
    def incomparable(self) -> list[Reason]:
        """Why the last two runs' scores are not comparable: other formulas or another encoder."""
        return incomparable(self.before, self.run) if self.before and self.run else []

    @property
    def changed_settings(self) -> list[Reason]:
        """The settings that differ between the last two runs."""
        if not (self.before and self.run):
            return []
        return [*setting_changes(self.before.settings, self.run.settings)]

    @property
    def no_trend(self) -> str | None:
        """Why scores changed since the previous run, other than by traces; None if they did not.

        Some settings change no score: the threshold, texts, audits, and weights that
        no score has. Without an encoder the cache changes none, and without a model the precision.
        """
        runs = [run for run in (self.before, self.run) if run]
        profiles = {profile_name(name) for run in runs for name in run.fingerprints["profile_id"]}
        embedders = {run.settings["embedder"] for run in runs}
        idle = {"threshold", "trace_text", "reject_text", "audit"}
        idle |= {"precision"} if embedders <= {"hashing", "none"} else set()
        idle |= {"cache_size", "ttl", "cache_by"} if embedders == {"none"} else set()
        moving = (
            change.of in profiles if change.code == "weights" else change.code not in idle
            for change in self.changed_settings
        )
        return "settings or formulas changed" if self.incomparable or any(moving) else None


FRAMES = tuple(field.name for field in fields(ReportData) if field.type is pl.DataFrame)
_UNITS = {"agents": "agent", "frameworks": "framework"}
_CHANGES = ("changes", "domain_changes")
_SUMS = pl.Schema(
    {
        **dict.fromkeys(("by", "domain", "unit"), pl.String),
        "start": pl.Datetime("us"),
        **dict.fromkeys(("bin", "traces", "tasks"), pl.Int64),
        **dict.fromkeys(ALL_OF, pl.Float64),
        **dict.fromkeys(("squares", "products"), pl.Float64),
        **{f"{name}_squares": pl.Float64 for name in ("score", "novelty", "confidence", "success")},
        **{f"{name}_between": pl.Float64 for name in ("success", "meets_threshold")},
        **{f"paired_{name}": pl.Float64 for name in Pairs(0).sums},
    }
)


def gather(
    connection: duckdb.DuckDBPyConnection,
    frames: Collection[str] = FRAMES,
    unit: str | None = None,
    scores_of: Callable[[Iterable[date]], SQL] = lambda _: statement("scores"),
) -> ReportData:
    """Query the catalog for everything that the report shows, or for some of it.

    Args:
        connection: a warehouse's catalog, in UTC.
        frames: the names of the needed frames; all others are empty, without columns.
        unit: the unit of time of the steps, day to year; None: each scope has one that suits its
            span.
        scores_of: returns SQL for the scores of some days: opening the files of all takes a second.

    Raises:
        KpBatchError: a scope has too many steps of this unit.
    """
    connection.execute("SET preserve_insertion_order = false")  # else many files take much memory
    runs = [*map(RunRecord.of, frame_of(connection.sql(_RUNS)).to_dicts())]
    run = last_done(runs)
    before = last_done(each for each in runs if each != run)
    connection.execute(sql(__name__, "by_domain.sql"))
    labels, names = _label(connection)
    scores = _scores(connection, labels)
    set_variables(
        connection,
        all_domains=ALL,
        others=labels[-1] if len(labels) > len(names) else None,
        last_run=run.run_id if run else None,
        run_before=before.run_id if before else None,
        run_to_compare=before.run_id if run and before and same_encoders(before, run) else None,
        ended=run.finished_at.replace(tzinfo=None).isoformat(" ") if run else None,
    )
    spans = _spans(connection, scores, labels, run, unit)
    period = _period(spans, unit)
    _compute(connection, scores, labels, period, frames)
    of_frames: dict[str, Mapping[str, SQL | str]] = {
        **{name: {"step": literal(step_of(period))} for name in _CHANGES},
        **{name: {"unit": column} for name, column in _UNITS.items()},
    }
    if "traces" in frames:
        extremes, days = extremes_of(scores, labels)
        _register(connection, extreme_scores=extremes)
        of_frames["traces"] = {"scores": scores_of(days)}
    found: dict[str, Any] = dict.fromkeys(FRAMES, pl.DataFrame())
    for name in (name for name in FRAMES if name in frames):
        file = "units" if name in _UNITS else name
        found[name] = ask_frame(connection, file, **of_frames.get(name, {}))
    return ReportData(
        run=run,
        before=before,
        failed=runs[0] if runs and runs[0].status == "failed" else None,
        labels=labels,
        names=names,
        spans=spans,
        period=period,
        totals=ask_frame(connection, "totals").row(0, named=True),
        **found,
    )


def _scores(connection: duckdb.DuckDBPyConnection, labels: Sequence[str]) -> Scores:
    [(traces,)] = connection.sql(
        "SELECT coalesce(sum(traces), 0)::BIGINT FROM by_domain"
    ).fetchall()
    of_domains = dict(connection.sql("SELECT task_domain, domain FROM labels").fetchall())
    places = {label: place for place, label in enumerate(labels)}
    return read_scores(
        connection, traces, {domain: places[label] for domain, label in of_domains.items()}
    )


def _compute(
    connection: duckdb.DuckDBPyConnection,
    scores: Scores,
    labels: Sequence[str],
    period: str,
    frames: Collection[str],
) -> None:
    """Create the tables behind the frames: `means`, `changes` and their companions."""
    steps = frame_of(connection.sql("FROM steps_of_days"))
    sums = (sums_of(scores, each) for each in groupings(scores, labels, steps, frames))
    _register(connection, sums=pl.concat([_SUMS.to_frame(), *sums], how="diagonal_relaxed"))
    connection.execute(sql(__name__, "means.sql"))
    connection.execute(sql(__name__, "pairs.sql"))
    if not {*_CHANGES}.isdisjoint(frames):
        _change(connection, scores, period)
    if "domains" in frames:
        _register(connection, spread=spread_of(scores, labels))
    if "histogram" in frames:
        bins = scoped("histogram", labels, Key(lambda part: part["score_bin"], 20, "bin"), ())
        _register(connection, score_bins=totals_of(scores, bins))
    if "recorded" in frames:
        _register(connection, recorded_scores=recorded_of(scores))


def _change(connection: duckdb.DuckDBPyConnection, scores: Scores, period: str) -> None:
    of = literal(period)
    _register(connection, days=pl.DataFrame({"day": pl.Series(scores.days, dtype=pl.Date)}))
    connection.execute(sql(__name__, "warming_up.sql", period=of))
    periods = Periods.of(_query(connection, "periods_of_days.sql", period=of))
    _register(connection, changed=sums_of_changes(scores, periods))
    connection.execute(sql(__name__, "changes_by.sql"))


def _label(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], dict[str, str]]:
    """Create `labels`, with each domain's label and whether it is its own; and `scopes`.

    Returns:
        All labels, and the domain of each label that belongs to one alone.
    """
    domains = "SELECT task_domain, traces FROM by_domain ORDER BY traces DESC, task_domain"
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
    """Return how many domains have a label of their own; a single one needs no label of others."""
    apart = domains - small if small > 1 else domains
    return apart if apart <= _APART + (apart == domains) else _APART


def _spans(
    connection: duckdb.DuckDBPyConnection,
    scores: Scores,
    labels: Sequence[str],
    run: RunRecord | None,
    unit: str | None,
) -> dict[str, ChartSpan]:
    """Create `scores_by_day`, and `spans`, in which each scope is shown."""
    days = days_of(scores, labels)
    _register(connection, scores_by_day=days)
    ended = run.finished_at.date() if run else None
    of_scopes = days.partition_by("domain", as_dict=True)
    spans = {scope: span(scope, rows, ended, unit) for (scope,), rows in of_scopes.items()}
    rows = pl.DataFrame([each.row() for each in spans.values()], SPANS)
    connection.register("spans", rows.to_arrow())
    connection.execute(sql(__name__, "steps_of_days.sql"))
    return spans


def _period(spans: Mapping[str, ChartSpan], unit: str | None) -> str:
    """Return the period of the changes: that of the charts' steps, or weeks for many days.

    If work stops at weekends, days are not comparable with the previous four.
    """
    if not spans:
        return "day"
    grain, length = spans[ALL].grain, spans[ALL].last_day - spans[ALL].first_day
    if grain == "day" and not unit and length >= _COMPARED_BY_WEEK:
        return "week"
    return _PERIODS.get(grain, grain)


def _register(connection: duckdb.DuckDBPyConnection, **frames: pl.DataFrame) -> None:
    for name, frame in frames.items():
        connection.register(name, frame.to_arrow())


def _query(connection: duckdb.DuckDBPyConnection, name: str, **values: SQL | str) -> pl.DataFrame:
    return frame_of(connection.sql(sql(__name__, name, **values)))


def ask_frame(
    connection: duckdb.DuckDBPyConnection, name: str, **values: SQL | str
) -> pl.DataFrame:
    """Return the answer of a query of the report, by its name."""
    return _query(connection, f"sql/{name}.sql", **values)
