"""The runs whose tables are kept: those that can be read with --as-of, and rolled back to.

`kp-batch runs` shows them, and so this imports nothing that works on an archive.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kp_batch.files import files_below
from kp_batch.schemas import GROWING, VIEWS
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.delta import changes_of, files_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.run_record import RunRecord, done_runs
from kp_batch.warehouse.snapshot import PublishedSnapshot, published

RunIds = tuple[str, ...]

# The runs, the last one first, by the variables of `AvailableRuns`.
RUNS = """
    SELECT run_id, date_trunc('second', started_at) AS started_at, status,
        coalesce(reason, array_to_string(list_transform(
            from_json(changes, '[{"code": "VARCHAR", "words": "VARCHAR"}]'),
            lambda change: if(
                change.code = 'weights', regexp_replace(change.words, ': [^:]*$', ''), change.words
            )
        ), '; ')) AS changes,
        "user", note,
        (counts->>'accepted')::BIGINT AS accepted, (counts->>'rejected')::BIGINT AS rejected,
        (counts->>'restated')::BIGINT AS restated,
        round(waited, 1) AS seconds, round(waited - overhead, 1) AS work,
        CASE WHEN list_contains(getvariable('restorable'), run_id) THEN 'rollback'
            WHEN list_contains(getvariable('readable'), run_id) THEN 'as-of' END AS kept
    FROM (
        SELECT *, list_sum((seconds->'$.*')::DOUBLE[]) AS waited,
            coalesce((seconds->>'start')::DOUBLE, 0) + coalesce((seconds->>'prefect')::DOUBLE, 0)
                AS overhead
        FROM runs
    )
    ORDER BY number DESC
"""

_NAMES = tuple(name for name in VIEWS if name not in GROWING)  # the tables that each run replaces
_GONE = (False, False)


@dataclass(frozen=True)
class AvailableRuns:
    """The runs whose tables are still complete, by run_id."""

    readable: tuple[str, ...]  # with --as-of
    restorable: tuple[str, ...]  # of these, those that can be rolled back to
    candidate: str | None  # the refused run, or preview, that is kept; null: there is none

    @property
    def variables(self) -> dict[str, list[str]]:
        """Those of `RUNS`."""
        return {"readable": [*self.readable], "restorable": [*self.restorable]}


def available_runs(warehouse: Path) -> AvailableRuns:
    """List the runs that can be read and rolled back to, the first one first.

    Raises:
        WarehouseError: nothing is published, or a table's log is damaged.
    """
    now = published(warehouse)
    runs, hashes = now.runs(), forgotten_files(now)
    _, readable = sorted_runs(warehouse.resolve(), runs, {})
    facts = {None, *_complete_versions(Layout(warehouse.resolve()).table("facts"))}
    restorable = (
        run.run_id
        for run in done_runs(runs)
        if run.run_id in readable
        and run.published["tables"].get("facts") in facts
        and hashes(run) == hashes(None)
    )
    kept = Candidate.kept(warehouse)
    return AvailableRuns(readable, tuple(restorable), kept[0].writer if kept else None)


def forgotten_files(now: PublishedSnapshot) -> Callable[[RunRecord | None], list[Path]]:
    """A function for the files of `forgotten` after a run, or now: they differ if more was."""
    warehouse = now.warehouse.resolve()

    @cache
    def files(version: int | None) -> list[Path]:
        return files_of(warehouse, "forgotten", version)

    return lambda run: files((run.published["tables"] if run else now.tables).get("forgotten"))


def sorted_runs(
    warehouse: Path, runs: Iterable[RunRecord], stays: Mapping[str, AbstractSet[Path]]
) -> tuple[RunIds, RunIds]:
    """Divide the readable runs by whether they stay readable.

    Args:
        warehouse: the folder of the tables.
        runs: all runs.
        stays: the files that stay, by the name of each table that loses any.

    Returns:
        Those that will be lost, and those that stay readable, the first one first.
    """
    folders = {name: Layout(warehouse).table(name) for name in _NAMES}
    states = {name: _states(folder, stays.get(name)) for name, folder in folders.items()}
    lost: list[str] = []
    readable: list[str] = []
    for run in sorted(runs, key=lambda run: run.added_to, reverse=True):
        tables = run.published["tables"]
        needed = [states[name].get(tables[name], _GONE) for name in _NAMES if name in tables]
        if all(is_complete for is_complete, _ in needed):
            (readable if all(stays for _, stays in needed) else lost).append(run.run_id)
    return tuple(reversed(lost)), tuple(reversed(readable))


def _complete_versions(folder: Path) -> AbstractSet[int]:
    """The versions of a table of which no file is missing."""
    return {version for version, (is_complete, _) in _states(folder, None).items() if is_complete}


def _states(folder: Path, stays: AbstractSet[Path] | None) -> dict[int, tuple[bool, bool]]:
    """By version of a table: whether all its files are present, and whether they stay."""
    present = set(files_below(folder))
    missing: set[Path] = set()
    going: set[Path] = set()
    states: dict[int, tuple[bool, bool]] = {}
    for version, added, removed in changes_of(folder):
        missing = (missing - removed) | (added - present)
        going = (going - removed) | (added - (present if stays is None else stays))
        states[version] = not missing, not going
    return states
