"""Where a warehouse may stand."""

import re
import shutil
from pathlib import Path

from kp_batch.errors import WarehouseError

# What delta-rs 1.6.6 and DuckDB 2.0.0 take for part of a URL, not of a path.
_NOT_IN_PATHS = frozenset(r"%?[]\^|")
# Prefect's new database takes 5 MB, its log as much; below this nothing of use would fit.
_NEEDED_BYTES = 32 << 20


def make_folder(warehouse: Path) -> None:
    """Make the folder where it is missing, and look whether a run fits onto its disk.

    Before Prefect starts, which would try for minutes to make its database there.

    Raises:
        WarehouseError: Delta tables cannot be written there, or the disk is full.
    """
    check_folder(warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(warehouse).free
    if free < _NEEDED_BYTES:
        raise WarehouseError(
            f"the disk is full: {warehouse} has {free >> 20} MiB left, "
            f"and a run needs {_NEEDED_BYTES >> 20} at the least; free some space"
        )


def check_folder(warehouse: Path) -> None:
    """Refuse a folder that Delta tables cannot be written to, before any work is done.

    Raises:
        WarehouseError: its path has a sign that delta-rs misreads.
    """
    path = str(warehouse.absolute())
    if re.match(r"[A-Za-z0-9+.-]+:/", str(warehouse)):
        raise WarehouseError(f"the warehouse {str(warehouse)!r} is no local folder; name one")
    wrong = sorted({sign for sign in path if sign in _NOT_IN_PATHS or not sign.isprintable()})
    if wrong:
        raise WarehouseError(
            f"no Delta table can be written below {path!r}: its path has "
            f"{' '.join(map(repr, wrong))}; choose another folder for the warehouse"
        )
