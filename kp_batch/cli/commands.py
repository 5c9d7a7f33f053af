"""What the command line asks for: JSON values in, JSON values out, in a process of its own."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.executors.prefect_home import prepare_prefect
from kp_batch.operations import compare as comparing
from kp_batch.operations import vacuum as keeping
from kp_batch.operations import verify as verifying
from kp_batch.pipeline.report import reported
from kp_batch.pipeline.rescore import carry_out, planned, running
from kp_batch.planning.describe import as_text, forecast
from kp_batch.planning.plan import make_plan
from kp_batch.progress import say
from kp_batch.run import Run
from kp_batch.staging import Stage
from kp_batch.warehouse.layout import check_folder


def run(config: dict[str, Any]) -> dict[str, Any]:
    """Rescore an archive in a Prefect flow.

    Planned before Prefect starts, which takes seconds: with nothing to do it is not needed.
    """
    settings = RescoreConfig(**config)
    with reported(settings.warehouse), running(settings) as begun:
        plan = planned(begun)
        if not plan.differing:
            return carry_out(begun, plan)
        say("starting Prefect")
        prepare_prefect(settings.warehouse)
        from flows.rescore import carry_out_in_flow

        return carry_out_in_flow(begun, plan)


def plan(config: dict[str, Any], folder: str) -> dict[str, Any]:
    """What a run would do; writes to an empty folder only, which is the caller's to remove."""
    settings = RescoreConfig(**config)
    check_folder(settings.warehouse)
    begun = Run.begin(settings, Stage(Path(folder)))
    told = forecast(begun, make_plan(begun))
    return told | {"text": as_text(told)}


def compare(warehouse: str, first: str, second: str, *, force: bool) -> dict[str, Any]:
    """How the scores moved between two runs."""
    told = comparing.compare(Path(warehouse), first, second, force=force)
    return told | {"text": comparing.as_text(told)}


def verify(warehouse: str, traces: int, folder: str, *, embed: bool) -> dict[str, Any]:
    """Compute some published traces from scratch, and compare; `folder` as for `plan`."""
    told = verifying.verify(Path(warehouse), traces, Stage(Path(folder)), embed=embed)
    return told | {"text": verifying.as_text(told)}


def vacuum(warehouse: str, keep_seconds: float) -> dict[str, int]:
    """Remove what is not needed any more."""
    keep = timedelta(seconds=keep_seconds)
    return keeping.vacuum(Path(warehouse), keep, datetime.now(UTC))


def forget(warehouse: str, ids: Sequence[str]) -> dict[str, Any]:
    """Remove traces for good."""
    with reported(Path(warehouse)):
        return keeping.forget(Path(warehouse), ids)
