"""Remove traces for good, and replay the traces whose caches they were in."""

import json
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from uuid import uuid4

import polars as pl
from polars.exceptions import PanicException

from kp_batch.duck import read_parquet, statement
from kp_batch.errors import KpBatchError, StorageError, WarehouseError
from kp_batch.files import sync, sync_names
from kp_batch.imports.store import has_records_of
from kp_batch.ingest.scan import scan_published
from kp_batch.log import warn
from kp_batch.operations.known_ids import KnownIds, facts_of_others, known_ids
from kp_batch.pipeline.rescore import execute, log_plan, open_run
from kp_batch.pipeline.vacuum import (
    FactsRewrite,
    count_prunable_vectors,
    prune_vectors,
)
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer, is_as_published
from kp_batch.rendering import Facts, Head, Part, as_text
from kp_batch.report.build import renew_report, shows_older
from kp_batch.runs.run import Run, last_archive, last_config
from kp_batch.scoring.facts import id_hash
from kp_batch.steps.step import ThreadExecutor
from kp_batch.text import count_of, one_line
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import keeps_versions
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.last_run import record_counts
from kp_batch.warehouse.layout import Layout, check_folder, check_links, remove_candidate
from kp_batch.warehouse.manifest import read_manifest, require_manifest
from kp_batch.warehouse.publication import (
    amend,
    found,
    may_remove,
    publish,
    start_over,
    writing,
)
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.run_result import RunResult
from kp_batch.warehouse.snapshot import (
    PublishedSnapshot,
    newest_trace,
    published,
)
from kp_batch.warehouse.staging import Staging
from kp_batch.warehouse.unneeded import Unneeded, kept_manifests, manifests_of_runs
from kp_batch.warehouse.without_traces import WithoutTraces


@dataclass(frozen=True, kw_only=True)
class ForgetResult(RunResult):
    """What was forgotten, or would be, and the work that it took.

    It is refused if ids are unknown. It has a run_id if it changed scores.
    """

    traces: int  # scored traces that are removed
    rows: int  # rejected rows that are removed
    replaced: int  # ids that only replaced or not yet scored content has
    before: int  # ids that were forgotten before
    unseen: int  # ids that no row has ever had
    unseen_named: str  # a few of these, with known ids that contain them
    replayed: int = 0  # traces
    rescored: int = 0  # traces
    partitions: int = 0  # days that are rewritten
    vectors: int = 0  # vectors of their texts that are removed
    leftovers: int = 0  # other, unused vectors that are removed
    finishes: bool = False  # whether this also finishes an earlier, unfinished one
    is_done: bool = False  # False: a dry run
    archives: tuple[str, ...] = ()  # imported archives that still contain the traces
    unknown_archives: tuple[str, ...] = ()  # archives that may contain them, such as missing ones

    @property
    def has_work(self) -> bool:
        """Whether there is anything to forget."""
        return bool(self.traces or self.rows or self.replaced or self.unseen)

    def _parts_of_work(self) -> Iterable[Part]:
        return forgotten_parts(self)


def forget(
    warehouse: Path,
    ids: Sequence[str],
    *,
    unseen_too: bool = False,
    note: str | None = None,
    dry_run: bool = False,
) -> ForgetResult:
    """Remove traces for good, as if they had never been in the archive.

    This removes them from scores, rejects and facts, including those of earlier runs, and removes
    the vectors of their texts, unless another trace has the same text. Traces after them are
    replayed; later runs skip the removed ones. A report in the warehouse, which may name them, is
    written again. If all ids were forgotten before, this only finishes a forget that was killed.
    Where nothing is scored yet, the ids stay out of the first run.

    Args:
        warehouse: the folder of the tables.
        ids: the ids of the traces.
        unseen_too: whether to keep unknown ids out of later runs, too; if there is no warehouse,
            this makes one.
        note: a line to store with the run.
        dry_run: only report what would be done; an unknown id is then its reason.

    Raises:
        KpBatchError: an id is unknown; nothing was changed.
        WarehouseError: there is no warehouse, or a run is writing.
    """
    if unseen_too and not dry_run and read_manifest(warehouse) is None:
        _found(warehouse)
    result = (
        _dry_run(warehouse, ids, unseen_too=unseen_too)
        if dry_run
        else _forget(warehouse, ids, note, unseen_too=unseen_too)
    )
    # Imported archives may still contain the traces, for other warehouses.
    archive = last_archive(_snapshot(warehouse, unseen_too=unseen_too))
    answers = {name: has_records_of(name, ids) for name in archive}
    if not result.reason:
        result = result.ended("done" if result.has_work or result.finishes else "nothing_to_do")
    return replace(
        result,
        is_done=not dry_run,
        archives=tuple(name for name, is_there in answers.items() if is_there),
        unknown_archives=tuple(name for name, is_there in answers.items() if is_there is None),
    )


