"""A run, step by step: read, plan, embed, replay, write, audit, publish, and report if asked."""

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig
from kp_batch.embedding.chunks import remove_damaged
from kp_batch.errors import (
    TEMPORARY_FOLDERS,
    DamagedVectorsError,
    KpBatchError,
    OvertakenError,
    StorageError,
    explain_error,
)
from kp_batch.files import atomic_write
from kp_batch.ingest.scan import scan_archive
from kp_batch.log import info, recurring_warnings, warn
from kp_batch.log_lines import note_place
from kp_batch.pipeline.audit import audit_run, check_audits, refuse
from kp_batch.pipeline.embed import embed
from kp_batch.pipeline.publish import (
    Written,
    prepare,
    publish_failure,
    publish_ledger,
    publish_success,
)
from kp_batch.pipeline.replay_spans import Replayed, replay_timeline
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.pipeline.write import write_tables
from kp_batch.planning.excess import exceeded_limits
from kp_batch.planning.explain_plan import (
    PlanDescription,
    changed_settings,
    describe,
    future_warnings,
    loss_warnings,
    profile_warnings,
)
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.report.run_summary import Summary, summarise
from kp_batch.runs.rolled_back import check_rolled_back
from kp_batch.runs.run import Run, effective_config
from kp_batch.scoring.profiles import load_profiles
from kp_batch.steps.step import Clock, Executor, ThreadExecutor, retried, timed
from kp_batch.text import count_of, one_line, printable
from kp_batch.warehouse.audits import AuditResult, AuditResults
from kp_batch.warehouse.bucket.location import shown, url_of
from kp_batch.warehouse.last_run import Attempt, current_attempt, recorded_attempt
from kp_batch.warehouse.layout import Layout, check_apart, check_folder, remove_candidate
from kp_batch.warehouse.lock import has_lock
from kp_batch.warehouse.manifest import DAMAGED, check_identity
from kp_batch.warehouse.publication import published_since, start_over, writing
from kp_batch.warehouse.vacuum_result import VacuumResult

if TYPE_CHECKING:  # few runs write a report
    from kp_batch.report.data import ReportData

_THREADS = ThreadExecutor()


# Lists that collect the runs that are opened; see `watched`.
_WATCHED: ContextVar[tuple[list["OpenRun"], ...]] = ContextVar("watched", default=())


@dataclass
class OpenRun:
    """A run under way: its state."""

    run: Run
    executor: Executor
    clock: Clock
    begun: bool = False  # whether it can be done: its archive, encoder and so on exist
    plan: Plan | None = None  # with the counts of what is done so far
    description: PlanDescription | None = None  # the description of that plan
    written: Written | None = None  # what it publishes, once written
    audits: AuditResults = field(default_factory=AuditResults)
    is_recorded: bool = False  # whether it has its row in `runs`

    def __post_init__(self) -> None:
        note_place(run_id=self.run.run_id)
        for opened in _WATCHED.get():
            opened.append(self)

    def begin(self) -> None:
        """Mark that the run can be done, and remove what the previous run did not publish."""
        remove_candidate(self.run.config.warehouse)
        self.begun = True
        if this := current_attempt():
            this.begun = True


@contextmanager
def watched() -> Generator[list[OpenRun]]:
    """Collect the runs that are opened, to see how far one came if it fails."""
    opened: list[OpenRun] = []
    token = _WATCHED.set((*_WATCHED.get(), opened))
    try:
        yield opened
    finally:
        _WATCHED.reset(token)


def rescore_and_report(
    config: RescoreConfig,
    executor: Executor = _THREADS,
    on_result: Callable[[Summary], None] = lambda _: None,
    on_report: "Callable[[ReportData], None]" = lambda _: None,
) -> Summary:
    """Rescore an archive, and write the report if the config asks for one.

    Args:
        config: what to rescore, into which warehouse, and how; left-out settings are the
            warehouse's.
        executor: carries out the parts of its steps, which are timed; see `timed`.
        on_result: takes the summary as soon as it is known, before the report is written.
        on_report: takes the data of the report if it was written, even for a failed run.

    Raises:
        KpBatchError: the run failed and published no scores; see `rescore_archive`.
    """
    this = None
    try:
        with recorded_attempt(config.warehouse) as this:
            summary = _tried(this, config, executor)
        on_result(summary)
    except (Exception, PanicException):  # a stopped run writes no report
        if this and this.is_under_way:  # otherwise it may be another warehouse
            _report(config, executor, on_report)
        raise
    _report(config, executor, on_report)
    return summary


