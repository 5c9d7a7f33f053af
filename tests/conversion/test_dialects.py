"""OpenTelemetry's spans as each maker writes them, read or refused by their dialect."""

import json
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion import dialects
from kp_batch.conversion.conversation.attributes import FlatAttributes, OtelSpan
from tests.support.formats.otlp import TALK, Span, agent, chat, request, span, text
from tests.support.imports import drafting
from tests.support.imports.drafting import Conversion, always, transcript


def made_of(folder: Path, *spans: Span) -> Conversion:
    path = folder / "spans.json"
    path.write_text(request([*spans]))
    return drafting.drafted("otlp", path)


def run_of(folder: Path, *spans: Span) -> tuple[str, list[tuple[object, ...]]]:
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


def test_an_answer_may_have_a_role_of_its_own(tmp_path: Path) -> None:
    said = chat(1, TALK, [text("Writer", "so")])
    assert run_of(tmp_path, agent(), said) == ("where?", [("thought", "so")])


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
    assert run_of(tmp_path, agent(), cycle, *wrapped) == ("where?", steps)
    assert run_of(tmp_path, agent(), cycle) == ("where?", [("thought", "all")])
    hidden = {**chat(2), "parentSpanId": cycle["spanId"]}
    assert run_of(tmp_path, agent(), cycle, hidden) == ("where?", [("thought", "all")])


def test_a_call_of_a_model_that_nothing_names_is_the_same_as_the_one_around_it(
    tmp_path: Path,
) -> None:
    answer = [text("assistant", "so")]
    messages = {"gen_ai.input.messages": TALK, "gen_ai.output.messages": answer}
    inner = span(2, 1, attributes=messages)
    assert run_of(tmp_path, agent(), chat(1, TALK, answer), inner) == (
        "where?",
        [("thought", "so")],
    )


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
    assert run_of(tmp_path, root, asks, runs, answers) == ("where?", LOOKED)
    assert run_of(tmp_path, root, asks, answers) == ("where?", LOOKED)  # without its tools' spans
    called = ("tool_call", "look", '{"at": 1}')
    steps = [("thought", "there\n"), called, ("observation", "found")]
    assert sorted(run_of(tmp_path, root, runs)[1]) == sorted(steps)  # without its models'


def test_a_cycle_of_strands_has_both_calls_and_results(
    tmp_path: Path,
) -> None:
    choice = {"message": json.dumps(USES), "tool.result": json.dumps([GIVEN])}
    cycle = span(
        1, attributes={"event_loop.cycle_id": "c"}, events=[ASKED, ("gen_ai.choice", choice)]
    )
    assert run_of(tmp_path, strands(0, "invoke_agent", ASKED), cycle) == ("where?", LOOKED[:3])


def test_blocks_of_botocore_are_lists(tmp_path: Path) -> None:
    events = [
        ("gen_ai.user.message", {"content": [{"text": "where?"}, {"image": {"format": "png"}}]}),
        ("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "content": USES}}),
    ]
    assert run_of(tmp_path, agent(), chat(1, events=events)) == ("where?", LOOKED[:2])


def test_blocks_of_kinds_that_nobody_knows_are_left_out(tmp_path: Path) -> None:
    new = {"newKind": {"text": "unseen"}}
    asked = ("gen_ai.user.message", {"content": json.dumps([new, {"text": "where?"}])})
    answered = ("gen_ai.choice", {"message": json.dumps([*USES, new])})
    assert run_of(tmp_path, agent(), strands(1, "chat", asked, answered)) == ("where?", LOOKED[:2])


def test_in_newer_conventions_events_of_strands_tell_a_run_of_a_tool(tmp_path: Path) -> None:
    name, details = "gen_ai.client.inference.operation.details", json.dumps
    response = {"type": "tool_call_response", "id": "c1", "response": [{"text": "found"}]}
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}}
    prompt = details([{"role": "tool", "parts": [call]}])
    answer = details([{"role": "tool", "parts": [response]}])
    events = [(name, {"gen_ai.input.messages": prompt}), (name, {"gen_ai.output.messages": answer})]
    tool = {"gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1", "gen_ai.tool.status": "error"}
    runs = strands(1, "execute_tool", *events, **tool)
    assert run_of(tmp_path, agent(), runs)[1] == [LOOK, ("observation", "found")]
    after = [*TALK, LOOKS, {"role": "user", "parts": [response]}]
    talks = strands(2, "chat", (name, {"gen_ai.input.messages": details(after)}))
    assert run_of(tmp_path, agent(), runs, talks)[1] == [LOOK, ("observation", "found")]


