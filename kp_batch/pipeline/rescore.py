"""A run, step by step: plan, embed, replay, write, publish; then the report (see `report`)."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.embed import embed
from kp_batch.pipeline.executor import Executor, Local, Step, Timed
from kp_batch.pipeline.publish import publish_failure, publish_success
from kp_batch.pipeline.replay import replay_timeline
from kp_batch.pipeline.report import leave_report
from kp_batch.pipeline.summary import summarise
from kp_batch.pipeline.write import write_tables
from kp_batch.planning.describe import as_text, describe
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.rejects import check_reject_limit
from kp_batch.progress import say
from kp_batch.run import Run
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout, check_folder
from kp_batch.warehouse.publication import writing

# Those that fetch input or write tables are tried again where the disk or the network failed.
PLAN = Step("plan", make_plan, retries=2)
EMBED = Step("embed", embed, retries=2)
REPLAY = Step("replay", replay_timeline)
WRITE = Step("write", write_tables, retries=2)
PUBLISH = Step("publish", publish_success)

_LOCAL = Local()


def rescore_and_report(
    config: RescoreConfig,
    executor: Executor = _LOCAL,
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Rescore an archive, and write the report of what is published then.

    Args:
        config: what to rescore, where to, and how.
        executor: calls the steps.
        tell: takes the summary as soon as it is known, before the report is written.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed and published no scores; see `rescore_archive`.
    """
    try:
        summary = rescore_archive(config, executor)
        tell(summary)
        return summary
    finally:
        leave_report(config.warehouse, executor)


def rescore_archive(config: RescoreConfig, executor: Executor = _LOCAL) -> dict[str, Any]:
    """Rescore an archive: plan, and do what the plan says.

    Raises:
        KpBatchError: the run failed; its reason and its rejects are published, and no scores.
    """
    with open_run(config) as run:
        return execute(run, plan_run(run, executor), executor)


@contextmanager
def open_run(config: RescoreConfig) -> Generator[Run]:
    """Open a run that alone writes to its warehouse; if it fails, that is published.

    Raises:
        WarehouseError: the warehouse cannot be written to, or another run is writing.
    """
    check_folder(config.warehouse)
    with writing(config.warehouse, wait=config.wait):
        run = Run.begin(config, datetime.now(UTC))
        run.staging.begin()
        try:
            yield run
        except (Exception, PanicException) as error:
            with suppress(
                Exception, PanicException
            ):  # a full disk, say: the error that counts is the first
                publish_failure(run, one_line(str(error)))
            raise
        finally:
            run.staging.end()


def plan_run(run: Run, executor: Executor = _LOCAL, forgotten: Sequence[str] = ()) -> Plan:
    """Make the run's plan and print it; see `make_plan`.

    Raises:
        ArchiveError: too little of the archive can be scored.
    """
    plan = Timed(executor, run.seconds).call(PLAN, run, forgotten)
    for line in as_text(describe(run, plan)).splitlines():
        say(line)
    if not forgotten:
        check_reject_limit(run)
    return plan


def execute(run: Run, plan: Plan, executor: Executor = _LOCAL) -> dict[str, Any]:
    """Carry the plan out; returns the run's summary."""
    if not plan.pending:
        return summarise(run, plan)
    config, call = run.config, Timed(executor, run.seconds).call
    layout = Layout(config.warehouse)
    store = layout.vectors(plan.scorer.encoder_id) if plan.scorer.has_encoder else None
    call(EMBED, config.embedder, layout.all_vectors, plan.texts, run.staging)
    replayed = call(REPLAY, plan.timeline, config.cache_size, config.ttl, store, run.staging)
    tables = call(WRITE, run, plan, replayed)
    call(PUBLISH, run, tables)
    return summarise(run, plan)