def _report(
    config: RescoreConfig, executor: Executor, on_report: "Callable[[ReportData], None]"
) -> None:
    if config.report:
        from kp_batch.report.build import leave_report

        if data := leave_report(config.warehouse, executor):
            on_report(data)


def _tried(this: Attempt, config: RescoreConfig, executor: Executor) -> Summary:
    """Rescore an archive, and record how that ends; see `warehouse.last_run`."""
    check_folder(config.warehouse)
    check_apart(config.warehouse, config.archive)
    summary = None
    try:
        with opened_warehouse(config):
            this.under_way()
            summary = _planned_upon_newest(config, executor)
            this.end(summary)
            summary = replace(summary, removed=_remove_old(config))
    except OvertakenError as error:  # others published while this deleted from a bucket
        if not (summary and summary.removed):
            raise
        _warn_of_old(error)
        summary = replace(summary, removed=None)
    this.finalize()
    return summary


def _remove_old(config: RescoreConfig) -> VacuumResult | None:
    """Remove what is older than `keep`, if that is set; a failure is only a warning."""
    # A run warns of an unfinished forget itself, and nothing is removed until that is finished.
    if config.keep is None or Layout(config.warehouse).forgetting.exists():
        return None
    try:
        return vacuum(config.warehouse, config.keep, datetime.now(UTC), if_needed=True)
    except (Exception, PanicException) as error:  # noqa: BLE001 (the run is published)
        _warn_of_old(error)
        return None


def _warn_of_old(error: BaseException) -> None:
    warn(
        "the run is done, but some data older than `keep` was not removed: "
        f"{one_line(explain_error(error).stored)}; fix that, and the next run tries again"
    )


def _planned_upon_newest(config: RescoreConfig, executor: Executor) -> Summary:
    """Rescore an archive; once more if another writer of its bucket publishes during the run.

    The new vectors are kept.

    Raises:
        OvertakenError: others published during both attempts.
    """
    try:
        return rescore_archive(effective_config(config), executor)
    except OvertakenError:
        warn(
            f"another writer published in {shown(config.warehouse)} at the same time, so this run "
            "is planned again on top of it"
        )
    start_over(config.warehouse)
    return rescore_archive(effective_config(config), executor)


def rescore_archive(config: RescoreConfig, executor: Executor = _THREADS) -> Summary:
    """Rescore an archive: scan it, plan, and carry out the plan.

    Args:
        config: complete; see `effective_config`.
        executor: as for `rescore_and_report`.

    Raises:
        KpBatchError: the run failed. Its reason and its rejects are published, but no scores. If it
            could not begin, for example without an archive, nothing is published.
    """
    with open_run(config, executor) as opened, _recurring_warnings(config.warehouse):
        plan = carry_out(opened)
    refuse(opened.audits)  # after the run: with nothing to do, no failure is published
    # Only now, because a failure here, such as a full temporary folder, cannot undo publishing.
    return summarise(opened.run, plan, opened.clock, opened.audits)


def carry_out(opened: OpenRun) -> Plan:
    """Scan the archive, plan, and carry out the plan; return the plan, see `execute`.

    Raises:
        KpBatchError: the run fails.
    """
    run = opened.run
    warn_of_unfinished_forget(run.config.warehouse)
    scorer = Scorer.of(run)  # first, so that faults of settings show at once
    check_audits(run)
    check_rolled_back(run)
    scan = scan_archive(run, opened.executor)
    opened.begin()
    if run.config.restore_vectors:
        remove_damaged(_vectors(run, scorer))
    plan = make_plan(run, scan, scorer)
    opened.plan = replace(plan, counts=plan.counts.without_work)
    tell_of_new_warehouse(run)
    opened.description = log_plan(run, plan)
    if excess := exceeded_limits(run, plan.counts, plan.limit_inputs):
        failing = _failing_as_well(opened, plan)
        raise exceeded_limits(run, plan.counts, plan.limit_inputs, failing) or excess
    opened.plan = plan = execute(opened, plan)
    return plan


