"""The Prefect flow: the steps of a run as tasks, and what it came to as artifacts."""

from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any, cast

from polars.exceptions import PanicException
from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.publish import publish_success
from kp_batch.pipeline.replay import embed, replay_timeline
from kp_batch.pipeline.report import reported, write_report
from kp_batch.pipeline.rescore import Call, carry_out, rescore_archive
from kp_batch.pipeline.summary import as_table
from kp_batch.pipeline.write import write_tables
from kp_batch.planning.plan import Plan, make_plan
from kp_batch.progress import say
from kp_batch.run import Run


@flow(name="rescore", persist_result=False)
def rescore(config: RescoreConfig) -> dict[str, Any]:
    """Rescore an archive: every trace gets the score it had at its own time.

    Args:
        config: what to rescore, where to, and how.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed and published no scores.
    """
    with reported(config.warehouse):
        return _with_artifacts(config.warehouse, rescore_archive(config, call=_as_task))


def carry_out_in_flow(run: Run, plan: Plan) -> dict[str, Any]:
    """The same flow for a run that was planned before Prefect started."""

    def rescore(config: RescoreConfig) -> dict[str, Any]:
        return _with_artifacts(config.warehouse, carry_out(run, plan, _as_task))

    return flow(name="rescore", persist_result=False)(rescore)(run.config)


def _with_artifacts(warehouse: Path, summary: dict[str, Any]) -> dict[str, Any]:
    try:
        create_markdown_artifact(write_report(warehouse), key="kp-batch-report")
        create_table_artifact(as_table(summary), key="kp-batch-scores")
    except (Exception, PanicException) as error:  # noqa: BLE001 (the scores are published by now)
        say(f"warning: Prefect has not all artifacts of this run: {error}")
    return summary


def _as_task(step: Call, *inputs: Any) -> Any:
    return TASKS[step](*inputs)


def is_passing(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is worth another try: the disk or the network, not the logic."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError) and error.errno != ENOSPC


# Steps take paths and ranges, which Prefect needs no cache of. Those that fetch input or write the
# tables are tried again where the disk or the network failed.
TASKS: dict[Callable[..., Any], Callable[..., Any]] = {
    step: cast("Call", task)(
        step,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=retries,
        retry_delay_seconds=5,
        retry_condition_fn=is_passing,
    )
    for step, retries in {
        make_plan: 2,
        embed: 2,
        replay_timeline: 0,
        write_tables: 2,
        publish_success: 0,
    }.items()
}
