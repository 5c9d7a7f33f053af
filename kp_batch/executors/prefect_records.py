"""Prefect's own records of runs, which it keeps inside the warehouse where no server is named."""

import os
from datetime import datetime
from pathlib import Path

from kp_batch.executors.prefect_home import prepare_prefect
from kp_batch.warehouse.layout import Layout

_AT_ONCE = 100


def remove_records(warehouse: Path, before: datetime) -> int:
    """Remove the flow runs that started before a time, with their tasks and artifacts.

    A server that PREFECT_API_URL names keeps its own records.

    Returns:
        How many flow runs.
    """
    home = Layout(warehouse).prefect
    if "PREFECT_API_URL" in os.environ or not (home / "prefect.db").exists():
        return 0
    prepare_prefect(warehouse)
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        ArtifactFilter,
        ArtifactFilterFlowRunId,
        FlowRunFilter,
        FlowRunFilterStartTime,
    )

    old = FlowRunFilter(start_time=FlowRunFilterStartTime.model_validate({"before_": before}))
    removed = 0
    with get_client(sync_client=True) as client:
        while runs := client.read_flow_runs(flow_run_filter=old, limit=_AT_ONCE):
            mine = ArtifactFilterFlowRunId(any_=[run.id for run in runs])
            for artifact in client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id=mine)):
                client.delete_artifact(artifact.id)
            for run in runs:
                client.delete_flow_run(run.id)
            removed += len(runs)
    return removed
