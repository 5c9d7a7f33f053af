"""What readers pass over, as each system records it; and what its users do not see of a prompt."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.formats import sessions
from tests.support.formats.agent_dialects import Row
from tests.support.formats.agent_runs import START, TRACE
from tests.support.formats.sessions import BROWSER, FILES, HINT, REMINDER

TEXT = "unseen"
_PARTS = [{"type": "text", "text": TEXT}]
UNSEEN: Row = {"role": "user", "content": _PARTS}  # the value of a key that nobody knows
_NEW = "x_new"  # a type that nobody knows
_NEW_SPAN = _NEW.upper()
UNSEEN_PART: Row = {"type": _NEW, "name": TEXT, "data": UNSEEN, "content": TEXT}
_ROOT = f"{ord('a'):016x}"


def _span(number: int, **told: str) -> Row:
    """A span of OTLP that is no agent's."""
    own = [{"key": key, "value": {"stringValue": each}} for key, each in told.items()]
    ids = {"traceId": TRACE, "spanId": f"{number:016x}", "parentSpanId": _ROOT, "name": TEXT}
    times = {"startTimeUnixNano": "1785747600100000000", "endTimeUnixNano": "1785747600200000000"}
    span = {**ids, **times, "attributes": own, "events": [{"name": _NEW, "attributes": own}]}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def _openinference(kind: str) -> dict[str, str]:
    return {"openinference.span.kind": kind, "input.value": TEXT, "output.value": TEXT}


def _phoenix(number: int, kind: str) -> Row:
    told = {f"attributes.{name}": each for name, each in _openinference(kind).items()}
    ids = {"context.trace_id": TRACE, "context.span_id": f"{number:016x}", "parent_id": _ROOT}
    times = {"start_time": START, "end_time": START, "name": TEXT}
    return {**ids, **times, **told}


