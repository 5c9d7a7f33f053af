"""What a run has to do, told from what changed: all else stays as it is published."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

import polars as pl

from kp_batch.archive.ledger import Entry, Ledger, as_ledger, with_gone
from kp_batch.archive.sources import discover
from kp_batch.planning.changes import Archive
from kp_batch.planning.ingest import read_changed
from kp_batch.planning.rejects import count_rejects
from kp_batch.planning.scorer import Scorer
from kp_batch.planning.timeline import Texts, Timeline, look_around, texts_for
from kp_batch.planning.workload import profiles_left, traces_left, work_on
from kp_batch.progress import say
from kp_batch.run import Run
from kp_batch.text import printable


@dataclass(frozen=True)
class Plan:
    """What has to be done."""

    ledger: Ledger
    files: dict[str, list[str]]  # new, changed, gone, unreadable: their paths
    scorer: Scorer
    timeline: Timeline
    texts: Texts
    work: pl.DataFrame  # by domain and day: how many traces to replay, restate and recombine
    partitions: tuple[date, ...]  # to be written anew
    profiles: pl.DataFrame  # the whole table
    differing: tuple[str, ...]  # what is not published as it has to be


def make_plan(run: Run, forgetting: Sequence[str] = ()) -> Plan:
    """Compare the archive and the settings with what is published.

    Writes to the run's stage only, and sets the run's inputs and counts.

    Args:
        run: the run.
        forgetting: ids of traces that stand in no table of facts any more; the archive's files are
            not looked at then, and all profiles stay.

    Raises:
        KpBatchError: the archive, the profiles or the encoder cannot be used.
    """
    config, published = run.config, run.published
    with Archive(config.warehouse, run.tables, run.stage) as archive:
        known = archive.table("profiles").sort("profile_id")
        scorer = Scorer.of(config, known)
        before = as_ledger(archive.table("files"))
        found, ledger = _look(run, archive, before, forgetting)
        changes = archive.settle(ledger.values(), forgetting)
        fingerprints = archive.fingerprints()
        timeline = look_around(run, archive, scorer, changes, fingerprints)
        texts = texts_for(run, archive, scorer, timeline, ledger)
        traces = traces_left(run, fingerprints, timeline)
        work = work_on(traces, scorer)
        profiles = profiles_left(traces, scorer, known, forgetting=bool(forgetting))
        partitions = changes.days | set(work.get_column("day"))
        differing = {
            "the archive": _contents(ledger) != _contents(before),
            "the scores": bool(partitions),
            "the profiles": not profiles.equals(known),
            "the rejects": archive.write_rejects(ledger, run.run_id),
            "the threshold": config.threshold != published.threshold,
            "what is forgotten": bool(forgetting),
        }
    plan = Plan(
        ledger=ledger,
        files=_files(found, before),
        scorer=scorer,
        timeline=timeline,
        texts=texts,
        work=work,
        partitions=tuple(sorted(partitions)),
        profiles=profiles,
        differing=tuple(what for what, differs in differing.items() if differs),
    )
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
        "replayed": int(plan.work["replay"].sum()),
        "restated": int(plan.work["restate"].sum()),
        "recombined": int(plan.work["recombine"].sum()),
        "removed": removed,
        "partitions": len(plan.partitions),
    }


def _look(
    run: Run, archive: Archive, before: Ledger, forgetting: Sequence[str]
) -> tuple[Ledger, Ledger]:
    """The ledger of the archive's files, whatever is new of them read; and that of all that counts.

    To forget traces the archive is not looked at: only the rows are counted again.
    """
    sources = [] if forgetting else discover(run.config.archive, run.config.warehouse)
    forgotten = archive.table("forgotten").get_column("id_hash")
    found = read_changed(sources, before, archive.rows_by_content, forgotten, run)
    if forgetting:
        rows = archive.rows_by_content()
        return before, {
            path: replace(each, rows=rows.get(each.file_id or "", 0))
            for path, each in before.items()
        }
    _warn_of_loss(found, before)
    return found, with_gone(found, before, prune=run.config.prune)


def _contents(ledger: Ledger) -> dict[str, Any]:
    return {path: entry.content for path, entry in ledger.items()}


def _files(found: Ledger, before: Ledger) -> dict[str, list[str]]:
    """The paths of the files that differ, by how."""
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