def test_a_tool_of_strands_has_failed_where_its_status_says_so(tmp_path: Path) -> None:
    tool = {"gen_ai.tool.name": "look", "gen_ai.tool.status": "error"}
    runs = strands(1, "execute_tool", *RAN, **tool)
    path = tmp_path / "spans.json"
    path.write_text(request([agent(), runs, chat(2, TALK, [text("assistant", "so")])]))
    recovering = always(recovery="after_tool_error")
    steps = transcript(drafting.drafted("otlp", path, recovering).draft)
    assert steps[-1] == ("error_recovery", "so")


def below(attributes: Span, number: int = 1, **own: Any) -> Span:
    return span(number, attributes=attributes, **own)


def root(**attributes: Any) -> Span:
    return span(0, None, attributes=attributes)


def test_the_root_of_the_ai_sdk_counts_where_its_calls_are_not_recorded(tmp_path: Path) -> None:
    run = {"ai.operationId": "ai.generateObject", "ai.response.object": '{"open":true}'}
    asked = root(**run, **{"ai.prompt": '{"system": "be kind", "prompt": "where?"}'})
    assert run_of(tmp_path, asked) == ("where?", [("thought", '{"open":true}')])
    talked = root(**run, **{"ai.prompt": '{"messages": [{"role": "user", "content": "where?"}]}'})
    assert run_of(tmp_path, talked) == ("where?", [("thought", '{"open":true}')])


