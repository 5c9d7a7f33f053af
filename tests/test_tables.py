"""Frames of rows: their values and types, with rows and without any."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

import polars as pl

from kp_batch.tables import frame


@dataclass(frozen=True)
class _Part:
    text: str
    shared: bool


SHARED, OWN = _Part("x", shared=True), _Part("", shared=False)
HINTS: Mapping[str, Any] = {
    "trace_id": str,
    "count": int,
    "share": float,
    "is_new": bool,
    "mean": float | None,
    "row": int | None,
    "side": Literal["first", "second"] | None,
    "quantiles": tuple[float, float, float],
    "bins": list[int],
    "parts": tuple[_Part, ...] | None,
    "part": _Part,
    "value": Any,
    "created_at": str,
    "day": str,
}
FULL: Mapping[str, Any] = {
    "trace_id": "a",
    "count": 2**40,
    "share": 0.5,
    "is_new": True,
    "mean": None,
    "row": None,
    "side": None,
    "quantiles": (0.0, 0.5, 1.0),
    "bins": [1, 2],
    "parts": (SHARED,),
    "part": OWN,
    "value": {"novelty": 0.5},
    "created_at": "2026-01-05T08:00:00+00:00",
    "day": "2026-01-31",
}
OTHER: Mapping[str, Any] = {
    "trace_id": "b",
    "count": -1,
    "share": 1.0,
    "is_new": False,
    "mean": 0.25,
    "row": 7,
    "side": "first",
    "quantiles": (0.1, 0.2, 0.3),
    "bins": [],
    "parts": None,
    "part": SHARED,
    "value": "hashing",
    "created_at": "2026-01-05T08:00:00.123456+00:00",
    "day": "1999-12-31",
}
SPAN = pl.Struct({"text": pl.String, "shared": pl.Boolean})
TYPES = {
    "trace_id": pl.String,
    "count": pl.Int64,
    "share": pl.Float64,
    "is_new": pl.Boolean,
    "mean": pl.Float64,
    "row": pl.Int64,
    "side": pl.String,
    "quantiles": pl.List(pl.Float64),
    "bins": pl.List(pl.Int64),
    "parts": pl.List(SPAN),
    "part": SPAN,
    "value": pl.String,
    "created_at": pl.Datetime("us", "UTC"),
    "day": pl.Date,
}


def test_a_column_has_the_type_that_it_is_given_with_rows_and_without() -> None:
    for rows in ([], [FULL], [OTHER], [FULL, OTHER]):
        made = frame(HINTS, rows)
        assert made.schema == TYPES
        assert made.columns == [*HINTS]
        assert len(made) == len(rows)


def test_a_value_is_that_of_its_row() -> None:
    made = frame(HINTS, [FULL, OTHER])
    for row, shown in zip((FULL, OTHER), made.iter_rows(named=True), strict=True):
        plain = json.loads(json.dumps(row, default=asdict))
        plain["created_at"] = datetime.fromisoformat(row["created_at"])
        plain["day"] = date.fromisoformat(row["day"])
        plain["value"] = json.dumps(row["value"])
        assert shown == plain
    assert made.item(1, "created_at") == datetime(2026, 1, 5, 8, 0, 0, 123456, UTC)
