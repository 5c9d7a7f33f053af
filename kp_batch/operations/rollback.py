"""Publish the state of an earlier run again, as a run of its own that copies no rows."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from kp_batch.archive.ledger import FileChanges
from kp_batch.config import RescoreConfig, read_project
from kp_batch.duck import statement
from kp_batch.errors import KpBatchError, SettingError, WarehouseError
from kp_batch.ingest.scan import scan_archive
from kp_batch.log_lines import note_place
from kp_batch.operations.kept_runs import available_runs
from kp_batch.pipeline.publish import STATE, publish_success, restore
from kp_batch.pipeline.rescore import warn_of_unfinished_forget
from kp_batch.project import ProjectFile
from kp_batch.rendering import Facts, Head, Part, as_text
from kp_batch.report.build import renew_report
from kp_batch.runs.run import Run, last_config
from kp_batch.settings import option_of
from kp_batch.steps.step import ThreadExecutor, timed
from kp_batch.text import count_of, one_line, printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.last_run import Attempt
from kp_batch.warehouse.layout import Layout, check_links, remove_candidate
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.reasons import Reason, RolledBack, setting_changes
from kp_batch.warehouse.run_record import RunRecord, done_runs
from kp_batch.warehouse.run_result import RunResult
from kp_batch.warehouse.snapshot import (
    PublishedSnapshot,
    newest_trace,
    parquet_relation,
    published,
)
from kp_batch.warehouse.staging import Staging

_FILES = 10  # that are named, of each kind
# The options of changed settings, if they have other names.
_OPTIONS = {"audit": "audits", "weights": "profiles"}
_COUNTS = """
    SELECT
        count(*) FILTER (now.score <> before.score),
        count(*) FILTER (before.trace_id IS NULL),
        count(*) FILTER (now.trace_id IS NULL)
    FROM $now AS now FULL JOIN $before AS before USING (trace_id)
