"""Starts a run or a preview, for the command line and for Python: as a Prefect flow, or alone."""

from typing import TYPE_CHECKING

from kp_batch.warehouse.bucket.location import url_of
from kp_batch.warehouse.layout import Layout, check_apart, make_folder
from kp_batch.warehouse.manifest import check_identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from kp_batch.config import RescoreConfig
    from kp_batch.operations.preview import Preview
    from kp_batch.pipeline.summary import Summary

    TakeResult = Callable[[Summary | Preview], None]


def make_place(config: "RescoreConfig") -> None:
    """Make the folder of a warehouse where it is new.

    Raises:
        KpBatchError: it cannot be there, or another warehouse is.
    """
    check_apart(config.warehouse, config.archive)
    if not url_of(config.warehouse):  # of a bucket, which may be away, the run asks again
        check_identity(config.warehouse, config.warehouse_id)
    make_folder(config.warehouse)


def start(config: "RescoreConfig", on_result: "TakeResult", *, prefect: bool) -> None:
    """Run, or preview.

    Args:
        config: what it leaves out is as the warehouse has it.
        on_result: takes the result as soon as it is known, before the page is written.
        prefect: whether it is a flow.

    Raises:
        KpBatchError: it failed.
    """
    (_as_flow if prefect else _alone)(config, on_result)


def _alone(config: "RescoreConfig", on_result: "TakeResult") -> None:
    from kp_batch.operations.preview import preview
    from kp_batch.pipeline.rescore import rescore_and_report
    from kp_batch.steps.ray import executor_of

    with executor_of(config) as executor:
        (preview if config.preview else rescore_and_report)(config, executor, on_result)


def _as_flow(config: "RescoreConfig", on_result: "TakeResult") -> None:
    from kp_batch.steps.prefect_settings import prepare_prefect

    prepare_prefect(Layout(config.warehouse.absolute()).prefect)
    from kp_batch.steps.prefect import run_flow

    run_flow(config, on_result)
