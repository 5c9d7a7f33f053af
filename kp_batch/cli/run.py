"""`run`, `plan` and `demo`."""

import os
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from logging import WARNING
from pathlib import Path
from shutil import copyfile, copytree
from typing import TYPE_CHECKING, Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    SettingsCommand,
    config_of,
    expected_warehouse_id,
    json_line,
    json_option,
    settings_from_elsewhere,
    warehouse_option,
)
from kp_batch.cli.query import ask
from kp_batch.cli.supervise import end_after, logged, send
from kp_batch.errors import ResourceError
from kp_batch.log import echo, echo_line, echo_result, info, show_only_new_warnings
from kp_batch.start import make_place, start
from kp_batch.text import parse_duration
from kp_batch.warehouse.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kp_batch.operations.preview import Preview
    from kp_batch.report.run_summary import Summary

DEMO_QUERIES = {
    "How do scores differ by domain?": (
        "SELECT task_domain, count(*) AS traces, avg(score) AS mean_score, "
        "count(*) FILTER (meets_threshold) AS at_threshold FROM scores GROUP BY ALL ORDER BY ALL"
    ),
    "Which traces have the highest scores?": (
        "SELECT left(trace_id, 17) AS trace, task_domain, novelty, n_tools, score "
        "FROM scores ORDER BY score DESC LIMIT 5"
    ),
    "Which traces are least novel without being copies, and what do they resemble?": (
        "SELECT left(trace_id, 17) AS trace, max_similarity, "
        "left(nearest_trace_id, 17) AS nearest, round(nearest_age_s / 60) AS minutes_ago "
        "FROM scores WHERE max_similarity < 0.9999 ORDER BY novelty LIMIT 5"
    ),
}


@kp_batch.command(cls=SettingsCommand)
@click.argument("archive", nargs=-1)
@warehouse_option
@click.option(
    "--prefect/--no-prefect",
    default=None,
    help="Run as a Prefect flow, or without Prefect.  [default: if Prefect is configured]",
)
@click.option(
    "--quiet",
    is_flag=True,
    help="Print only errors, new warnings, new settings, and the creation of a warehouse.",
)
@json_option
def run(*, as_json: bool, quiet: bool, prefect: bool | None, **settings: Any) -> None:
    """Rescore ARCHIVE.

    ARCHIVE is one or more files (Parquet or JSONL), folders, globs or URLs. Default: the project's
    archive, or that of the last run.
    """
    _run(settings, prefect=prefect, as_json=as_json, quiet=quiet)


@kp_batch.command(
    cls=SettingsCommand,
    without=("ray", "timeout", "wait", "keep", "report", "note", "preview", "output"),
)
@click.argument("archive", nargs=-1)
@warehouse_option
@json_option
def plan(as_json: bool, **settings: Any) -> None:  # noqa: FBT001 (click passes it)
    """Show what a run over ARCHIVE would do, and why. Changes nothing."""
    config = config_of(settings)
    _report_other_project(config.warehouse)
    from kp_batch.operations.preview import plan as plan_of
    from kp_batch.planning.explain_plan import warnings

    result = plan_of(config, by_domain_and_day=as_json)
    for line in () if as_json else warnings(result):
        echo_line(line, WARNING)
    echo(json_line(result) if as_json else str(result))


@kp_batch.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kp-batch-demo"),
    show_default=True,
    help="The folder for the sample archive and its warehouse.",
)
def demo(folder: Path) -> None:
    """Score a sample archive with the real model, and query it."""
    archive, warehouse = folder / "archive", folder / "warehouse"
    copytree(_sample(), archive, copy_function=copyfile, dirs_exist_ok=True)
    place = {"archive": (str(archive),), "warehouse": warehouse}
    _run({**place, "embedder": "minilm", "report": True}, prefect=True)
    for question, query in DEMO_QUERIES.items():
        echo(f"\n{question}\n  {query}")
        ask(warehouse, query, "table")


def _sample() -> Path:
    """Return the folder of the sample: in a wheel within the package, in a checkout next to it."""
    package, sample = Path(__file__).parents[1], Path("data", "sample")
    shipped = package / sample
    return shipped if shipped.is_dir() else package.parent / sample


def _run(
    settings: dict[str, Any], *, prefect: bool | None, as_json: bool = False, quiet: bool = False
) -> None:
    """Run with these settings, and print the result before the report is written."""
    began = time.time()
    if quiet:
        show_only_new_warnings()
    send(warehouse=str(settings["warehouse"].absolute()))
    with (
        _recorded(settings),
        _printed(settings, began, as_json=as_json, quiet=quiet) as print_result,
    ):
        _work(settings, began, print_result, prefect=prefect)


def _printed(
    settings: dict[str, Any], began: float, *, as_json: bool, quiet: bool
) -> "AbstractContextManager[Callable[[Summary | Preview], None]]":
    """Yield the function that prints the result; see `printed_as_json`."""
    if not as_json:
        return _printed_as_text(quiet=quiet)
    from kp_batch.cli.outcome import printed_as_json

    return printed_as_json(settings, began)


@contextmanager
def _printed_as_text(*, quiet: bool) -> "Generator[Callable[[Summary | Preview], None]]":
    """Print a result at once; a preview succeeds only at the end, since its report may fail."""

    def print_text(result: "Summary | Preview") -> None:
        from kp_batch.report.run_summary import Summary

        if not quiet:
            echo_result(str(result))
        if isinstance(result, Summary):
            send(printed=True)

    yield print_text
    send(printed=True)


def _recorded(settings: dict[str, Any]) -> AbstractContextManager[object]:
    """Record in the warehouse how a run ends, unless it is a preview."""
    if settings.get("preview"):
        return nullcontext()
    from kp_batch.warehouse.last_run import recorded_attempt

    warehouse_id = expected_warehouse_id()
    send(attempt=[datetime.now(UTC).isoformat(timespec="milliseconds"), warehouse_id])
    return recorded_attempt(settings["warehouse"], warehouse_id)


def _work(
    settings: dict[str, Any],
    began: float,
    on_result: "Callable[[Summary | Preview], None]",
    *,
    prefect: bool | None,
) -> None:
    """Run with these settings; if the result cannot be printed, fail at the end."""
    with suppress(ValueError):  # a wrong timeout is reported with all other faults
        # Reading the settings may hang.
        end_after(parse_duration(settings.get("timeout") or "none"))
    config = config_of(settings)
    end_after(config.timeout)
    from kp_batch.start import configured_api

    fault: OSError | ResourceError | None = None

    def take_result(result: "Summary | Preview") -> None:
        nonlocal fault
        try:
            on_result(result)
        except (OSError, ResourceError) as error:  # such as a closed pipe: the work goes on
            fault = error

    make_place(config)
    under_prefect = configured_api(os.environ) is not None if prefect is None else prefect
    from kp_batch.steps.step import timed

    with logged(Layout(config.warehouse).output), timed(began):
        _report_other_project(config.warehouse)
        start(config, take_result, prefect=under_prefect)
    if fault:
        raise fault


def _report_other_project(warehouse: Path) -> None:
    if text := settings_from_elsewhere(warehouse):
        info(text, always=True)