"""


@dataclass(frozen=True, kw_only=True)
class RollbackResult(RunResult):
    """What a rollback undid, or would undo, and what comes back with the next run.

    There is nothing to do if that state is published already. Counts and audits are those of the
    run that is published again.
    """

    rolled_back: RolledBack  # from the last successful run at that time
    rescored: int  # traces whose scores change back
    removed: int  # traces scored now, but not then
    returned: int  # traces scored then, but not now
    rejects: int  # rows and files that are rejected now
    rejects_then: int
    files: FileChanges | None = None  # changes for the next run; null: the archive was not read
    not_read: str = ""  # why it could not be read; empty: it was read, or need not be

    def _parts_of_work(self) -> Iterable[Part]:
        return rollback_parts(self)


def rollback(warehouse: Path, run: str, *, note: str | None = None) -> RollbackResult:
    """Publish a run's state again: scores, rejects, files, facts, profiles and settings.

    The rollback is a run of its own, which the next one continues. The next one scores the archive
    as it is then, so fix the archive first. A report in the warehouse is written again.

    Args:
        warehouse: the folder of the tables.
        run: the run, by a name for `find_runs`.
        note: a line to store with the rollback.

    Raises:
        WarehouseError: there is no warehouse or no such run, the run failed, some of its files were
            removed, a forget did not finish, or another run is writing.
    """
    published(warehouse)  # or the lock would make a folder
    with writing(warehouse, wait=False), timed() as clock:
        warn_of_unfinished_forget(warehouse)
        plan = _RollbackPlan.of(warehouse, run, note)
        if plan.result.status == "nothing_to_do":
            return plan.result
        begun = Run.begin(plan.config, datetime.now(UTC))
        note_place(run_id=begun.run_id)
        remove_candidate(warehouse)
        written = restore(begun, plan.target, plan.reasons)
        publish_success(begun, written, plan.target.audits, clock.seconds)
        newest, seconds = newest_trace(warehouse), clock.rounded
        done = replace(plan.result, run_id=begun.run_id, seconds=seconds, newest_trace=newest)
        result = done.ended("done")
        Attempt(warehouse, result).end(result)
        renew_report(warehouse, ThreadExecutor())
        return result


def excluded_by(project: ProjectFile | None, warehouse: Path) -> Sequence[str]:
    """Return what the project excludes from the next run; nothing if its file has faults."""
    if project and project.is_of(warehouse):
        with suppress(SettingError):
            return read_project(project).values.get("exclude", ())
    return ()


def plan_rollback(warehouse: Path, run: str, exclude: Sequence[str] = ()) -> RollbackResult:
    """Report what a rollback would undo, and what the next run would find in the archive.

    Args:
        warehouse: the folder of the tables.
        run: the run, by a name for `find_runs`.
        exclude: the globs of files that the next run leaves out.

    Raises:
        WarehouseError: see `rollback`; other runs may be writing.
    """
    check_links(warehouse)
    return _with_file_changes(_RollbackPlan.of(warehouse, run, None), exclude)


@dataclass(frozen=True)
class _RollbackPlan:
    """The state to publish again."""

    target: RunRecord
    manifest: Manifest  # of that run
    config: RescoreConfig  # of the rollback: the settings of that run
    result: RollbackResult

    @classmethod
    def of(cls, warehouse: Path, name: str, note: str | None) -> "_RollbackPlan":
        """Find the run, and the differences from it.

        Raises:
            WarehouseError: the run cannot be published again.
        """
        now = published(warehouse)
        [target] = now.find_runs(name)
        _check(now, target)
        manifest = now.as_of(target).manifest
        last = last_config(warehouse)
        own = {"archive": last.archive, "warehouse": warehouse, "note": note}
        config = RescoreConfig.model_validate(own)
        return cls(target, manifest, config.with_defaults(manifest.settings), _result(now, target))

    @property
    def reasons(self) -> list[Reason]:
        """The changes in the row of `runs`."""
        undone = self.result.rolled_back
        old, new = undone.from_run, undone.to_run
        words = f"rollback from run {old} to run {new}"
        return [Reason("rollback", words, old, new), *undone.undone]


def _result(now: PublishedSnapshot, target: RunRecord) -> RollbackResult:
    before = now.as_of(target)
    rescored, removed, returned = _count_moves(now, before)
    settings = (*setting_changes(now.manifest.settings, before.manifest.settings),)
    is_same = all(now.files(name) == before.files(name) for name in STATE)
    is_published = is_same and not settings and not now.manifest.failed
    from_run = done_runs(now.runs())[-1].run_id
    return RollbackResult.here(
        "running",
        warehouse=shown(now.warehouse.absolute()),
        counts=target.counts,
        audits=target.audits,
        rolled_back=RolledBack(from_run, target.run_id, settings),
        rescored=rescored,
        removed=removed,
        returned=returned,
        rejects=_count_rejects(now),
        rejects_then=_count_rejects(before),
    ).ended("nothing_to_do" if is_published else "done")


def _count_moves(now: PublishedSnapshot, before: PublishedSnapshot) -> tuple[int, int, int]:
    """Count the traces with another score, and those on one side only, in the changed files."""
    ours, theirs = ({*state.files("scores")} for state in (now, before))
    query = statement(
        _COUNTS,
        now=parquet_relation("scores", sorted(ours - theirs)),
        before=parquet_relation("scores", sorted(theirs - ours)),
    )
    with Staging.temporary() as staging, staging.connect() as connection:
        [counts] = connection.execute(query).fetchall()
    return counts


def _count_rejects(snapshot: PublishedSnapshot) -> int:
    return int(snapshot.scan("rejects").select(pl.len()).collect().item())


def _with_file_changes(plan: _RollbackPlan, exclude: Sequence[str]) -> RollbackResult:
    """Return the result with what the next run would find in the archive."""
    config = plan.config.model_copy(update={"exclude": tuple(exclude)})
    try:
        with Staging.temporary() as staging:
            run = Run.begin(config, datetime.now(UTC), staging)
            candidate = replace(run.candidate, base=plan.manifest)
            run = replace(run, published=plan.manifest, candidate=candidate)
            return replace(plan.result, files=scan_archive(run, ThreadExecutor()).files)
    except KpBatchError as error:
        return replace(plan.result, not_read=one_line(str(error)))


def _check(now: PublishedSnapshot, target: RunRecord) -> None:
    """Refuse a run that cannot be published again.

    Raises:
        WarehouseError: the run failed, some of its files were removed, or a forget did not finish.
    """
    name = target.run_id
    if target.status != "done":
        raise WarehouseError(
            f"run {name} failed and changed no scores; roll back to a successful run"
        )
    if Layout(now.warehouse).forgetting.exists():
        raise WarehouseError(
            f"run {name} cannot be published again yet: a kp-batch forget did not finish, and this "
            "run may still contain forgotten traces; run the forget again, then this command",
            code="unfinished_forget",
        )
    if target.number < now.manifest.kept_from:
        since = next(iter(available_runs(now.warehouse).restorable), None)
        kept = f"the runs since {since} are kept" if since else "no run is kept"
        raise WarehouseError(
            f"run {name} cannot be published again: its files were removed; {kept}"
        )


def rolled_back_text(
    result: RollbackResult, *, dry_run: bool = False, has_project: bool = False
) -> str:
    """Format what a rollback undid for a terminal, or would undo; see `rollback_parts`."""
    last = ["nothing was changed"] if dry_run and result.status == "done" else []
    return as_text([*rollback_parts(result, has_project=has_project), *last])


def rollback_parts(result: RollbackResult, *, has_project: bool = False) -> Iterator[Part]:
    """Return the text of a rollback, done or planned.

    If a project sets the settings, the command prints a warning about its file instead.
    """
    undone = result.rolled_back
    if result.status == "nothing_to_do":
        yield Head(f"nothing to roll back: run {undone.to_run} is published already")
        return
    head = f"rolled back by run {result.run_id}" if result.run_id else "to be rolled back"
    yield Head(f"{head}: from run {undone.from_run} to run {undone.to_run}")
    yield Facts([*_facts(result, has_project=has_project), *_next_files(result)])


def _facts(result: RollbackResult, *, has_project: bool) -> Iterator[tuple[str, str]]:
    counts = [
        ("change", result.rescored, "score"),
        ("remove", result.removed, "trace"),
        ("return", result.returned, "trace"),
    ]
    yield from ((name, count_of(count, noun)) for name, count, noun in counts if count)
    if result.rejects != result.rejects_then:
        yield "rejects", f"{result.rejects:,} \N{RIGHTWARDS ARROW} {result.rejects_then:,}"
    settings = result.rolled_back.undone
    yield from (("setting", printable(change.words)) for change in settings)
    options = sorted({_OPTIONS.get(change.code, change.code) for change in settings})
    if options and not has_project:
        named = ", ".join(option_of([option]) for option in options)
        yield "again", f"a later run with {named} applies it again"


def _next_files(result: RollbackResult) -> Iterator[tuple[str, str]]:
    """Yield the changes that the next run would find in the archive, if it was read."""
    if result.not_read:
        yield "next run", f"the archive was not read: {printable(result.not_read)}"
    for kind, paths in asdict(result.files).items() if result.files else ():
        yield from (("next run", f"{kind}: {printable(path)}") for path in paths[:_FILES])
        if len(paths) > _FILES:
            yield "next run", f"{kind}: {len(paths) - _FILES:,} more"
