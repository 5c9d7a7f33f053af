"""Runs of agents, and how each system of spans tells them."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tests.support.formats.agent_dialects import DIALECTS, Row, SpanContent
from tests.support.formats.agent_dialects import mlflow as _mlflow

START = datetime(2026, 8, 3, 9, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"


@dataclass(frozen=True)
class Step:
    """A span of a run, in no system's form yet.

    Attributes:
        kind: agent, model, tool, retriever or chain.
        id: one letter.
        parent: the step that it is within; '' for the root.
        start: in seconds after the run's start.
        end: likewise.
        given: the messages of a model, in OpenAI's shape, or a text; the arguments of a tool; the
            text that an agent is asked.
        answer: the message of a model, or a text; the result of a tool; the text that an agent
            answers. None: not recorded.
        name: of the tool or agent.
        call: the id of the call.
        failed: whether the tool has.
    """

    kind: str
    id: str
    parent: str
    start: float
    end: float
    given: Any = None
    answer: Any = None
    name: str = ""
    call: str = ""
    failed: bool = False


def user(text: str) -> Row:
    """What a user says."""
    return {"role": "user", "content": text}


def says(text: str = "", *calls: Row) -> Row:
    """What a model answers."""
    return {"role": "assistant", "content": text, **({"tool_calls": [*calls]} if calls else {})}


def call(name: str, number: str, **arguments: Any) -> Row:
    """A call in what a model answers."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": number, "type": "function", "function": function}


def result(number: str, text: str) -> Row:
    """What a model is given of a call."""
    return {"role": "tool", "tool_call_id": number, "content": text}


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _span_id(letter: str) -> str:
    return f"{ord(letter):016x}" if letter else ""


def _genai(step: Step) -> Row:
    if step.kind == "agent":
        named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": step.name}
        sides = {
            "input": step.given and user(step.given),
            "output": step.answer and says(step.answer),
        }
        told = {f"gen_ai.{x}.messages": json.dumps([each]) for x, each in sides.items() if each}
        return {**named, **told}
    if step.kind == "model":
        answer = [] if step.answer is None else [step.answer]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(step.given),
            "gen_ai.output.messages": json.dumps(answer),
        }
    tool = {"gen_ai.tool.name": step.name, "gen_ai.tool.call.id": step.call}
    named = {"gen_ai.operation.name": {"tool": "execute_tool"}.get(step.kind, "retrieval")}
    what = ("tool.call.arguments", "tool.call.result")
    if step.kind == "retriever":
        what = ("retrieval.query.text", "retrieval.documents")
    return {**named, **tool, **dict(zip((f"gen_ai.{x}" for x in what), _texts(step), strict=True))}


def _texts(step: Step) -> tuple[str, Any]:
    return json.dumps(step.given), step.answer


def _openinference(step: Step) -> Row:
    kind = {"openinference.span.kind": {"model": "LLM"}.get(step.kind, step.kind.upper())}
    if step.kind == "model" and isinstance(step.given, str):
        return {**kind, "input.value": step.given, "output.value": step.answer}
    if step.kind == "model":
        messages = {"llm.input_messages": [_message(each) for each in step.given]}
        if step.answer is not None:
            messages["llm.output_messages"] = [_message(step.answer)]
        return {**kind, **{name: json.dumps(each) for name, each in messages.items()}}
    if step.kind in ("tool", "retriever"):
        arguments, answer = _texts(step)
        tool = {"tool.name": step.name, "tool.id": step.call, "input.value": arguments}
        return {**kind, **tool, "output.value": answer}
    return {**kind, "input.value": step.given, "output.value": step.answer}


def _message(message: Row) -> Row:
    calls = [
        {
            "tool_call.id": each["id"],
            "tool_call.function.name": each["function"]["name"],
            "tool_call.function.arguments": each["function"]["arguments"],
        }
        for each in message.get("tool_calls", ())
    ]
    attributes_of_message = {
        "message.role": message["role"],
        "message.content": message["content"],
        "message.tool_calls": calls or None,
        "message.tool_call_id": message.get("tool_call_id"),
    }
    return {name: each for name, each in attributes_of_message.items() if each is not None}


