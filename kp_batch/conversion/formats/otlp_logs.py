"""The events of spans in OTLP's logs: mostly messages, and evaluations.

By OpenTelemetry's conventions, a call's content is not in its span but in log records with the
span's ids, which readers of other signals do not see.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kp_batch.bounds import breaks_off
from kp_batch.conversion.conversation.attributes import Event, OtelSpan, value_at
from kp_batch.conversion.conversation.messages import Json, object_in
from kp_batch.conversion.formats.otlp_values import (
    LOGS,
    attributes_of,
    id_of,
    scopes_of,
    time_of,
    value_of,
)

_OURS = "gen_ai."  # the beginning of the events' names
_EVALUATION = "gen_ai.evaluation.result"
_SPAN, _EVENT = "span", "event"  # the keys of a record, which lacks those of a span


def logged(request: Json) -> Iterator[tuple[str, Json]]:
    """Yield the events in a request of logs: the trace of each, and its record."""
    for group in request[LOGS] or ():
        for scope in scopes_of(group, "scopeLogs", "instrumentationLibraryLogs"):
            for log in scope.get("logRecords") or ():
                event = event_of(
                    (id_of(log.get("traceId"), 16), id_of(log.get("spanId"), 8)),
                    log.get("eventName"),
                    time_of(log.get("timeUnixNano")) or time_of(log.get("observedTimeUnixNano")),
                    attributes_of(log),
                    value_of(log.get("body")),
                )
                if event:
                    yield event


def event_of(
    ids: tuple[str, str], name: object, time: int | None, attributes: Json, body: object
) -> tuple[str, Json] | None:
    """Return the event of a log, with its trace; None if it is not such an event of a span.

    Args:
        ids: ids of the trace and the span.
        name: name of the event; it may be among the attributes instead.
        time: in nanoseconds after 1970.
        attributes: attributes of the log.
        body: body of the log.
    """
    trace, span = ids
    name = str(name or value_at(attributes, "event.name") or "")
    if not (trace and span and name.startswith(_OURS)):
        return None
    fields = object_in(body) or ({} if body is None else {_field_of(body): body})
    return trace, {_SPAN: span, _EVENT: vars(Event(name, time or 0, {**attributes, **fields}))}


def _field_of(body: object) -> str:
    """Return the field of a body that is not an object: a text is content, unless JSON belongs."""
    is_cut = isinstance(body, str) and body.startswith("{") and breaks_off(body)
    return "gen_ai.event.content" if is_cut else "content"


def is_event(payload: Json) -> bool:
    """Whether a record is one of these events."""
    return _EVENT in payload


def with_events(spans: Iterable[OtelSpan], payloads: Iterable[Json]) -> Iterator[OtelSpan]:
    """Yield the spans with the events in logs, unless they have such events themselves.

    An evaluation may come later than a span's own events, and with another name.
    """
    events = defaultdict[str, list[Event]](list)
    for payload in payloads:
        events[payload[_SPAN]].append(Event(**payload[_EVENT]))
    for span in spans:
        yield _with(span, events[span.id]) if span.id in events else span


def _with(span: OtelSpan, logged: Sequence[Event]) -> OtelSpan:
    own = {event.name for event in span.events} - {_EVALUATION}
    events = [*span.events, *(event for event in logged if event.name not in own)]
    return replace(span, events=sorted(events, key=lambda event: event.time))