def test_older_names_of_the_ai_sdk_and_its_reasoning_are_read(tmp_path: Path) -> None:
    calls = '[{"toolCallType": "function", "toolCallId": "c1", "toolName": "look", "args": "{}"}]'
    old = {
        "ai.operationId": "ai.streamText.doStream",
        "ai.prompt.messages": '[{"role": "user", "content": [{"type": "text", "text": "where?"}]}]',
        "ai.result.text": "so",
        "ai.result.toolCalls": calls,
        "ai.response.reasoning": "hm",
    }
    asked = root(**{"ai.operationId": "ai.streamText", "ai.prompt": "{}"})
    steps = [("thought", "hm\nso"), ("tool_call", "look", "{}")]
    assert run_of(tmp_path, asked, below(old)) == ("where?", steps)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"output": {"type": "text", "value": "found"}}, "found"),
        ({"output": {"type": "json", "value": {"at": 1}}}, '{"at":1}'),
        ({"output": {"type": "content", "value": [{"type": "text", "text": "found"}]}}, "found"),
        ({"output": {"type": "execution-denied", "reason": "no"}}, "no"),
        ({"output": {"type": "error-text", "value": "no"}}, "no"),
        ({"result": "found"}, "found"),
    ],
)
def test_results_in_messages_of_the_ai_sdk_have_a_type(
    tmp_path: Path, part: Span, content: str
) -> None:
    result = {"type": "tool-result", "toolCallId": "c1", "toolName": "look", **part}
    parts = [{"type": "image", "image": "aaaa"}, {"type": "text", "text": "where?"}]
    prompt = [{"role": "user", "content": parts}, {"role": "tool", "content": [result]}]
    call = {"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "so"}
    call["ai.prompt.messages"] = json.dumps(prompt)
    draft = made_of(tmp_path, root(), below(call)).draft
    assert (draft.objective, transcript(draft)) == (
        "where?",
        [("observation", content), ("thought", "so")],
    )


NUMBERED: Span = {
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": '[{"type": "text", "text": "where?"}]',
    "gen_ai.completion.0.role": "thinking",
    "gen_ai.completion.0.content": "hm",
    "gen_ai.completion.1.content": "so",
    "gen_ai.completion.1.function_call.name": "look",
    "gen_ai.completion.1.function_call.arguments": '{"at":1}',
}


@pytest.mark.parametrize(
    "named", [{}, {"gen_ai.operation.name": "chat"}, {"llm.request.type": "chat"}]
)
def test_messages_of_openllmetry_are_numbered(tmp_path: Path, named: Span) -> None:
    workflow = root(**{"traceloop.span.kind": "workflow"})
    steps = [("thought", "hm\nso"), LOOK]
    assert run_of(tmp_path, workflow, below({**named, **NUMBERED})) == ("where?", steps)
    oldest = {"llm.prompts.0.content": "where?", "llm.completions.0.content": "so"}
    assert run_of(tmp_path, workflow, below(oldest)) == ("where?", [("thought", "so")])


@pytest.mark.parametrize(
    ("given", "back"),
    [
        ('{"args": [], "kwargs": {"at":1}}', '"found"'),
        ('{"args": [{"at":1}], "kwargs": {}}', "found"),
        (
            '{"input_str": "1", "inputs": {"at":1}, "tags": [], "metadata": {}, "kwargs": {}}',
            '{"output": "found", "kwargs": {}}',
        ),
        ('{"tool_name": "look", "arguments": {"at":1}}', '{"result": "found"}'),
        (
            '{"tool_name": "look", "arguments": {"at":1}}',
            '[{"type": "text", "content": "found"}]',
        ),
    ],
)
def test_openllmetry_records_the_arguments_of_a_tool_as_its_caller_does(
    tmp_path: Path, given: str, back: str
) -> None:
    named = {"traceloop.span.kind": "tool", "traceloop.entity.name": "look"}
    values = {"traceloop.entity.input": given, "traceloop.entity.output": back}
    tool = below({**named, **values}, 2)
    steps = [("thought", "hm\nso"), LOOK, ("observation", "found")]
    assert run_of(tmp_path, root(), below(NUMBERED), tool) == ("where?", steps)
    assert run_of(tmp_path, root(), tool)[1] == steps[1:]


def test_messages_count_where_a_span_numbers_them_as_well(tmp_path: Path) -> None:
    """Proxies do so for older readers, to whom they tell less."""
    both = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": [text("user", "where?")]}
    both |= {"gen_ai.output.messages": [LOOKS], "gen_ai.prompt.0.content": "where?"}
    both |= {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "None"}
    assert run_of(tmp_path, root(), below(both)) == ("where?", [LOOK])


def test_langchain_gives_openllmetry_the_same_by_two_names(tmp_path: Path) -> None:
    named = {"gen_ai.provider.name": "langgraph"}
    graph = root(**named)
    asked = {"messages": [{"role": "user", "content": "where?"}]}
    outer = {
        **named,
        "gen_ai.operation.name": "invoke_agent",
        "traceloop.span.kind": "workflow",
        "traceloop.entity.input": json.dumps(callback(inputs=asked)),
    }
    ran = {"kwargs": {"content": "found", "type": "tool", "tool_call_id": "c"}}
    lc = {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], **ran}
    given = json.dumps(callback(input_str="{'at': 1}", inputs={"at": 1}))
    back = json.dumps({"output": lc, "kwargs": {"name": "look"}})
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "look",
        "traceloop.entity.input": given,
        "gen_ai.tool.call.arguments": given,
        "traceloop.entity.output": back,
        "gen_ai.tool.call.result": back,
    }
    found = [{"page_content": "it"}]
    retriever = {
        "gen_ai.operation.name": "vector_db_retrieve",
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "Shelf",
        "traceloop.entity.input": json.dumps(callback(query="it")),
        "traceloop.entity.output": json.dumps({"documents": found, "count": 1}),
    }
    past = [text("user", "before"), text("assistant", "yes"), text("user", "where?")]
    called = span(2, attributes={"gen_ai.operation.name": "chat", "gen_ai.input.messages": past})
    steps = [
        ("tool_call", "look", '{"at":1}'),
        ("observation", "found"),
        ("tool_call", "Shelf", "it"),
        ("observation", '[{"page_content":"it"}]'),
    ]
    spans = graph, below(outer), called, below(tool, 3), below(retriever, 4)
    assert run_of(tmp_path, *spans) == ("where?", steps)


def callback(**given: object) -> dict[str, object]:
    return {**given, "tags": ["a"], "metadata": {"thread_id": "t"}, "kwargs": {"name": "x"}}


PARTS = [{"kind": "thinking", "text": "hm"}, {"kind": "text", "text": "so"}]
SAID = {"role": "assistant", "content": PARTS}