def otlp(
    folder: Path,
    run: Sequence[Step],
    told: Callable[[Step], SpanContent] = lambda x: (_genai(x), []),
) -> None:
    """As OTLP JSON, a span a line, in the conventions of OpenTelemetry, or as a maker tells it."""
    lines: list[object] = []
    for step in run:
        own, events = ({}, []) if step.kind == "chain" else told(step)
        span = {
            "traceId": TRACE,
            "spanId": _span_id(step.id),
            "parentSpanId": _span_id(step.parent),
            "name": step.name,
            "startTimeUnixNano": str(int(_at(step.start).timestamp() * 10**6) * 1_000),
            "endTimeUnixNano": str(int(_at(step.end).timestamp() * 10**6) * 1_000),
            "status": {"code": 2 if step.failed else 1},
            "attributes": _attributes(own),
            "events": [
                {"name": name, "timeUnixNano": "1", "attributes": _attributes(each)}
                for name, each in events
            ],
        }
        lines.append({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    _write(folder / "spans.jsonl", lines)


def _attributes(own: Row) -> list[Row]:
    told = [(key, each) for key, each in own.items() if each is not None]
    return [{"key": key, "value": {"stringValue": each}} for key, each in told]


def otlp_logs(folder: Path, run: Sequence[Step], told: Callable[[Step], Iterable[Row]]) -> None:
    """Likewise, with the messages in logs beside the spans."""
    otlp(folder, run, lambda step: (_parted(_genai(step))[1], []))
    with (folder / "spans.jsonl").open("a", encoding="utf-8") as file:
        for step in (step for step in run if step.kind == "model"):
            for place, log in enumerate(told(step), 1):
                ids = {"traceId": TRACE, "spanId": _span_id(step.id), "timeUnixNano": str(place)}
                logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**ids, **log}]}]}]}
                file.write(f"{json.dumps(logs)}\n")


def _details(step: Step) -> Iterator[Row]:
    """All messages of a call in one record."""
    messages, _ = _parted(_genai(step))
    name = "gen_ai.client.inference.operation.details"
    yield {"eventName": name, "attributes": _attributes(messages)}


def _events(step: Step) -> Iterator[Row]:
    """Each message in one, as in conventions before."""
    for message in step.given:
        body = {"stringValue": json.dumps(_event(message))}
        yield {"eventName": f"gen_ai.{message['role']}.message", "body": body}
    if step.answer is not None:
        body = {"stringValue": json.dumps({"index": 0, "message": step.answer})}
        yield {"eventName": "gen_ai.choice", "body": body}


def _event(message: Row) -> Row:
    if message["role"] != "tool":
        return message
    return {"id": message["tool_call_id"], "content": message["content"]}


def _parted(own: Row) -> tuple[Row, Row]:
    """The messages among a span's attributes, and the others."""
    messages = {name: each for name, each in own.items() if name.endswith("put.messages")}
    return messages, {name: each for name, each in own.items() if name not in messages}


def openinference(folder: Path, run: Sequence[Step]) -> None:
    """Likewise, in OpenInference's conventions."""
    otlp(folder, run, lambda step: (_openinference(step), []))


def phoenix(folder: Path, run: Sequence[Step]) -> None:
    """As Phoenix's data frame of spans."""
    rows = [
        {
            "context.trace_id": TRACE,
            "context.span_id": _span_id(step.id),
            "parent_id": _span_id(step.parent) or None,
            "name": step.name,
            "start_time": _at(step.start),
            "end_time": _at(step.end),
            "status_code": "ERROR" if step.failed else "OK",
            **{f"attributes.{name}": each for name, each in _openinference(step).items()},
        }
        for step in run
    ]
    folder.mkdir(parents=True)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "spans.parquet")


