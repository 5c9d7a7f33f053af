"""The scores as columns of numbers: read once, and passed on in parts with whole tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import duckdb
import numpy as np
import polars as pl

from kp_batch.duck import sql, statement

PART_ROWS = 1 << 15  # so that a part fits into the processor's cache
_BATCH = 1 << 17
MAX_LOOKUP_CODES = 1 << 22  # up to so many are looked up in a table; more are searched
_TEXTS = ("domain", "agent", "framework")
_TYPES = {
    "task": np.uint64,
    **dict.fromkeys(("domain", "agent", "framework", "day", "tools"), np.int32),
    **dict.fromkeys(("score", "novelty", "confidence", "recorded"), np.float64),
    **dict.fromkeys(("hour", "score_bin", "confidence_bin"), np.uint8),
    **dict.fromkeys(
        ("success", "meets_threshold", "warming_up", "penalty", "near_repeats"), np.bool_
    ),
}

Numbers = np.ndarray[tuple[int], np.dtype[np.integer]]
Part = Mapping[str, np.ndarray]  # columns of `Scores` for some tasks
Sums = dict[str, np.ndarray]
Code = Callable[[Part], Numbers]


@dataclass(frozen=True)
class Scores:
    """The columns of all traces, (n,) each, sorted by task, then label.

    Columns: `task`, its number from 0; `domain`, `agent` and `framework`, places among `texts`
    (agent and framework: -1 for null); `day`, its place among `days`; `label`, the place of the
    domain's label; `score_bin`, of twenty, `confidence_bin`, of ten; `tools`, a number; `hour`;
    `score`, `novelty`, `confidence` and `recorded` (NaN for null), float64; and booleans:
    `success`, `meets_threshold`, `warming_up` (its cache), `penalty` (for a single tool), and
    `near_repeats`.
    """

    columns: Part
    texts: Mapping[str, Sequence[str]]
    days: np.ndarray  # (d,) datetime64[D], ascending

    def __len__(self) -> int:
        return len(self.columns["task"])

    def parts(self, size: int = 0) -> Iterator[Part]:
        """Yield all columns in parts of whole tasks, each of about `PART_ROWS`; at least one."""
        tasks, first, last = self.columns["task"], 0, -1
        while last < len(tasks):
            last = min(first + max(size, PART_ROWS), len(tasks))
            if last:
                last = int(np.searchsorted(tasks, tasks[last - 1], side="right"))
            yield {name: column[first:last] for name, column in self.columns.items()}
            first = last


def in_groups(scores: Scores, code: Code, size: int) -> tuple[Scores, np.ndarray]:
    """Number the groups that have a trace, from 0.

    Args:
        scores: all scores.
        code: any number of the group of each trace; -1 for no group.
        size: greater than all codes.

    Returns:
        The scores with one more column: `place`, the group of each trace, or -1; and the codes of
            the groups, (g,) int64, ascending.
    """
    small = np.min_scalar_type(-1 - size)  # the smallest type for all codes, because memory is slow
    codes = np.concatenate([code(part).astype(small) for part in scores.parts()])
    if size < MAX_LOOKUP_CODES:
        is_used = np.zeros(size + 1, np.bool_)
        is_used[codes] = True  # -1 is the last
        used = np.flatnonzero(is_used[:-1])
        places = np.full(size + 1, -1, small)
        places[used] = np.arange(len(used))
        place = places[codes]
    else:
        used = np.unique(codes)
        used = used[used >= 0]
        place = np.where(codes < 0, -1, np.searchsorted(used, codes))
    return replace(scores, columns={**scores.columns, "place": place}), used


def read_scores(
    connection: duckdb.DuckDBPyConnection, traces: int, labels: Mapping[str, int]
) -> Scores:
    """Read the columns of the published scores.

    Args:
        connection: a warehouse's catalog, in UTC.
        traces: how many traces there are.
        labels: the place of each domain's label.
    """
    connection.execute(sql(__name__, "texts.sql"))
    texts = {name: _texts(connection, name) for name in _TEXTS}
    columns = {name: np.empty(traces, dtype) for name, dtype in _TYPES.items()}
    rows = connection.sql(sql(__name__, "scores_columns.sql")).to_arrow_reader(_BATCH)
    first = 0
    for batch in rows:
        frame = pl.DataFrame(batch)  # because pyarrow would import pandas to make these arrays
        for name, column in columns.items():
            column[first : first + len(batch)] = frame[name].to_numpy()
        first += len(batch)
    of_domains = np.array([labels[domain] for domain in texts["domain"]], np.int32)
    columns["label"] = of_domains[columns["domain"]]
    _sort(columns, columns["task"] + columns["label"].astype(np.uint64))
    columns["task"] = numbered(columns["task"]).astype(np.int32)
    columns["day"], days = _days(columns["day"])
    return Scores(columns, texts, days)


def _sort(columns: Sums, key: np.ndarray) -> None:
    """Sort by a key: by its first bits, and then some rows at a time, in the processor's cache."""
    bucket = (key >> np.uint64(48)).astype(np.uint16)
    order = np.argsort(bucket, kind="stable")
    for name, column in columns.items():
        columns[name] = column.take(order)
    edges = np.searchsorted(bucket, np.arange(0, 1 << 16, 256), sorter=order)
    for first, last in pairwise((*edges, len(key))):
        within = np.argsort(key[order[first:last]])
        for column in columns.values():
            column[first:last] = column[first:last].take(within)


def _texts(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    """Return the texts of a column, in the order of their numbers."""
    values = statement("SELECT enum_range(NULL::report_${name}s)", name=name)
    [(texts,)] = connection.execute(values).fetchall()
    return texts


def _days(days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of days since 1970 among the distinct ones; and these."""
    if not len(days):
        return days, np.array([], "datetime64[D]")
    first = days.min()
    is_used = np.bincount(days - first) > 0
    places = np.cumsum(is_used, dtype=np.int32) - 1
    return places[days - first], (np.flatnonzero(is_used) + first).astype("datetime64[D]")


class Summed:
    """Sums by group, added part by part."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.sums: Sums = {}

    def add(self, name: str, place: Numbers, values: np.ndarray | None = None) -> None:
        """Add values, or 1 each, to the groups at their places."""
        if self._size == 1 and values is not None:
            # bincount waits for each sum before adding to the same one again.
            summed = values.sum(dtype=np.float64, keepdims=True)
        else:
            summed = np.bincount(place, values, minlength=self._size)
        self.sums[name] = self.sums[name] + summed if name in self.sums else summed


def has_tasks_of_several(part: Part, name: str) -> bool:
    """Whether the traces of any task differ in a column."""
    is_again = part["task"][1:] == part["task"][:-1]
    return bool((is_again & (part[name][1:] != part[name][:-1])).any())


def numbered(*columns: np.ndarray) -> Numbers:
    """Number rows in order, from 0, by the values of these columns: (n,)."""
    is_other = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        is_other[1:] |= column[1:] != column[:-1]
    return np.cumsum(is_other, dtype=np.int64)


def firsts(numbers: Numbers) -> Numbers:
    """Return the first place of each number from 0, in numbers that ascend by 1: (g,)."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))
