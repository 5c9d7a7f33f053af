"""The Prefect flow that prefect.yaml deploys."""

from dataclasses import asdict
from typing import Any

from prefect import flow

from kp_batch.clock import Clock
from kp_batch.config import RescoreConfig


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
    # Prefect's threads hold this function, and what its module names, until the interpreter is
    # gone: DuckDB, if that led to it, would lament each of its own types as leaked.
    from kp_batch.executors.prefect import rescore_in_tasks

    return asdict(rescore_in_tasks(config, Clock()))
