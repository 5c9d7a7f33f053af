"""Run the steps as Prefect tasks, with all messages in Prefect's log, and create artifacts."""

import atexit
import hashlib
import logging
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Any, cast
from urllib.parse import urlsplit

from polars.exceptions import PanicException
from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import MissingContextError
from prefect.runtime import flow_run
from prefect.settings import get_current_settings

from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError, explain_fixable
from kp_batch.log import add_handler, info, warn
from kp_batch.operations.preview import Preview, preview, preview_parts
from kp_batch.pipeline.rescore import OpenRun, rescore_and_report, watched
from kp_batch.planning.explain_plan import warnings
from kp_batch.project import load_project
from kp_batch.rendering import as_text
from kp_batch.report.data import ReportData
from kp_batch.report.markdown import markdown
from kp_batch.report.run_summary import Summary, as_table
from kp_batch.steps.ray import executor_of
from kp_batch.steps.step import PREFECT, START, Caller, Clock, timed
from kp_batch.text import code, printable
from kp_batch.warehouse.audits import AuditResult, audits_table
from kp_batch.warehouse.bucket.location import folder_of, shown
from kp_batch.warehouse.last_run import recorded_attempt
from kp_batch.warehouse.layout import Layout

_LONGEST_NAME = 40  # of a warehouse in a key


def _flow_run_name() -> str:
    """Return the warehouse and the start in UTC, so that each night has its own name.

    If the config names no warehouse, the flow itself reports the fault.
    """
    warehouse = _warehouse_of(flow_run.parameters.get("config"))
    name = printable(shown(warehouse.absolute())) if warehouse else "no warehouse"
    return f"{name} {datetime.now(UTC):%Y-%m-%d %H:%M}"


def _warehouse_of(parameters: object) -> Path | None:
    """Return the folder of the warehouse that a config or its values name; None without one."""
    try:
        warehouse = _value_of(parameters, "warehouse")
        if warehouse is None:
            warehouse = load_project(Path(_value_of(parameters, "project"))).warehouse
        return Path(folder_of(cast("str", warehouse)))
    except (KpBatchError, TypeError):
        return None


def _value_of(parameters: object, name: str) -> Any:
    if isinstance(parameters, Mapping):
        return cast("Mapping[str, Any]", parameters).get(name)
    return getattr(parameters, name, None)


FLOW: Any = {
    "name": "rescore",
    "flow_run_name": _flow_run_name,
    "persist_result": False,
    "validate_parameters": False,
}


def rescore_in_tasks(
    parameters: object, on_result: Callable[[Summary | Preview], None] = lambda _: None
) -> Summary | Preview:
    """Run the body of the flow: a task for each step; see `rescore_and_report`.

    Args:
        parameters: the config, or its values, which Prefect does not check: it would log each fault
            as a traceback.
        on_result: see `rescore_and_report`.
    """

    def log_summary(summary: Summary) -> None:
        get_run_logger().info(str(summary))
        on_result(summary)

    def leave_preview(result: Preview) -> None:
        text = as_text(preview_parts(result, shows_text=False))
        get_run_logger().info(text)
        with _artifacts():
            key = f"kp-batch-preview-{artifact_name(config.warehouse)}"
            create_markdown_artifact(_as_code(text), key)
        on_result(result)

    def leave_words(data: ReportData) -> None:
        with _artifacts():
            key = f"kp-batch-report-{artifact_name(config.warehouse)}"
            create_markdown_artifact(markdown(data), key)

    with recorded_in_flow(parameters), logged_to_prefect():
        config = RescoreConfig.read(parameters)
    with (
        recorded_in_flow(config),
        logged_to_prefect(str(Layout(config.warehouse).output)),
        timed() as clock,
        timed(caller=_as_tasks(clock)),
        clock.on(START),
        executor_of(config) as executor,
        _plan_and_audits(config.warehouse),
    ):
        if config.preview:
            return preview(config, executor, leave_preview)
        summary = rescore_and_report(config, executor, log_summary, leave_words)
    with _artifacts():
        key = f"kp-batch-scores-{artifact_name(config.warehouse)}"
        create_table_artifact(_as_markdown(summary), key)
    return summary


@contextmanager
def recorded_in_flow(parameters: object) -> Generator[None]:
    """Record how a run ends, even if its settings cannot be read, unless it is a preview."""
    warehouse = None if _value_of(parameters, "preview") else _warehouse_of(parameters)
    with recorded_attempt(warehouse) if warehouse else nullcontext():
        yield


@contextmanager
def _artifacts() -> Generator[None]:
    """Create artifacts; a failure is only a warning, since the run's result does not change."""
    try:
        yield
    except (Exception, PanicException) as error:  # noqa: BLE001 (see above)
        warn(f"Prefect did not store all artifacts of this run: {error}; check its server")


