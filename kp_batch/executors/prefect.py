"""Runs the steps as Prefect tasks, and leaves the report and the scores as artifacts."""

from errno import ENOSPC
from functools import cache
from typing import Any, cast

from polars.exceptions import PanicException
from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.executor import P, R, Step
from kp_batch.pipeline.report import report
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.pipeline.summary import as_table
from kp_batch.progress import say


def rescore_in_tasks(config: RescoreConfig) -> dict[str, Any]:
    """The body of the flow: rescore an archive, a task for each step.

    Args:
        config: what to rescore, where to, and how.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed and published no scores.
    """
    summary = rescore_and_report(config, Tasks())
    try:
        create_markdown_artifact(report(config.warehouse, "markdown"), key="kp-batch-report")
        create_table_artifact(as_table(summary), key="kp-batch-scores")
    except (Exception, PanicException) as error:  # noqa: BLE001 (the scores are published by now)
        say(f"warning: Prefect has not all artifacts of this run: {error}")
    return summary


def run_flow(config: RescoreConfig) -> dict[str, Any]:
    """Run the flow that prefect.yaml deploys, from here; see `rescore_in_tasks`."""
    return flow(name="rescore", persist_result=False)(rescore_in_tasks)(config)


class Tasks:
    """Calls each step as a task of the flow that is running."""

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`; a step is tried again as often as it says."""
        return _task(step)(*args, **kwargs)


@cache
def _task(step: Step[..., Any]) -> Any:
    # Steps take paths and ranges, which Prefect needs no cache of.
    return cast("Any", task)(
        step.function,
        name=step.name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=step.retries,
        retry_delay_seconds=5,
        retry_condition_fn=is_passing,
    )


def is_passing(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is worth another try: the disk or the network failed, not the logic."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError) and error.errno != ENOSPC