def _found(warehouse: Path) -> None:
    """Make an empty warehouse, whose first run the ids stay out of."""
    check_folder(warehouse)
    found(warehouse)
    warn(
        f"{shown(warehouse)} is a new warehouse, and nothing was removed elsewhere; if there was "
        "one before, check whether its disk is mounted"
    )


def _snapshot(warehouse: Path, *, unseen_too: bool) -> PublishedSnapshot:
    """Open what is published; with `unseen_too` that may be nothing."""
    is_missing = unseen_too and read_manifest(warehouse) is None
    return PublishedSnapshot(warehouse) if is_missing else published(warehouse)


def _forget(
    warehouse: Path, ids: Sequence[str], note: str | None, *, unseen_too: bool
) -> ForgetResult:
    known = _checked_ids(warehouse, ids, unseen_too=unseen_too)
    if not _has_work(warehouse, known):
        return _result(warehouse, known)
    with writing(warehouse, wait=False):
        # Another forget may have ended since.
        known = _checked_ids(warehouse, ids, unseen_too=unseen_too)
        if not _has_work(warehouse, known):
            return _result(warehouse, known)
        return _work(warehouse, known, note)


def _dry_run(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> ForgetResult:
    """Return what would be done; for unknown ids that would be refused, without these."""
    check_links(warehouse)
    snapshot = _snapshot(warehouse, unseen_too=unseen_too)
    known = known_ids(snapshot, ids)
    refusal = "" if unseen_too else known.refusal
    accepted = replace(known, unseen=known.unseen.clear()) if refusal else known
    has_work = _has_work(warehouse, accepted)
    result = _planned(snapshot, accepted) if has_work else _result(warehouse, accepted)
    result = replace(result, unseen=len(known.unseen))
    return result.ended("refused", refusal, KpBatchError.code) if refusal else result


def _checked_ids(warehouse: Path, ids: Sequence[str], *, unseen_too: bool) -> KnownIds:
    """Look up ids, and refuse unknown ones unless `unseen_too`."""
    known = known_ids(published(warehouse), ids)
    if known.refusal and not unseen_too:
        raise KpBatchError(known.refusal)
    return known


def _has_work(warehouse: Path, known: KnownIds) -> bool:
    return not known.going.is_empty() or Layout(warehouse).forgetting.exists()


def _planned(snapshot: PublishedSnapshot, known: KnownIds) -> ForgetResult:
    """Plan in a temporary folder; without ids, plan to finish an earlier forget."""
    with Staging.temporary() as staging:
        known.going.write_parquet(staging.to_forget)
        plan = None
        if not known.going.is_empty() and _is_scored(snapshot):
            run = Run.begin(last_config(snapshot.warehouse), datetime.now(UTC), staging)
            check_formulas(run)
            plan = plan_from_published(run)
        forgotten = read_parquet(staging.to_forget)
        others = statement("ANTI JOIN $ids AS forgotten USING (trace_id)", ids=forgotten)
        removed = count_prunable_vectors(snapshot, staging, others, facts_of_others(snapshot))
        leftovers = _leftovers(snapshot, staging)
        result = _result_of_plan(snapshot, known, plan)
        return replace(result, vectors=removed - leftovers, leftovers=leftovers)


def _is_scored(snapshot: PublishedSnapshot) -> bool:
    """Whether any run is done; before that, no score depends on a trace."""
    return last_done(snapshot.runs()) is not None


def _result_of_plan(
    snapshot: PublishedSnapshot, known: KnownIds, plan: Plan | None
) -> ForgetResult:
    """Return the result of a plan before it is carried out, without vectors."""
    return replace(
        _result(snapshot.warehouse, known),
        replayed=plan.counts.replayed if plan else 0,
        rescored=plan.counts.rescored if plan else 0,
        partitions=len(plan.days) if plan else 0,
        finishes=Layout(snapshot.warehouse).forgetting.exists(),
    )


def _result(warehouse: Path, known: KnownIds) -> ForgetResult:
    return ForgetResult.here(
        "running",
        warehouse=shown(warehouse.absolute()),
        traces=known.traces,
        rows=known.rows,
        replaced=known.replaced,
        before=known.forgotten,
        unseen=len(known.unseen),
        unseen_named=known.unseen_named,
    )


def _work(warehouse: Path, known: KnownIds, note: str | None) -> ForgetResult:
    """Forget, and remove the files with the traces, also those of an earlier, unfinished forget."""
    marker, page = Layout(warehouse).forgetting, Layout(warehouse).report
    snapshot = published(warehouse)
    with Staging.temporary() as staging:
        leftovers = _leftovers(snapshot, staging)
    try:
        if known.going.is_empty():
            result = _result_of_plan(snapshot, known, None)
        elif _is_scored(snapshot):
            result = _publish_without(warehouse, known, note)
        else:
            result = _publish_unscored(snapshot, known, note)
        removed = _purge_forgotten(warehouse)
    finally:
        renew_report(warehouse, ThreadExecutor())
    if shows_older(warehouse):
        raise WarehouseError(
            f"the traces are forgotten, but {page}, which may name them, cannot be replaced; "
            "remove it, and run the same command again"
        )
    _remove_words(Layout(warehouse))
    marker.unlink(missing_ok=True)  # another forget in its bucket may have finished this one
    if keeps_versions(warehouse):
        warn(
            f"{shown(warehouse)} keeps older versions of objects, which still contain the traces: "
            "delete the noncurrent versions, for example with a lifecycle rule"
        )
    return replace(result, vectors=removed - leftovers, leftovers=leftovers)


def _leftovers(snapshot: PublishedSnapshot, staging: Staging) -> int:
    """Count the vectors that are unused before anything is forgotten.

    After an unfinished forget this is 0, because they may belong to its traces.
    """
    if Layout(snapshot.warehouse).forgetting.exists():
        return 0
    return count_prunable_vectors(snapshot, staging, statement(""), facts_of_others(snapshot))


def _publish_without(warehouse: Path, known: KnownIds, note: str | None) -> ForgetResult:
    """Publish the tables without the traces; older versions still contain them."""
    with open_run(last_config(warehouse, note)) as opened:
        run = opened.run
        check_formulas(run)
        opened.begin()
        known.going.write_parquet(run.staging.to_forget)
        plan = plan_from_published(run)
        opened.plan = replace(plan, counts=plan.counts.without_work)
        log_plan(run, plan)
        result = _result_of_plan(run.snapshot, known, plan)
        with _marked(run.snapshot, run.staging, known):
            candidate = _without_facts(run.candidate, run.snapshot, run.staging)
            opened.run = replace(run, candidate=candidate)
            execute(opened, plan)
        newest = newest_trace(run.config.warehouse)
        record_counts(run.config.warehouse, plan.counts, newest)
    return replace(result, run_id=run.run_id, counts=plan.counts, newest_trace=newest)


def _publish_unscored(
    snapshot: PublishedSnapshot, known: KnownIds, note: str | None
) -> ForgetResult:
    """Publish the ids, and what failed runs left without them; there are no scores to replay."""
    if note is not None:
        warn("the note is not stored, because no run is done yet; give it to the first run")
    warehouse, manifest = snapshot.warehouse, snapshot.manifest
    remove_candidate(warehouse)
    staging = Staging(Layout(warehouse).staging(f"upkeep-{uuid4().hex}"))
    staging.make()
    known.going.write_parquet(staging.to_forget)
    result = _result_of_plan(snapshot, known, None)
    with _marked(snapshot, staging, known):
        candidate = _without_facts(Candidate(warehouse, manifest, "upkeep"), snapshot, staging)
        if known.rows:
            ids = pl.scan_parquet(staging.to_forget, glob=False)
            rejects = snapshot.scan("rejects").join(
                ids, on="trace_id", how="anti", maintain_order="left"
            )
            candidate = candidate.overwrite("rejects", rejects.collect())
        publish(candidate, manifest.settings, failed=manifest.failed)
    return result


@contextmanager
def _marked(snapshot: PublishedSnapshot, staging: Staging, known: KnownIds) -> Generator[None]:
    """Mark that files contain forgotten traces, unless this fails and nothing was forgotten."""
    warehouse, marker = snapshot.warehouse, Layout(snapshot.warehouse).forgetting
    was_marked = marker.exists()
    ids = [*_marked_ids(warehouse), *known.going.get_column("trace_id")]
    whole = staging.folder / marker.name  # what a kill leaves there goes, too
    whole.write_text(json.dumps(ids), "utf-8")
    sync(whole)
    whole.replace(marker)
    sync_names(warehouse)
    try:
        yield
    except (Exception, PanicException):
        with suppress(Exception):  # what fails here is not the error that counts
            now = require_manifest(warehouse).tables.get("forgotten")
            if not was_marked and now == snapshot.manifest.tables.get("forgotten"):
                marker.unlink()
        raise


def _marked_ids(warehouse: Path) -> list[str]:
    """Return the ids of traces that files may still contain."""
    marker = Layout(warehouse).forgetting
    return json.loads(marker.read_bytes()) if marker.exists() else []


def _without_facts(
    candidate: Candidate, snapshot: PublishedSnapshot, staging: Staging
) -> Candidate:
    """Remove the staged traces from facts, and add their ids' hashes to `forgotten`."""
    known = snapshot.scan("forgotten").collect()
    hashes = pl.read_parquet(staging.to_forget, glob=False).select(id_hash=id_hash())
    hashes = pl.concat([known, hashes]).unique(maintain_order=True)
    ids = pl.scan_parquet(staging.to_forget, glob=False)
    rewrite = FactsRewrite.of(
        snapshot,
        lambda rows: rows.join(ids, on="trace_id", how="anti", maintain_order="left"),
    )
    return rewrite.carry_out(candidate.overwrite("forgotten", hashes))


def _purge_forgotten(warehouse: Path) -> int:
    """Remove forgotten traces from what earlier runs left, with the vectors of their texts.

    Call this only when all is published: until then, a failing run needs the earlier state.

    Returns:
        The number of removed vectors.

    Raises:
        StorageError: not all could be removed.
    """
    try:
        start_over(warehouse)  # list what others have stored in the bucket by now
        now = published(warehouse)
        runs, manifest = now.runs(), now.manifest
        without = WithoutTraces(now, _forgotten_ids(now))
        for past in manifests_of_runs(now, runs, manifest.kept_from):
            if (candidate := without.candidate(past)).changed:
                amend(candidate)
        # Others' copies of a bucket are whole again with the next manifest.
        unchanged = Candidate(warehouse, manifest, "upkeep")
        publish(unchanged, manifest.settings, failed=manifest.failed)
        now = published(warehouse)
        unneeded = Unneeded.of(now, kept_manifests(now, runs, manifest.kept_from))
        may_remove(warehouse, unneeded.files)
        unneeded.remove()
        return prune_vectors(now, facts_of_others(now))
    except (Exception, PanicException) as error:
        raise StorageError(
            "the traces are forgotten, but some files that contain them could not be removed "
            f"({one_line(str(error))}); fix that, and run the same command again"
        ) from error


def _forgotten_ids(now: PublishedSnapshot) -> pl.Series:
    """Return the marked ids that are forgotten; others are from a forget that failed."""
    ids = pl.LazyFrame({"trace_id": _marked_ids(now.warehouse)}, schema={"trace_id": pl.String})
    hashed = ids.with_columns(id_hash=id_hash()).unique()
    return hashed.join(now.scan("forgotten"), on="id_hash", how="semi").collect()["trace_id"]


def _remove_words(layout: Layout) -> None:
    """Remove the output of libraries in earlier commands, which may quote any trace."""
    layout.output.unlink(missing_ok=True)
    if layout.prefect.exists():
        shutil.rmtree(layout.prefect)


def check_formulas(run: Run, what: str = "forgetting") -> None:
    """Refuse to replay some traces with other formulas than those of the other scores.

    Raises:
        WarehouseError: this kp_batch has other formulas.
    """
    if not is_as_published(run, Scorer.as_published(run)):
        raise WarehouseError(
            f"the scores come from another version of kp_batch, and {what} would mix the two; "
            f"first: {run.command}"
        )


def plan_from_published(run: Run) -> Plan:
    """Plan without reading the archive, and without the model."""
    return make_plan(run, scan_published(run), Scorer.as_published(run))


def forgotten_text(result: ForgetResult, *, dry_run: bool = False) -> str:
    """Format what was forgotten for a terminal, or what would be."""
    last = ["nothing was changed"] if dry_run else []
    return as_text([*forgotten_parts(result), *last])


def forgotten_parts(result: ForgetResult) -> Iterator[Part]:
    """Return the text of what was forgotten, or would be."""
    by_run = f" by run {result.run_id}" if result.run_id else ""
    forgotten = f"forgotten{by_run}" if result.is_done else "to be forgotten"
    traces = f"{count_of(result.traces, 'scored trace')}, {count_of(result.rows, 'rejected row')}"
    yield Head(f"{forgotten}: {traces}" if result.has_work else "nothing to forget")
    yield Facts([*_facts(result)])


def _facts(result: ForgetResult) -> Iterator[tuple[str, str]]:
    ids = [
        ("replaced", result.replaced, "of replaced or not yet scored content"),
        ("before", result.before, "forgotten before"),
        ("unseen", result.unseen, f"never seen: {result.unseen_named}"),
    ]
    work = [
        ("replay", result.replayed, "trace"),
        ("rescore", result.rescored, "trace"),
        ("rewrite", result.partitions, "partition"),
        ("remove", result.vectors, "vector"),
    ]
    yield from ((name, f"{count_of(count, 'id')} {which}") for name, count, which in ids if count)
    yield from ((name, count_of(count, noun)) for name, count, noun in work if count)
    if result.finishes:
        yield "finish", "what an earlier forget left is removed, too"
    if result.leftovers:
        yield "leftover", f"{count_of(result.leftovers, 'unused vector')}, too"
    for contains, archives in (
        ("still contains", result.archives),
        ("was not searched and may still contain", result.unknown_archives),
    ):
        for name in archives:
            command = f"kp-batch import-forget {quote(name)} ID..."
            yield "archive", f"{name} {contains} them: {command}"
