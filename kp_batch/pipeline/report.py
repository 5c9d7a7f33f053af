"""Makes the report of a warehouse, as a page and as markdown."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
from polars.exceptions import PanicException

from kp_batch.duck import duckdb_limit, statement
from kp_batch.errors import BusyError, WarehouseError
from kp_batch.files import atomic_write
from kp_batch.log import say, warn
from kp_batch.report.report_data import gather
from kp_batch.steps.step import Executor, ThreadExecutor, step
from kp_batch.text import one_line
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.reader import connect

_MOST_MEMORY = 512 << 20  # of DuckDB, which keeps on disk what does not fit into it
_THREADS = ThreadExecutor()


def report(warehouse: Path, output_format: str, executor: Executor = _THREADS) -> str:
    """Make the report of what is published.

    Args:
        warehouse: the folder of the tables.
        output_format: html (one page that needs nothing else) or markdown.
        executor: reads the archive's files, whose texts the page shows.

    Raises:
        WarehouseError: there is no warehouse, or it cannot be read.
    """
    return FORMATS[output_format](warehouse, executor)


def leave_report(warehouse: Path, executor: Executor) -> None:
    """Write the page into the warehouse, unless it already shows what is published.

    A page that cannot be written is removed, since it shows what is not published any more; that is
    a warning, since the scores are published by then.
    """
    page = Layout(warehouse).report
    try:
        mark = _mark(warehouse)
    except Exception:  # noqa: BLE001 (it is no warehouse of ours, as the error before says)
        return
    if not mark or _ends_with(page, mark):
        return
    try:
        with writing(warehouse, wait=False):
            fault = _fault_of_writing(warehouse, mark, executor)
    except BusyError:
        return  # the other run writes its own
    except Exception as error:  # noqa: BLE001 (no page is worth a failed run)
        fault = error
    if fault:
        warn(f"the report was not written: {one_line(str(fault))}")
    else:
        say(f"the report is in {shown(warehouse)}/{page.name}")


def _fault_of_writing(warehouse: Path, mark: str, executor: Executor) -> BaseException | None:
    """Write the page, or else remove it and return why."""
    try:
        write_report(warehouse, mark, executor)
    except (Exception, PanicException) as error:  # noqa: BLE001 (likewise)
        with suppress(OSError):
            Layout(warehouse).report.unlink()
        return error
    return None


def shows_older(warehouse: Path) -> bool:
    """Whether the page in the warehouse shows what is not published any more."""
    page = Layout(warehouse).report
    return page.exists() and not _ends_with(page, _mark(warehouse))


@step("report")
def write_report(warehouse: Path, mark: str, executor: Executor = _THREADS) -> None:
    """Write the page into the warehouse, with the mark of what is published at its end."""
    text = report(warehouse, "html", executor) + mark
    with atomic_write(Layout(warehouse).report) as written:
        written.write_text(text, "utf-8")


def _ends_with(path: Path, text: str) -> bool:
    expected = text.encode()
    with suppress(OSError), path.open("rb") as file:  # what is shorter cannot be sought in
        file.seek(-len(expected), os.SEEK_END)
        return file.read() == expected
    return False


def _mark(warehouse: Path) -> str:
    """A line of HTML that names what is published; empty where nothing is."""
    manifest = read_manifest(warehouse)
    return f"<!-- publication {manifest.publication} -->\n" if manifest else ""


@contextmanager
def _opened(warehouse: Path) -> Generator[duckdb.DuckDBPyConnection]:
    try:
        with connect(warehouse) as connection:
            # As the last run counted them: to count them here would open the files of all days.
            [(scores,)] = connection.execute(
                "SELECT coalesce(max(traces), 0) FROM distributions WHERE run_id = latest()"
            ).fetchall()
            connection.execute(
                statement(
                    "SET memory_limit = '${bytes}B'", bytes=duckdb_limit(_MOST_MEMORY, scores)
                )
            )
            yield connection
    except duckdb.Error as error:
        raise WarehouseError(
            f"{shown(warehouse)} cannot be read: {one_line(str(error))}"
        ) from error


# Where nothing is published, neither is needed, and charts take a while to import.


def _page(warehouse: Path, executor: Executor) -> str:
    from kp_batch.pipeline.report_traces import gather_traces
    from kp_batch.report.page import page

    with _opened(warehouse) as connection:
        data = gather(connection)
        traces = gather_traces(warehouse, connection, data, executor)
    return page(data, traces)


def _markdown(warehouse: Path, _executor: Executor) -> str:
    from kp_batch.report.markdown import markdown

    with _opened(warehouse) as connection:
        return markdown(gather(connection))


FORMATS = {"html": _page, "markdown": _markdown}
