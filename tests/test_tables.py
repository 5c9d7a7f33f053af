"""Frames of dataclasses: their values and types, with rows and without any."""

import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

import polars as pl

from kp_batch.tables import frame_of_rows


@dataclass(frozen=True)
class _Part:
    text: str
    shared: bool


@dataclass(frozen=True)
class _Row:
    trace_id: str
    count: int
    share: Annotated[float, "a form"]
    is_new: bool
    mean: float | None
    row: Annotated[int | None, "of the file"]
    side: Literal["first", "second"] | None
    quantiles: tuple[float, float, float]
    bins: list[int]
    parts: tuple[_Part, ...] | None
    part: _Part
    value: Any
    codes: dict[str, int]
    created_at: str
    day: str


SHARED, OWN = _Part("x", shared=True), _Part("", shared=False)
FULL = _Row(
    *("a", 2**40, 0.5, True, None, None, None, (0.0, 0.5, 1.0), [1, 2], (SHARED,)),
    *(OWN, {"novelty": 0.5}, {"b": 1}, "2026-01-05T08:00:00+00:00", "2026-01-31"),
)
OTHER = _Row(
    *("b", -1, 1.0, False, 0.25, 7, "first", (0.1, 0.2, 0.3), [], None),
    *(SHARED, "hashing", {}, "2026-01-05T08:00:00.123456+00:00", "1999-12-31"),
)
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
    "codes": pl.String,
    "created_at": pl.Datetime("us", "UTC"),
    "day": pl.Date,
}


def test_a_column_has_the_type_of_its_field_with_rows_and_without() -> None:
    for rows in ([], [FULL], [OTHER], [FULL, OTHER]):
        frame = frame_of_rows(_Row, rows)
        assert frame.schema == TYPES
        assert frame.columns == [field.name for field in fields(_Row)]
        assert len(frame) == len(rows)


def test_a_value_is_that_of_its_field() -> None:
    frame = frame_of_rows(_Row, [FULL, OTHER])
    for row, shown in zip((FULL, OTHER), frame.iter_rows(named=True), strict=True):
        plain = json.loads(json.dumps(row, default=asdict))
        plain["created_at"] = datetime.fromisoformat(row.created_at)
        plain["day"] = date.fromisoformat(row.day)
        plain["value"], plain["codes"] = json.dumps(row.value), json.dumps(row.codes)
        assert shown == plain
    assert frame.item(1, "created_at") == datetime(2026, 1, 5, 8, 0, 0, 123456, UTC)