def _mlflow(number: int, kind: str) -> Row:
    told = {"spanType": kind, "spanInputs": TEXT, "spanOutputs": TEXT}
    attributes = {f"mlflow.{name}": json.dumps(each) for name, each in told.items()}
    ids = {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_span_id": _ROOT, "name": TEXT}
    at = 1785747600100000000
    times = {"start_time_unix_nano": at, "end_time_unix_nano": at + 1}
    return {"spans": [{**ids, **times, "attributes": attributes, "events": []}]}


def _run(kind: str) -> Row:
    """A row of Langfuse's, or of LangSmith's, that is no agent's."""
    ids = {"id": kind, "trace_id": TRACE, "name": TEXT, "type": kind, "run_type": kind}
    times = {"start_time": "2026-08-03T09:00:00.1Z", "end_time": "2026-08-03T09:00:00.2Z"}
    return {**ids, **times, "status": "success", "dotted_order": "20260803T090000100000Zx"}


def _observation(kind: str) -> Row:
    row = {**_run(kind), "parent_observation_id": "a", "input": TEXT, "output": TEXT}
    del row["run_type"]
    return row


def _dialect(number: int, attribute: str) -> tuple[Row, str]:
    return _span(number, **{attribute: _NEW}), f"span of an unknown kind: {_NEW}"


def _typed(row: Row, part: str, kind: str = _NEW) -> tuple[Row, str]:
    return row, f"{part} of an unknown kind: {kind}"


_INPUTS = {"parent_run_id": "a", "inputs": {"input": TEXT}, "outputs": UNSEEN}
# By the format: records that nobody knows, and how each is counted.
UNKNOWN: Mapping[str, list[tuple[Row, str]]] = {
    "otlp": [
        _typed(_span(3, **_openinference(_NEW_SPAN)), "span", _NEW_SPAN),
        _dialect(4, "gen_ai.operation.name"),
        _dialect(5, "traceloop.span.kind"),
        _dialect(6, "langsmith.span.kind"),
        _dialect(7, "ai.operationId"),
    ],
    "phoenix": [_typed(_phoenix(3, _NEW_SPAN), "span", _NEW_SPAN)],
    "mlflow": [_typed(_mlflow(3, _NEW_SPAN), "span", _NEW_SPAN)],
    "langfuse": [_typed(_observation(_NEW_SPAN), "observation", _NEW_SPAN)],
    "langsmith": [_typed({**_run(_NEW), **_INPUTS}, "run")],
    "claude-code": [
        _typed({"type": _NEW, "sessionId": "s", "uuid": "y", "message": UNSEEN}, "line")
    ],
    "codex": [
        _typed(sessions.event(_NEW, 2, message=TEXT, item=UNSEEN), "event"),
        _typed(sessions.codex(_NEW, 3, **UNSEEN, type="message"), "line"),
        _typed(sessions.item(_NEW, 3, **UNSEEN), "item"),
    ],
    "pi": [
        _typed({"type": _NEW, "id": "x", "parentId": None, "message": UNSEEN}, "line"),
        _typed(sessions.pi("x", {"role": _NEW, "content": TEXT}, None), "message"),
    ],
    "atif": [_typed({"source": _NEW, "message": TEXT}, "step")],
    "inspect": [_typed({"role": _NEW, "content": TEXT}, "message")],
    "messages": [_typed({"role": _NEW, "content": TEXT}, "message")],
    "knowledgepulse": [
        ({"@type": _NEW, "id": "kp:trace:aa", "task": {"objective": TEXT}}, _NEW),
    ],
}
# Records that count for nothing, by the format.
NOTHING: Mapping[str, list[Any]] = {
    "otlp": [
        "",
        {"resourceLogs": [{"scopeLogs": []}]},
        {"resourceSpans": []},
        _span(1, **{"http.request.method": "GET"}),
        _span(2, **_openinference("GUARDRAIL")),
    ],
    "phoenix": [_phoenix(1, "EVALUATOR"), _phoenix(2, "PROMPT")],
    "mlflow": [
        "",
        {"spans": []},
        {"info": {"trace_id": f"tr-{TRACE}", "tags": UNSEEN}, "data": {"spans": []}},
        *(_mlflow(number, x) for number, x in enumerate(("EMBEDDING", "PARSER"), 1)),
    ],
    "langfuse": [
        "",
        *map(_observation, ("EVENT", "SPAN", "GUARDRAIL", "EMBEDDING", "EVALUATOR")),
        {"id": "s", "trace_id": TRACE, "name": TEXT, "value": 1, "timestamp": sessions.at(3)},
        {"id": "s", "trace_id": None, "session_id": "x", "name": TEXT, "value": 1},
    ],
    "langsmith": [
        "",
        *({**_run(kind), **_INPUTS} for kind in ("prompt", "parser", "embedding")),
    ],
    "claude-code": [
        "",
        {"type": "queue-operation", "sessionId": "s", "content": TEXT, "timestamp": sessions.at(1)},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        {"type": "system", "subtype": "turn_duration", "sessionId": "s", "uuid": "x"},
        sessions.user("x", [sessions.text(REMINDER)], isMeta=True),
        sessions.user("x", [sessions.text(f"{REMINDER}\n{HINT}")]),
    ],
    "codex": [
        "",
        sessions.event("token_count", 1, info=TEXT),
        sessions.event("agent_message", 2, message=TEXT),
        sessions.codex("world_state", 3, x=1),
        sessions.item("message", 3, role="developer", content=_PARTS),
        *(
            sessions.item("message", 3, role="user", content=[{"type": "input_text", "text": text}])
            for text in (
                f"<environment_context>\n{TEXT}\n</environment_context>",
                f"# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\n{TEXT}\n</INSTRUCTIONS>",
                f"<turn_aborted>\n{TEXT}\n</turn_aborted>",
                f"<subagent_notification>\n{TEXT}\n</subagent_notification>",
            )
        ),
    ],
    "pi": [
        "",
        {"type": "label", "id": "x", "parentId": None, "targetId": "y", "label": TEXT},
        {"type": "compaction", "id": "x", "parentId": None, "summary": TEXT},
        {"type": "custom_message", "id": "x", "parentId": None, "content": TEXT, "display": True},
        sessions.pi("x", {"role": "bashExecution", "command": TEXT, "output": TEXT}, None),
        sessions.pi("x", {"role": "custom", "content": TEXT}, None),
        sessions.pi("x", {"role": "assistant", "content": _PARTS, "stopReason": "error"}, None),
    ],
    "atif": [
        {"source": "system", "message": TEXT},
        {"source": "user", "message": TEXT, "extra": {"is_sidechain": True}},
        {
            "source": "agent",
            "message": TEXT,
            "extra": {"is_sidechain": True},
            "tool_calls": [{"tool_call_id": "s1", "function_name": "look", "arguments": {}}],
            "observation": {"results": [{"source_call_id": "s1", "content": TEXT}]},
        },
    ],
    "inspect": [
        {"role": "system", "content": TEXT},
        {"role": "user", "tool_call_id": "c1", "content": [{"type": "image", "image": TEXT}]},
    ],
    "messages": [{"role": "system", "content": TEXT}, TEXT],
    "knowledgepulse": [{"@type": "ToolCallPattern", "id": "kp:pattern:x"}],
}
RECORDS = {name: [*NOTHING[name], *(row for row, _ in UNKNOWN[name])] for name in NOTHING}
# What a tool inserts into the texts that are typed into it.
INSERTED: Mapping[str, list[str]] = {
    "claude-code": [REMINDER, HINT, f"{HINT}{REMINDER}"],
    "pi": ['<file name="/home/ida/b.txt">\n1 <b>\n</file>'],
    "codex": [
        f"{BROWSER}\n",
        f"{BROWSER}\n## My request:\n",
        f"{FILES}## My request:\n",
        f"{BROWSER}{FILES}## My request for Codex:\n",
    ],
}
