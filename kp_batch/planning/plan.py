"""Plan the least work whose result equals that of a full run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import cast

import polars as pl

from kp_batch.archive.ledger import has_fault, is_there
from kp_batch.config import RescoreConfig
from kp_batch.errors import CUT_FILE
from kp_batch.faults import most_similar
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.planning.cache_groups import CacheGroups, count_groups
from kp_batch.planning.changes import ChangeSet, Loss, Prunable, detect_changes
from kp_batch.planning.embeddings import MissingEmbeddings, missing_embeddings
from kp_batch.planning.excess import LimitInputs, are_too_many_gone
from kp_batch.planning.rejects import count_rejects, read_anew, stage_rejects
from kp_batch.planning.scorer import (
    Scorer,
    change_reasons,
    is_current,
    is_up_to_date,
    same_messages,
)
from kp_batch.planning.timeline import ReplaySpan, Timeline, affected_timeline
from kp_batch.planning.write_tasks import WriteTask, cut_into_tasks
from kp_batch.runs.run import Run
from kp_batch.scoring.composite import assign
from kp_batch.scoring.profiles import load_profiles
from kp_batch.steps.step import step
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_snapshot
from kp_batch.warehouse.reasons import Pending, Reason
from kp_batch.warehouse.run_record import RunCounts, RunRecord, done_runs

# The count that the time of each step grows with, by the step's name.
_RATED: Mapping[str, Callable[[RunCounts], int]] = {
    "embed": lambda counts: counts.embedded,
    "replay": lambda counts: counts.replayed,
    "write": lambda counts: counts.partitions,
}
_RUNS_RATED = 5
_COUNTS = ("replay", "rescore", "reweight")
_WORKLOAD = pl.Schema(
    {"task_domain": pl.String, "day": pl.Date, **dict.fromkeys(_COUNTS, pl.Int64)}
)
_TRACES = (
    *("day", "created_at", "task_domain", "cache_id", "profile_id"),
    *("facts_changed", "replay", "traces"),
)
_DOMAINS = 10_000  # domains with the most traces, to compare names with
_COMPARED = 5  # profiles to compare with them, which takes 0.2 s each


@dataclass(frozen=True)
class Workload:
    """How many traces a run scores again; `staging.workload` has them by domain and day."""

    replay: int
    rescore: int  # for any reason
    reweight: int  # of these: their weights alone differ
    days: frozenset[date]  # days with a trace to rescore


@dataclass(frozen=True)
class Plan:
    """The work of a run as paths, ranges and numbers; its staging has the rows."""

    scan: ArchiveScan
    scorer: Scorer
    counts: RunCounts
    estimated_seconds: float | None  # see `_estimated_seconds`
    limit_inputs: LimitInputs = field(default_factory=LimitInputs)
    pruned: Loss = field(default_factory=Loss)
    texts: MissingEmbeddings = field(default_factory=MissingEmbeddings)  # to embed
    spans: tuple[ReplaySpan, ...] = ()  # to replay
    days: tuple[date, ...] = ()  # to write
    parts: tuple[WriteTask, ...] = ()  # the parts of these days
    pending: tuple[Pending, ...] = ()  # what will be published; empty: nothing to do
    reasons: tuple[Reason, ...] = ()  # why there is work to do
    # New profiles of no trace, each with a domain of similar name.
    unused_profiles: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    cache_groups: CacheGroups | None = None  # None: all traces share one, or nothing was compared


@step("plan")
def make_plan(run: Run, scan: ArchiveScan, scorer: Scorer) -> Plan:
    """Compare the archive and the settings with the published ones; write to staging only.

    Raises:
        NoTextsError: a text without a vector is only in files that are not read, for example
            because they are gone.
    """
    done = done_runs(run.snapshot.runs())
    if not run.config.restore_vectors and is_up_to_date(
        run, scorer, scan, done[-1] if done else None
    ):
        return _empty_plan(run, scan, scorer, done)
    return _plan_of_changes(run, scan, scorer, done)


def _empty_plan(run: Run, scan: ArchiveScan, scorer: Scorer, done: Sequence[RunRecord]) -> Plan:
    """Return the plan of a run with nothing to do."""
    _WORKLOAD.to_frame().write_parquet(run.staging.workload)
    counts = cast("RunCounts", done[-1].counts).without_work
    return Plan(scan, scorer, counts, _estimated_seconds(run.config, counts, done))


def _plan_of_changes(
    run: Run, scan: ArchiveScan, scorer: Scorer, done: Sequence[RunRecord]
) -> Plan:
    """Return the plan of a run that compares the traces with the published ones."""
    last = done[-1] if done else None
    with open_snapshot(run.snapshot, run.staging) as snapshot:
        rejects_current = not run.published.failed
        touches_all = run.regroups or not rejects_current
        detected = detect_changes(snapshot, scan, run.config.cache_by, touches_all=touches_all)
        if is_current(run, scorer, last):
            fingerprints = snapshot.current_fingerprints()
        else:
            fingerprints = snapshot.fingerprints(scorer.profiles.moments)
        timeline = affected_timeline(run, detected, scorer, fingerprints)
        texts = missing_embeddings(run, detected, scorer, timeline, scan)
        traces = traces_after(run, fingerprints, timeline)
        workload = stage_workload(run, traces, scorer)
        profiles_differ = _stage_profiles(run, snapshot, scorer)
        unused = unused_profiles(run, traces)
        messages_current = rejects_current and same_messages(last)
        rejects_differ = stage_rejects(run, scan, detected, messages_current=messages_current)
        loss, pruned = (Loss(), Loss()) if run.forgets else detected.losses()
        prunable = detected.prunable() if are_too_many_gone(run, scan) else Prunable()
        groups = count_groups(snapshot) if run.config.cache_by else None
    days = sorted(detected.changes.days | workload.days)
    published = fingerprints.group_by("day").agg(pl.col("traces").sum())
    scores = int(published["traces"].sum())
    counts = _counts(run, texts, workload, detected.changes, scores)
    differs: dict[Pending, bool] = {
        "settings": not run.keeps_settings,
        "files": scan.differs,
        "scores": bool(days),
        "profiles": profiles_differ,
        "rejects": rejects_differ,
        "forgotten": run.forgets,
        "vectors": run.config.restore_vectors and texts.missing > 0,
    }
    return Plan(
        scan=scan,
        texts=texts,
        scorer=scorer,
        spans=timeline.spans,
        days=tuple(days),
        parts=cut_into_tasks(run, days, snapshot.days, dict(published.iter_rows()), timeline.days),
        counts=counts,
        pruned=pruned,
        limit_inputs=LimitInputs(
            *(read_anew(run, scan), loss, scores),
            *(scan.unreadable, scan.gone, scan.files_before, prunable),
        ),
        estimated_seconds=_estimated_seconds(run.config, counts, done),
        pending=tuple(name for name, is_pending in differs.items() if is_pending),
        reasons=tuple(change_reasons(run, scorer, scan.files, last)),
        unused_profiles=unused,
        cache_groups=groups,
    )


def _stage_profiles(run: Run, snapshot: OpenSnapshot, scorer: Scorer) -> bool:
    """Stage the table of profiles; return whether it differs from the published one."""
    published = snapshot.scan("profiles").sort("profile_id").collect()
    profiles = scorer.profiles_table()
    profiles.write_parquet(run.staging.table("profiles"))
    return not profiles.equals(published)


def _counts(
    run: Run, texts: MissingEmbeddings, workload: Workload, changes: ChangeSet, published: int
) -> RunCounts:
    """Return the counts of the archive, whose ledger and rejects are staged, and of the work."""
    ledger = pl.read_parquet(run.staging.table("files"), glob=False)
    rejected = count_rejects(run.staging.table("rejects"))
    accepted = published + changes.added - changes.removed
    return RunCounts(
        files=len(ledger.filter(is_there())),
        rows=changes.rows,
        rows_kept=changes.rows_kept,
        rows_of_earlier=changes.rows_of_earlier,
        accepted=accepted,
        embedded=texts.missing,
        reused=texts.distinct - texts.missing,
        replayed=workload.replay,
        rescored=workload.rescore,
        reweighted=workload.reweight,
        removed=changes.removed,
        partitions=len(changes.days | workload.days),
        duplicates=changes.rows - accepted - rejected.superseded - rejected.rows,
        superseded=rejected.superseded,
        rejected=rejected.rows,
        unreadable=len(ledger.filter(has_fault())),
        rejected_by_code=dict(rejected.by_code),
        unreadable_files=list(rejected.files),
        gone=changes.gone,
        excluded=changes.excluded,
        cut=len(ledger.filter(pl.col("reasons").list.contains(CUT_FILE))),
    )


def _estimated_seconds(
    config: RescoreConfig, counts: RunCounts, done: Sequence[RunRecord]
) -> float | None:
    """Estimate a run's time by the rates of its steps in the last runs with its encoder.

    None if a step has work that no such run ever did. The runs that are done come in the order in
    which they were published.
    """
    encoder = (config.embedder, config.precision)
    rated = [run for run in done if (run.embedder, run.precision) == encoder and run.counts]
    if not done:
        return None
    estimate = 0.0
    for name, units in _RATED.items():
        samples = [
            (number, run.seconds.get(name, 0.0))
            for run in rated
            if run.counts and (number := units(run.counts))
        ][-_RUNS_RATED:]
        if to_do := units(counts):
            if not samples:
                return None
            estimate += sum(spent for _, spent in samples) / sum(n for n, _ in samples) * to_do
    return estimate


def traces_after(run: Run, fingerprints: pl.DataFrame, timeline: Timeline) -> pl.LazyFrame:
    """Return all traces that will have a score after the run.

    Returns:
        The traces of the timeline one by one. The others are counted by day, domain and
            fingerprint, with the columns of `_TRACES`; `traces` is the count.
    """
    elsewhere = fingerprints.lazy().filter(~pl.col("day").is_in(list(timeline.days)))
    as_published = elsewhere.with_columns(
        facts_changed=pl.lit(value=False), replay=pl.lit(value=False)
    )
    on_timeline = pl.scan_parquet(run.staging.timeline, glob=False).with_columns(
        day=pl.col("created_at").dt.date(), traces=pl.lit(1, pl.Int64)
    )
    return pl.concat([on_timeline.select(_TRACES), as_published.select(_TRACES)])


def stage_workload(run: Run, traces: pl.LazyFrame, scorer: Scorer) -> Workload:
    """Count the traces of `traces_after` to replay, rescore and reweight.

    It writes `staging.workload`.
    """
    for_other_reasons = pl.col("replay") | pl.col("facts_changed") | scorer.cache_is_stale()
    _, profile_id = assign(scorer.profiles)
    stale = (pl.col("profile_id") != profile_id).fill_null(value=False)
    marked = traces.select(
        *("task_domain", "day", "traces", "replay"),
        reweight=stale & ~for_other_reasons,
        rescore=stale | for_other_reasons,
    )
    totals = (pl.col(*_COUNTS).cast(pl.Int64) * pl.col("traces")).sum()
    by_domain = marked.filter("rescore").group_by("task_domain", "day").agg(totals)
    rows = by_domain.sort("day", "task_domain").collect(engine="streaming")
    rows.write_parquet(run.staging.workload)
    sums = rows.select(_COUNTS).sum().row(0)
    return Workload(*sums, days=frozenset(rows.get_column("day")))


def unused_profiles(run: Run, traces: pl.LazyFrame) -> dict[str, str | None]:
    """Return the new profiles in the run's settings that weight none of `traces_after`.

    Returns:
        Their names without the built-in ones; the first ones with the domain of the most similar
            name.
    """
    settings, published = run.config.settings, run.published.settings
    if settings["profiles"] == published.get("profiles"):
        return {}
    sizes = traces.group_by("task_domain").agg(pl.col("traces").sum())
    domains = sizes.sort("traces", "task_domain", descending=[True, False]).collect(
        engine="streaming"
    )
    names = settings["profiles"].keys() - load_profiles().versions.keys()
    unused = sorted(names - set(domains.get_column("task_domain")))
    largest = domains.head(_DOMAINS).get_column("task_domain").to_list()
    similar = {name: most_similar(name, largest) for name in unused[:_COMPARED]}
    return {name: similar.get(name) for name in unused}
