"""Which runs `--as-of` can read, and which of them it cannot once files are removed."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

from kp_batch.contracts import GROWING, VIEWS
from kp_batch.run_record import RunRecord
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.tables import files_of

RunIds = tuple[str, ...]

_NAMES = tuple(name for name in VIEWS if name not in GROWING)  # read as each run left them


def sorted_runs(
    warehouse: Path, runs: Iterable[RunRecord], stays: Mapping[str, AbstractSet[Path]]
) -> tuple[RunIds, RunIds]:
    """Sort the runs that can be read by whether they will be.

    It looks back as far as the first run that cannot be read: earlier ones were removed with it.

    Args:
        warehouse: the folder of the tables.
        runs: all of them.
        stays: the files that stay, by the name of each table that loses any.

    Returns:
        Those that will be lost, and those that can be read further on, the first one first.
    """
    there = {name: set(Layout(warehouse).table(name).rglob("*.parquet")) for name in _NAMES}

    @cache
    def needed(name: str, version: int | None) -> frozenset[Path]:
        return frozenset(files_of(warehouse, name, version))

    lost: list[str] = []
    readable: list[str] = []
    for run in sorted(runs, key=lambda each: (each.started_at, each.run_id), reverse=True):
        tables = run.published["tables"]
        files = {name: needed(name, tables.get(name)) for name in _NAMES}
        if not all(files[name] <= there[name] for name in _NAMES):
            break
        stay = all(files[name] <= stays[name] for name in files.keys() & stays.keys())
        (readable if stay else lost).append(run.run_id)
    return tuple(reversed(lost)), tuple(reversed(readable))