def test_a_conversation_of_pydantic_ai_counts_where_its_calls_are_not_recorded(
    tmp_path: Path,
) -> None:
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": ["where?", {"kind": "x"}]},
        {"event.name": "gen_ai.assistant.message", **SAID},
    ]
    named = {"agent_name": "helper", "model_name": "gpt-x"}
    old = root(**named, all_messages_events=json.dumps(events))
    assert run_of(tmp_path, old) == ("where?", [("thought", "hm\nso")])
    messages = [*TALK, text("assistant", "so")]
    new = root(**named, **{"pydantic_ai.all_messages": json.dumps(messages)})
    assert run_of(tmp_path, new) == ("where?", [("thought", "so")])
    called = {"events": json.dumps([events[0], {"event.name": "gen_ai.choice", "message": SAID}])}
    assert run_of(tmp_path, old, below(called)) == ("where?", [("thought", "hm\nso")])
    assert made_of(tmp_path, old).draft.origin.agent == "helper"


def test_the_history_that_an_agent_of_pydantic_ai_is_given_is_no_part_of_its_run(
    tmp_path: Path,
) -> None:
    turns = [text("user", "before?"), text("assistant", "no"), *TALK, text("assistant", "so")]
    named = {"agent_name": "helper", "model_name": "gpt-x", "pydantic_ai.new_message_index": 2}
    asked = root(**named, **{"pydantic_ai.all_messages": json.dumps(turns)})
    assert run_of(tmp_path, asked) == ("where?", [("thought", "so")])
    assert run_of(tmp_path, asked, chat(1, turns[:-1], turns[-1:])) == (
        "where?",
        [("thought", "so")],
    )


def test_results_that_adk_has_at_once_and_in_an_event_count_once(tmp_path: Path) -> None:
    tool: Span = {"gen_ai.operation.name": "execute_tool"}
    given = {"function_response": {"name": "look", "response": {"result": "found"}}}
    event = json.dumps({"id": "e", "content": {"role": "user", "parts": [given]}})
    spans = [
        below(
            {
                **tool,
                "gen_ai.tool.name": "look",
                "gcp.vertex.agent.tool_call_args": '{"at":1}',
                "gcp.vertex.agent.tool_response": event,
                "gcp.vertex.agent.llm_request": "{}",
            }
        ),
        below(
            {
                **tool,
                "gen_ai.tool.name": "(merged tools)",
                "gcp.vertex.agent.tool_call_args": "N/A",
                "gcp.vertex.agent.tool_response": event,
            },
            2,
        ),
    ]
    assert run_of(tmp_path, agent(), *spans)[1] == [LOOK, ("observation", "found")]


def test_where_adk_and_others_record_no_content_it_is_missing(tmp_path: Path) -> None:
    adk = {"gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.llm_response": "{}"}
    for hidden in (adk, {"llm.request.type": "chat"}, {"ai.operationId": "ai.streamText"}):
        trace = made_of(tmp_path, root(), below(hidden)).draft
        assert (trace.objective, transcript(trace)) == ("", [])


@pytest.mark.parametrize("named", [{}, {"gen_ai.operation.name": "chat"}])
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ('[{"role": "user", "content": "where?"}]', '[{"role": "assistant", "content": "so"}]'),
        ("where?", "so"),
        ("system: be kind\nuser: where?", "so"),  # OpenLIT's
    ],
)
def test_an_event_holds_the_prompt_and_one_the_answer_in_the_conventions_up_to_1_27(
    tmp_path: Path, named: Span, prompt: str, answer: str
) -> None:
    events = [
        ("gen_ai.content.prompt", {"gen_ai.prompt": prompt}),
        ("gen_ai.content.completion", {"gen_ai.completion": answer}),
    ]
    call = {"gen_ai.system": "openai", **named}
    steps = [("thought", "so")]
    assert run_of(tmp_path, root(), below(call, events=events)) == ("where?", steps)
    assert run_of(tmp_path, span(0, None, attributes=call, events=events)) == ("where?", steps)


def test_what_fills_in_a_prompt_of_langsmith_is_no_call_of_a_model(tmp_path: Path) -> None:
    said = '{"messages": [{"role": "user", "content": "where?"}, {"role": "ai", "content": "a"}]}'
    chat_: Span = {"gen_ai.operation.name": "chat", "gen_ai.prompt": "{}"}
    template = {**chat_, "langsmith.span.kind": "prompt", "gen_ai.completion": said}
    answer = '{"messages": [{"role": "ai", "content": "so"}]}'
    call = {**chat_, "langsmith.span.kind": "llm", "gen_ai.completion": answer}
    asked = root(**{"langsmith.span.kind": "chain", "gen_ai.prompt": '{"question": "where?"}'})
    assert run_of(tmp_path, asked, below(template), below(call, 2)) == (
        "where?",
        [("thought", "so")],
    )


