"""The report of a warehouse: what is published, as a page and as markdown."""

from pathlib import Path

from polars.exceptions import PanicException

from kp_batch.progress import say
from kp_batch.report.figures import gather
from kp_batch.warehouse.query import connect

PAGE = "report.html"  # inside the warehouse


def report(warehouse: Path, output_format: str = "html") -> str:
    """The report of what is published.

    Args:
        warehouse: the folder of the tables.
        output_format: html (one page that needs nothing else) or markdown.

    Raises:
        WarehouseError: there is no warehouse, or it cannot be read.
    """
    with connect(warehouse) as connection:
        figures = gather(connection)
    if output_format == "markdown":
        from kp_batch.report.markdown import markdown

        return markdown(figures)
    from kp_batch.report.page import page

    return page(figures)


def write_report(warehouse: Path) -> None:
    """Write the page into the warehouse, the last step of every run.

    The scores are published by then: should it fail, that is said, and the page is removed, since
    it shows what is not there any more.
    """
    path = warehouse / PAGE
    try:
        replace_text(path, report(warehouse))
    except (Exception, PanicException) as error:  # noqa: BLE001 (a page is not worth a failed run)
        say(f"warning: the report was not written: {' '.join(str(error).split())}")
        path.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)
