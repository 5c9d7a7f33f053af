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


# Records that count for nothing, by the system, or else by its format.
RECORDS: Mapping[str, list[Any]] = {
    "otlp": [
        "",
        {"resourceLogs": [{"scopeLogs": []}]},
        {"resourceSpans": []},
        _span(1, **{"http.request.method": "GET"}),
        _span(2, **_openinference("GUARDRAIL")),
        _span(3, **_openinference(_NEW.upper())),
    ],
    "phoenix": [_phoenix(1, "EVALUATOR"), _phoenix(2, "PROMPT"), _phoenix(3, _NEW.upper())],
    "mlflow": [
        "",
        {"spans": []},
        {"info": {"trace_id": f"tr-{TRACE}", "tags": UNSEEN}, "data": {"spans": []}},
        *(_mlflow(number, x) for number, x in enumerate(("EMBEDDING", "PARSER", _NEW.upper()), 1)),
    ],
    "langfuse": [
        "",
        *map(_observation, ("EVENT", "SPAN", "GUARDRAIL", "EMBEDDING", "EVALUATOR", _NEW.upper())),
        {"id": "s", "trace_id": TRACE, "name": TEXT, "value": 1, "timestamp": sessions.at(3)},
        {"id": "s", "trace_id": None, "session_id": "x", "name": TEXT, "value": 1},
    ],
    "langsmith": [
        "",
        *(
            {**_run(kind), "parent_run_id": "a", "inputs": {"input": TEXT}, "outputs": UNSEEN}
            for kind in ("prompt", "parser", "embedding", _NEW)
        ),
    ],
    "claude-code": [
        "",
        {"type": "queue-operation", "sessionId": "s", "content": TEXT, "timestamp": sessions.at(1)},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        {"type": "system", "subtype": "turn_duration", "sessionId": "s", "uuid": "x"},
        {"type": _NEW, "sessionId": "s", "uuid": "y", "message": UNSEEN},
        sessions.user("x", [sessions.text(REMINDER)], isMeta=True),
        sessions.user("x", [sessions.text(f"{REMINDER}\n{HINT}")]),
    ],
    "codex": [
        "",
        sessions.event("token_count", 1, info=TEXT),
        sessions.event("agent_message", 2, message=TEXT),
        sessions.event(_NEW, 2, message=TEXT, item=UNSEEN),
        sessions.codex("world_state", 3, x=1),
        sessions.codex(_NEW, 3, **UNSEEN, type="message"),
        sessions.item("message", 3, role="developer", content=_PARTS),
        sessions.item(_NEW, 3, **UNSEEN),
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
        {"type": _NEW, "id": "x", "parentId": None, "message": UNSEEN},
        sessions.pi("x", {"role": "bashExecution", "command": TEXT, "output": TEXT}, None),
        sessions.pi("x", {"role": "custom", "content": TEXT}, None),
        sessions.pi("x", {"role": "assistant", "content": _PARTS, "stopReason": "error"}, None),
    ],
    "atif": [
        {"source": "system", "message": TEXT},
        {"source": _NEW, "message": TEXT},
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
        {"role": _NEW, "content": TEXT},
        {"role": "user", "tool_call_id": "c1", "content": [{"type": "image", "image": TEXT}]},
    ],
    "messages": [{"role": "system", "content": TEXT}, {"role": _NEW, "content": TEXT}, TEXT],
    "knowledgepulse": [
        {"@type": "ToolCallPattern", "id": "kp:pattern:x"},
        {"@type": _NEW, "id": "kp:trace:aa", "task": {"objective": TEXT}},
    ],
}
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
