"""Compares answers with those that an oracle states."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import duckdb

_NEAR = 1e-9  # sums have no order


def ask_records(
    connection: duckdb.DuckDBPyConnection, query: str, *values: Any
) -> list[dict[str, Any]]:
    result = connection.execute(query, list(values))
    names = [each[0] for each in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def assert_same(
    rows: Sequence[Mapping[str, Any]],
    wanted: Sequence[Mapping[str, Any]],
    unstated: Collection[str] = (),
) -> None:
    """The same rows, in whatever order; but for columns of which nothing is stated."""
    if rows and wanted:
        assert rows[0].keys() - set(unstated) == wanted[0].keys() - set(unstated)
    names = sorted(wanted[0].keys() - set(unstated)) if wanted else []
    # What is exact first: numbers that are nearly equal may stand in another order.
    names.sort(key=lambda name: any(isinstance(row[name], float) for row in (*rows, *wanted)))
    sides = [
        sorted(([row[name] for name in names] for row in side), key=_order)
        for side in (rows, wanted)
    ]
    assert len(rows) == len(wanted), f"{sides[0]} for {sides[1]}"
    for own, other in zip(*sides, strict=True):
        off = {
            name: (value, expected)
            for name, value, expected in zip(names, own, other, strict=True)
            if not is_near(value, expected)
        }
        assert not off, f"{off} in {dict(zip(names, other, strict=True))}"


def is_near(value: Any, expected: Any) -> bool:
    """Equal, numbers nearly; nothing is NaN."""
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        return {*value} == {*expected} and all(
            is_near(value[name], expected[name]) for name in value
        )
    if isinstance(value, float) and expected is not None:
        return math.isclose(value, expected, rel_tol=_NEAR, abs_tol=_NEAR)
    return bool(value == expected)


def _order(row: Sequence[Any]) -> list[str]:
    return ["" if each is None else _text(each) for each in row]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(map(_text, value.values()))
    return f"{value + 10:.6f}" if isinstance(value, float) else str(value)
