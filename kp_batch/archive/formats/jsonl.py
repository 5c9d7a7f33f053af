"""JSON values, of whatever type, as the columns of `ROWS`: what is of no use reads as null."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import polars as pl

from kp_batch.archive.timestamps import from_text
from kp_batch.contracts import ROWS

_AS_GIVEN = {**ROWS, "created_at": pl.String}


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line, None where there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def rows_of(source_file: str, objects: Iterable[tuple[int, Any]]) -> pl.DataFrame:
    """Numbered JSON objects (anything else counts as malformed) as a frame of `ROWS`."""
    records = [_record(source_file, row, value) for row, value in objects]
    frame = pl.DataFrame(records, schema=_AS_GIVEN, orient="row")
    return frame.with_columns(created_at=from_text(pl.col("created_at")))


def _record(source_file: str, row: int, value: Any) -> tuple[Any, ...]:
    trace = _mapping(value)
    metadata = _mapping(trace.get("metadata"))
    success = metadata.get("success")
    steps: Any = trace.get("steps")
    given = steps if isinstance(steps, list | tuple) else []
    whole = [_mapping(step) for step in given if isinstance(step, Mapping)]
    return (
        source_file,
        row,
        isinstance(value, Mapping),
        _printed(trace.get("@type")),
        _text(trace.get("id")),
        _text(metadata.get("created_at")),
        _text(metadata.get("task_domain")),
        _text(metadata.get("agent_id")),
        _text(metadata.get("framework")),
        success if isinstance(success, bool) else None,
        _number(_mapping(trace.get("outcome")).get("confidence")),
        _text(_mapping(trace.get("task")).get("objective")),
        len(given) - len(whole),
        [_printed(step.get("type")) for step in whole],
        [_printed(step.get("content")) for step in whole],
        [_text(_mapping(step.get("tool")).get("name")) for step in whole],
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    """Text, or a whole number as text, as in a Parquet column."""
    if isinstance(value, str):
        # A lone surrogate is valid in JSON and not in UTF-8.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _printed(value: Any) -> str | None:
    """Text as it is, any other value as JSON: nothing that was there reads as absent."""
    if value is None or isinstance(value, str):
        return _text(value)
    return _text(json.dumps(value, ensure_ascii=False, default=str))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")
