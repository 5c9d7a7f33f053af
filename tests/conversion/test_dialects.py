"""OpenTelemetry's spans as each maker writes them, read or refused by their dialect."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import drafting
from tests.support.drafting import Conversion, always, transcript
from tests.support.formats.otlp import TALK, Span, agent, chat, request, span, text


def made_of(folder: Path, *spans: Span) -> Conversion:
    path = folder / "spans.json"
    path.write_text(request([*spans]))
    return drafting.drafted("otlp", path)


def told(folder: Path, *spans: Span) -> tuple[str, list[tuple[object, ...]]]:
    """The objective and the steps of the only trace."""
    draft = made_of(folder, *spans).draft
    return draft.objective, transcript(draft)


LOOKS: Any = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}}],
}
FOUND: Any = {
    "role": "user",
    "parts": [{"type": "tool_call_response", "id": "c1", "response": "x"}],
}
LOOK = ("tool_call", "look", '{"at":1}')


@pytest.mark.parametrize("named", [{}, {"gen_ai.operation.name": "invoke_swarm"}])
def test_messages_around_calls_of_models_count_where_no_call_has_them(
    tmp_path: Path, named: Span
) -> None:
    messages = {"gen_ai.input.messages": TALK, "gen_ai.output.messages": [text("assistant", "all")]}
    cycle = span(1, attributes={**named, **messages})
    wrapped = [
        {**chat(2, TALK, [LOOKS]), "parentSpanId": cycle["spanId"]},
        {
            **chat(3, [*TALK, LOOKS, FOUND], [text("assistant", "so")]),
            "parentSpanId": cycle["spanId"],
        },
    ]
    steps = [LOOK, ("observation", "x"), ("thought", "so")]
    assert told(tmp_path, agent(), cycle, *wrapped) == ("where?", steps)
    assert told(tmp_path, agent(), cycle) == ("where?", [("thought", "all")])
    hidden = {**chat(2), "parentSpanId": cycle["spanId"]}
    assert told(tmp_path, agent(), cycle, hidden) == ("where?", [("thought", "all")])


def test_a_call_of_a_model_that_nothing_names_is_the_same_as_the_one_around_it(
    tmp_path: Path,
) -> None:
    answer = [text("assistant", "so")]
    messages = {"gen_ai.input.messages": TALK, "gen_ai.output.messages": answer}
    inner = span(2, 1, attributes=messages)
    assert told(tmp_path, agent(), chat(1, TALK, answer), inner) == ("where?", [("thought", "so")])


STRANDS: Span = {"gen_ai.system": "strands-agents"}
ASKED = ("gen_ai.user.message", {"content": '[{"text": "where?"}]'})
USE = {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": 1}}}
USES = [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "so"}, USE]
GIVEN = {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "found"}]}}
LOOKED = [("thought", "hm\nso"), LOOK, ("observation", "found"), ("thought", "there")]
# Of a tool's run: what it is given, and what comes of it.
RAN = [
    ("gen_ai.tool.message", {"role": "tool", "content": '{"at": 1}', "id": "c1"}),
    ("gen_ai.choice", {"message": '[{"text": "found"}]', "id": "c1"}),
]


def strands(number: int, operation: str, *events: tuple[str, Any], **attributes: str) -> Span:
    named = {**STRANDS, "gen_ai.operation.name": operation, **attributes}
    return span(number, 0 if number else None, attributes=named, events=events)


def test_the_blocks_of_strands_are_messages_in_json(tmp_path: Path) -> None:
    history = [
        ASKED,
        ("gen_ai.assistant.message", {"content": json.dumps(USES)}),
        ("gen_ai.tool.message", {"content": json.dumps([GIVEN])}),
    ]
    answered = ("gen_ai.choice", {"message": '[{"text": "there"}]', "finish_reason": "end_turn"})
    tool = {"gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1"}
    root = strands(0, "invoke_agent", ASKED, ("gen_ai.choice", {"message": "there\n"}))
    asks = strands(1, "chat", ASKED, ("gen_ai.choice", {"message": json.dumps(USES)}))
    runs = strands(2, "execute_tool", *RAN, **tool)
    answers = strands(3, "chat", *history, answered)
    assert told(tmp_path, root, asks, runs, answers) == ("where?", LOOKED)
    assert told(tmp_path, root, asks, answers) == ("where?", LOOKED)  # without its tools' spans
    called = ("tool_call", "look", '{"at": 1}')
    steps = [("thought", "there\n"), called, ("observation", "found")]
    assert sorted(told(tmp_path, root, runs)[1]) == sorted(steps)  # without its models'


def test_a_cycle_of_strands_tells_both_what_a_model_asks_for_and_what_comes_of_it(
    tmp_path: Path,
) -> None:
    choice = {"message": json.dumps(USES), "tool.result": json.dumps([GIVEN])}
    cycle = span(
        1, attributes={"event_loop.cycle_id": "c"}, events=[ASKED, ("gen_ai.choice", choice)]
    )
    assert told(tmp_path, strands(0, "invoke_agent", ASKED), cycle) == ("where?", LOOKED[:3])


def test_blocks_of_botocore_are_lists(tmp_path: Path) -> None:
    events = [
        ("gen_ai.user.message", {"content": [{"text": "where?"}, {"image": {"format": "png"}}]}),
        ("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "content": USES}}),
    ]
    assert told(tmp_path, agent(), chat(1, events=events)) == ("where?", LOOKED[:2])


def test_in_newer_conventions_events_of_strands_tell_a_run_of_a_tool(tmp_path: Path) -> None:
    name, details = "gen_ai.client.inference.operation.details", json.dumps
    response = {"type": "tool_call_response", "id": "c1", "response": [{"text": "found"}]}
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}}
    prompt = details([{"role": "tool", "parts": [call]}])
    answer = details([{"role": "tool", "parts": [response]}])
    events = [(name, {"gen_ai.input.messages": prompt}), (name, {"gen_ai.output.messages": answer})]
    tool = {"gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1", "gen_ai.tool.status": "error"}
    runs = strands(1, "execute_tool", *events, **tool)
    assert told(tmp_path, agent(), runs)[1] == [LOOK, ("observation", "found")]
    after = [*TALK, LOOKS, {"role": "user", "parts": [response]}]
    talks = strands(2, "chat", (name, {"gen_ai.input.messages": details(after)}))
    assert told(tmp_path, agent(), runs, talks)[1] == [LOOK, ("observation", "found")]


def test_a_tool_of_strands_has_failed_where_its_status_says_so(tmp_path: Path) -> None:
    tool = {"gen_ai.tool.name": "look", "gen_ai.tool.status": "error"}
    runs = strands(1, "execute_tool", *RAN, **tool)
    path = tmp_path / "spans.json"
    path.write_text(request([agent(), runs, chat(2, TALK, [text("assistant", "so")])]))
    recovering = always(recovery="after_tool_error")
    steps = transcript(drafting.drafted("otlp", path, recovering).draft)
    assert steps[-1] == ("error_recovery", "so")
