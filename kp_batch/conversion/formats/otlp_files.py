"""Reads files of OTLP: requests as JSON or protobuf, each packed by itself or not.

Protobuf becomes OTLP's JSON, so that a span is the same by either.
"""

import base64
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kp_batch import bounds
from kp_batch.bounds import Budget, TooLargeError, refusal_budget
from kp_batch.conversion.conversation.messages import Json
from kp_batch.conversion.formats.json_files import (
    CutError,
    is_zstd,
    opened,
    parsed,
    read_json_values,
    unpacked,
)
from kp_batch.conversion.model import Rejected
from kp_batch.errors import UNREADABLE_FILE, UnreadableError

REQUEST, LOGS, METRICS = "resourceSpans", "resourceLogs", "resourceMetrics"
_JSON = (".json", ".jsonl", ".ndjson")
_PACKED = ("", ".gz", ".zst")
ENDINGS = tuple(x + y for x in (*_JSON, ".pb", ".binpb") for y in _PACKED)
_JSON_ENDINGS = tuple(x + y for x in _JSON for y in _PACKED)
_HEAD = 64  # bytes that show what a file is
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1f]")  # which protobuf has early, and JSON not
_SCOPES = (2, 1000)  # the latter up to 2022
_OURS = b"gen_ai."  # which the names of our events have
_MALFORMED = "malformed_json"
_NO_REQUEST = "no export request of OTLP"
_FAULTS = (DecodeError, EOFError, OverflowError, ValueError)

Request = tuple[int | None, Json] | Rejected


def read_requests(path: Path) -> Iterator[Request]:
    """Read a file's requests, with their lines, or their places in a stream.

    Where a stream of messages ends within one, the last item refuses the file, and those before it
    count.

    Raises:
        TooLargeError: it is one request that passes a limit, or unpacks to too much.
        UnreadableError: it is empty, cannot be unpacked, or holds no request.
    """
    with opened(path, may_lack_end=True) as file:
        head = file.read(_HEAD)
    is_stream = is_zstd(head[4:])  # of messages that are packed one by one
    if not is_stream and (path.name.lower().endswith(_JSON_ENDINGS) or _begins_json(head)):
        return read_json_values(path)
    if not head:
        raise UnreadableError("it is empty (0 bytes)")
    return _one_request(path) if head.startswith(b"\n") else _stream(path)


def _begins_json(head: bytes) -> bool:
    return head.lstrip().startswith((b"{", b"[")) and not _CONTROLS.search(head)


def _one_request(path: Path) -> Iterator[Request]:
    """The request that a file is: its first byte is the tag of the first field."""
    with opened(path, may_lack_end=True) as file:
        message = file.read(bounds.LINE_BYTES + 1)
    if len(message) > bounds.LINE_BYTES:
        raise TooLargeError
    try:
        yield None, _request(message)
    except _FAULTS as error:
        raise UnreadableError(f"it is cut, or {_NO_REQUEST}: {error}") from error


def _stream(path: Path) -> Iterator[Request]:
    """The requests of a file that has the length of each before it."""
    number = 0
    room = Budget(bounds.MEMBER_BYTES, "it is too large to be read: it unpacks to too much")
    with opened(path, may_lack_end=True) as file:
        try:
            for number, packed in _messages(file):
                content = _unpacked(number, packed)
                if isinstance(content, Rejected):
                    yield content
                    continue
                room.take(len(content))
                yield _of_stream(number, content)
        except (CutError, EOFError, ValueError) as error:
            message = f"it is cut after {number:,} messages, or holds {_NO_REQUEST}: {error}"
            if not number:
                raise UnreadableError(message) from error
            yield Rejected([UNREADABLE_FILE], message)


