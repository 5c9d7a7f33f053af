"""Plans the least work after which everything published is as one full run would leave it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import cast

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.planning.cache_groups import CacheGroups, count_groups
from kp_batch.planning.changes import ChangeSet, detect_changes
from kp_batch.planning.days import DayPart, day_parts
from kp_batch.planning.limits import NOTHING, Limited, limited
from kp_batch.planning.rejects import count_rejects, stage_rejects
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.snapshot import OpenSnapshot, open_snapshot
from kp_batch.planning.texts import Texts, missing_texts
from kp_batch.planning.timeline import affected_timeline
from kp_batch.planning.why import is_current, is_settled, reasons, words_stand
from kp_batch.planning.windows import Span
from kp_batch.planning.workload import (
    Workload,
    stage_no_workload,
    stage_workload,
    traces_after,
    unused_profiles,
)
from kp_batch.runs.reasons import Pending, Reason
from kp_batch.runs.record import RunCounts, RunRecord, done_runs
from kp_batch.runs.run import Run
from kp_batch.steps.step import step

# By the name of each step, the count that its time grows with.
_RATED: Mapping[str, Callable[[RunCounts], int]] = {
    "embed": lambda counts: counts.embedded,
    "replay": lambda counts: counts.replayed,
    "write": lambda counts: counts.partitions,
}
_RUNS_RATED = 5


@dataclass(frozen=True)
class Plan:
    """What a run has to do, in paths, ranges and numbers; the rows stand in its staging."""

    scan: ArchiveScan
    texts: Texts  # to be embedded
    scorer: Scorer
    spans: tuple[Span, ...]  # to be replayed
    days: tuple[date, ...]  # to be written anew
    parts: tuple[DayPart, ...]  # of these days
    counts: RunCounts
    limited: Limited
    estimated_seconds: float | None  # see `_estimated_seconds`
    pending: tuple[Pending, ...]  # what will be published anew; empty: nothing to do
    reasons: tuple[Reason, ...]  # why
    unused_profiles: Mapping[str, str | None]  # new ones of no trace, with a domain of like name
    cache_groups: CacheGroups | None = None  # None: all traces share one, or nothing was looked at


@step("plan")
def make_plan(run: Run, scan: ArchiveScan, scorer: Scorer) -> Plan:
    """Compare the archive and the settings with what is published; writes to staging only.

    Args:
        run: the run.
        scan: the archive as it is now.
        scorer: what the run scores with.

    Raises:
        ArchiveError: a text without a vector stands only in files that are gone or unreadable.
    """
    done = done_runs(run.snapshot.runs())
    if is_settled(run, scorer, scan, done[-1] if done else None):
        return _nothing(run, scan, scorer, done)
    return _compared(run, scan, scorer, done)


def _nothing(run: Run, scan: ArchiveScan, scorer: Scorer, done: Sequence[RunRecord]) -> Plan:
    """The plan of a run that finds everything as the last one left it."""
    stage_no_workload(run)
    counts = cast("RunCounts", done[-1].counts).without_work
    return Plan(
        scan=scan,
        texts=Texts(0, 0),
        scorer=scorer,
        spans=(),
        days=(),
        parts=(),
        counts=counts,
        limited=NOTHING,
        estimated_seconds=_estimated_seconds(run.config, counts, done),
        pending=(),
        reasons=(),
        unused_profiles={},
    )


def _compared(run: Run, scan: ArchiveScan, scorer: Scorer, done: Sequence[RunRecord]) -> Plan:
    """The plan of a run that compares the traces with the published ones."""
    last = done[-1] if done else None
    with open_snapshot(run.snapshot, run.staging) as snapshot:
        rejects_stand = not run.published.failed
        touches_all = run.regroups or not rejects_stand
        detected = detect_changes(snapshot, scan, run.config.cache_by, touches_all=touches_all)
        if is_current(run, scorer, last):
            fingerprints = snapshot.current_fingerprints()
        else:
            fingerprints = snapshot.fingerprints(scorer.profiles.moments)
        timeline = affected_timeline(run, detected, scorer, fingerprints)
        texts = missing_texts(run, detected, scorer, timeline, scan)
        traces = traces_after(run, fingerprints, timeline)
        workload = stage_workload(run, traces, scorer)
        profiles_differ = _stage_profiles(run, snapshot, scorer)
        unused = unused_profiles(run, traces)
        messages_stand = rejects_stand and words_stand(last)
        rejects_differ = stage_rejects(run, scan, detected, messages_stand=messages_stand)
        loss = detected.loss
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
    }
    return Plan(
        scan=scan,
        texts=texts,
        scorer=scorer,
        spans=timeline.spans,
        days=tuple(days),
        parts=day_parts(run, days, snapshot.days, dict(published.iter_rows()), timeline.days),
        counts=counts,
        limited=limited(scan, loss, published=scores),
        estimated_seconds=_estimated_seconds(run.config, counts, done),
        pending=tuple(what for what, is_so in differs.items() if is_so),
        reasons=tuple(reasons(run, scorer, scan.files, last)),
        unused_profiles=unused,
        cache_groups=groups,
    )


def _stage_profiles(run: Run, snapshot: OpenSnapshot, scorer: Scorer) -> bool:
    """Stage the table of profiles; returns whether it differs from the published one."""
    known = snapshot.scan("profiles").sort("profile_id").collect()
    profiles = scorer.profiles_table()
    profiles.write_parquet(run.staging.table("profiles"))
    return not profiles.equals(known)


def _counts(
    run: Run, texts: Texts, workload: Workload, changes: ChangeSet, published: int
) -> RunCounts:
    """Count what was found and what is to be done.

    Args:
        run: the run, whose ledger and rejects are staged.
        texts: to be embedded.
        workload: traces to be scored.
        changes: the traces that differ.
        published: the number of scores.
    """
    ledger = pl.read_parquet(run.staging.table("files"), glob=False)
    rejected = count_rejects(run.staging.table("rejects"))
    accepted = published + changes.added - changes.removed
    return RunCounts(
        files=int((ledger.get_column("status") != "gone").sum()),
        rows=changes.rows,
        rows_kept=changes.rows_kept,
        rows_of_earlier=changes.rows_of_earlier,
        accepted=accepted,
        embedded=texts.missing,
        reused=texts.distinct - texts.missing,
        replayed=workload.replay,
        restated=workload.restate,
        reweighted=workload.reweight,
        removed=changes.removed,
        partitions=len(changes.days | workload.days),
        duplicates=changes.rows - accepted - rejected.superseded - rejected.rows,
        superseded=rejected.superseded,
        rejected=rejected.rows,
        unreadable=int((ledger.get_column("status") == "unreadable").sum()),
        rejected_by_code=dict(rejected.by_code),
        unreadable_files=list(rejected.files),
        gone=changes.gone,
    )


def _estimated_seconds(
    config: RescoreConfig, counts: RunCounts, done: Sequence[RunRecord]
) -> float | None:
    """Estimate the time of the steps to come.

    Args:
        config: of the run to come; the rates are those of runs with its encoder.
        counts: what it has to do.
        done: the runs that are done, in the order in which they started.

    Returns:
        Seconds; None where no rates are known for it.
    """
    last = done[-_RUNS_RATED:]
    asked = (config.embedder, config.precision)
    rated = [record for record in last if (record.embedder, record.precision) == asked]
    if not last:
        return None
    estimate = 0.0
    for name, units in _RATED.items():
        to_do = units(counts)
        did = [(units(each.counts), each.seconds.get(name, 0.0)) for each in rated if each.counts]
        known = sum(number for number, _ in did)
        if to_do and not known:
            return None
        spent = sum(seconds for number, seconds in did if number)
        estimate += spent / known * to_do if known else 0.0
    return estimate