def mlflow(folder: Path, run: Sequence[Step]) -> None:
    """As MLflow's JSON, a span a line."""
    rows = [
        {
            "trace_id": _base64(TRACE),
            "span_id": _base64(_span_id(step.id)),
            "parent_span_id": _base64(_span_id(step.parent)) or None,
            "name": step.name,
            "start_time_unix_nano": int(_at(step.start).timestamp() * 10**6) * 1_000,
            "end_time_unix_nano": int(_at(step.end).timestamp() * 10**6) * 1_000,
            "status": {"code": f"STATUS_CODE_{'ERROR' if step.failed else 'OK'}", "message": ""},
            "attributes": _mlflow(step)[0],
            "events": [],
        }
        for step in run
    ]
    _write(folder / "traces.jsonl", [{"spans": [row]} for row in rows])


def _base64(id_: str) -> str:
    return b64encode(bytes.fromhex(id_)).decode()


def langfuse(folder: Path, run: Sequence[Step]) -> None:
    """As rows of Langfuse's observations."""
    kinds = {"model": "GENERATION", "chain": "SPAN"}
    rows = [
        {
            "id": step.id,
            "trace_id": TRACE,
            "parent_observation_id": step.parent,
            "type": kinds.get(step.kind, step.kind.upper()),
            "name": step.name,
            "start_time": _at(step.start).isoformat(),
            "end_time": _at(step.end).isoformat(),
            "level": "ERROR" if step.failed else "DEFAULT",
            "input": _json(step.given),
            "output": _json(step.answer),
            "metadata": {"tool_call_id": step.call} if step.call else {},
        }
        for step in run
    ]
    _write(folder / "observations.jsonl", rows)


def _json(payload: object) -> str:
    return payload if isinstance(payload, str) else "" if payload is None else json.dumps(payload)


def langsmith(folder: Path, run: Sequence[Step]) -> None:
    """As LangSmith's runs, which have no kind for agents."""
    rows: list[Row] = []
    by_id = {step.id: step for step in run}
    for step in run:
        inputs, answer = step.given, step.answer
        if step.kind == "agent" or (step.kind == "model" and isinstance(inputs, str)):
            inputs, answer = inputs and {"input": inputs}, answer and {"output": answer}
        elif step.kind == "model":
            inputs, answer = {"messages": inputs}, {"messages": [answer] if answer else []}
        elif answer is not None:
            content = {"type": "tool", "tool_call_id": step.call, "content": answer}
            answer = {"output": content}
        rows.append(
            {
                "id": step.id,
                "trace_id": TRACE,
                "parent_run_id": step.parent or None,
                "run_type": {"model": "llm", "agent": "chain"}.get(step.kind, step.kind),
                "name": step.name,
                "status": "error" if step.failed else "success",
                "start_time": _at(step.start).isoformat(),
                "end_time": _at(step.end).isoformat(),
                "dotted_order": _dotted(step, by_id),
                "inputs": inputs,
                "outputs": answer,
            }
        )
    _write(folder / "runs.jsonl", rows)


def _dotted(step: Step, by_id: Mapping[str, Step]) -> str:
    own = f"{_at(step.start):%Y%m%dT%H%M%S%f}Z{step.id}"
    return f"{_dotted(by_id[step.parent], by_id)}.{own}" if step.parent in by_id else own


