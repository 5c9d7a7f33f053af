"""OTLP: what its transport, its dialects and the tree of spans come to."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.formats import otlp
from kp_batch.conversion.model import Native, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from tests.support.formats.otlp import TALK, TRACE, Span, agent, chat, request, span, text
from tests.support.imports import drafting
from tests.support.imports.drafting import ALWAYS, Conversion, always, transcript
from tests.support.imports.importing import imported, refusals

STARTED_AT = "2026-02-25T06:13:20.123456Z"


CALL = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "found"}]}
LOOKS = [{"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, CALL]}]


def made_of(
    folder: Path, spans: list[Span], *, rules: Rules = ALWAYS, **resource: str
) -> Conversion:
    path = folder / "spans.json"
    path.write_text(request(spans[::-1], **resource))
    return drafting.drafted("otlp", path, rules)


def draft(folder: Path, spans: list[Span], **options: Any) -> TraceDraft:
    return made_of(folder, spans, **options).draft


def steps_of(folder: Path, spans: list[Span]) -> list[tuple[object, ...]]:
    return transcript(draft(folder, spans))


LOOK = ("tool_call", "look", '{"at":1}')


@pytest.mark.parametrize("form", [json.dumps, list[object]])
@pytest.mark.parametrize(
    "ran",
    [
        {"gen_ai.tool.call.result": "found"},
        {"gen_ai.tool.call.response": "found"},
        {"gen_ai.tool.call.arguments": '{"at": 1}', "gen_ai.tool.call.result": "found"},
        {},  # the result is only in the next call's input
    ],
)
def test_messages_and_tools_are_counted_once(tmp_path: Path, form: Any, ran: Span) -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c1", **ran}
    after = [*TALK, *LOOKS, RESULT, text("user", "and?")]
    spans = [
        agent(),
        chat(1, form(TALK), form(LOOKS)),
        span(2, name="execute_tool look", attributes=tool),
        chat(3, form(after), form([text("assistant", "there")])),
    ]
    trace = draft(tmp_path, spans)
    assert trace.id == f"kp:trace:{TRACE}"
    assert str(trace.created_at) == "2026-02-25 06:13:20.123456+00:00"
    assert trace.objective == "where?"
    assert transcript(trace) == [
        ("thought", "hm"),
        LOOK,
        ("observation", "found"),
        ("observation", "and?"),
        ("thought", "there"),
    ]


def test_a_result_that_is_no_text_is_compact_json(tmp_path: Path) -> None:
    ran = {"b": [1, 2.5, True, "é"], "a": {}}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    spans = [agent(), span(1, attributes={**tool, "gen_ai.tool.call.result": ran})]
    assert steps_of(tmp_path, spans)[1] == ("observation", '{"b":[1,2.5,true,"é"],"a":{}}')


def test_messages_are_events_in_older_conventions(tmp_path: Path) -> None:
    calls = [{"id": "c1", "function": {"name": "look", "arguments": '{"at": 1}'}}]
    prompt = [
        ("gen_ai.system.message", {"content": "be kind"}),
        ("gen_ai.user.message", {"content": "where?"}),
    ]
    called = ("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "tool_calls": calls}})
    history = [
        *prompt,
        ("gen_ai.assistant.message", {"tool_calls": json.dumps(calls)}),
        ("gen_ai.tool.message", {"content": "found", "id": "c1"}),
        ("gen_ai.choice", {"message": '{"content": "there"}'}),
    ]
    spans = [agent(), chat(1, events=[*prompt, called]), chat(2, events=history)]
    trace = draft(tmp_path, spans)
    assert trace.objective == "where?"
    assert transcript(trace) == [
        (*LOOK[:2], '{"at": 1}'),
        ("observation", "found"),
        ("thought", "there"),
    ]


def test_messages_may_be_in_an_event_of_the_newer_conventions(tmp_path: Path) -> None:
    details = {"gen_ai.input.messages": TALK, "gen_ai.output.messages": [text("assistant", "here")]}
    spans = [agent(), chat(1, events=[("gen_ai.client.inference.operation.details", details)])]
    trace = draft(tmp_path, spans)
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "here")])


def test_any_agent_has_keys_of_its_own(tmp_path: Path) -> None:
    call = {"gen_ai.operation.name": "call_llm"}
    calls = '[{"tool.name": "look", "tool.args": "{\\"at\\": 1}"}]'
    prompt = '[{"role": "user", "content": "where?"}]'
    ran = {"gen_ai.tool.name": "look", "gen_ai.tool.args": '{"at": 1}', "gen_ai.output": "null"}
    spans = [
        agent(),
        span(1, attributes={**call, "gen_ai.input.messages": prompt, "gen_ai.output": calls}),
        span(2, 99, attributes={"gen_ai.operation.name": "execute_tool", **ran}),
        span(3, attributes={**call, "gen_ai.output": '{"at": "home"}'}),
    ]
    trace = draft(tmp_path, spans)
    assert trace.objective == "where?"
    assert transcript(trace) == [
        (*LOOK[:2], '{"at": 1}'),
        ("observation", "null"),
        ("thought", '{"at": "home"}'),
    ]


def openinference(number: int, kind: str, parent: int | None = 0, **options: Any) -> Span:
    named = {"openinference.span.kind": kind, **options.pop("attributes", {})}
    return span(number, parent, attributes=named, **options)


def test_openinference_is_read_with_messages_item_by_item(tmp_path: Path) -> None:
    calls = "llm.output_messages.0.message.tool_calls.0.tool_call"
    prompt = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "where?",
        "input.value": '{"messages": 1}',
    }
    answered = {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "so",
        "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
        "llm.output_messages.0.message.contents.0.message_content.text": "hm",
        f"{calls}.id": "c1",
        f"{calls}.function.name": "look",
        f"{calls}.function.arguments": '{"at": 1}',
    }
    ran = {"tool.name": "look", "input.value": "{'at': 1}", "output.value": "found"}
    history = {
        **prompt,
        "llm.input_messages.10.message.role": "user",
        "llm.input_messages.10.message.content": "and?",
        "llm.input_messages.2.message.role": "tool",
        "llm.input_messages.2.message.content": "found, it says",
        "llm.input_messages.2.message.tool_call_id": "c1",
    }
    spans = [
        openinference(0, "AGENT", None),
        openinference(1, "LLM", attributes={**prompt, **answered}),
        openinference(2, "TOOL", attributes=ran),
        openinference(3, "LLM", attributes={**history, "output.value": "there"}),
    ]
    trace = draft(tmp_path, spans)
    assert trace.objective == "where?"
    assert transcript(trace) == [
        ("thought", "hm\nso"),
        (*LOOK[:2], '{"at": 1}'),
        ("observation", "found"),
        ("observation", "and?"),
        ("thought", "there"),
    ]


def test_calls_are_taken_from_the_output_where_the_messages_lack_them(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    output = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}
    attributes = {
        "llm.output_messages.0.message.role": "assistant",
        "output.value": json.dumps(output),
    }
    spans = [openinference(0, "AGENT", None), openinference(1, "LLM", attributes=attributes)]
    assert steps_of(tmp_path, spans) == [(*LOOK[:2], "{}")]


HOSTED = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "web_search_call", "id": "w1", "action": {"type": "search", "query": "it"}},
    {"type": "code_interpreter_call", "id": "i1", "code": "1", "outputs": [{"logs": "1"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
]


def test_tools_that_a_provider_runs_are_taken_from_the_output_where_messages_name_them_alone(
    tmp_path: Path,
) -> None:
    first = "llm.output_messages.1.message"
    attributes = {
        f"{first}.role": "assistant",
        f"{first}.tool_calls.0.tool_call.id": "w1",
        f"{first}.tool_calls.0.tool_call.function.name": "web_search_call",
        "llm.output_messages.3.message.role": "assistant",
        "llm.output_messages.3.message.content": "so",
    }
    output = {"output.value": json.dumps({"object": "response", "output": HOSTED})}
    root, searched = openinference(0, "AGENT", None), ("tool_call", "web_search")
    told = openinference(1, "LLM", attributes=attributes | output)
    assert steps_of(tmp_path, [root, told]) == [
        ("thought", "hm"),
        (*searched, '{"type":"search","query":"it"}'),
        ("tool_call", "code_interpreter", "1"),
        ("observation", '[{"logs":"1"}]'),
        ("thought", "so"),
    ]
    bare = openinference(1, "LLM", attributes=attributes)
    assert steps_of(tmp_path, [root, bare]) == [searched, ("thought", "so")]


def test_each_span_is_read_in_its_own_dialect(tmp_path: Path) -> None:
    ran = {"tool.name": "look", "input.value": '{"at": 1}', "output.value": "found"}
    spans = [agent(), chat(1, TALK, LOOKS), openinference(2, "TOOL", attributes=ran)]
    assert steps_of(tmp_path, spans) == [("thought", "hm"), LOOK, ("observation", "found")]


def test_a_call_of_a_model_below_another_is_the_same(tmp_path: Path) -> None:
    answer = [text("assistant", "here")]
    spans = [
        agent(),
        chat(1, TALK, answer),
        span(2, 1, name="a chain"),
        {**chat(3, TALK, answer), "parentSpanId": f"{3:016x}"},
        {
            **span(
                4,
                1,
                attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask"},
            )
        },
        {**chat(5, TALK, [text("assistant", "within")]), "parentSpanId": f"{5:016x}"},
    ]
    assert steps_of(tmp_path, spans) == [
        ("thought", "here"),
        ("tool_call", "ask"),
        ("thought", "within"),  # of an agent that is a tool
    ]


def test_a_run_of_a_tool_below_itself_is_the_same(tmp_path: Path) -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    attributes = {**ran, "gen_ai.tool.call.result": "found"}
    spans = [
        agent(),
        span(1, attributes=attributes),
        span(2, 1, name="tools/call look", attributes=attributes),
    ]
    assert steps_of(tmp_path, spans) == [LOOK[:2], ("observation", "found")]


def test_messages_of_an_agent_count_where_no_call_of_a_model_is_recorded(tmp_path: Path) -> None:
    talk = {"gen_ai.input.messages": TALK, "gen_ai.output.messages": [text("assistant", "here")]}
    trace = draft(tmp_path, [agent(attributes=talk)])
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "here")])
    trace = draft(tmp_path, [agent(attributes=talk), chat(1)])  # whose content is hidden
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "here")])
    trace = draft(tmp_path, [agent(attributes=talk), chat(1, TALK, [text("assistant", "there")])])
    assert (trace.objective, transcript(trace)) == ("where?", [("thought", "there")])


def test_without_a_user_the_input_of_the_root_or_of_the_earliest_span_is_the_objective(
    tmp_path: Path,
) -> None:
    root = openinference(0, "AGENT", None, attributes={"input.value": '{"question": "why?"}'})
    hidden = openinference(0, "AGENT", None, attributes={"input.value": "__REDACTED__"})
    tool = openinference(1, "TOOL", attributes={"tool.name": "look", "input.value": "an argument"})
    chain = openinference(2, "CHAIN", attributes={"input.value": "how?"})
    assert draft(tmp_path, [root, tool, chain]).objective == "why?"
    assert draft(tmp_path, [hidden, tool, chain]).objective == "how?"
    assert draft(tmp_path, [hidden, tool]).objective == ""


def test_a_rule_names_the_path_of_the_objective(tmp_path: Path) -> None:
    attributes = {"input.value": '{"ticket": {"words": ["when?"]}}'}
    root = openinference(0, "AGENT", None, attributes=attributes)
    trace = draft(tmp_path, [root, chat(1, TALK)], rules=always(objective="ticket.words.0"))
    assert trace.objective == "when?"


def test_a_failed_tool_is_recovered_from_where_that_is_asked_for(tmp_path: Path) -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    spans = [agent(), span(1, attributes=ran, status=2), chat(2, TALK, [text("assistant", "so")])]
    assert steps_of(tmp_path, spans)[-1] == ("thought", "so")
    trace = draft(tmp_path, spans, rules=always(recovery="after_tool_error"))
    assert transcript(trace)[-1] == ("error_recovery", "so")


def judged(name: str, number: object) -> tuple[str, dict[str, object]]:
    attributes = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": number}
    return "gen_ai.evaluation.result", attributes


@pytest.mark.parametrize(
    "raised",
    ["langgraph.errors.GraphInterrupt", "GraphInterrupt", "pydantic_ai.exceptions.CallDeferred"],
)
def test_a_tool_that_waits_for_its_user_has_not_failed(tmp_path: Path, raised: str) -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    told = [("exception", {"exception.type": raised})]
    waits = span(1, attributes=ran, status=2, events=told)
    spans = [agent(), waits, chat(2, TALK, [text("assistant", "so")])]
    trace = draft(tmp_path, spans, rules=always(recovery="after_tool_error"))
    assert transcript(trace)[-1] == ("thought", "so")


def test_scores_are_those_of_the_root_and_of_the_last_span(tmp_path: Path) -> None:
    spans = [
        agent(
            events=[judged("a", 1), judged("a", 2), judged("b", number=True), judged("c", "good")]
        ),
        chat(1, TALK, events=[judged("a", 9.0), judged("d", 4.0)]),
        chat(2, events=[judged("e", 0.5)]),
        span(3, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}),
    ]
    assert draft(tmp_path, spans).scores == {"a": 2.0, "b": 1.0, "e": 0.5}


def test_annotations_are_those_of_the_root_and_of_the_trace(tmp_path: Path) -> None:
    attributes = {
        "annotations.0.annotation.name": "a",
        "annotations.0.annotation.score": 1,
        "annotations.1.annotation.name": "a label",
        "annotations.1.annotation.label": "good",
        "evaluations.0.evaluation.name": "b",
        "evaluations.0.evaluation.score": 0.5,
        "session.annotations.0.annotation.name": "of others, too",
        "session.annotations.0.annotation.score": 1,
    }
    below = {
        "annotations.0.annotation.name": "of a span",
        "annotations.0.annotation.score": 1,
        "trace.annotations.0.annotation.name": "c",
        "trace.annotations.0.annotation.score": True,
        "trace.evaluations.0.evaluation.name": "d",
        "trace.evaluations.0.evaluation.score": 2,
    }
    spans = [
        openinference(0, "AGENT", None, attributes=attributes),
        openinference(1, "CHAIN", attributes=below),
        openinference(2, "LLM"),
    ]
    assert draft(tmp_path, spans).scores == {"a": 1.0, "b": 0.5, "c": 1.0, "d": 2.0}


def test_fields_are_attributes_of_the_root_or_else_of_its_resource(tmp_path: Path) -> None:
    attributes = {"tag.tags": ["vip", "flights"], "team": 7, "metadata": '{"env": "test"}'}
    resource = {"service.name": "desk", "team": "none"}
    fields = draft(tmp_path, [agent(attributes=attributes), chat(1, TALK)], **resource).fields
    assert fields["tag.tags"] == ["vip", "flights"]
    assert (fields["team"], fields["service.name"]) == (["7"], ["desk"])
    assert fields["metadata.env"] == ["test"]


def test_without_a_root_a_trace_is_incomplete(tmp_path: Path) -> None:
    for spans in ([chat(1, TALK)], [agent(end=0), chat(1, TALK)]):
        ((_, refusal),) = made_of(tmp_path, spans).refused
        assert (refusal.reasons, refusal.id) == (["incomplete"], f"kp:trace:{TRACE}")


def test_a_trace_without_an_agent_is_passed_over(tmp_path: Path) -> None:
    web = [span(0, None, attributes={"http.request.method": "GET"}), span(1)]
    embeds = [span(0, None, attributes={"gen_ai.operation.name": "embeddings"})]
    for spans in (web, embeds, web[1:]):
        made = made_of(tmp_path, spans)
        assert (made.drafts, made.skipped) == ({}, ["no span of an agent"])


def test_a_root_without_a_time_started_with_its_first_span(tmp_path: Path) -> None:
    trace = draft(tmp_path, [agent(start=0), chat(1, TALK)])
    assert str(trace.created_at) == "2026-02-25 06:13:20.124456+00:00"
    assert draft(tmp_path, [agent(start=0)]).created_at is None


def test_ids_are_hex_or_base64_and_a_span_that_comes_twice_is_one(tmp_path: Path) -> None:
    child = chat(1, TALK, [text("assistant", "here")])
    again = {**child, "endTimeUnixNano": "0"}
    names = ("traceId", "spanId", "parentSpanId")
    coded = {name: base64.b64encode(bytes.fromhex(child[name])).decode() for name in names}
    spans = [{**agent(), "parentSpanId": "0" * 16}, child, {**child, **coded}, again]
    assert steps_of(tmp_path, [*spans, again]) == [("thought", "here")]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_request_is_a_line_or_a_file(tmp_path: Path, name: str, indent: int | None) -> None:
    content = json.dumps(json.loads(request([agent(), chat(1)])), indent=indent).encode()
    content = content if indent else content + b"\n\n" + content
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert len([*otlp.records(tmp_path / name, [])]) == (2 if indent else 4)


def test_of_several_contents_of_a_span_an_ended_one_counts_or_the_last(tmp_path: Path) -> None:
    one, other = (chat(1, TALK, [text("assistant", words)]) for words in ("much longer", "short"))
    begun = chat(1, TALK, [text("assistant", "begun, which is the longest")], end=0)
    path = tmp_path / "spans.json"
    for spans, words in (
        ([one, other, begun], "short"),
        ([begun, other, one], "much longer"),
        ([one, begun], "much longer"),
    ):
        path.write_text(request([agent(), *spans]))
        assert transcript(drafting.drafted("otlp", path).draft) == [("thought", words)]


def test_the_root_leads_back_to_the_trace(tmp_path: Path) -> None:
    assert draft(tmp_path, [chat(1, TALK), agent()]).native == Native(root=f"{1:016x}")


def test_bad_lines_and_spans_are_refused_and_the_others_are_read(tmp_path: Path) -> None:
    bad = {**chat(1), "startTimeUnixNano": "soon"}
    lines = [
        '{"resourceSpans": [',
        request([agent(), bad, {**chat(2), "traceId": ""}]),
        '{"resourceSpans": [1]}',
        '{"resourceLogs": []}',
        '{"other": 1}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    made = drafting.drafted("otlp", tmp_path / "a.jsonl")
    assert [(item.reasons, item.line) for _, item in made.refused[:5]] == [
        (["malformed_json"], 1),
        (["malformed_json"], 2),
        (["missing_id"], 2),
        (["malformed_json"], 3),
        (["malformed_json"], 5),
    ]
    assert made.reasons[5:] == []
    assert made.skipped == ["logs"]
    assert len(made.drafts) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json.gz", gzip.compress(request([agent()]).encode(), mtime=0)[:60]),
        ("table.json", b"a,b\n1,2\n"),
        ("other.json", b'{"error": {"code": 401}}'),
    ],
)
def test_a_damaged_file_is_reported(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableError):
        list(otlp.records(tmp_path / name, []))


def test_traces_of_several_files_are_imported(tmp_path: Path) -> None:
    rules = always(task_domain={"from": "service.name", "map": {"desk": "finance"}})
    root, call = agent(), chat(1, TALK, [text("assistant", "here")])
    (tmp_path / "1.jsonl").write_text(request([call], **{"service.name": "desk"}) + "\n{\n")
    (tmp_path / "2.json").write_text(request([root, call], **{"service.name": "desk"}))
    (tmp_path / "3.json").write_text("{")
    paths = [str(tmp_path / name) for name in ("2.json", "1.jsonl", "3.json")]
    summary = import_traces(otlp.FORMAT, paths, tmp_path / "out", rules)
    assert (summary.traces, summary.refused) == (1, {"malformed_json": 1, "unreadable_file": 1})
    assert len(refusals(tmp_path / "out")) == 2
    row = imported(tmp_path / "out")[f"kp:trace:{TRACE}"]
    assert row["metadata"]["created_at"] == STARTED_AT
    assert row["metadata"]["task_domain"] == "finance"
    assert row["task"]["objective"] == "where?"
    assert transcript(row) == [("thought", "here")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "{}"),
        ({"at": {"b": 2, "a": 1}}, '{"at":{"b":2,"a":1}}'),
        ({"at": '{"a": 1, "b": 2}'}, r'{"at":"{\"a\": 1, \"b\": 2}"}'),
    ],
    ids=["none", "plain", "JSON"],
)
def test_a_message_and_a_span_may_tell_the_arguments_of_a_call_otherwise(
    tmp_path: Path, arguments: Span, told: str
) -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    calls = json.dumps([{"tool.name": "look", "tool.args": arguments}])
    call = {"gen_ai.operation.name": "call_llm", "gen_ai.output": calls}
    tool = {**ran, "gen_ai.tool.args": '{"at": {"a": 1, "b": 2}}', "gen_ai.output": "found"}
    spans = [agent(), span(1, attributes=call), span(2, attributes=tool)]
    assert steps_of(tmp_path, spans) == [(*LOOK[:2], told), ("observation", "found")]


@pytest.mark.parametrize("groups", [[], [{}], [{"scopeSpans": []}], [{"scope_spans": [1]}]])
def test_a_resource_without_a_span_is_counted(tmp_path: Path, groups: list[Span]) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": groups}))
    made = drafting.drafted("otlp", path)
    assert (made.refused, made.skipped) == ([], ["resourceSpans without a span"])
