"""OTLP's spans by the conventions for generative AI."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

TRACE = "0af7651916cd43dd8448eb211c80319c"


START = 1_772_000_000_123_456_789


Span = dict[str, Any]


def value(plain: object) -> dict[str, object]:
    """A value as OTLP writes it."""
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, float):
        return {"doubleValue": plain}
    if isinstance(plain, Mapping):
        return {"kvlistValue": {"values": attributes(plain)}}
    if isinstance(plain, Sequence) and not isinstance(plain, str):
        return {"arrayValue": {"values": [value(each) for each in plain]}}
    return {"stringValue": plain}


def attributes(plain: Mapping[Any, Any]) -> list[dict[str, object]]:
    return [{"key": key, "value": value(each)} for key, each in plain.items()]


def span(number: int, parent: int | None = 0, **own: Any) -> Span:
    """A span that starts so many milliseconds after the first one."""
    start = START + number * 1_000_000
    return {
        "traceId": own.get("trace", TRACE),
        "spanId": f"{number + 1:016x}",
        "parentSpanId": "" if parent is None else f"{parent + 1:016x}",
        "name": own.get("name", "a span"),
        "startTimeUnixNano": str(own.get("start", start)),
        "endTimeUnixNano": str(own.get("end", start + 10)),
        "attributes": attributes(own.get("attributes", {})),
        "events": [
            {"name": name, "timeUnixNano": str(start + at), "attributes": attributes(each)}
            for at, (name, each) in enumerate(own.get("events", ()))
        ],
        "status": {"code": own.get("status", 1)},
    }


def request(spans: list[Span], **resource: str) -> str:
    owner = {"attributes": attributes(resource)}
    return json.dumps({"resourceSpans": [{"resource": owner, "scopeSpans": [{"spans": spans}]}]})


def agent(**own: Any) -> Span:
    named = {"gen_ai.operation.name": "invoke_agent", **own.pop("attributes", {})}
    return span(0, None, attributes=named, **own)


def chat(number: int, messages: object = None, answer: object = None, **own: Any) -> Span:
    named = {"gen_ai.operation.name": "chat"}
    texts = {"gen_ai.input.messages": messages, "gen_ai.output.messages": answer}
    shown = {name: each for name, each in texts.items() if each is not None}
    return span(number, attributes={**named, **shown}, **own)


def text(role: str, words: str) -> Span:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


TALK = [text("system", "be kind"), text("user", "where?")]
