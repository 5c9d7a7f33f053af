"""Group traces that share a cache: those with equal values in some columns or path keys.

A live engine holds its cache in the memory of one process. So the replay keeps one for each group
of traces: `cache_group` is the JSON of their values, or null if all share one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from kp_batch.duck import SQL, identifier, joined, literal, sql, statement
from kp_batch.novelty.cache_settings import CACHE_COLUMNS
from kp_batch.warehouse.open_snapshot import OpenSnapshot

_ROWS_BY_GROUP = """(
    SELECT scores.cache_group, day_of(created_at) AS day, count(*) AS "rows"
    FROM $scores AS scores $only
    GROUP BY ALL
)"""
_ONLY = "SEMI JOIN $groups AS groups ON scores.cache_group IS NOT DISTINCT FROM groups.cache_group"


@dataclass(frozen=True)
class CacheGroups:
    """The number of caches of a warehouse."""

    groups: int
    without_value: int  # traces without one of the values


def group_of(cache_by: Sequence[str]) -> SQL:
    """Return SQL for the group of a row with `CACHE_COLUMNS` and the `path_keys` of `FILES`.

    Args:
        cache_by: the names; without any, all traces share one cache, and the group is null.
    """
    if not cache_by:
        return statement("NULL::VARCHAR")
    values = (joined([literal(name), _value(name)]) for name in cache_by)
    return statement("json_object($values)::VARCHAR", values=joined(values))


def _value(name: str) -> SQL:
    if name in CACHE_COLUMNS:
        return identifier(name)
    return statement("path_keys->>$name", name=literal(name))


def groups_of(snapshot: OpenSnapshot, rows: pl.DataFrame, cache_by: Sequence[str]) -> pl.Series:
    """Return the groups of some rows; see `group_of`."""
    ungrouped = rows.with_row_index("number")
    query = "SELECT $group AS cache_group FROM ungrouped ORDER BY number"
    groups = snapshot.ask(statement(query, group=group_of(cache_by)), ungrouped=ungrouped)
    return groups.get_column("cache_group")


def rows_by_group(scores: SQL, groups: SQL | None = None) -> SQL:
    """Return SQL that counts scores by group and day: `cache_group`, `day` and `rows`.

    Args:
        scores: the rows.
        groups: a relation with the groups to count in its column `cache_group`; None: all.
    """
    only = statement(_ONLY, groups=groups) if groups else statement("")
    return statement(_ROWS_BY_GROUP, scores=scores, only=only)


def count_groups(snapshot: OpenSnapshot) -> CacheGroups:
    """Count the groups of all traces after the run; the relations are those of changes.py."""
    [counts] = snapshot.ask(sql(__name__, "cache_groups.sql")).iter_rows()
    return CacheGroups(*counts)
