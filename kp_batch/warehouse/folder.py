"""Where a warehouse may stand."""

import re
from pathlib import Path

from kp_batch.errors import WarehouseError

# What delta-rs 1.6.6 and DuckDB 2.0.0 take for part of a URL, not of a path.
_NOT_IN_PATHS = frozenset(r"%?[]\^|")


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