def _messages(file: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """The messages of a stream, from 1 on; of one that is too large, the beginning.

    The Collector puts four bytes of length before each, of which the first is 0 where it has less
    than 16 MiB; others put a varint. No message with a span is as short as 10 bytes.
    """
    length = _length if file.peek(1)[:1] < b"\n" else _varint
    number, empty = 0, refusal_budget()
    while file.peek(1):
        size = length(file)
        message = _exactly(file, min(size, bounds.LINE_BYTES + 1))
        for rest in range(size - len(message), 0, -bounds.LINE_BYTES):
            _exactly(file, min(rest, bounds.LINE_BYTES))
        empty.take(not size)
        number += bool(size)
        if size:
            yield number, message


def _unpacked(number: int, message: bytes) -> bytes | Rejected:
    """The content of a message, which may be packed; of one that is too large, the beginning."""
    if not is_zstd(message):
        return message
    try:
        with unpacked(BufferedReader(BytesIO(message))) as file:
            return file.read(bounds.LINE_BYTES + 1)
    except UnreadableError as error:
        return Rejected([_MALFORMED], str(error), line=number)


def _of_stream(number: int, message: bytes) -> Request:
    if message.startswith(b"{"):
        return parsed(number, message)
    try:
        return number, _request(message)
    except TooLargeError as error:
        return Rejected([bounds.TOO_LARGE], str(error), line=number)
    except _FAULTS as error:
        return Rejected([_MALFORMED], f"{_NO_REQUEST}: {error}", line=number)


def _request(message: bytes) -> Json:
    """The request that a message is, as OTLP JSON has it; of metrics, no more than their name.

    All signals have their records at the same place. What is no request raises one of `_FAULTS`.
    """
    if len(message) > bounds.LINE_BYTES:
        raise TooLargeError
    room = Budget(bounds.VALUES, str(TooLargeError()))
    groups = [_group(content, room) for number, content in _fields(message, room) if number == 1]
    signal = _signal([record for _, records in groups for record in records])
    as_json = _AS_JSON.get(signal)
    return {signal: [as_json(*group, room) for group in groups] if as_json else []}


def _group(content: bytes, room: Budget) -> tuple[bytes, list[bytes]]:
    """A resource, and the records of all its scopes."""
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
    """The signal of records, by the first of which it can be seen."""
    for name, kind, is_of in _SIGNALS:
        for record in records:
            with suppress(DecodeError):
                if is_of(_decoded(kind, record)):
                    return name
    if records:
        raise ValueError("it has no span with ids, no log and no metric")
    return REQUEST


def _spans(resource: bytes, records: Iterable[bytes], room: Budget) -> Json:
    attributes = _attributes(_decoded(Resource, resource).attributes, room)
    spans = [_span(_decoded(Span, record), room) for record in records]
    return {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]}


def _span(span: Any, room: Budget) -> Json:
    room.take(len(span.events))
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "startTimeUnixNano": span.start_time_unix_nano,
        "endTimeUnixNano": span.end_time_unix_nano,
        "attributes": _attributes(span.attributes, room),
        "events": [
            {
                "name": event.name,
                "timeUnixNano": event.time_unix_nano,
                "attributes": _attributes(event.attributes, room),
            }
            for event in span.events
        ],
        "status": {"code": span.status.code},
    }


def _logs(_: bytes, records: Iterable[bytes], room: Budget) -> Json:
    """Those that may tell what a model or an agent says: most logs are a server's, and many."""
    ours = [_log(_decoded(LogRecord, record), room) for record in records if _OURS in record]
    return {"scopeLogs": [{"logRecords": ours}]}


def _log(log: Any, room: Budget) -> Json:
    return {
        "traceId": log.trace_id.hex(),
        "spanId": log.span_id.hex(),
        "timeUnixNano": log.time_unix_nano,
        "observedTimeUnixNano": log.observed_time_unix_nano,
        "eventName": log.event_name,
        "attributes": _attributes(log.attributes, room),
        "body": _value(log.body, room),
    }


_AS_JSON = {REQUEST: _spans, LOGS: _logs}
_PLAIN = {
    "string_value": "stringValue",
    "bool_value": "boolValue",
    "int_value": "intValue",
    "double_value": "doubleValue",
}


def _attributes(pairs: Collection[KeyValue], room: Budget) -> list[Json]:
    room.take(len(pairs))
    return [{"key": pair.key, "value": _value(pair.value, room)} for pair in pairs]


def _value(value: AnyValue, room: Budget) -> Json:
    kind = value.WhichOneof("value")
    if kind in _PLAIN:
        return {_PLAIN[kind]: getattr(value, kind)}
    if kind == "array_value":
        room.take(len(value.array_value.values))
        return {"arrayValue": {"values": [_value(item, room) for item in value.array_value.values]}}
    if kind == "kvlist_value":
        return {"kvlistValue": {"values": _attributes(value.kvlist_value.values, room)}}
    if kind == "bytes_value":
        return {"bytesValue": base64.b64encode(value.bytes_value).decode()}
    return {}


def _decoded(kind: type[Message], content: bytes) -> Any:
    """A message, which is measured first: of two bytes each its values would take gigabytes."""
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
    """The fields of a message that are bytes, by their numbers."""
    file = BytesIO(message)
    while file.tell() < len(message):
        room.take(1)
        number, kind = divmod(_varint(file), 8)
        if kind == 2:
            yield number, _exactly(file, _varint(file))
        elif kind == 0:
            _varint(file)
        elif kind in (1, 5):
            _exactly(file, 8 if kind == 1 else 4)
        else:
            raise ValueError("a field of a kind that OTLP does not have")


def _length(file: IO[bytes]) -> int:
    """The length in four bytes before a message."""
    return int.from_bytes(_exactly(file, 4), "big")


def _varint(file: IO[bytes]) -> int:
    """The number that comes next, of at most ten bytes."""
    number = 0
    for shift in range(0, 70, 7):
        (byte,) = _exactly(file, 1)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("a number of more than ten bytes")


def _exactly(file: IO[bytes], size: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: there are fewer.
    """
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{size:,} bytes should follow, and {len(content):,} do")
    return content
