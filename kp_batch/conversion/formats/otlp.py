"""OpenTelemetry's spans, in the export requests of OTLP.

A record is a span, or a span's event from a log. Left out are scopes, links, kinds, trace states
and status messages of spans, which no dialect needs, and all other logs and metrics.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kp_batch.conversion import dialects
from kp_batch.conversion.conversation import spans
from kp_batch.conversion.conversation.attributes import (
    Event,
    FlatAttributes,
    OtelSpan,
    first_text,
    flat,
    texts,
)
from kp_batch.conversion.conversation.messages import Json
from kp_batch.conversion.conversation.spans import Span
from kp_batch.conversion.dialects import SpanParts
from kp_batch.conversion.dialects.mlflow import MODEL, plain
from kp_batch.conversion.dialects.unread import dialect_of, is_of_memory, operation_of
from kp_batch.conversion.formats.otlp_files import ENDINGS, read_requests
from kp_batch.conversion.formats.otlp_logs import is_event, logged, with_events
from kp_batch.conversion.formats.otlp_values import (
    FAULTS,
    LOGS,
    METRICS,
    REQUEST,
    attributes_of,
    id_of,
    record_of,
    scopes_of,
    time_of,
)
from kp_batch.conversion.model import (
    Drafted,
    Format,
    Origin,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError

_ERROR = (2, "STATUS_CODE_ERROR")
_MALFORMED = "malformed_json"
_AGENT = ("gen_ai.agent.name", "agent.name")
_MODEL = (
    *("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "llm.request.model_name"),
    *("llm.response.model_name", "ai.model.id", MODEL),
)
_SESSION = ("gen_ai.conversation.id", "session.id")
_VERSION = "gen_ai.agent.version"
_ORIGIN = {*_AGENT, *_MODEL, *_SESSION, _VERSION}


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`."""
    is_ours = False
    for item in read_requests(path):
        if isinstance(item, Refused):
            yield item
            continue
        line, request = item
        if not isinstance(request, Mapping):
            is_ours = True
            yield from request
            continue
        is_ours = is_ours or any(signal in request for signal in (REQUEST, LOGS, METRICS))
        if REQUEST in request:
            yield from _records(request, line)
        elif LOGS in request:
            yield from _logged(request, line)
        elif METRICS in request:
            yield Skipped("metrics")
        else:
            yield Refused([_MALFORMED], f"no {REQUEST}", line=line)
    if not is_ours:
        raise UnreadableError(f"it holds no export request of OTLP: no {REQUEST}")


def _records(request: Json, line: int | None) -> Iterator[ReadItem]:
    try:
        groups = [_spans(group) for group in request[REQUEST] or ({},)]
    except FAULTS as error:
        yield Refused([_MALFORMED], f"it is not an export request: {error}", line=line)
        return
    for own, resource in groups:
        yield from (_record(span, resource, line) for span in own)
        if not own:
            yield Skipped(f"{REQUEST} without a span")


def _spans(group: Json) -> tuple[Sequence[Json], Json]:
    """Return the spans of a resource, and its attributes."""
    scopes = scopes_of(group, "scopeSpans", "instrumentationLibrarySpans")
    spans = [span for scope in scopes for span in scope.get("spans") or ()]
    return spans, attributes_of(group.get("resource"))


def _record(span: Json, resource: Json, line: int | None) -> SourceRecord | Refused:
    try:
        return record_of(id_of(span.get("traceId"), 16), _otel_span(span, resource), line)
    except FAULTS as error:
        return Refused([_MALFORMED], f"it is not a span: {error}", line=line)


def _otel_span(span: Json, resource: Json) -> OtelSpan:
    attributes = plain(attributes_of(span))
    code = (span.get("status") or {}).get("code")
    return OtelSpan(
        id=id_of(span.get("spanId"), 8),
        parent=id_of(span.get("parentSpanId"), 8),
        name=str(span.get("name") or ""),
        start=time_of(span.get("startTimeUnixNano")),
        end=time_of(span.get("endTimeUnixNano")),
        failed=code in _ERROR,
        attributes=attributes,
        resource=resource,
        events=[
            Event(str(x.get("name") or ""), time_of(x.get("timeUnixNano")) or 0, attributes_of(x))
            for x in span.get("events") or ()
        ],
    )


