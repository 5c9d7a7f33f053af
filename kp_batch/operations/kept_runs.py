"""The runs whose tables are kept: --as-of can read them, and some can be rolled back to.

`kp-batch runs` shows them, so this imports nothing that works on an archive.
"""

from dataclasses import dataclass
from pathlib import Path

from kp_batch.warehouse.manifest import read_candidate
from kp_batch.warehouse.run_record import done_runs
from kp_batch.warehouse.snapshot import kept_candidate, published

# The runs, the newest first, with the variables of `AvailableRuns`.
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
        (counts->>'rescored')::BIGINT AS rescored,
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


@dataclass(frozen=True)
class AvailableRuns:
    """The runs whose tables are kept, by run_id."""

    readable: tuple[str, ...]  # with --as-of
    restorable: tuple[str, ...]  # of these, the runs that can be rolled back to
    candidate: str | None  # the refused run or preview that is kept; null: there is none

    @property
    def variables(self) -> dict[str, list[str]]:
        """The variables of `RUNS`."""
        return {"readable": [*self.readable], "restorable": [*self.restorable]}


def available_runs(warehouse: Path) -> AvailableRuns:
    """List the runs that can be read and rolled back to, the oldest first.

    Raises:
        WarehouseError: nothing is published.
    """
    now = published(warehouse)
    runs = sorted(now.runs(), key=lambda run: run.number)
    readable = [run for run in runs if run.number >= now.manifest.kept_from]
    return AvailableRuns(
        readable=tuple(run.run_id for run in readable),
        restorable=tuple(run.run_id for run in done_runs(readable)),
        candidate=kept_candidate_run(warehouse),
    )


def kept_candidate_run(warehouse: Path) -> str | None:
    """Return the run that left a candidate, which is the last one in it; None without one."""
    if read_candidate(warehouse) is None:
        return None
    runs = kept_candidate(warehouse).runs()
    return max(runs, key=lambda run: run.number).run_id
