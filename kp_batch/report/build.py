"""Write the report of a warehouse: as markdown, or as a page with texts read from the archive."""

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import fields
from itertools import chain, groupby, islice
from pathlib import Path

import duckdb
import polars as pl
from polars.exceptions import PanicException

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.duck import DUCKDB_THREADS, duckdb_limit, frame_of, sql, statement
from kp_batch.errors import BusyError, Unread, WarehouseError
from kp_batch.files import atomic_write
from kp_batch.ingest.reread import Trace, TraceLocation, locations_query, reread_batches
from kp_batch.log import info, warn
from kp_batch.report.data import ReportData, gather
from kp_batch.report.parts import with_parts
from kp_batch.report.trace_details import Detail, StepStart, Text, Traces
from kp_batch.scoring.composite import breakdowns, profiles_of
from kp_batch.steps.step import Executor, ThreadExecutor, cut, step
from kp_batch.storage.urls import is_url
from kp_batch.text import one_line, shortened
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.reader import connect, connect_to
from kp_batch.warehouse.snapshot import PublishedSnapshot

_MOST_MEMORY = 512 << 20  # for DuckDB, with ten million scores; it spills the rest to disk
_THREADS = ThreadExecutor()
_BEYOND = 2**63 - 1  # all rows; see locations.sql
# A page may take a few seconds, on a disk or over the network from a bucket.
MAX_REREAD_BYTES = 256 << 20
_PART_BYTES = 4 << 20  # to read at once
# Opening a file takes as long as reading so many bytes.
OPEN_COST_BYTES = 512 << 10
FETCH_COST_BYTES = 4 << 20
_OBJECTIVE = 300  # characters of an objective
_START = 120  # characters of a step
_NAME = 60  # characters of a tool's name
_TOOLS = 10
_STEPS = 3

Read = Text | Unread


def report(warehouse: Path, output_format: str, executor: Executor = _THREADS) -> str:
    """Format the report of the published tables.

    Args:
        warehouse: the folder of the tables.
        output_format: html (one page that needs nothing else) or markdown.
        executor: reads the archive's files, whose texts the page shows.

    Raises:
        WarehouseError: there is no warehouse, or it cannot be read.
    """
    with opened(connect(warehouse), warehouse) as connection:
        now = PublishedSnapshot.shown_by(warehouse, connection)
        if output_format == "markdown":
            from kp_batch.report.markdown import markdown

            return markdown(_gathered(now, connection))
        return _page(now, connection, _gathered(now, connection), executor)


def report_on(snapshot: PublishedSnapshot, executor: Executor) -> str:
    """Format the page about the tables of a snapshot, perhaps an unpublished one."""
    with opened(connect_to(snapshot), snapshot.warehouse) as connection:
        return _page(snapshot, connection, _gathered(snapshot, connection), executor)


def _gathered(now: PublishedSnapshot, connection: duckdb.DuckDBPyConnection) -> ReportData:
    return with_parts(connection, gather(connection, scores_of=now.scores_of))


def _page(
    now: PublishedSnapshot,
    connection: duckdb.DuckDBPyConnection,
    data: ReportData,
    executor: Executor,
) -> str:
    from kp_batch.report.page import page  # slow to import

    return page(data, gather_traces(now, connection, data, executor))


def leave_report(warehouse: Path, executor: Executor) -> ReportData | None:
    """Write the page into the warehouse, unless the existing one is up to date.

    If it cannot be written, the outdated page is removed with a warning, because the scores are
    already published.

    Returns:
        What the page shows, if it was written.
    """
    page = Layout(warehouse).report
    try:
        mark = _mark(warehouse)
    except Exception:  # noqa: BLE001 (not a warehouse, as an earlier error says)
        return None
    if not mark or _ends_with(page, mark):
        return None
    try:
        with writing(warehouse, wait=False):
            written = _written(warehouse, mark, executor)
    except BusyError:
        return None  # the other run writes its own page
    except Exception as error:  # noqa: BLE001 (a page must not fail a run)
        written = error
    if isinstance(written, BaseException):
        reason = one_line(str(written))
        warn(f"the report was not written: {reason}; fix that, then: kp-batch report -o FILE")
        return None
    info(f"the report is in {shown(warehouse)}/{page.name}")
    return written


