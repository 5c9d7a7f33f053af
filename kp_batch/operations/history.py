"""Which runs `--as-of` can read, and which of them it cannot once files are removed."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from kp_batch.contracts import GROWING, VIEWS
from kp_batch.files import files_below
from kp_batch.run_record import RunRecord
from kp_batch.warehouse.delta import changes_of
from kp_batch.warehouse.layout import Layout

RunIds = tuple[str, ...]

_NAMES = tuple(name for name in VIEWS if name not in GROWING)  # read as each run left them
_GONE = (False, False)


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
    folders = {name: Layout(warehouse).table(name) for name in _NAMES}
    states = {name: _states(folder, stays.get(name)) for name, folder in folders.items()}
    lost: list[str] = []
    readable: list[str] = []
    for run in sorted(runs, key=lambda each: each.added_to, reverse=True):
        left = run.published["tables"]
        needed = [states[name].get(left[name], _GONE) for name in _NAMES if name in left]
        if not all(is_there for is_there, _ in needed):
            break
        (readable if all(will_be for _, will_be in needed) else lost).append(run.run_id)
    return tuple(reversed(lost)), tuple(reversed(readable))


def _states(folder: Path, stays: AbstractSet[Path] | None) -> dict[int, tuple[bool, bool]]:
    """Whether all files of each version of a table are there, and whether they will be."""
    there = set(files_below(folder))
    missing: set[Path] = set()
    going: set[Path] = set()
    states: dict[int, tuple[bool, bool]] = {}
    for version, added, removed in changes_of(folder):
        missing = (missing - removed) | (added - there)
        going = (going - removed) | (added - (there if stays is None else stays))
        states[version] = not missing, not going
    return states
