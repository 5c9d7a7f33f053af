"""The Prefect flow that prefect.yaml deploys."""

import atexit
import logging
import os
from dataclasses import asdict
from typing import Any

from prefect import flow

from kp_batch.clock import Clock
from kp_batch.config import RescoreConfig
from kp_batch.executors.prefect import FLOW, rescore_in_tasks


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
    atexit.register(_silence)
    return asdict(rescore_in_tasks(config, Clock()))


def _silence() -> None:
    """Close stderr, now that all is told.

    Prefect's threads keep this flow, its loggers and its errors until the interpreter is gone, and
    with them what leads to DuckDB, whose bindings would then list 45 lines of their own functions
    and types as leaked.
    """
    logging.shutdown()  # sends what is left to Prefect's server
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
