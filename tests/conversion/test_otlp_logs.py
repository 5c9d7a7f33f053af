"""Messages in OTLP's logs: events that belong to a span, though another signal tells them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.support.formats.otlp import (
    START,
    TALK,
    TRACE,
    Span,
    agent,
    attributes,
    chat,
    request,
    span,
    text,
    value,
)
from tests.support.formats.otlp_protobuf import as_protobuf_has_it, stream
from tests.support.imports.drafting import drafted, transcript

FUNCTION = {"name": "look", "arguments": '{"at": 1}'}
ASKS = [{"id": "c", "type": "function", "function": FUNCTION}]
STEPS = [("tool_call", "look", '{"at": 1}'), ("observation", "found"), ("thought", "so")]
Body = dict[str, Any]


def log(number: int, name: str, body: object, **own: Any) -> Span:
    """A record of a span, at so many nanoseconds."""
    record = {"traceId": TRACE, "spanId": f"{number + 1:016x}", "eventName": name}
    record |= {"observedTimeUnixNano": str(START + own.pop("at", 0)), "body": value(body)}
    return {**record, "attributes": attributes(own.pop("told", {})), **own}


def logs(*records: Span) -> Span:
    return {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "x"}, "logRecords": [*records]}]}]}


EVENTS = [
    log(1, "gen_ai.user.message", {"content": "where?"}, at=1),
    log(1, "gen_ai.choice", {"index": 0, "message": {"tool_calls": ASKS}}, at=2),
    log(2, "gen_ai.user.message", {"content": "where?"}, at=3),
    log(2, "gen_ai.assistant.message", {"tool_calls": ASKS}, at=4),
    log(2, "gen_ai.tool.message", {"id": "c", "content": "found"}, at=5),
    log(2, "gen_ai.choice", {"index": 0, "message": {"content": "so"}}, at=6),
]
OTHERS = [
    log(1, "", "GET /"),
    log(1, "app.start", {"a": 1}),
    log(1, "gen_ai.choice", "", spanId=""),
]


def encoded(message: Span) -> bytes:
    return ParseDict(as_protobuf_has_it(message), ExportLogsServiceRequest()).SerializeToString()


def as_json(folder: Path, *messages: Span) -> None:
    (folder / "logs.jsonl").write_text("\n".join(map(json.dumps, messages)))


def as_protobuf(folder: Path, *messages: Span) -> None:
    (folder / "logs.pb").write_bytes(stream(map(encoded, messages)))


@pytest.mark.parametrize("write", [as_json, as_protobuf])
def test_messages_in_logs_are_those_of_their_spans(
    tmp_path: Path, write: Callable[..., None]
) -> None:
    (tmp_path / "spans.json").write_text(request([agent(), chat(1), chat(2)]))
    write(tmp_path, logs(*OTHERS, *reversed(EVENTS)), logs(*OTHERS))
    made = drafted("otlp", tmp_path)
    assert (made.draft.objective, transcript(made.draft)) == ("where?", STEPS)
    assert (made.skipped, made.refused) == (["logs"], [])


OPERATION = "gen_ai.client.inference.operation.details"
WHOLE = {"gen_ai.input.messages": TALK, "gen_ai.output.messages": [text("assistant", "so")]}


@pytest.mark.parametrize(
    "records",
    [
        [log(1, OPERATION, None, told=WHOLE)],
        [log(1, "", None, told={"event.name": OPERATION, **WHOLE})],
        [log(1, OPERATION, None, told={x: json.dumps(y) for x, y in WHOLE.items()})],
        [
            log(1, "gen_ai.user.message", '{"content": "where?"}'),
            log(1, "gen_ai.choice", '{"message": {"content": "so"}}', at=1),
        ],
        [
            log(1, "gen_ai.user.message", "where?"),
            log(1, "gen_ai.choice", {"message": "so"}, at=1),
        ],
    ],
)
def test_one_event_may_tell_all_and_a_body_may_be_json(tmp_path: Path, records: list[Span]) -> None:
    (tmp_path / "spans.json").write_text(request([agent(), chat(1)]))
    as_json(tmp_path, logs(*records))
    trace = drafted("otlp", tmp_path).draft
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "so")])


def of_gemini(role: str, *parts: Span) -> Span:
    rest = dict.fromkeys(("thought", "function_call", "function_response", "text"))
    return {"content": {"role": role, "parts": [{**rest, **part} for part in parts]}}


def test_a_body_may_be_a_content_of_gemini(tmp_path: Path) -> None:
    call = {"function_call": {"id": "c", "name": "look", "args": {"at": 1}}}
    back = {"function_response": {"id": "c", "name": "look", "response": {"result": "found"}}}
    asked, asks = of_gemini("user", {"text": "where?"}), of_gemini("model", {"text": "hm"}, call)
    records = [
        log(1, "gen_ai.system.message", {"content": "be kind"}),
        log(1, "gen_ai.user.message", asked, at=1),
        log(1, "gen_ai.choice", {**asks, "index": 0}, at=2),
        log(3, "gen_ai.user.message", asked, at=3),
        log(3, "gen_ai.user.message", asks, at=4),
        log(3, "gen_ai.user.message", of_gemini("user", back), at=5),
        log(3, "gen_ai.choice", of_gemini("model", {"text": "so"}), at=6),
    ]
    hidden = {f"gcp.vertex.agent.{name}": "{}" for name in ("tool_call_args", "tool_response")}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    tool |= {"gen_ai.tool.call.id": "c", **hidden}
    spans = [agent(), chat(1), span(2, attributes=tool), chat(3)]
    (tmp_path / "spans.json").write_text(request(spans))
    as_json(tmp_path, logs(*records))
    trace = drafted("otlp", tmp_path).draft
    assert (trace.objective, transcript(trace)) == (
        "where?",
        [
            ("thought", "hm"),
            ("tool_call", "look", '{"at":1}'),
            ("observation", '{"result":"found"}'),
            ("thought", "so"),
        ],
    )


def test_content_that_is_elided_is_missing(tmp_path: Path) -> None:
    named = log(1, "gen_ai.user.message", {"content": "<elided>"})
    as_json(tmp_path, logs(named, log(1, "gen_ai.choice", {"content": "<elided>"}, at=1)))
    (tmp_path / "spans.json").write_text(request([agent(), chat(1)]))
    trace = drafted("otlp", tmp_path).draft
    assert (trace.objective, transcript(trace)) == ("", [])


def test_messages_that_the_span_has_itself_count_once(tmp_path: Path) -> None:
    said = [("gen_ai.user.message", {"content": "where?"}), ("gen_ai.choice", {"content": "so"})]
    named = {"gen_ai.operation.name": "chat"}
    (tmp_path / "spans.json").write_text(
        request([agent(), span(1, attributes=named, events=said), chat(2, TALK)])
    )
    as_json(tmp_path, logs(*EVENTS[:2], log(2, OPERATION, None, told=WHOLE)))
    steps = [("thought", "so"), ("thought", "so")]
    assert transcript(drafted("otlp", tmp_path).draft) == steps


def test_logs_without_their_spans_are_no_trace(tmp_path: Path) -> None:
    as_json(
        tmp_path, logs(*EVENTS), {"resourceLogs": [1]}, logs(log(1, "gen_ai.choice", 1, traceId=3))
    )
    made = drafted("otlp", tmp_path)
    assert (made.drafts, made.skipped) == ({}, ["logs", "no span of an agent"])
    assert made.reasons == [["malformed_json"]]


def test_an_evaluation_in_logs_is_a_further_score_of_its_span(
    tmp_path: Path,
) -> None:
    told, own = (
        {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": 0.5}
        for name in ("kind", "short")
    )
    scored = agent(events=[("gen_ai.evaluation.result", own)])
    (tmp_path / "spans.json").write_text(request([scored, chat(1, TALK)]))
    as_json(tmp_path, logs(log(0, "gen_ai.evaluation.result", None, told=told)))
    assert drafted("otlp", tmp_path).draft.scores == {"kind": 0.5, "short": 0.5}
