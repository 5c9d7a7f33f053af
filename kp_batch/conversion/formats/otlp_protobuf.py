"""Reads requests of OTLP in protobuf: the spans in them, and the events in their logs."""

import base64
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import IO, Any

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kp_batch import bounds
from kp_batch.bounds import Budget, TooLargeError
from kp_batch.conversion.conversation.attributes import Event, OtelSpan
from kp_batch.conversion.conversation.messages import Json
from kp_batch.conversion.dialects.mlflow import plain
from kp_batch.conversion.formats.otlp_logs import event_of
from kp_batch.conversion.formats.otlp_values import (
    LOGS,
    METRICS,
    REQUEST,
    id_of,
    record_of,
    time_of,
)
from kp_batch.conversion.model import ReadItem, Refused, Skipped, SourceRecord

NO_REQUEST = (DecodeError, EOFError, OverflowError, ValueError)  # raised if it is not a request
_SCOPES = (2, 1000)  # the latter up to 2022
_OURS = b"gen_ai."  # the beginning of our events' names


def items_of(message: bytes, line: int | None) -> list[ReadItem]:
    """Return the items of a request.

    All signals have their records at the same place.

    Raises:
        TooLargeError: it exceeds a limit.
        one of `NO_REQUEST`: it is not a request.
    """
    if len(message) > bounds.LINE_BYTES:
        raise TooLargeError
    room = Budget(bounds.VALUES, str(TooLargeError()))
    groups = [_group(content, room) for number, content in _fields(message, room) if number == 1]
    signal = _signal([record for _, records in groups for record in records])
    if signal == METRICS:
        return [Skipped("metrics")]
    if signal == LOGS:
        logs = (log for _, records in groups for log in records)
        return [*_events(logs, line, room)] or [Skipped("logs")]
    return [item for group in groups or [(b"", [])] for item in _spans(*group, line, room)]


def _group(content: bytes, room: Budget) -> tuple[bytes, list[bytes]]:
    """Return a resource, and the records of all its scopes."""
    fields = [*_fields(content, room)]
    resource = b"".join(content for number, content in fields if number == 1)
    scopes = (content for number, content in fields if number in _SCOPES)
    inner = (field for scope in scopes for field in _fields(scope, room))
    return resource, [record for number, record in inner if number == 2]


_SIGNALS: Sequence[tuple[str, type[Message], Callable[[Any], bool]]] = (
    (REQUEST, Span, lambda span: len(span.trace_id) == 16 and len(span.span_id) == 8),
    (LOGS, LogRecord, lambda log: bool(log.time_unix_nano or log.observed_time_unix_nano)),
    (METRICS, Metric, lambda metric: bool(metric.name)),
)


def _signal(records: Sequence[bytes]) -> str:
    """Return the signal of records, from the first record that shows it."""
    for name, kind, is_of in _SIGNALS:
        for record in records:
            with suppress(DecodeError):
                if is_of(_decoded(kind, record)):
                    return name
    if records:
        raise ValueError("it has no span with ids, no log and no metric")
    return REQUEST


def _spans(
    resource: bytes, records: Sequence[bytes], line: int | None, room: Budget
) -> Iterator[ReadItem]:
    attributes = _attributes(_decoded(Resource, resource).attributes, room)
    if not records:
        yield Skipped(f"{REQUEST} without a span")
    for record in records:
        yield _span(_decoded(Span, record), attributes, line, room)


def _span(span: Any, resource: Json, line: int | None, room: Budget) -> SourceRecord | Refused:
    room.take(len(span.events))
    return record_of(
        id_of(span.trace_id.hex(), 16),
        OtelSpan(
            id=id_of(span.span_id.hex(), 8),
            parent=id_of(span.parent_span_id.hex(), 8),
            name=span.name,
            start=time_of(span.start_time_unix_nano),
            end=time_of(span.end_time_unix_nano),
            failed=span.status.code == span.status.STATUS_CODE_ERROR,
            attributes=plain(_attributes(span.attributes, room)),
            resource=resource,
            events=[
                Event(each.name, each.time_unix_nano, _attributes(each.attributes, room))
                for each in span.events
            ],
        ),
        line,
    )


def _events(records: Iterator[bytes], line: int | None, room: Budget) -> Iterator[SourceRecord]:
    """Yield events that may come from a model or an agent: most logs are a server's, and many."""
    for record in records:
        if _OURS in record:
            log: Any = _decoded(LogRecord, record)
            event = event_of(
                (id_of(log.trace_id.hex(), 16), id_of(log.span_id.hex(), 8)),
                log.event_name,
                log.time_unix_nano or log.observed_time_unix_nano,
                _attributes(log.attributes, room),
                _value(log.body, room),
            )
            if event:
                yield SourceRecord(*event, line)


def _attributes(pairs: Collection[KeyValue], room: Budget) -> dict[str, object]:
    room.take(len(pairs))
    return {pair.key: _value(pair.value, room) for pair in pairs}


def _value(value: AnyValue, room: Budget) -> object:
    kind = value.WhichOneof("value")
    if kind == "string_value":  # the usual case
        return value.string_value
    if kind == "array_value":
        room.take(len(value.array_value.values))
        return [_value(item, room) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values, room)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind in _PLAIN else None


_PLAIN = ("bool_value", "int_value", "double_value")


def _decoded(kind: type[Message], content: bytes) -> Any:
    """Decode a message after measuring it: values of two bytes each would take gigabytes."""
    if len(content) > 2 * bounds.VALUES:
        _measure(kind.DESCRIPTOR, content)
    return kind.FromString(content)


def _measure(kind: Any, content: bytes) -> None:
    """Refuse a message with too many values, by the descriptor of its kind."""
    room = Budget(bounds.VALUES, str(TooLargeError()))
    inside = [(kind, content)]
    while inside:
        kind, content = inside.pop()
        for number, inner in _fields(content, room):
            field = kind.fields_by_number.get(number)
            if field and field.message_type:
                inside.append((field.message_type, inner))


def _fields(message: bytes, room: Budget) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that are bytes, with their numbers."""
    file = BytesIO(message)
    while file.tell() < len(message):
        room.take(1)
        number, kind = divmod(varint(file), 8)
        if kind == 2:
            yield number, exactly(file, varint(file))
        elif kind == 0:
            varint(file)
        elif kind in (1, 5):
            exactly(file, 8 if kind == 1 else 4)
        else:
            raise ValueError("a field of a kind that OTLP does not have")


def varint(file: IO[bytes]) -> int:
    """Read the next number, of at most ten bytes."""
    number = 0
    for shift in range(0, 70, 7):
        (byte,) = exactly(file, 1)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("a number of more than ten bytes")


def exactly(file: IO[bytes], size: int) -> bytes:
    """Read exactly so many bytes.

    Raises:
        EOFError: there are fewer.
    """
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{size:,} bytes should follow, and {len(content):,} do")
    return content