def renew_report(warehouse: Path, executor: Executor) -> None:
    """Write the page again if the warehouse has one, because it may show what is gone now."""
    if Layout(warehouse).report.exists():
        leave_report(warehouse, executor)


def _written(warehouse: Path, mark: str, executor: Executor) -> ReportData | BaseException:
    """Write the page and return what it shows, or remove it and return why."""
    try:
        return write_report(warehouse, mark, executor)
    except (Exception, PanicException) as error:  # noqa: BLE001 (as above)
        with suppress(OSError):
            Layout(warehouse).report.unlink()
        return error


def shows_older(warehouse: Path) -> bool:
    """Whether the page in the warehouse is outdated."""
    page = Layout(warehouse).report
    return page.exists() and not _ends_with(page, _mark(warehouse))


@step("report")
def write_report(warehouse: Path, mark: str, executor: Executor = _THREADS) -> ReportData:
    """Write the page into the warehouse, with the mark of the publication at its end.

    Returns:
        What the page shows.
    """
    with opened(connect(warehouse), warehouse) as connection:
        now = PublishedSnapshot.shown_by(warehouse, connection)
        data = _gathered(now, connection)
        text = _page(now, connection, data, executor) + mark
    with atomic_write(Layout(warehouse).report) as written:
        written.write_text(text, "utf-8")
    return data


def _ends_with(path: Path, text: str) -> bool:
    expected = text.encode()
    with suppress(OSError), path.open("rb") as file:  # seek fails if the file is shorter
        file.seek(-len(expected), os.SEEK_END)
        return file.read() == expected
    return False


def _mark(warehouse: Path) -> str:
    """Return a line of HTML that names the publication; empty if there is none."""
    manifest = read_manifest(warehouse)
    return f"<!-- publication {manifest.publication} -->\n" if manifest else ""


@contextmanager
def opened(
    catalog: AbstractContextManager[duckdb.DuckDBPyConnection], warehouse: Path
) -> Generator[duckdb.DuckDBPyConnection]:
    """Open a catalog for the queries of the report, with its memory limit.

    Raises:
        WarehouseError: there is no warehouse, or it cannot be read.
    """
    try:
        with catalog as connection:
            limit = min(_MOST_MEMORY, duckdb_limit())
            connection.execute(statement("SET memory_limit = '${bytes}B'", bytes=limit))
            connection.execute(statement("SET threads = $threads", threads=DUCKDB_THREADS))
            # Opening thousands of files again takes a second; the system caches their bytes.
            connection.execute("SET parquet_metadata_cache = true")
            connection.execute("SET enable_external_file_cache = false")
            yield connection
    except duckdb.Error as error:
        raise WarehouseError(
            f"{shown(warehouse)} cannot be read: {one_line(str(error))}"
        ) from error


def gather_traces(
    now: PublishedSnapshot,
    connection: duckdb.DuckDBPyConnection,
    data: ReportData,
    executor: Executor,
) -> Traces:
    """Gather the breakdowns of the scores in the page's tables, and the texts of these traces."""
    rows = _located(now, connection, data.traces)
    profiles = profiles_of(now.scan("profiles"))
    columns = [field.name for field in fields(Detail) if field.name != "breakdown"]
    known = rows.with_columns(pl.col("row").replace(_BEYOND, None))
    details = {
        row["trace_id"]: Detail(breakdown, **{name: row[name] for name in columns})
        for row, breakdown in zip(known.to_dicts(), breakdowns(rows, profiles), strict=True)
    }
    # A failed run may have been the one that would leave them out.
    shows_text = all(run.shows_text for run in (data.run, data.failed) if run)
    return Traces(details, read_texts(rows, executor) if shows_text else None)