@pytest.mark.parametrize(
    ("attributes", "dialect", "example"),
    [
        ({"langfuse.observation.type": "generation"}, "Langfuse", "langfuse.observation.type"),
        ({"genkit:metadata:subtype": "model"}, "Genkit", "genkit:metadata:subtype"),
        ({"lmnr.span.type": "LLM"}, "Laminar", "lmnr.span.type"),
        ({"braintrust.span_attributes": '{"type":"llm"}'}, "Braintrust", "braintrust."),
        ({"gen_ai.operation.name": "ponder"}, "operations of its own", "ponder"),
    ],
)
def test_a_dialect_that_is_not_read_is_refused_by_its_name(
    tmp_path: Path, attributes: Span, dialect: str, example: str
) -> None:
    made = made_of(tmp_path, root(), below(attributes))
    ((_, refused),) = made.refused
    assert refused.reasons == ["unknown_dialect"]
    assert made.skipped in ([], [f"span of an unknown kind: {example}"])
    assert dialect in refused.message
    assert example in refused.message


def test_so_is_one_that_its_spans_are_named_by(tmp_path: Path) -> None:
    tool = span(1, name="claude_code.tool", attributes={"duration_ms": "5"})
    ((_, refused),) = made_of(tmp_path, root(), tool).refused
    assert refused.message == (
        "it is in the dialect of Claude Code (claude_code.tool), which is not read"
    )


def test_and_so_it_is_where_only_its_content_is_missing(tmp_path: Path) -> None:
    hidden = {"gen_ai.operation.name": "chat", "langfuse.observation.type": "generation"}
    assert made_of(tmp_path, agent(), below(hidden)).reasons == [["unknown_dialect"]]
    asked = agent(attributes={"gen_ai.input.messages": json.dumps(TALK)})
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "found"}
    generated = {"langfuse.observation.type": "generation"}
    made = made_of(tmp_path, asked, below(generated), below(ran, 2))
    assert made.reasons == [["unknown_dialect"]]  # what the model says is missing
    # A trace that has all in a dialect that is read may be recorded in others as well.
    said = chat(2, TALK, [text("assistant", "so")])
    assert run_of(tmp_path, agent(), below(hidden), said) == ("where?", [("thought", "so")])


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"},
        {"llm.request.type": "embedding", "gen_ai.system": "openai"},
        {"ai.operationId": "ai.embed.doEmbed", "ai.values": "[]"},
        {"traceloop.span.kind": "task", "traceloop.entity.name": "clean"},
        {"http.request.method": "GET"},
        {"langfuse.observation.type": "span", "langfuse.observation.input": "1"},
        {"braintrust.span_attributes": '{"type":"eval"}', "genkit:metadata:subtype": "flow"},
    ],
)
def test_what_is_no_agents_at_all_is_passed_over(tmp_path: Path, attributes: Span) -> None:
    made = made_of(tmp_path, root(), below(attributes))
    assert (made.refused, made.skipped) == ([], ["no span of an agent"])


@pytest.mark.parametrize("operation", ["search_memory", "upsert_memory", "delete_memory_store"])
def test_what_only_reads_or_writes_a_memory_is_counted_by_itself(
    tmp_path: Path, operation: str
) -> None:
    made = made_of(tmp_path, root(), below({"gen_ai.operation.name": operation}))
    assert (made.refused, made.skipped) == ([], ["memory operation outside an agent's run"])


FEEDBACK = ("annotations", "evaluations")


class Asked(FlatAttributes):
    """Attributes that remember for which names they were asked."""

    def __init__(self, attributes: Span) -> None:
        super().__init__(attributes)
        self.names = set[str]()

    def get(self, key: str, default: object = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


@pytest.mark.parametrize(
    ("attributes", "families"),
    [
        ({"http.request.method": "GET", "url.path": "/"}, set[str]()),
        ({"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "so"}, {"ai"}),
        ({"openinference.span.kind": "CHAIN"}, {"openinference", "input", "trace", *FEEDBACK}),
    ],
)
def test_a_span_is_read_in_the_dialects_of_its_names_alone(
    attributes: Span, families: set[str]
) -> None:
    asked = Asked(attributes)
    dialects.read(OtelSpan("1", "", "a span", 0, 1, False, asked, {}, []))  # noqa: FBT003
    assert {name.partition(".")[0] for name in asked.names} == families