def _failing_as_well(opened: OpenRun, plan: Plan) -> list[AuditResult]:
    """Return the audits that fail in addition to a limit, so that the error names all.

    They run only if no texts have to be embedded first.
    """
    has_audits = bool(opened.run.config.audits.by_name)
    if not has_audits or plan.texts.missing or not plan.counts.accepted:
        return []
    try:
        _prepared(opened, plan)
    except (Exception, PanicException) as error:  # noqa: BLE001 (the limit is the error)
        warn(f"audits did not run ({one_line(str(error))}); first fix what fails the run")
    return [result for result in opened.audits if result.fails]


@contextmanager
def open_run(config: RescoreConfig, executor: Executor = _THREADS) -> Generator[OpenRun]:
    """Open a run as the only writer of its warehouse; if it fails, publish that.

    Raises:
        WarehouseError: the warehouse cannot be written to, or another run is writing.
    """
    check_folder(config.warehouse)
    with timed() as clock, opened_warehouse(config):
        run = Run.begin(config, datetime.now(UTC))
        opened = OpenRun(run, executor, clock)
        run.staging.make()
        try:
            with run.staging.shared():
                yield opened
        except (Exception, PanicException) as error:
            is_refused = isinstance(error, KpBatchError) and not isinstance(error, StorageError)
            if is_refused and not opened.begun:  # for example without an archive: there was no run
                raise
            if isinstance(error, OvertakenError):  # its record would be outdated
                raise
            _record_failure(opened, one_line(explain_error(error).stored))
            raise


def _record_failure(opened: OpenRun, reason: str) -> None:
    """Publish the row of a failed run, unless it has published."""
    run, this = opened.run, current_attempt()
    try:
        if published_since(run.config.warehouse, run.published):
            return
        publish_failure(run, opened.plan, opened.audits, opened.clock.seconds, reason)
    except (Exception, PanicException) as error:  # noqa: BLE001 (the first error matters more)
        warn(f"this run could not be recorded in runs: {one_line(explain_error(error).stored)}")
        return
    opened.is_recorded = True
    if this:
        this.result = replace(this.result, run_id=run.run_id)


@contextmanager
def opened_warehouse(config: RescoreConfig) -> Generator[None]:
    """Write alone, see `writing`; within a step, retry if a server does not answer."""
    if config.timeout and not TEMPORARY_FOLDERS:
        warn(
            "timeout works only with the command kp-batch run; here, set it where this run is "
            "started, such as timeout_seconds of a Prefect flow"
        )
    with ExitStack() as stack:

        def open_it() -> None:
            if not has_lock(config.warehouse):  # makes nothing in a wrong place
                check_identity(config.warehouse, config.warehouse_id)
            with _answering(config):
                stack.enter_context(writing(config.warehouse, wait=config.wait_s))

        retried("opening the warehouse", open_it)
        yield


@contextmanager
def _answering(config: RescoreConfig) -> Generator[None]:
    """Open a warehouse, or say that its bucket does not answer.

    Raises:
        StorageError: the bucket does not answer. A retry would save nothing, because no work is
            done yet.
    """
    try:
        yield
    except TimeoutError as error:
        if not url_of(config.warehouse):
            raise
        raise StorageError(
            f"{shown(config.warehouse)} cannot be opened: {error.strerror or error}; run again "
            "when that store responds"
        ) from error


def warn_of_unfinished_forget(warehouse: Path) -> None:
    """Warn if files may still contain traces to forget, which only `forget` removes."""
    if Layout(warehouse).forgetting.exists():
        warn(
            f"a kp-batch forget did not finish: files in {shown(warehouse)} may still contain "
            "forgotten traces; run the same command again",
            recurring=True,
        )


