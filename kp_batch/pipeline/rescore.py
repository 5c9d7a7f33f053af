"""A run as the list of its steps, without Prefect."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.publish import publish_failure, publish_success
from kp_batch.pipeline.replay import embed, replay_timeline
from kp_batch.pipeline.summary import summarise
from kp_batch.pipeline.write import write_tables
from kp_batch.planning.describe import as_text, forecast
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.planning.rejects import check_rejects
from kp_batch.progress import say
from kp_batch.run import Run
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout, check_folder
from kp_batch.warehouse.lock import writing

Call = Callable[..., Any]


def directly(step: Call, *inputs: Any) -> Any:
    """Call a step."""
    return step(*inputs)


def rescore_archive(config: RescoreConfig, call: Call = directly) -> dict[str, Any]:
    """Rescore an archive: plan, and do what is to be done.

    Args:
        config: what to rescore, where to, and how.
        call: calls a step with its inputs; the flow gives one that runs it as a task.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed; its reason and its rejects are published, and no scores.
    """
    with running(config) as run:
        return carry_out(run, planned(run, call), call)


@contextmanager
def running(config: RescoreConfig) -> Generator[Run]:
    """A run that alone writes to its warehouse; should it fail, that is published.

    Raises:
        WarehouseError: the warehouse cannot be written to, or another run is writing.
    """
    check_folder(config.warehouse)
    with writing(config.warehouse, wait=config.wait):
        run = Run.begin(config)
        run.stage.begin()
        try:
            yield run
        except (Exception, PanicException) as error:
            with suppress(Exception):  # a full disk, say: the error that counts is the first
                publish_failure(run, one_line(str(error)))
            raise
        finally:
            run.stage.end()


def planned(run: Run, call: Call = directly, forgetting: Sequence[str] = ()) -> Plan:
    """Make the run's plan and say what it comes to; see `make_plan`.

    Raises:
        ArchiveError: too little of the archive can be scored.
    """
    plan: Plan = _timed(run, call)(make_plan, run, forgetting)
    for line in as_text(forecast(run, plan)).splitlines():
        say(line)
    if not forgetting:
        check_rejects(run)
    return plan


def carry_out(run: Run, plan: Plan, call: Call = directly) -> dict[str, Any]:
    """Do what was planned; returns the run's summary."""
    if not plan.differing:
        return summarise(run, plan)
    config, call = run.config, _timed(run, call)
    layout = Layout(config.warehouse)
    store = layout.vectors(plan.scorer.encoder_id) if plan.scorer.has_encoder else None
    call(embed, config.embedder, layout.all_vectors, plan.texts, run.stage)
    replayed = call(replay_timeline, plan.timeline, config.cache_size, config.ttl, store, run.stage)
    tables = call(write_tables, run, plan, replayed)
    call(publish_success, run, tables)
    return summarise(run, plan)


def _timed(run: Run, call: Call) -> Call:
    """`call`, noting the seconds of each step in the run."""

    def timed(step: Call, *inputs: Any) -> Any:
        began = time.monotonic()
        try:
            return call(step, *inputs)
        finally:
            run.seconds[step.__name__] = time.monotonic() - began

    return timed
