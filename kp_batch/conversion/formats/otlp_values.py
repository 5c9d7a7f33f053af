"""Values of OTLP's JSON as plain ones."""

import base64
from typing import Any, cast

from kp_batch.conversion.conversation.messages import Json, as_object

# What is raised by JSON of another form.
FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


def time_of(value: str | float | None) -> int | None:
    """Nanoseconds; protobuf has 0 where there are none."""
    time = int(value or 0)
    return time if time > 0 else None


def id_of(value: object, size: int) -> str:
    """An id in hex: OTLP has it so, protobuf's own JSON in base64; '' if there is none."""
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


def attributes_of(holder: object) -> dict[str, object]:
    """The attributes of a span, an event or a resource, as plain JSON."""
    pairs = as_object(holder).get("attributes") or ()
    return {str(pair["key"]): value_of(pair.get("value")) for pair in pairs}


def value_of(value: object) -> object:
    """A value without the name of its type."""
    for kind, inner in cast("Json", value or {}).items():
        return inner if kind == "stringValue" else _of_kind(kind, inner)
    return None


def _of_kind(kind: str, inner: Any) -> object:
    if kind == "intValue":
        return int(inner)
    if kind == "doubleValue":
        return float(str(inner))  # of what is too large, infinity
    if kind == "arrayValue":
        return [value_of(item) for item in inner.get("values") or ()]
    if kind == "kvlistValue":
        return {pair["key"]: value_of(pair.get("value")) for pair in inner.get("values") or ()}
    return inner
