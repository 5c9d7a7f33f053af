"""OpenTelemetry's spans, in the export requests of OTLP."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from kp_batch.errors import UnreadableError
from kp_batch.imports.conversation import spans
from kp_batch.imports.conversation.attributes import Event, OtelSpan, first_text, texts
from kp_batch.imports.conversation.messages import Json
from kp_batch.imports.conversation.spans import AgentRun, ModelCall, Span, SpanContent, ToolRun
from kp_batch.imports.formats import genai, openinference
from kp_batch.imports.formats.otlp_files import ENDINGS, LOGS, METRICS, REQUEST, read_requests
from kp_batch.imports.model import (
    Format,
    Origin,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.imports.rules import Rules

_OTHER_SIGNALS = {LOGS: "logs", METRICS: "metrics"}
_ERROR = (2, "STATUS_CODE_ERROR")
_MALFORMED = "malformed_json"
_AGENT = ("gen_ai.agent.name", "agent.name")
_MODEL = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
_SESSION = ("gen_ai.conversation.id", "session.id")
_MLFLOW = "mlflow.spanType"
_FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


def units(path: Path, _: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`."""
    is_ours = False
    for found in read_requests(path):
        if isinstance(found, Rejected):
            yield found
            continue
        line, request = found
        signal = next((_OTHER_SIGNALS[each] for each in _OTHER_SIGNALS if each in request), None)
        is_ours = is_ours or bool(signal) or REQUEST in request
        if REQUEST in request:
            yield from _units(request, line)
        elif signal:
            yield Skipped(signal)
        else:
            yield Rejected([_MALFORMED], f"no {REQUEST}", line=line)
    if not is_ours:
        raise UnreadableError(f"it holds no export request of OTLP: no {REQUEST}")


def _units(request: Json, line: int | None) -> Iterator[SourceRecord | Rejected]:
    try:
        found = list(_found(request))
    except _FAULTS as error:
        yield Rejected([_MALFORMED], f"no export request: {error}", line=line)
        return
    for told, resource in found:
        yield _unit(told, resource, line)


def _found(request: Json) -> Iterator[tuple[Json, Json]]:
    """The spans of a request, with the attributes of their resources."""
    for group in request[REQUEST] or ():
        resource = _attributes(group.get("resource"))
        for scope in group.get("scopeSpans") or ():
            for each in scope.get("spans") or ():
                yield each, resource


def _unit(told: Json, resource: Json, line: int | None) -> SourceRecord | Rejected:
    try:
        trace, span = _id(told.get("traceId"), 16), _id(told.get("spanId"), 8)
        if not trace or not span:
            return Rejected(["missing_id"], "a span without its ids", line=line)
        return SourceRecord(trace, _row(told, span, resource).record(), line)
    except _FAULTS as error:
        return Rejected([_MALFORMED], f"no span: {error}", line=line)


def _row(told: Json, span: str, resource: Json) -> OtelSpan:
    attributes = _attributes(told)
    code = (told.get("status") or {}).get("code")
    return OtelSpan(
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
        try:
            content = decode(value)
        except ValueError:
            continue
        if len(content) == size:
            return content.hex() if any(content) else ""
    return value


def _attributes(holder: object) -> dict[str, object]:
    """The attributes of what has some, as plain JSON."""
    found = cast("Json", holder).get("attributes") if isinstance(holder, dict) else None
    return {str(each["key"]): _value(each.get("value")) for each in found or ()}


def _value(value: object) -> object:
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
        return [_value(each) for each in inner.get("values") or ()]
    if kind == "kvlistValue":
        return {each["key"]: _value(each.get("value")) for each in inner.get("values") or ()}
    return inner


def draft(
    trace: str, units: Sequence[SourceRecord], rules: Rules
) -> TraceDraft | Rejected | Skipped:
    """See `Format`; the records are those of `OtelSpan`."""
    told = (OtelSpan.of(cast("Json", unit.payload)) for unit in units)
    rows = spans.latest(told, lambda row: row.end is not None)
    speaking = filter(openinference.is_spoken, rows)
    of_trace = [score for row in speaking for score in openinference.scores(row, "trace.")]
    found = spans.draft(trace, map(_span, rows), rules, of_trace)
    if isinstance(found, Skipped) and any(_MLFLOW in row.attributes for row in rows):
        why = f"it is told in MLflow's own dialect ({_MLFLOW}), which is not read"
        return Rejected(["unknown_dialect"], why, id=f"kp:trace:{trace}")
    return found


def _span(row: OtelSpan) -> Span:
    content, given, scores = genai.content_of(row), genai.payload(row), genai.scores(row)
    if openinference.is_spoken(row):
        content = _joined(openinference.content_of(row), content)
        asked = openinference.payload(row)
        given = given if asked is None else asked
        scores = [*openinference.scores(row), *scores]
    told = [row.attributes]
    return Span(
        id=row.id,
        parent=row.parent,
        start=row.start,
        end=row.end,
        has_ended=row.end is not None,
        content=content,
        input=given,
        scores=scores,
        fields={} if row.parent else dict(texts(row.resource)) | dict(texts(row.attributes)),
        origin=Origin(
            agent=first_text(told, *_AGENT),
            model=first_text(told, *_MODEL),
            session=first_text(told, *_SESSION),
            version=first_text(told, "gen_ai.agent.version"),
        ),
        release=first_text([row.resource], "service.version"),
    )


def _joined(one: SpanContent | None, other: SpanContent | None) -> SpanContent | None:
    """What a span tells in one dialect; where it leaves the content to the other, what that has."""
    if isinstance(one, ToolRun) and isinstance(other, ToolRun):
        has_content = one.call.arguments is not None or one.result.content is not None
        return one if has_content else other
    if isinstance(one, ModelCall | AgentRun) and isinstance(other, ModelCall | AgentRun):
        return replace(one, given=one.given or other.given, answer=one.answer or other.answer)
    return one or other


FORMAT = Format(
    name="otlp",
    holds="scores of evaluations and annotations",
    inputs=by_ending(*ENDINGS),
    units=units,
    draft=draft,
    source="stream",
)