def _located(
    now: PublishedSnapshot, connection: duckdb.DuckDBPyConnection, traces: pl.DataFrame
) -> pl.DataFrame:
    """Locate the traces, and those nearest to them, in the archive; see page_traces.sql."""
    own = traces.select("trace_id", "day", "overall")
    nearest = traces.select(trace_id="nearest_trace_id", day="nearest_day", overall="overall")
    listed = pl.concat([own, nearest]).drop_nulls("trace_id")
    ids = listed.group_by("trace_id").agg(is_first=pl.col("overall").any())
    connection.register("listed_ids", ids.to_arrow())
    # Only their days: opening the files of all days takes a while.
    scores = now.scores_of(listed.get_column("day").unique().sort())
    connection.execute(sql(__name__, "page_traces.sql", scores=scores))
    return frame_of(
        connection.sql(locations_query("page_traces", "kp.files", now.relation("facts")))
    )


def read_texts(rows: pl.DataFrame, executor: Executor) -> Mapping[str, Read]:
    """Read texts again from files with no more than `MAX_REREAD_BYTES` together.

    Files of the traces that the page shows first are preferred, then small ones.

    Args:
        rows: the columns of `TraceLocation`, sorted by file, then row; is_first: whether a trace is
            among those; and the size of its file in bytes.
        executor: reads the files.

    Returns:
        For each trace_id the text, or why it is not read.
    """
    costs = _affordable(rows)
    locations = [TraceLocation(*row) for row in rows.select(TraceLocation._fields).iter_rows()]
    texts: dict[str, Read] = {
        location.trace_id: "unreadable" if location.source_file in costs else "large"
        for location in locations
    }
    by_file = groupby(locations, lambda location: location.source_file)
    files = (tuple(of_file) for path, of_file in by_file if path in costs)
    parts = list(cut(files, lambda file: costs[file[0].source_file], _PART_BYTES))
    with closing(executor.map(read_part, parts)) as read:
        for part, texts_of_part in zip(parts, read, strict=False):
            texts |= texts_of_part
            if is_url(part[0][0].source_file) and "unreadable" in texts_of_part.values():
                break  # if a store is down, each object takes a while to fail
    return texts


def _affordable(rows: pl.DataFrame) -> dict[str, int]:
    """Return the files to read, with the cost of each, in bytes."""
    files = rows.group_by("source_file").agg(pl.col("is_first").any(), pl.col("size").first())
    in_order = files.sort(~pl.col("is_first"), "size", "source_file")
    chosen: dict[str, int] = {}
    left = MAX_REREAD_BYTES
    for path, size in in_order.select("source_file", "size").iter_rows():
        cost = size + (FETCH_COST_BYTES if is_url(path) else OPEN_COST_BYTES)
        if cost <= left and not Path(path).is_fifo():  # perhaps nobody ever writes to it
            chosen[path] = cost
            left -= cost
    return chosen


@step("texts")
def read_part(files: Iterable[Iterable[TraceLocation]], /) -> dict[str, Read]:
    """Read the texts of some files, by trace_id."""
    texts: dict[str, Read] = {}
    for batch in reread_batches(chain.from_iterable(files)):
        texts |= {location.trace_id: read for location, read in batch if isinstance(read, str)}
        texts |= _texts(read for _, read in batch if not isinstance(read, str))
    return texts


def _texts(traces: Iterable[Trace]) -> Iterator[tuple[str, Text]]:
    # As they were scored: without null steps and missing texts.
    rows = rows_from_objects("", enumerate(traces))
    columns = ("trace_id", "objective", "step_types", "step_contents", "step_tools")
    for trace_id, objective, types, contents, tools in rows.select(columns).iter_rows():
        steps = zip(types, tools, contents, strict=True)
        names = dict.fromkeys(_tool(tool) for tool in tools if tool is not None)
        text = Text(
            objective=_start(objective, _OBJECTIVE),
            types=Counter(types),
            tools=tuple(names)[:_TOOLS],
            steps=tuple(
                StepStart(type_, _tool(tool), _start(content, _START))
                for type_, tool, content in islice(steps, _STEPS)
            ),
        )
        yield trace_id, text


def _tool(name: str | None) -> str:
    """Return a tool's name; empty without a tool."""
    return "" if name is None else _start(name, _NAME) or '""'


def _start(text: str | None, length: int) -> str:
    return shortened(one_line(text or ""), length)
