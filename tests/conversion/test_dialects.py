"""OpenTelemetry's spans as each maker writes them, read or refused by their dialect."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import drafting
from tests.support.drafting import Conversion, transcript
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
