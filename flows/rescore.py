"""The Prefect flow that prefect.yaml deploys."""

from dataclasses import asdict
from typing import Any

from prefect import flow

from kp_batch.config import RescoreConfig
from kp_batch.steps.prefect import FLOW, rescore_in_tasks, silence_at_exit


@flow(**FLOW)
def rescore(config: RescoreConfig) -> dict[str, Any]:
    """Rescore an archive: every trace gets the score it had at its own time.

    Args:
        config: what to rescore, where to, and how.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed and published no scores.
    """
    silence_at_exit()
    return asdict(rescore_in_tasks(config))
