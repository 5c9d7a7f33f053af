"""The whole run as the list of its steps: in plain Python, and as a Prefect flow of tasks."""

import time
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from typing import Any, cast

from polars.exceptions import PanicException
from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from flows.intake import arrange, collect_rejects, read_archive
from flows.outcome import Run, check_rejects, publish_failure, publish_success, write_tables
from flows.replaying import embed, replay_timeline
from flows.summary import as_markdown, as_table, summarise
from kp_batch.archive.sources import discover
from kp_batch.config import RescoreConfig
from kp_batch.progress import say
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.catalog import Manifest, read_manifest
from kp_batch.warehouse.folder import check_folder
from kp_batch.warehouse.lock import writing

Call = Callable[..., Any]


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
    result = rescore_archive(config, call=_as_task)
    try:
        create_markdown_artifact(as_markdown(result), key="kp-batch-summary")
        create_table_artifact(as_table(result), key="kp-batch-scores")
    except Exception as error:  # noqa: BLE001 (the scores are published, whatever the server says)
        say(f"warning: Prefect did not take the run's artifacts: {error}")
    return result


def directly(step: Call, *inputs: Any) -> Any:
    """Call a step."""
    return step(*inputs)


def rescore_archive(config: RescoreConfig, call: Call = directly) -> dict[str, Any]:
    """What the flow does, without Prefect.

    Args:
        config: what to rescore, where to, and how.
        call: calls a step with its inputs; the flow gives one that runs it as a task.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed; its reason and its rejects are published, and no scores.
    """
    check_folder(config.warehouse)
    with writing(config.warehouse, wait=config.wait):
        return _rescore(config, call)


def _rescore(config: RescoreConfig, call: Call) -> dict[str, Any]:
    run = Run.begin(config)
    published = read_manifest(config.warehouse) or Manifest(config.threshold, {})
    run.stage.begin()
    try:
        _steps(run, published, _timed(run, call))
    except (Exception, PanicException) as error:
        with suppress(Exception):  # a full disk, say: the error that counts is the first
            publish_failure(run, published, " ".join(str(error).split()))
        raise
    finally:
        run.stage.end()
    return summarise(run)


def _steps(run: Run, published: Manifest, call: Call) -> None:
    config, stage = run.config, run.stage
    vectors = config.warehouse / "vectors"
    profiles = call(load_profiles, config.profiles)
    run.inputs = call(discover, config.archive, config.warehouse)
    reading = call(read_archive, run.inputs, stage)
    accepted = call(arrange, reading.unreadable, stage)
    rejects = call(collect_rejects, run.inputs, reading.unreadable, run.run_id, stage)
    run.count(reading, accepted, rejects)
    check_rejects(run)
    embedding = call(embed, config.embedder, vectors, stage)
    run.counts |= {"embedded": embedding.embedded, "reused": embedding.reused}
    replayed = call(
        replay_timeline, accepted, config.cache_size, config.ttl, embedding.vectors, stage
    )
    tables = call(write_tables, run, published, embedding.encoder_id, profiles, replayed)
    call(publish_success, run, tables)


def _timed(run: Run, call: Call) -> Call:
    """`call`, noting the seconds of each step in the run."""

    def timed(step: Call, *inputs: Any) -> Any:
        began = time.monotonic()
        try:
            return call(step, *inputs)
        finally:
            run.seconds[step.__name__] = time.monotonic() - began

    return timed


def _as_task(step: Call, *inputs: Any) -> Any:
    return TASKS[step](*inputs)


def is_passing(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is worth another try: the disk or the network, not the logic."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError) and error.errno != ENOSPC


# Steps take paths and ranges, which Prefect needs no cache of. Those that fetch input or write the
# tables are tried again where the disk or the network failed.
TASKS: dict[Call, Call] = {
    step: cast("Call", task)(
        step,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=retries,
        retry_delay_seconds=5,
        retry_condition_fn=is_passing,
    )
    for step, retries in {
        load_profiles: 0,
        discover: 2,
        read_archive: 2,
        arrange: 0,
        collect_rejects: 2,
        embed: 0,
        replay_timeline: 0,
        write_tables: 2,
        publish_success: 0,
    }.items()
}
