"""Phoenix's data frame of spans as Parquet, with its columns dotted or nested.

A record is a span, as in `otlp`. Left out are columns that repeat attributes, or that no trace
needs.
"""

from collections.abc import Iterator
from typing import cast

import polars as pl
import pyarrow as pa

from kp_batch.conversion.conversation.attributes import Event, OtelSpan, value_at
from kp_batch.conversion.conversation.messages import Json, list_in, object_in
from kp_batch.conversion.conversation.spans import nanoseconds
from kp_batch.conversion.formats.otlp import draft, unknown
from kp_batch.conversion.formats.rows import NANOSECONDS, RowMap, plain, times_as_text
from kp_batch.conversion.model import Format, Refused, SourceRecord, by_ending

_TRACE = "context.trace_id"
_KIND = "openinference.span.kind"


def _rows(batch: pa.RecordBatch) -> Iterator[Json]:
    """Yield rows with times in nanoseconds, which Python's own times lack."""
    times = [field for field in batch.schema if pa.types.is_timestamp(field.type)]
    sizes = {time.name: NANOSECONDS[time.type.unit] for time in times}
    counted = pa.schema([x.with_type(pa.int64()) if x.name in sizes else x for x in batch.schema])
    frame = cast("pl.DataFrame", pl.from_arrow(times_as_text(batch.cast(counted))))
    for row in frame.iter_rows(named=True):
        counted_ns = {x: row[x] * size for x, size in sizes.items() if row[x] is not None}
        yield cast("Json", plain(row | counted_ns))


def _record(row: Json) -> SourceRecord | Refused:
    trace, span = (str(value_at(row, f"context.{name}") or "") for name in ("trace_id", "span_id"))
    if not trace or not span:
        return Refused(["missing_id"], "a span without its ids")
    attributes = {**object_in(row.get("attributes"))}
    for name, value in row.items():
        if name.startswith("attributes."):
            attributes[name.removeprefix("attributes.")] = value
    if value_at(attributes, _KIND) is None and row.get("span_kind"):
        attributes[_KIND] = row["span_kind"]
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
            events=[_event(event) for event in list_in(row.get("events"))],
        ).to_json(),
    )


def _event(value: object) -> Event:
    event = object_in(value)
    return Event(
        name=str(event.get("name") or ""),
        time=_nanoseconds(event.get("timestamp")) or 0,
        attributes=object_in(event.get("attributes")),
    )


def _nanoseconds(value: object) -> int | None:
    return value if isinstance(value, int) else nanoseconds(value)


_ROWS = RowMap(
    record=_record,
    trace=[_TRACE],
    at_once=500,
    needed=[_TRACE, "context.span_id", "parent_id", "start_time"],
    rows=_rows,
)
FORMAT = Format(
    name="phoenix",
    contents="scores of annotations",
    inputs=by_ending(".parquet"),
    records=_ROWS.records,
    draft=draft,
    has_spans=True,
    unknown=unknown,
)
