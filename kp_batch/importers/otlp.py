"""OpenTelemetry's spans as OTLP JSON: one export request a file, or one a line."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from kp_batch.file_faults import UnreadableError
from kp_batch.importers.draft import PassedOver, Refused, Unit
from kp_batch.importers.format import Format, by_ending
from kp_batch.importers.json_files import read_json_values
from kp_batch.importers.messages import Json
from kp_batch.importers.span import Event, Span
from kp_batch.importers.spans import draft

_ENDINGS = (".json", ".jsonl", ".ndjson")
_REQUEST = "resourceSpans"
_OTHER_SIGNALS = {"resourceLogs": "logs", "resourceMetrics": "metrics"}
_ERROR = (2, "STATUS_CODE_ERROR")
_MALFORMED = "malformed_json"
_FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


def units(path: Path, _: Sequence[Path]) -> Iterator[Unit | Refused | PassedOver]:
    """See `Format`."""
    is_ours = False
    for found in read_json_values(path):
        if isinstance(found, Refused):
            yield found
            continue
        line, request = found
        signal = next((_OTHER_SIGNALS[each] for each in _OTHER_SIGNALS if each in request), None)
        is_ours = is_ours or bool(signal) or _REQUEST in request
        if _REQUEST in request:
            yield from _units(request, line)
        elif signal:
            yield PassedOver(signal)
        else:
            yield Refused([_MALFORMED], f"no {_REQUEST}", line=line)
    if not is_ours:
        raise UnreadableError(f"it holds no export request of OTLP: no {_REQUEST}")


def _units(request: Json, line: int | None) -> Iterator[Unit | Refused]:
    try:
        found = list(_found(request))
    except _FAULTS as error:
        yield Refused([_MALFORMED], f"no export request: {error}", line=line)
        return
    for told, resource in found:
        yield _unit(told, resource, line)


def _found(request: Json) -> Iterator[tuple[Json, Json]]:
    """The spans of a request, with the attributes of their resources."""
    for spans in request[_REQUEST] or ():
        resource = _attributes(spans.get("resource"))
        for scope in spans.get("scopeSpans") or ():
            for each in scope.get("spans") or ():
                yield each, resource


def _unit(told: Json, resource: Json, line: int | None) -> Unit | Refused:
    try:
        trace, span = _id(told.get("traceId"), 16), _id(told.get("spanId"), 8)
        if not trace or not span:
            return Refused(["missing_id"], "a span without its ids", line=line)
        return Unit(trace, _span(told, span, resource).record(), line)
    except _FAULTS as error:
        return Refused([_MALFORMED], f"no span: {error}", line=line)


def _span(told: Json, span: str, resource: Json) -> Span:
    attributes = _attributes(told)
    code = (told.get("status") or {}).get("code")
    return Span(
        id=span,
        parent=_id(told.get("parentSpanId"), 8),
        name=str(told.get("name") or ""),
        start=_time(told.get("startTimeUnixNano")),
        end=_time(told.get("endTimeUnixNano")),
        failed=code in _ERROR,
        attributes=attributes,
        resource=resource,
        events=[
            Event(
                str(each.get("name") or ""), _time(each.get("timeUnixNano")) or 0, _attributes(each)
            )
            for each in told.get("events") or ()
        ],
    )


def _time(value: str | float | None) -> int | None:
    """Nanoseconds; 0 is what protobuf leaves where there are none."""
    found = int(value or 0)
    return found if found > 0 else None


def _id(value: object, size: int) -> str:
    """An id in hex: OTLP has it so, protobuf's own JSON in base64; '' if there is none."""
    if not isinstance(value, str):
        return ""
    for decode in (bytes.fromhex, base64.b64decode):
        with suppress(ValueError):
            content = decode(value)
            if len(content) == size:
                return content.hex() if any(content) else ""
    return value


def _attributes(holder: object) -> dict[str, object]:
    """The attributes of what has some, as plain JSON."""
    found = cast("Json", holder).get("attributes") if isinstance(holder, Mapping) else None
    return {str(each["key"]): _value(each.get("value")) for each in found or ()}


def _value(value: object) -> object:
    """A value without the name of its type."""
    for kind, inner in cast("Json", value or {}).items():
        if kind == "intValue":
            return int(inner)
        if kind == "doubleValue":
            return float(str(inner))  # of what is too large, infinity
        if kind == "arrayValue":
            return [_value(each) for each in inner.get("values") or ()]
        if kind == "kvlistValue":
            return {each["key"]: _value(each.get("value")) for each in inner.get("values") or ()}
        return inner
    return None


FORMAT = Format(
    name="otlp",
    holds="scores of evaluations and annotations",
    inputs=by_ending(*_ENDINGS, *(f"{each}.gz" for each in _ENDINGS)),
    units=units,
    draft=draft,
)
