"""Phoenix's data frame of spans as Parquet, with its columns dotted or nested."""

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa

from kp_batch.errors import MISSING_COLUMN, Fault, UnreadableError
from kp_batch.imports.conversation.attributes import Event, OtelSpan, value_at
from kp_batch.imports.conversation.messages import Json, object_in, parse_json
from kp_batch.imports.conversation.spans import nanoseconds
from kp_batch.imports.formats.otlp import draft
from kp_batch.imports.formats.parquet_rows import NANOSECONDS, times_as_text, units_of
from kp_batch.imports.model import Format, Rejected, Skipped, SourceRecord, by_ending

_ROWS = 500  # that are held at once; each may hold a whole conversation
_TRACE = "context.trace_id"
_NEEDED = (_TRACE, "context.span_id", "parent_id", "start_time")
_KIND = "openinference.span.kind"


def units(path: Path, _: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`."""
    return units_of(path, _ROWS, _check, _units, [_TRACE])


def _units(rows: pa.RecordBatch) -> Iterator[SourceRecord | Rejected]:
    # In nanoseconds, which Python's own times lack.
    times = [each for each in rows.schema if pa.types.is_timestamp(each.type)]
    sizes = {time.name: NANOSECONDS[time.type.unit] for time in times}
    counted = pa.schema([x.with_type(pa.int64()) if x.name in sizes else x for x in rows.schema])
    frame = cast("pl.DataFrame", pl.from_arrow(times_as_text(rows.cast(counted))))
    for row in frame.iter_rows(named=True):
        counted_ns = {x: row[x] * size for x, size in sizes.items() if row[x] is not None}
        yield _unit(cast("Json", _plain(row | counted_ns)))


def _check(schema: pa.Schema) -> None:
    names = {*schema.names, *(inner.name for each in schema for inner in each.flatten())}
    missing = [each for each in _NEEDED if each not in names]
    if missing:
        raise UnreadableError(Fault(MISSING_COLUMN, f"it lacks {', '.join(missing)}"))


def _unit(row: Json) -> SourceRecord | Rejected:
    trace, span = (str(value_at(row, f"context.{each}") or "") for each in ("trace_id", "span_id"))
    if not trace or not span:
        return Rejected(["missing_id"], "a span without its ids")
    attributes = {**object_in(row.get("attributes"))}
    for name, value in row.items():
        if name.startswith("attributes."):
            attributes[name.removeprefix("attributes.")] = value
    if value_at(attributes, _KIND) is None and row.get("span_kind"):
        attributes[_KIND] = row["span_kind"]
    events = parse_json(row.get("events"))
    return SourceRecord(
        trace,
        OtelSpan(
            id=span,
            parent=str(row.get("parent_id") or ""),
            name=str(row.get("name") or ""),
            start=_nanoseconds(row.get("start_time")),
            end=_nanoseconds(row.get("end_time")),
            failed=row.get("status_code") == "ERROR",
            attributes=attributes,
            resource={},
            events=[_event(each) for each in cast("list[object]", events)]
            if isinstance(events, list)
            else [],
        ).record(),
    )


def _event(found: object) -> Event:
    told_there = object_in(found)
    return Event(
        name=str(told_there.get("name") or ""),
        time=_nanoseconds(told_there.get("timestamp")) or 0,
        attributes=object_in(told_there.get("attributes")),
    )


def _nanoseconds(value: object) -> int | None:
    return value if isinstance(value, int) else nanoseconds(value)


def _plain(value: object) -> object:
    """JSON, without what a column only has since another row has it."""
    if isinstance(value, dict):
        pairs = ((name, _plain(each)) for name, each in cast("Json", value).items())
        return {name: each for name, each in pairs if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[object]", value)]
    if isinstance(value, float) and isnan(value):  # pandas' way to say None
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


FORMAT = Format(
    name="phoenix",
    holds="scores of annotations",
    inputs=by_ending(".parquet"),
    units=units,
    draft=draft,
    source="stream",
)