@contextmanager
def _plan_and_audits(warehouse: Path) -> Generator[None]:
    """Create artifacts of the plan and the audits, also if the run fails after these."""
    with watched() as runs:
        try:
            yield
        except (Exception, PanicException):
            _leave_plan_and_audits(warehouse, runs)
            raise
        _leave_plan_and_audits(warehouse, runs)


def _leave_plan_and_audits(warehouse: Path, runs: Sequence[OpenRun]) -> None:
    name = artifact_name(warehouse)
    with _artifacts():
        for run in runs:
            if run.description:
                text = "\n".join((str(run.description), *warnings(run.description)))
                create_markdown_artifact(_as_code(text), f"kp-batch-plan-{name}")
            if run.audits:
                create_table_artifact(_audits_rows(run.audits), f"kp-batch-audits-{name}")


def _audits_rows(results: Sequence[AuditResult]) -> list[dict[str, Any]]:
    return [
        {**row, "first": code("; ".join(result.first))}
        for row, result in zip(audits_table(results), results, strict=True)
    ]


def _as_code(text: str) -> str:
    """Return a text as a block of code in markdown, so that nothing in it is markup."""
    return indent(text, "    ")


def artifact_name(warehouse: Path) -> str:
    """Return a warehouse's part of artifact keys: its last name, and a digest of its path.

    Keys contain only lower-case letters, digits and dashes.
    """
    path = shown(warehouse.absolute())
    last = re.sub("[^a-z0-9]+", "-", path.rstrip("/").rpartition("/")[2].lower()).strip("-")
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return f"{last[:_LONGEST_NAME]}-{digest}".lstrip("-")


@contextmanager
def logged_to_prefect(details: str | None = None) -> Generator[None]:
    """Log all messages to Prefect, too, and an error that the user can fix as one line.

    The line names the file with the details of the error, if there is one.
    """
    add_handler(_RUN_LOG)
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_in_one_line)
    try:
        yield
    except (Exception, PanicException) as error:
        explained = explain_fixable(error, details)
        if explained is None or explained is error:
            raise
        raise explained from error


def silence_at_exit() -> None:
    """Close stderr when the interpreter ends, after the last message.

    Prefect's threads keep a flow, its loggers and its errors until the interpreter is gone, and
    through them DuckDB, whose bindings would then list 45 lines of their own functions and types as
    leaked.
    """
    atexit.register(_silence)


def _silence() -> None:
    logging.shutdown()  # sends the last messages to Prefect's server
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def run_flow(config: RescoreConfig, on_result: Callable[[Summary | Preview], None]) -> None:
    """Run the deployed flow in this process, and log its server; see `rescore_in_tasks`."""
    server = urlsplit(get_current_settings().api.url or "")
    shown = server._replace(netloc=server.netloc.rpartition("@")[2]).geturl()  # without a password
    info(f"running as a Prefect flow on {shown or 'a temporary server'}")

    def rescore(config: RescoreConfig) -> None:
        rescore_in_tasks(config, on_result)

    # Only these: Prefect's page shows no default that the warehouse's settings may override.
    parameters = config.model_dump(mode="json", exclude_unset=True)
    with timed() as clock, clock.on(PREFECT):
        cast("Any", flow(**FLOW)(rescore))(parameters)


def _as_markdown(summary: Summary) -> list[dict[str, str]]:
    """Return the table of scores with its texts as code: Prefect renders each cell as markdown."""
    texts = ("domain", "0 to 1")
    rows = as_table(summary.scores)
    return [{**row, **{name: code(row[name]) for name in texts}} for row in rows]


def _as_tasks(clock: Clock) -> Caller:
    """Make steps tasks of the flow that runs: they retry themselves, and Prefect's time is counted.

    Their parts are not tasks, since there may be thousands. The plan decides which steps run, so
    Prefect keeps no results and compares no inputs.
    """

    def as_task(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        step = cast("Any", task)(function, name=name, cache_policy=NO_CACHE, persist_result=False)
        return clock.on(PREFECT)(step)

    return as_task


class _RunLog(logging.Handler):
    """Pass messages to the log of the running task or flow."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(MissingContextError):  # no flow runs yet
            get_run_logger().log(record.levelno, record.getMessage())


_RUN_LOG = _RunLog()


def _in_one_line(record: logging.LogRecord) -> bool:
    """Let Prefect log an error that the user can fix in one line, without its traceback."""
    if (
        record.exc_info
        and record.exc_info[1]
        and (explained := explain_fixable(record.exc_info[1]))
    ):
        record.msg, record.args, record.exc_info = (
            f"{type(explained).__name__}: {explained}",
            (),
            None,
        )
    return True
