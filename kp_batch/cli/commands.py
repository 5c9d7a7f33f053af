"""What the child process can be asked to do: one `Command` each, with the type of its result.

Both processes import this: the parent to know what a command takes and tells, the child to carry it
out. So heavy imports stand in the functions, and results are dataclasses of light modules.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

from kp_batch.cli.command import Command, Tell
from kp_batch.operations.explained import Explanation
from kp_batch.operations.results import (
    Comparison,
    ExportResult,
    Forgotten,
    Removed,
    Verification,
)
from kp_batch.operations.sweep_result import Sweep
from kp_batch.pipeline.summary import Summary
from kp_batch.planning.explain_plan import PlanDescription
from kp_batch.warehouse.layout import Layout, check_apart, check_folder


def _run(
    tell: Tell[Summary], config: Mapping[str, object], *, prefect: bool, quiet: bool, began: float
) -> None:
    """Rescore, with Prefect or without it, telling all or news alone; `began` as for `Clock`."""
    from kp_batch.clock import Clock
    from kp_batch.config import RescoreConfig
    from kp_batch.executors.prefect_settings import prepare_prefect
    from kp_batch.executors.ray import workers_of
    from kp_batch.pipeline.rescore import rescore_and_report
    from kp_batch.progress import show_news_alone

    if quiet:
        show_news_alone()
    clock, settings = Clock(began), RescoreConfig.model_validate(config)
    if not prefect:
        with workers_of(settings) as workers:
            rescore_and_report(settings, workers, clock, tell)
        return
    prepare_prefect(Layout(settings.warehouse.absolute()).prefect)
    from kp_batch.executors.prefect import run_flow

    run_flow(settings, clock, tell)


def _plan(
    tell: Tell[PlanDescription],
    config: Mapping[str, object],
    folder: str,
    *,
    by_domain_and_day: bool,
) -> None:
    """Plan, and leave nothing behind: `folder` is empty, and the caller removes it."""
    from kp_batch.config import RescoreConfig
    from kp_batch.executor import Local
    from kp_batch.ingest.observe import observe
    from kp_batch.planning.explain_plan import describe
    from kp_batch.planning.plan import make_plan
    from kp_batch.planning.scorer import Scorer
    from kp_batch.run import Run, in_force
    from kp_batch.staging import Staging

    asked = RescoreConfig.model_validate(config)
    check_folder(asked.warehouse)
    check_apart(asked.warehouse, asked.archive)
    run = Run.begin(in_force(asked), datetime.now(UTC), Staging(Path(folder)))
    run.staging.make()
    scorer = Scorer.of(run)
    plan = make_plan(run, observe(run, Local()), scorer)
    tell(describe(run, plan, by_domain_and_day=by_domain_and_day))


def _compare(
    tell: Tell[Comparison], warehouse: str, folder: str, runs: Sequence[str], *, force: bool
) -> None:
    """Compare; `folder` as for `_plan`."""
    from kp_batch.operations.compare import compare
    from kp_batch.staging import Staging

    first, second = runs
    tell(compare(Path(warehouse), Staging(Path(folder)), first, second, force=force))


def _explain(tell: Tell[Explanation], warehouse: str, folder: str, name: str) -> None:
    """Explain; `folder` as for `_plan`."""
    from kp_batch.operations.explain import explain
    from kp_batch.staging import Staging

    tell(explain(Path(warehouse), Staging(Path(folder)), name))


class _How(TypedDict):
    """How to verify; see `verify`."""

    traces: int
    seed: int
    embed: bool


def _verify(tell: Tell[Verification], warehouse: str, folder: str, **how: Unpack[_How]) -> None:
    """Verify; `folder` as for `_plan`."""
    from kp_batch.operations.verify import verify
    from kp_batch.staging import Staging

    tell(verify(Path(warehouse), Staging(Path(folder)), **how))


def _sweep(
    tell: Tell[Sweep], warehouse: str, folder: str, asked: Mapping[str, Any], page: str | None
) -> None:
    """Sweep; `folder` as for `_plan`, `asked` as for `sweep`, `page` a file to write, if any."""
    from kp_batch.operations.sweep import page_of, sweep
    from kp_batch.staging import Staging

    found = sweep(Path(warehouse), Staging(Path(folder)), **asked)
    if page:
        Path(page).write_text(page_of(found), "utf-8")
    tell(found)


def _export(  # noqa: PLR0913, PLR0917 (all that it needs)
    tell: Tell[ExportResult],
    warehouse: str,
    folder: str,
    choice: Mapping[str, Any],
    ending: str,
    written: str,
    output: str | None,
) -> None:
    """Export; `folder` as for `_plan`, `choice` as fields of `ExportFilter`, `ending` the format.

    `written` is the file until it is whole, `output` the one whose place it takes then, if any.
    """
    from kp_batch.operations.export import ExportFilter, check_output, export
    from kp_batch.operations.export_formats import FORMATS
    from kp_batch.staging import Staging

    if output:
        check_output(Path(warehouse), Path(output))
    given = Path(warehouse), Staging(Path(folder)), ExportFilter(**choice)
    tell(export(*given, FORMATS[ending], Path(written)))


def _vacuum(tell: Tell[Removed], warehouse: str, keep_seconds: float) -> None:
    from kp_batch.operations.vacuum import vacuum

    tell(vacuum(Path(warehouse), timedelta(seconds=keep_seconds), datetime.now(UTC)))


def _what_to_remove(tell: Tell[Removed], warehouse: str, folder: str, keep_seconds: float) -> None:
    """Tell what `_vacuum` would remove; `folder` as for `_plan`."""
    from kp_batch.operations.vacuum import what_to_remove
    from kp_batch.staging import Staging

    keep, now = timedelta(seconds=keep_seconds), datetime.now(UTC)
    tell(what_to_remove(Path(warehouse), keep, now, Staging(Path(folder))))


def _forget(tell: Tell[Forgotten], warehouse: str, ids: Sequence[str], *, unseen_too: bool) -> None:
    from kp_batch.operations.forget import forget

    tell(forget(Path(warehouse), ids, unseen_too=unseen_too, with_page=True))


def _what_to_forget(
    tell: Tell[Forgotten], warehouse: str, folder: str, ids: Sequence[str], *, unseen_too: bool
) -> None:
    """Tell what `_forget` would do; `folder` as for `_plan`."""
    from kp_batch.operations.forget import what_to_forget
    from kp_batch.staging import Staging

    tell(what_to_forget(Path(warehouse), ids, Staging(Path(folder)), unseen_too=unseen_too))


RUN = Command("run", _run, Summary)
PLAN = Command("plan", _plan, PlanDescription)
COMPARE = Command("compare", _compare, Comparison)
EXPLAIN = Command("explain", _explain, Explanation)
VERIFY = Command("verify", _verify, Verification)
SWEEP = Command("sweep", _sweep, Sweep)
EXPORT = Command("export", _export, ExportResult)
VACUUM = Command("vacuum", _vacuum, Removed)
WHAT_TO_REMOVE = Command("vacuum --dry-run", _what_to_remove, Removed)
FORGET = Command("forget", _forget, Forgotten)
WHAT_TO_FORGET = Command("forget --dry-run", _what_to_forget, Forgotten)
COMMANDS = {
    each.name: each
    for each in (
        *(RUN, PLAN, COMPARE, EXPLAIN, VERIFY, SWEEP, EXPORT),
        *(VACUUM, WHAT_TO_REMOVE, FORGET, WHAT_TO_FORGET),
    )
}
