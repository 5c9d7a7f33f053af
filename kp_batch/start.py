"""Start a run or a preview, for the command line and for Python, with Prefect or without."""

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kp_batch.warehouse.bucket.location import url_of
from kp_batch.warehouse.layout import Layout, check_apart, make_folder
from kp_batch.warehouse.manifest import check_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kp_batch.config import RescoreConfig
    from kp_batch.operations.preview import Preview
    from kp_batch.report.run_summary import Summary

    TakeResult = Callable[[Summary | Preview], None]


def make_place(config: "RescoreConfig") -> None:
    """Make the folder of a warehouse if it is missing.

    Raises:
        KpBatchError: it cannot be there, or another warehouse is.
    """
    check_apart(config.warehouse, config.archive)
    if not url_of(config.warehouse):  # a bucket may be out of reach: the run checks again
        check_identity(config.warehouse, config.warehouse_id)
    make_folder(config.warehouse)


def start(config: "RescoreConfig", on_result: "TakeResult", *, prefect: bool) -> None:
    """Run, or preview.

    Args:
        config: the settings; those that it leaves out are the warehouse's.
        on_result: takes the result as soon as it is known, before the page is written.
        prefect: whether to run as a flow of Prefect.

    Raises:
        KpBatchError: the run or preview failed.
    """
    (_as_flow if prefect else _alone)(config, on_result)


def _alone(config: "RescoreConfig", on_result: "TakeResult") -> None:
    from kp_batch.steps.ray import executor_of

    with executor_of(config) as executor:
        if config.preview:
            from kp_batch.operations.preview import preview

            preview(config, executor, on_result)
        else:
            from kp_batch.pipeline.rescore import rescore_and_report

            rescore_and_report(config, executor, on_result)


def _as_flow(config: "RescoreConfig", on_result: "TakeResult") -> None:
    prepare_prefect(Layout(config.warehouse.absolute()).prefect)

    from kp_batch.flows.tasks import run_flow

    run_flow(config, on_result)


def configured_api(environment: "Mapping[str, str]") -> str | None:
    """Return the URL of the configured Prefect server; None if there is none.

    PREFECT_API_URL names it, or the active profile in Prefect's profiles.toml. Importing Prefect
    itself takes longer than a small run.
    """
    if url := environment.get("PREFECT_API_URL"):
        return url
    try:
        home = Path(environment.get("PREFECT_HOME") or Path.home() / ".prefect")
        path = Path(environment.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
        content: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        active = environment.get("PREFECT_PROFILE") or content["active"]
        return content["profiles"][active].get("PREFECT_API_URL")
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return None  # the file is missing, or faulty: Prefect reports that itself


def prepare_prefect(home: Path) -> None:
    """Set up Prefect before it is imported; the user's environment takes precedence.

    It prints nothing, though it logs all messages, and makes no outside connections. If no server
    is configured, Prefect uses its temporary one, with a database in the folder `home`, which is
    made.
    """
    settings = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    if configured_api(os.environ) is None:
        home.mkdir(parents=True, exist_ok=True)  # the server needs it to start
        settings |= {
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }
        if "PREFECT_HOME" not in os.environ:
            # A warehouse from somebody else may contain a profile with their server.
            settings["PREFECT_PROFILES_PATH"] = os.devnull
    for name, value in settings.items():
        os.environ.setdefault(name, value)
