"""Plans the least work after which everything published is as one full run would leave it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any, Literal

import polars as pl

from kp_batch.archive.ledger import Entry, Ledger, as_ledger, with_gone
from kp_batch.archive.sources import discover
from kp_batch.planning.changes import detect_changes
from kp_batch.planning.ingest import read_changed
from kp_batch.planning.rejects import count_rejects, stage_rejects
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.state import State
from kp_batch.planning.timeline import MissingTexts, Timeline, affected_timeline, missing_texts
from kp_batch.planning.workload import profiles_after, traces_after, workload_of
from kp_batch.progress import say
from kp_batch.run import Run
from kp_batch.text import printable

Pending = Literal["archive", "scores", "profiles", "rejects", "threshold", "forgotten"]


@dataclass(frozen=True)
class Plan:
    """What a run has to do."""

    ledger: Ledger
    files: dict[str, list[str]]  # new, changed, gone, unreadable: their paths
    scorer: Scorer
    timeline: Timeline
    texts: MissingTexts
    workload: pl.DataFrame  # by domain and day: how many traces to replay, restate and reweight
    partitions: tuple[date, ...]  # to be rewritten
    profiles: pl.DataFrame  # the whole table
    pending: tuple[Pending, ...]  # what differs from the published state; empty: nothing to do


def make_plan(run: Run, forgotten: Sequence[str] = ()) -> Plan:
    """Compare the archive and the settings with what is published.

    Writes to the run's staging only, and sets the run's inputs and counts.

    Args:
        run: the run.
        forgotten: ids of traces that stand in no table of facts any more; then the archive's files
            are not looked at, and every published profile stays.

    Raises:
        KpBatchError: the archive, the profiles or the encoder cannot be used.
    """
    config, published = run.config, run.published
    with State(config.warehouse, run.tables, run.staging) as state:
        known = state.table("profiles").sort("profile_id")
        scorer = Scorer.of(config, known)
        before = as_ledger(state.table("files"))
        found, ledger = _observe(run, state, before, forgotten)
        detected = detect_changes(state, ledger, forgotten)
        fingerprints = state.fingerprints()
        timeline = affected_timeline(run, detected, scorer, fingerprints)
        texts = missing_texts(run, detected, scorer, timeline, ledger)
        traces = traces_after(run, fingerprints, timeline)
        workload = workload_of(traces, scorer)
        profiles = profiles_after(traces, scorer, known, keep_published=bool(forgotten))
        partitions = detected.changes.days | set(workload.get_column("day"))
        rejects_differ = stage_rejects(detected, ledger, run.run_id)
    differs: dict[Pending, bool] = {
        "archive": _contents(ledger) != _contents(before),
        "scores": bool(partitions),
        "profiles": not profiles.equals(known),
        "rejects": rejects_differ,
        "threshold": config.threshold != published.threshold,
        "forgotten": bool(forgotten),
    }
    plan = Plan(
        ledger=ledger,
        files=_files(found, before),
        scorer=scorer,
        timeline=timeline,
        texts=texts,
        workload=workload,
        partitions=tuple(sorted(partitions)),
        profiles=profiles,
        pending=tuple(what for what, is_so in differs.items() if is_so),
    )
    changes = detected.changes
    accepted = int(fingerprints["traces"].sum()) + changes.added - changes.removed
    run.inputs = [_input(entry) for entry in found.values()]
    run.counts = {"files": len(found), **_counts(plan, accepted, changes.removed)}
    count_rejects(run)
    return plan


def _counts(plan: Plan, accepted: int, removed: int) -> dict[str, Any]:
    return {
        "rows": sum(entry.rows for entry in plan.ledger.values()),
        "accepted": accepted,
        "embedded": len(plan.texts.missing),
        "reused": plan.texts.distinct - len(plan.texts.missing),
        "replayed": int(plan.workload["replay"].sum()),
        "restated": int(plan.workload["restate"].sum()),
        "reweighted": int(plan.workload["reweight"].sum()),
        "removed": removed,
        "partitions": len(plan.partitions),
    }


def _observe(
    run: Run, state: State, before: Ledger, forgotten: Sequence[str]
) -> tuple[Ledger, Ledger]:
    """Read what is new in the archive. Returns the ledger of its files, and of all that count.

    To forget traces the archive is not looked at: only the rows are counted again.
    """
    if forgotten:
        rows = state.rows_by_content()
        read_changed([], before, state, run)  # leaves an empty file of staged rows
        return before, {
            path: replace(each, rows=rows.get(each.file_id or "", 0))
            for path, each in before.items()
        }
    sources = discover(run.config.archive, run.config.warehouse)
    found = read_changed(sources, before, state, run)
    _warn_of_loss(found, before)
    return found, with_gone(found, before, prune=run.config.prune)


def _contents(ledger: Ledger) -> dict[str, Any]:
    return {path: entry.content for path, entry in ledger.items()}


def _files(found: Ledger, before: Ledger) -> dict[str, list[str]]:
    """The paths of the files that are new, changed, gone or unreadable."""
    read = {path: each for path, each in found.items() if each.status == "read"}
    return {
        "new": [path for path in read if path not in before],
        "changed": [
            path
            for path, each in read.items()
            if path in before and each.file_id != before[path].file_id
        ],
        "gone": [
            path for path, each in before.items() if path not in found and each.status != "gone"
        ],
        "unreadable": [path for path, each in found.items() if each.status == "unreadable"],
    }


def _input(entry: Entry) -> dict[str, Any]:
    known = asdict(entry)
    return {name: known[name] for name in ("source_file", "status", "size", "mtime_ns", "file_id")}


def _warn_of_loss(found: Ledger, before: Ledger) -> None:
    rows = sum(each.rows for each in found.values() if each.status == "read")
    known = {path: each for path, each in before.items() if each.status != "gone"}
    held = sum(each.rows for each in known.values())
    gone = [path for path in known if path not in found]
    if held and 2 * rows <= held:
        example = f" (such as {printable(gone[0])})" if gone else ""
        say(
            f"warning: the archive has lost half of its rows or more: it holds {rows:,} now, and "
            f"held {held:,}; {len(gone):,} files are gone{example}"
        )
