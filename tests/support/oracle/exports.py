"""Which traces an export should have."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.oracle.accepted_rows import File, counted, rows_in
from tests.support.oracle.history import State
from tests.support.oracle.scoring import Score, cosines, day_of

# Conditions in SQL, and what they mean.
WHERE: Mapping[str, Callable[[Score], bool]] = {
    "n_tools > 1 OR NOT success": lambda row: row["n_tools"] > 1 or not row["success"],
    "agent_id IS NULL -- nobody's": lambda row: row["agent_id"] is None,
}
_SHARED = {
    "visibility": {None, "network", "org"},
    "privacy_level": {None, "aggregated", "federated"},
}


@dataclass(frozen=True)
class Exported:
    """What an export writes, and what becomes of the other chosen traces."""

    traces: list[Any]  # in their order, as their files have them
    conditions: list[int]  # the rows that each leaves out of what those before it leave
    chosen: int
    private: int
    dropped_similar: int
    not_found: Mapping[str, int]
    dropped_by_per: int
    dropped_by_top: int


def exported(
    state: State,
    present: Mapping[str, bytes],
    *,
    distinct: float | None = None,
    top: int | None = None,
    include_private: bool = False,
    **conditions: Any,
) -> Exported:
    """The export of a state's scores, with these files; the others are those of `ExportOptions`."""
    per = conditions.pop("per", {})
    if conditions.get("min_score") is None:
        conditions["min_score"] = state.settings.threshold
    chosen, left_out = _chosen(state.scores, conditions)
    not_found: Counter[str] = Counter()
    skipped, readable = 0, {}
    for row in chosen:
        trace = reread(state, present, row["trace_id"])
        if isinstance(trace, str):
            not_found[trace] += 1
        elif include_private or not _is_private(trace):
            readable[row["trace_id"]] = trace
        else:
            skipped += 1
    rows = [row for row in chosen if row["trace_id"] in readable]
    if distinct is not None:
        taken = {row["trace_id"] for row in distinct_ones(rows, distinct)}
        rows = [row for row in rows if row["trace_id"] in taken]
    distinct_rows = len(rows)
    if per or top is not None:
        rows = sorted(rows, key=lambda row: (-row["score"], row["trace_id"]))
    for column, most in per.items():
        rows = _first_of_each(rows, {"objective": "objective_hash"}.get(column, column), most)
    written = rows[:top]
    return Exported(
        traces=[readable[row["trace_id"]] for row in written],
        conditions=left_out,
        chosen=len(chosen),
        private=skipped,
        dropped_similar=len(readable) - distinct_rows,
        not_found=not_found,
        dropped_by_per=distinct_rows - len(rows),
        dropped_by_top=len(rows) - len(written),
    )


def _first_of_each(rows: Iterable[Score], column: str, most: int) -> list[Score]:
    met: Counter[Any] = Counter()
    kept: list[Score] = []
    for row in rows:
        met[row[column]] += 1
        if met[row[column]] <= most:
            kept.append(row)
    return kept


def _chosen(
    rows: Sequence[Score], conditions: Mapping[str, Any]
) -> tuple[Sequence[Score], list[int]]:
    """The rows that meet every condition, and how many each leaves out, in their order."""
    meets: Mapping[str, Callable[[Any, Any], bool]] = {
        "ids": lambda row, ids: row["trace_id"] in ids,
        "min_score": lambda row, least: row["score"] >= least,
        "domain": lambda row, domains: row["task_domain"] in domains,
        "since": lambda row, day: str(day_of(row["created_at"])) >= day,
        "until": lambda row, day: str(day_of(row["created_at"])) <= day,
        "success": lambda row, _: row["success"],
        "where": lambda row, sql: WHERE[sql](row),
    }
    assert conditions.keys() <= meets.keys()
    left_out: list[int] = []
    for name, is_met in meets.items():
        if conditions.get(name):
            kept = [row for row in rows if is_met(row, conditions[name])]
            left_out.append(len(rows) - len(kept))
            rows = kept
    return rows, left_out


def reread(state: State, present: Mapping[str, bytes], trace_id: str) -> Any:
    """The trace as its file has it, or what has become of that."""
    [row] = [row for row in state.count.accepted if row.value["id"] == trace_id]
    content = present.get(row.source_file)
    if content is None:
        return "gone"
    if rows_in(Path(row.source_file).suffix, content) is None:
        return "unreadable"
    now = counted({row.source_file: File("read", content)})
    if now.published.get(trace_id) == state.count.published[trace_id]:
        [trace] = [each.value for each in now.accepted if each.value["id"] == trace_id]
        return trace
    return "changed"


def _is_private(trace: Mapping[str, Any]) -> bool:
    return any(trace["metadata"].get(name) not in shared for name, shared in _SHARED.items())


def best_first(rows: Iterable[Score]) -> list[Score]:
    """By score; of equal ones the oldest, then the one whose id comes first."""
    return sorted(rows, key=lambda row: (-row["score"], row["created_at"], row["trace_id"]))


def distinct_ones(rows: Iterable[Score], bound: float) -> list[Score]:
    """The rows, the best first, of which none resembles one before it that is taken as well."""
    taken: list[Score] = []
    for row in best_first(rows):
        if not any(_is_alike(row, other, bound) for other in taken):
            taken.append(row)
    return taken


def _is_alike(row: Score, other: Score, bound: float) -> bool:
    if row["text_hash"] == other["text_hash"]:
        return True
    if bound == 1 or not row["vector"].any():
        return False
    same = bool((row["vector"] == other["vector"]).all())
    return same or cosines([row["vector"]], other["vector"])[0] >= bound
