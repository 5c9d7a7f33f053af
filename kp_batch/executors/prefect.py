"""Runs the steps as Prefect tasks, and leaves the report and the scores as artifacts."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Concatenate, cast
from urllib.parse import urlsplit

from polars.exceptions import PanicException
from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.settings import get_current_settings

from kp_batch.config import RescoreConfig
from kp_batch.executor import RETRY_DELAY_S, Executor, Local, P, R, Step, T, is_passing
from kp_batch.pipeline.report import report
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.pipeline.summary import Summary, as_table
from kp_batch.progress import say


def rescore_in_tasks(config: RescoreConfig) -> Summary:
    """The body of the flow: a task for each step; see `rescore_and_report`."""
    summary = rescore_and_report(config, Tasks(Local()))
    try:
        create_markdown_artifact(report(config.warehouse, "markdown"), key="kp-batch-report")
        create_table_artifact(as_table(summary), key="kp-batch-scores")
    except (Exception, PanicException) as error:  # noqa: BLE001 (the scores are published by now)
        say(f"warning: Prefect has not all artifacts of this run: {error}")
    return summary


def run_flow(config: RescoreConfig) -> Summary:
    """Run the flow that prefect.yaml deploys from here, and say where; see `rescore_in_tasks`."""
    server = urlsplit(get_current_settings().api.url or "")
    shown = server._replace(netloc=server.netloc.rpartition("@")[2]).geturl()  # without a password
    say(f"running as a Prefect flow on {shown or 'a temporary server'}")
    return flow(name="rescore", persist_result=False)(rescore_in_tasks)(config)


class Tasks:
    """Calls each step as a task of the flow that is running; its parts are done within it."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`; a step is tried again as often as it says."""
        return _task(step)(*args, **kwargs)

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        """See `Executor`: there may be thousands of parts, too many to be tasks."""
        return self._workers.map(step, parts, *args, **kwargs)


@cache
def _task(step: Step[..., Any]) -> Any:
    # The plan knows whether a step has to run: Prefect keeps no result and compares no input.
    return cast("Any", task)(
        step.function,
        name=step.name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=step.retries,
        retry_delay_seconds=RETRY_DELAY_S,
        retry_condition_fn=_is_passing,
    )


def _is_passing(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    return is_passing(state.result(raise_on_failure=False))