def _write(path: Path, rows: Sequence[object]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


SYSTEMS: Mapping[str, Callable[[Path, Sequence[Step]], None]] = {
    "otlp": otlp,
    "otlp with logs": partial(otlp_logs, told=_details),
    "otlp with a log a message": partial(otlp_logs, told=_events),
    "otlp in OpenInference": openinference,
    "phoenix": phoenix,
    "mlflow": mlflow,
    "langfuse": langfuse,
    "langsmith": langsmith,
    **{name: partial(otlp, told=dialect) for name, dialect in DIALECTS.items()},
}
# Those in which a model's input may be a text, which is no message.
TEXTS = ("otlp in OpenInference", "otlp of MLflow", "phoenix", "mlflow", "langfuse", "langsmith")


ASK = [user("where is it?")]
LOOK = call("look", "c1", at=1)
ROOT = Step("agent", "a", "", 0, 60, name="helper")
BEFORE = [  # of the same chat
    user("what is it?"),
    says("so", call("look", "c0", at=0)),
    result("c0", "a key"),
    says("a key"),
    user("and whose?"),
    says("mine"),
]
AFTER = [*ASK, says("hm", LOOK), result("c1", "found")]
AGAIN, FOUND_AGAIN = says("again", call("look", "c2", at=1)), result("c2", "found")
LOOKS = Step("model", "m", "a", 1, 2, ASK, says("hm", LOOK))
LOOKED = Step("tool", "t", "a", 3, 8, {"at": 1}, "found", "look", "c1")
THERE = Step("model", "z", "a", 9, 10, AFTER, says("there"))
T, C, R = "thought", "tool_call", "observation"
# What was done, and the types of the steps that it comes to.
RUNS: dict[str, tuple[Sequence[Step], list[str]]] = {
    "a model, a tool, a model": ([ROOT, LOOKS, LOOKED, THERE], [T, C, R, T]),
    "a model within the tool that a model's span holds": (
        [
            ROOT,
            replace(LOOKS, end=8),
            replace(LOOKED, parent="m", end=7),
            Step("model", "i", "t", 4, 5, [user("look at 1")], says("it is here")),
            THERE,
        ],
        [T, C, R, R, T, T],
    ),
    "a model within a chain within a tool within a model, and no more": (
        [
            ROOT,
            Step("model", "m", "a", 1, 8, ASK, says("hm")),
            Step("tool", "t", "m", 2, 7, {"at": 1}, "found", "look", "c1"),
            Step("chain", "c", "t", 3, 6, name="inner"),
            Step("model", "i", "c", 4, 5, ASK, says("it is here")),
        ],
        [T, C, R, T],
    ),
    "an agent below an agent": (
        [
            ROOT,
            LOOKS,
            LOOKED,
            Step("agent", "b", "t", 4, 7, name="finder"),
            Step("model", "i", "b", 5, 6, [user("look at 1")], says("it is here")),
            THERE,
        ],
        [T, C, R, R, T, T],
    ),
    "a call of a model that is tried again": (
        [ROOT, replace(LOOKS, id="l", start=0.5, end=0.7, answer=None), LOOKS, LOOKED, THERE],
        [T, C, R, T],
    ),
    "a tool that is tried again": (
        [
            ROOT,
            LOOKS,
            replace(LOOKED, answer="no", failed=True, end=4),
            Step("model", "n", "a", 5, 6, [*AFTER[:2], result("c1", "no")], AGAIN),
            replace(LOOKED, id="u", call="c2", start=7),
            replace(THERE, given=[*AFTER[:2], result("c1", "no"), AGAIN, FOUND_AGAIN]),
        ],
        [T, C, R, "error_recovery", C, R, T],
    ),
    "a tool that is asked twice alike": (
        [
            ROOT,
            LOOKS,
            LOOKED,
            Step("model", "n", "a", 8.5, 8.6, AFTER, AGAIN),
            replace(LOOKED, id="u", call="c2", start=8.7, end=8.9),
            replace(THERE, given=[*AFTER, AGAIN, FOUND_AGAIN]),
        ],
        [T, C, R, T, C, R, T],
    ),
    "a user who says more meanwhile": (
        [ROOT, LOOKS, LOOKED, replace(THERE, given=[*AFTER, user("and whose is it?")])],
        [T, C, R, R, T],
    ),
    "tools at once": (
        [
            ROOT,
            replace(LOOKS, answer=says("both", LOOK, call("see", "c2", at=2))),
            replace(LOOKED, id="y", end=4),
            replace(LOOKED, id="b", name="see", call="c2", given={"at": 2}, answer="seen"),
            replace(THERE, given=[*AFTER, result("c2", "seen")]),
        ],
        [T, C, C, R, R, T],
    ),
    "spans of one call within each other": (
        [
            ROOT,
            replace(LOOKS, end=2.5),
            Step("chain", "c", "m", 1, 2.4, name="client"),
            replace(LOOKS, id="n", parent="c", start=1, end=2),
            replace(LOOKS, id="o", parent="n", start=1.5, end=2),
            LOOKED,
            replace(LOOKED, id="u", parent="t", start=3, end=7),
            THERE,
        ],
        [T, C, R, T],
    ),
    "a span around a call that tells no answer": (
        [
            ROOT,
            replace(LOOKS, answer=None, end=2.5),
            replace(LOOKS, id="n", parent="m"),
            LOOKED,
            THERE,
        ],
        [T, C, R, T],
    ),
    "a tool's span without an id, whose arguments are told by their places": (
        [ROOT, LOOKS, replace(LOOKED, given={"args": [1], "kwargs": {}}, call=""), THERE],
        [T, C, R, T],
    ),
    "a tool's span without an id, whose arguments are of another kind": (
        [ROOT, LOOKS, replace(LOOKED, given={"place": "1"}, call=""), THERE],
        [T, C, R, T],
    ),
    "tools at once, whose spans have no ids and come in another order": (
        [
            ROOT,
            replace(LOOKS, answer=says("both", LOOK, call("look", "c2", at=2))),
            replace(LOOKED, id="y", given={"at": 2, "far": False}, call="", answer="seen"),
            replace(LOOKED, start=4, given={"at": 1, "far": False}, call=""),
            replace(THERE, given=[*AFTER, result("c2", "seen")]),
        ],
        [T, C, C, R, R, T],
    ),
    "spans of one tool within each other, of which one has wrapped arguments": (
        [
            ROOT,
            LOOKS,
            LOOKED,
            replace(LOOKED, id="u", parent="t", given={"kwargs": {"at": 1}}, call=""),
            THERE,
        ],
        [T, C, R, T],
    ),
    "a tool that no model asks for": (
        [
            ROOT,
            replace(LOOKED, call=""),
            Step("model", "z", "a", 9, 10, ASK, says("there")),
        ],
        [C, R, T],
    ),
    "a retriever, and one that a tool asks": (
        [
            ROOT,
            Step("retriever", "r", "a", 0.5, 0.9, {"query": "it"}, "a page", "find", "c0"),
            LOOKS,
            LOOKED,
            Step("chain", "c", "t", 4, 6, name="search"),
            Step("retriever", "q", "c", 5, 6, {"query": "at 1"}, "a page", "find", "c9"),
            THERE,
        ],
        [C, R, T, C, R, T],
    ),
}
# Those of which the agents tell what they are asked, and answer; and the systems that have that.
OF_AGENTS: dict[str, tuple[Sequence[Step], list[str]]] = {
    "a turn of a chat, whose models are given those before": (
        [
            replace(ROOT, given="where is it?"),
            replace(LOOKS, given=[*BEFORE, *ASK]),
            LOOKED,
            replace(THERE, given=[*BEFORE, *AFTER, user("thanks")]),
        ],
        [T, C, R, R, T],
    ),
    "a turn of a chat, whose models are given the question among other texts": (
        [
            replace(ROOT, given="where is it?"),
            replace(LOOKS, given=[*BEFORE, user("It is 9:00. where is it? Be brief.")]),
            LOOKED,
            replace(THERE, given=[*BEFORE, user("It is 9:00. where is it? Be brief."), *AFTER[1:]]),
        ],
        [T, C, R, T],
    ),
    "a turn of a chat, which a model sorts before another one answers": (
        [
            replace(ROOT, given="where is it?"),
            Step(
                "model", "s", "a", 0.5, 0.9, [user("Which kind is 'where is it?'")], says("place")
            ),
            replace(LOOKS, given=[*BEFORE, *ASK]),
            LOOKED,
            replace(THERE, given=[*BEFORE, *AFTER]),
        ],
        [T, T, C, R, T],
    ),
    "an agent without spans of its model": (
        [replace(ROOT, given="where is it?", answer="there"), LOOKED],
        [C, R, T],
    ),
    "an agent with a span of its model, which answers within": (
        [replace(ROOT, given="where is it?", answer="there"), LOOKS, LOOKED, THERE],
        [T, C, R, T],
    ),
    "an agent of which only a tool has a span of a model": (
        [
            replace(ROOT, given="where is it?", answer="there"),
            LOOKED,
            Step("model", "i", "t", 4, 5, [user("where is it?")], says("it is here")),
            replace(LOOKED, id="u", start=9, end=12, given={"at": 2}, call="c2"),
        ],
        [C, R, T, C, R, T],
    ),
}
TELLING = ("otlp", *TEXTS, "otlp of LangSmith", "otlp of OpenLLMetry")
