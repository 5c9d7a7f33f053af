"""Keeps an export out of the warehouse and the archive that it is made from."""

from pathlib import Path

import polars as pl

from kp_batch.archive.sources import covers
from kp_batch.errors import KpBatchError
from kp_batch.run_record import last_done
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.relations import run_records, scan


def check_output(warehouse: Path, output: Path) -> None:
    """Refuse a file that would take the place of an archive's or a warehouse's, or join them.

    The archive is what the last run's names stand for here and now, and each file of the ledger.

    Args:
        warehouse: the folder of the tables.
        output: the file, whose path is absolute; it may be a link, whose target is replaced.

    Raises:
        KpBatchError: it is such a file.
        WarehouseError: it is no warehouse.
    """
    places = [output.parent.resolve() / output.name, output.resolve()]
    if any(each.is_relative_to(warehouse.resolve()) for each in places):
        raise _inside(output, f"in the warehouse {shown(warehouse)!r}")
    tables = require_manifest(warehouse).tables
    last = last_done(run_records(warehouse, tables.get("runs")))
    for name in last.config["archive"] if last else ():
        if any(covers(name, each) for each in places):
            raise _inside(output, f"in the archive {name!r}, which the next run reads")
    files = scan(warehouse, "files", tables.get("files")).select("source_file")
    known = pl.col("source_file").is_in([str(each) for each in (output, *places)])
    if not files.filter(known).collect().is_empty():
        raise _inside(output, "a file of the archive")


def _inside(output: Path, what: str) -> KpBatchError:
    return KpBatchError(f"{printable(str(output))} is {what}; choose another folder for the export")
