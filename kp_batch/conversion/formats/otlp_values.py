"""What OTLP's JSON and protobuf share, and plain values of its JSON."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, cast

from kp_batch.conversion.conversation.attributes import OtelSpan
from kp_batch.conversion.conversation.messages import Json, as_object
from kp_batch.conversion.model import Refused, SourceRecord

REQUEST, LOGS, METRICS = "resourceSpans", "resourceLogs", "resourceMetrics"
# Errors of JSON in another form.
FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


def record_of(trace: str, span: OtelSpan, line: int | None) -> SourceRecord | Refused:
    """Return the record of a span; refuse one without ids."""
    if not trace or not span.id:
        return Refused(["missing_id"], "a span without its ids", line=line)
    return SourceRecord(trace, span.to_json(), line)


def time_of(value: str | float | None) -> int | None:
    """Return nanoseconds; protobuf has 0 for none."""
    time = int(value or 0)
    return time if time > 0 else None


def id_of(value: object, size: int) -> str:
    """Return an id in hex: OTLP's form; protobuf's own JSON has base64. '' if there is none."""
    if not isinstance(value, str):
        return ""
    for decode in (bytes.fromhex, base64.b64decode):
        try:
            content = decode(value)
        except ValueError:
            continue
        if len(content) == size:
            return content.hex() if any(content) else ""
    return value


def scopes_of(group: Json, *names: str) -> list[Json]:
    """Return the scopes of a resource's spans or logs, by their current name or that up to 2022."""
    return [scope for name in names for scope in group.get(name) or ()]


def attributes_of(holder: object) -> dict[str, object]:
    """Return the attributes of a span, an event or a resource, as plain JSON."""
    pairs = as_object(holder).get("attributes") or ()
    return {str(pair["key"]): value_of(pair.get("value")) for pair in pairs}


def value_of(value: object) -> object:
    """Return a value without the name of its type; None for a type of a later version."""
    for kind, inner in cast("Json", value or {}).items():
        if kind == "stringValue":
            return inner
        if kind in _VALUES:
            return _VALUES[kind](inner)
    return None


def _list_of(inner: Any) -> list[object]:
    return [value_of(item) for item in inner.get("values") or ()]


def _object_of(inner: Any) -> dict[str, object]:
    return {pair["key"]: value_of(pair.get("value")) for pair in inner.get("values") or ()}


_VALUES: Mapping[str, Callable[[Any], object]] = {
    "intValue": int,
    "doubleValue": lambda inner: float(str(inner)),  # infinity if it is too large
    "boolValue": lambda inner: inner,
    "bytesValue": lambda inner: inner,
    "arrayValue": _list_of,
    "kvlistValue": _object_of,
}