@contextmanager
def _recurring_warnings(warehouse: Path) -> Generator[None]:
    """Let --quiet show a recurring warning once, and again after it was fixed or has changed."""
    path, known = Layout(warehouse).known_warnings, list[str]()
    with suppress(OSError, *DAMAGED):  # unknown warnings are shown
        known = [*map(str, json.loads(path.read_bytes()))]
    with recurring_warnings(known) as now:
        try:
            yield
        finally:
            if now != known:
                with suppress(OSError), atomic_write(path) as written:
                    written.write_text(json.dumps(now), "utf-8")


def tell_of_new_warehouse(run: Run) -> None:
    """Say that a new warehouse begins, perhaps by mistake: its disk may be missing."""
    if run.published.settings or run.config.warehouse_id:  # set by a successful run or by init
        return
    config = run.config
    audits = count_of(len(config.audits.by_name), "audit") if config.audits.by_name else "no audits"
    weights = "the built-in weights" if config.profiles == load_profiles() else "its own weights"
    info(
        f"{shown(config.warehouse)} is a new warehouse, with embedder "
        f"{printable(config.embedder)}, {weights}, {audits}; if there was one before, check "
        "whether its disk is mounted",
        always=True,
    )


def log_plan(run: Run, plan: Plan) -> PlanDescription:
    """Log a plan if there is anything to do, and its warnings; an exceeded limit is the error.

    Returns:
        The description of the plan.
    """
    description = describe(run, plan)
    for line in str(description).splitlines() if plan.pending else ():
        info(line)
    for line in changed_settings(description):
        info(line, in_brief=True)
    for line in profile_warnings(description):
        warn(line)
    for line in loss_warnings(description):
        warn(line)
    for line in future_warnings(description):
        published = {str(day) for day in run.snapshot.days}
        warn(line, repeated=published.issuperset(description.future_partitions))
    return description


def _vectors(run: Run, scorer: Scorer) -> Path:
    """Return the folder of the vectors that the run reads and makes."""
    return Layout(run.config.warehouse).vectors(scorer.encoder_id)


def _planned_again(run: Run, plan: Plan, error: DamagedVectorsError) -> Plan:
    """Return the plan without the damaged vectors, which are embedded again."""
    if not remove_damaged(_vectors(run, plan.scorer)):
        raise error
    warn(str(error))
    return make_plan(run, plan.scan, plan.scorer)


def compute_novelty(run: Run, plan: Plan, executor: Executor) -> tuple[Plan, tuple[Replayed, ...]]:
    """Embed and replay what a plan has; embed damaged vectors again.

    Returns:
        The plan with the number of embedded windows, and what was replayed.
    """
    windows = embed(run, plan, executor)
    done = replace(plan, counts=replace(plan.counts, windows=windows))
    try:
        return done, replay_timeline(run, done, executor)
    except DamagedVectorsError as error:
        return compute_novelty(run, _planned_again(run, plan, error), executor)


def execute(opened: OpenRun, plan: Plan) -> Plan:
    """Carry out a plan; return it with the number of embedded windows."""
    run, done = opened.run, _prepared(opened, plan)
    if run.config.preview:
        return done
    if opened.written:
        refuse(opened.audits)
        publish_success(run, opened.written, opened.audits, opened.clock.seconds)
        opened.is_recorded = True
    elif plan.scan.other_versions:
        publish_ledger(run)
    return done


def _prepared(opened: OpenRun, plan: Plan) -> Plan:
    """Do all work of a plan except publishing it, and run the audits; return it likewise."""
    run, executor = opened.run, opened.executor
    if not plan.pending:
        opened.audits = audit_run(run, lambda: run.snapshot)
        return plan
    done, replayed = compute_novelty(run, plan, executor)
    opened.plan = replace(done, counts=done.counts.unpublished)
    candidate = write_tables(run, done, replayed, executor)
    opened.written = written = prepare(run, done, candidate)
    opened.audits = audit_run(run, lambda: written.snapshot(run, opened.clock.seconds))
    if run.config.preview or any(result.fails for result in opened.audits):
        written.keep(run, opened.audits, opened.clock.seconds)
    return done
