"""Phoenix's data frame of spans as Parquet, with its columns dotted or nested.

A record is a span, as in `otlp`. Left out are columns that repeat attributes, or that no trace is
made of.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa

from kp_batch.conversion.conversation.attributes import Event, OtelSpan, value_at
from kp_batch.conversion.conversation.messages import Json, list_in, object_in
from kp_batch.conversion.conversation.spans import nanoseconds
from kp_batch.conversion.formats.otlp import draft
from kp_batch.conversion.formats.parquet_rows import NANOSECONDS, plain, records_of, times_as_text
from kp_batch.conversion.model import Format, ReadItem, Rejected, SourceRecord, by_ending
from kp_batch.errors import MISSING_COLUMN, Fault, UnreadableError

_BATCH_ROWS = 500  # each may hold a whole conversation
_TRACE = "context.trace_id"
_NEEDED = (_TRACE, "context.span_id", "parent_id", "start_time")
_KIND = "openinference.span.kind"


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`."""
    return records_of(path, _BATCH_ROWS, _check, _records, [_TRACE])


def _records(batch: pa.RecordBatch) -> Iterator[SourceRecord | Rejected]:
    # In nanoseconds, which Python's own times lack.
    times = [field for field in batch.schema if pa.types.is_timestamp(field.type)]
    sizes = {time.name: NANOSECONDS[time.type.unit] for time in times}
    counted = pa.schema([x.with_type(pa.int64()) if x.name in sizes else x for x in batch.schema])
    frame = cast("pl.DataFrame", pl.from_arrow(times_as_text(batch.cast(counted))))
    for row in frame.iter_rows(named=True):
        counted_ns = {x: row[x] * size for x, size in sizes.items() if row[x] is not None}
        yield _record(cast("Json", plain(row | counted_ns)))


def _check(schema: pa.Schema) -> None:
    names = {*schema.names, *(inner.name for field in schema for inner in field.flatten())}
    if missing := [name for name in _NEEDED if name not in names]:
        raise UnreadableError(Fault(MISSING_COLUMN, f"it lacks {', '.join(missing)}"))


def _record(row: Json) -> SourceRecord | Rejected:
    trace, span = (str(value_at(row, f"context.{name}") or "") for name in ("trace_id", "span_id"))
    if not trace or not span:
        return Rejected(["missing_id"], "a span without its ids")
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


FORMAT = Format(
    name="phoenix",
    holds="scores of annotations",
    inputs=by_ending(".parquet"),
    records=records,
    draft=draft,
    has_spans=True,
)
