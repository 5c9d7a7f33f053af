"""Show what a run would do: by a plan, or by a preview, which does all the work but publishing.

A preview stores its vectors in the warehouse, where the run finds them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError
from kp_batch.exports.output import archive_with, is_in_warehouse
from kp_batch.files import atomic_write
from kp_batch.ingest.scan import scan_archive
from kp_batch.operations.compare import (
    Comparison,
    Side,
    TopChanges,
    compare_tables,
    comparison_parts,
)
from kp_batch.pipeline.audit import check_audits
from kp_batch.pipeline.rescore import OpenRun, carry_out, opened_warehouse
from kp_batch.planning.explain_plan import PlanDescription, describe
from kp_batch.planning.plan import make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.rendering import Head, Part
from kp_batch.report.build import report_on
from kp_batch.report.run_summary import nothing_text
from kp_batch.runs.rolled_back import check_rolled_back
from kp_batch.runs.run import Run, effective_config
from kp_batch.steps.step import Executor, ThreadExecutor, step, timed
from kp_batch.text import count_of, printable
from kp_batch.warehouse.audits import refuse_failed, results_parts
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.bucket.mirror import skip_upload
from kp_batch.warehouse.layout import check_apart, check_folder
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.run_result import RunResult, now
from kp_batch.warehouse.snapshot import PublishedSnapshot
from kp_batch.warehouse.staging import Staging

_THREADS = ThreadExecutor()


@dataclass(frozen=True, kw_only=True)
class Preview(RunResult):
    """The result of a preview; its status is how the run would end."""

    changes: bool = False  # whether it would publish anything
    comparison: Comparison | None = None  # null: nothing would change, or nothing is published yet

    @property
    def moved(self) -> TopChanges:
        """The traces that would change most, as `Comparison.movers`; empty without a comparison."""
        return self.comparison.movers if self.comparison else TopChanges()

    def _parts_of_work(self) -> Iterable[Part]:
        return preview_parts(self)


def plan(config: RescoreConfig, *, by_domain_and_day: bool = False) -> PlanDescription:
    """Plan a run, and leave nothing behind.

    Args:
        config: the settings of the run; those left out are the warehouse's.
        by_domain_and_day: see `describe`.

    Raises:
        KpBatchError: there is no such archive or encoder, for example.
    """
    check_folder(config.warehouse)
    check_apart(config.warehouse, config.archive)
    with Staging.temporary() as staging:
        run = Run.begin(effective_config(config), datetime.now(UTC), staging)
        scorer = Scorer.of(run)
        check_audits(run)
        check_rolled_back(run)
        run_plan = make_plan(run, scan_archive(run, _THREADS), scorer)
        return describe(run, run_plan, by_domain_and_day=by_domain_and_day)


def preview(
    config: RescoreConfig,
    executor: Executor = _THREADS,
    on_result: Callable[[Preview], None] = lambda _: None,
) -> Preview:
    """Do all the work of a run, but publish nothing.

    It leaves its vectors, only on this machine, and the report if `output` is set.

    Args:
        config: the settings of the run; those left out are the warehouse's.
        executor: see `rescore_and_report`.
        on_result: takes the preview before the report is written.

    Raises:
        KpBatchError: the run would fail, or `output` is not a file or is in the archive or the
            warehouse.
        AuditError: audits fail; the report is written before.
    """
    config = config.model_copy(update={"preview": True})
    check_folder(config.warehouse)
    check_apart(config.warehouse, config.archive)
    began = now()
    with timed() as clock, opened_warehouse(config):
        skip_upload(config.warehouse)
        run = Run.begin(effective_config(config), datetime.now(UTC))
        _check_output(run.config)
        run.staging.make()
        opened = OpenRun(run, executor, clock)
        with run.staging.shared():
            done = carry_out(opened)
        then = opened.written.snapshot(run, clock.seconds) if opened.written else run.snapshot
        comparison = _comparison(run, then) if opened.written else None
        result = Preview.here(
            "done" if done.pending else "nothing_to_do",
            warehouse=shown(config.warehouse.absolute()),
            started_at=began,
            finished_at=now(),
            counts=done.counts,
            seconds=clock.rounded,
            audits=opened.audits,
            changes=bool(done.pending),
            comparison=comparison,
        )
        on_result(result)
        if run.config.output:
            _write_report(run, then, executor)
    refuse_failed(result.audits, "a run would publish no scores")
    return result


def preview_parts(result: Preview, *, shows_text: bool = True) -> Iterator[Part]:
    """Return the text of a preview; see `comparison_parts`."""
    counts = result.counts
    if counts is None:
        return
    rescored = f"{counts.rescored:,} of {count_of(counts.accepted, 'trace')}"
    text = f"preview: {rescored} would be rescored; nothing was published"
    if not result.changes:
        text = f"preview: {nothing_text(counts)}"
    elif not result.comparison:
        text += ", nor ever before: there is nothing to compare with"
    yield Head(text)
    if result.comparison:
        yield ""
        yield from comparison_parts(result.comparison, within="comparison.", shows_text=shows_text)
    if result.audits:
        yield from ("", Head("what audits found:"), *results_parts(result.audits))


@step("compare")
def _comparison(run: Run, then: PublishedSnapshot) -> Comparison | None:
    """Compare what is published with what would be; None if no run succeeded before."""
    was, would_be = last_done(run.snapshot.runs()), last_done(then.runs())
    if was is None or would_be is None:
        return None
    return compare_tables(Side(was, run.snapshot), Side(would_be, then), then)


@step("report")
def _write_report(run: Run, then: PublishedSnapshot, executor: Executor) -> None:
    text = report_on(then, executor)
    with atomic_write(run.config.output or Path()) as written:
        written.write_text(text, "utf-8")


def _check_output(config: RescoreConfig) -> None:
    """Refuse, before any work, an output that is not a file or is in archive or warehouse."""
    output = config.output
    if output is None:
        return
    if output.is_dir() or not output.parent.is_dir():
        raise SettingError(
            f"{printable(str(output))} cannot be written as the report; name a file in an existing "
            "folder"
        )
    paths = [output.absolute(), output.resolve()]
    if is_in_warehouse(paths, config.warehouse) or archive_with(paths, config.archive):
        raise SettingError(
            f"{printable(str(output))} is in the archive or the warehouse; choose another folder "
            "for the report"
        )