def _logged(request: Json, line: int | None) -> Iterator[ReadItem]:
    """Yield the events of spans in a request of logs; a request without any is skipped."""
    try:
        events = list(logged(request))
    except FAULTS as error:
        yield Refused([_MALFORMED], f"it is not an export request: {error}", line=line)
        return
    for trace, event in events:
        yield SourceRecord(trace, event, line)
    if not events:
        yield Skipped("logs")


def unknown(payload: Json) -> Iterator[Skipped]:
    """Yield the kind of a span that has no content in a dialect, and a kind that none knows."""
    if "attributes" not in payload or is_event(payload):
        return
    kinds = dialects.unknown_kinds(flat(payload["attributes"]))
    if kinds and dialects.read(OtelSpan.from_json(payload)).content is None:
        yield of_unknown_kind("span", kinds[0])


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Drafted:
    """See `Format`; the records are `OtelSpan`s, or events from logs."""
    payloads = [record.payload for record in records]
    events = [payload for payload in payloads if is_event(payload)]
    own = [payload for payload in payloads if not is_event(payload)] if events else payloads
    last = spans.latest(own, lambda row: row["end"] is not None)
    rooted = spans.rooted(last, "parent", lambda row: not row["parent"], rules)
    rows = [*with_events(map(OtelSpan.from_json, rooted), events)]
    parts = [dialects.read(row) for row in rows]
    of_trace = [score for each in parts for score in each.of_trace]
    draft = spans.draft(trace, map(_span, rows, parts), rules, of_trace)
    unread = _unread(draft, rows, parts)
    if not unread:
        is_memory = isinstance(draft, Skipped) and any(map(is_of_memory, rows))
        return Skipped("memory operation outside an agent's run") if is_memory else draft
    dialect, example = unread
    why = f"it is in the dialect of {dialect} ({example}), which is not read"
    return Refused(["unknown_dialect"], why, id=f"kp:trace:{trace}")


def _unread(
    draft: Drafted, rows: Sequence[OtelSpan], parts: Sequence[SpanParts]
) -> tuple[str, str] | None:
    """Return the unread dialect of a trace without content, with an example; None if none is.

    If nobody says anything in the trace, it is the dialect of an unread span.
    """
    if isinstance(draft, Skipped):
        return dialect_of(rows) or operation_of(rows)
    if not isinstance(draft, TraceDraft):
        return None
    if not (draft.objective and draft.steps):
        return dialect_of(rows)
    is_silent = not any(step["type"] in ("thought", "error_recovery") for step in draft.steps)
    unread = (row for row, each in zip(rows, parts, strict=True) if not each.content)
    return dialect_of(unread) if is_silent else None


def _span(row: OtelSpan, parts: SpanParts) -> Span:
    return Span(
        id=row.id,
        parent=row.parent,
        start=row.start,
        end=row.end,
        has_ended=row.end is not None,
        content=parts.content,
        input=parts.input,
        attributes=row.attributes,
        scores=parts.scores,
        fields={} if row.parent else dict(texts(row.resource)) | dict(texts(row.attributes)),
        origin=_origin(row.attributes),
        release=first_text([row.resource], "service.version"),
    )


def _origin(attributes: Json) -> Origin:
    if isinstance(attributes, FlatAttributes) and attributes.keys().isdisjoint(_ORIGIN):
        return Origin()  # most spans have none, but for roots and models' spans
    return Origin(
        agent=first_text([attributes], *_AGENT),
        model=first_text([attributes], *_MODEL),
        session=first_text([attributes], *_SESSION),
        version=first_text([attributes], _VERSION),
    )


FORMAT = Format(
    name="otlp",
    contents="scores of evaluations and annotations",
    inputs=by_ending(*ENDINGS),
    records=records,
    draft=draft,
    has_spans=True,
    unknown=unknown,
)
