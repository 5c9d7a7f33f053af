"""The report of a warehouse: what is published, as a page and as markdown."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from polars.exceptions import PanicException

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.progress import say
from kp_batch.report.markdown import markdown
from kp_batch.report.report_data import Figures, gather
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.reader import connect


def report(warehouse: Path, output_format: str) -> str:
    """The report of what is published.

    Args:
        warehouse: the folder of the tables.
        output_format: html (one page that needs nothing else) or markdown.

    Raises:
        WarehouseError: there is no warehouse, or it cannot be read.
    """
    return _FORMATS[output_format](_figures(warehouse))


def write_report(warehouse: Path) -> str:
    """Write the page into the warehouse.

    Returns:
        The same report as markdown.
    """
    figures = _figures(warehouse)
    page = Layout(warehouse).report
    replace_text(page, _page(figures))
    say(f"the report is in {page}")
    return markdown(figures)


@contextmanager
def reported(warehouse: Path) -> Generator[None]:
    """Work after which the page shows what is published, whatever came of the work.

    A page that cannot be written is removed, since it shows what is not published any more; the
    scores are published by then, so that this is a warning.
    """
    try:
        yield
    finally:
        try:
            if _is_behind(warehouse):
                write_report(warehouse)
        except (Exception, PanicException) as error:  # noqa: BLE001 (no page is worth a failed run)
            say(f"warning: the report was not written: {one_line(str(error))}")
            Layout(warehouse).report.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all; what is no file, such as /dev/null, is written to.

    Raises:
        KpBatchError: it cannot be written.
    """
    try:
        target = path.resolve()
        beside = target.with_name(f".{target.name}.new")
        if target.exists() and not target.is_file():
            target.write_text(text, "utf-8")
            return
        try:
            beside.write_text(text, "utf-8")
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # Python 3.11 tells a loop of links by the latter
        reason = getattr(error, "strerror", None) or error
        raise KpBatchError(f"{path} cannot be written: {reason}") from error


def _is_behind(warehouse: Path) -> bool:
    """Whether something was published since the page was written."""
    catalog, page = Layout(warehouse).catalog, Layout(warehouse).report
    if not catalog.exists():
        return False
    return not page.exists() or page.stat().st_mtime_ns < catalog.stat().st_mtime_ns


def _figures(warehouse: Path) -> Figures:
    try:
        with connect(warehouse) as connection:
            return gather(connection)
    except duckdb.Error as error:
        raise WarehouseError(f"{warehouse} cannot be read: {one_line(str(error))}") from error


def _page(figures: Figures) -> str:
    from kp_batch.report.page import page  # charts take a while to import

    return page(figures)


_FORMATS = {"html": _page, "markdown": markdown}
