"""Which runs `--as-of` can read, and which of them it cannot once files are removed."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from kp_batch.contracts import VIEWS
from kp_batch.run_record import RunRecord
from kp_batch.warehouse.tables import files_of

RunIds = tuple[str, ...]


def sorted_runs(
    warehouse: Path, runs: Iterable[RunRecord], stays: Mapping[str, Collection[Path]]
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
    lost: list[str] = []
    readable: list[str] = []
    for run in sorted(runs, key=lambda each: (each.started_at, each.run_id), reverse=True):
        needed = _files(warehouse, run)
        if not all(path.exists() for paths in needed.values() for path in paths):
            break
        stay = all(set(needed[name]) <= set(stays[name]) for name in needed.keys() & stays.keys())
        (readable if stay else lost).append(run.run_id)
    return tuple(reversed(lost)), tuple(reversed(readable))


def _files(warehouse: Path, run: RunRecord) -> dict[str, list[Path]]:
    """The files of each view as the run left it; `runs` is read as it is now."""
    tables = run.published["tables"]
    return {name: files_of(warehouse, name, tables.get(name)) for name in VIEWS if name != "runs"}
