"""Langfuse's exports and downloads become traces."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kp_batch.conversion.formats import langfuse
from kp_batch.conversion.model import Native, Refused, Skipped, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from kp_batch.text import time_of
from tests.support.formats.langfuse import (
    ASK,
    CALL,
    CONVERSATION,
    Row,
    at,
    lines,
    manifest,
    observation,
    root,
)
from tests.support.imports import drafting
from tests.support.imports.drafting import Conversion, always, transcript
from tests.support.imports.importing import imported, refusals, write_json

if TYPE_CHECKING:
    from kp_batch.conversion.model import Input

RULES = always(
    success={"score": "right", "at_least": 1},
    task_domain={"from": "tags", "map": {"bill": "finance"}, "otherwise": "default"},
)


def score(name: str, value: float | None, second: float = 0, **changes: Any) -> Row:
    return {
        "id": f"{name}-{second}",
        "trace_id": "t",
        "observation_id": None,
        "name": name,
        "value": value,
        "data_type": "NUMERIC",
        "string_value": None,
        "timestamp": at(second),
        "updated_at": at(second),
        **changes,
    }


def made_of(tmp_path: Path, rows: Sequence[Row], rules: Rules = RULES) -> Conversion:
    return drafting.drafted("langfuse", lines(tmp_path / "rows.jsonl", rows), rules)


def drafted(tmp_path: Path, rows: Sequence[Row], rules: Rules = RULES) -> TraceDraft:
    return made_of(tmp_path, rows, rules).draft


def steps_of(tmp_path: Path, rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return transcript(drafted(tmp_path, rows))


SO, LOOK = ("thought", "so"), ("tool_call", "look", '{"at": 1}')
STEPS = [
    SO,
    LOOK,
    ("observation", '{"a": 1}'),
    ("thought", "there"),
]


def test_a_trace_of_an_export(tmp_path: Path) -> None:
    draft = drafted(tmp_path, [*CONVERSATION[::-1], score("right", 1)])
    assert draft.id == "kp:trace:t"
    assert draft.created_at
    assert draft.created_at.isoformat() == "2026-08-03T09:00:00+00:00"
    assert draft.objective == "find it"
    assert transcript(draft) == STEPS
    assert draft.scores == {"right": 1.0}
    assert draft.fields["tags"] == ["new", "bill"]


def test_the_columns_tell_of_calls_that_the_output_lacks(tmp_path: Path) -> None:
    calls = [
        json.dumps({"id": "c1", "arguments": '{"at": 1}'}),
        json.dumps({"id": "c2", "arguments": "{}"}),
    ]
    row = observation("ask", 1, tool_calls=calls, tool_call_names=["look", "see"])
    both = [LOOK, ("tool_call", "see", "{}")]
    assert steps_of(tmp_path, [root(), row]) == both
    row["output"] = json.dumps({"role": "assistant", "tool_calls": [CALL]})
    assert steps_of(tmp_path, [root(), row]) == both[:1]


def test_an_unset_output_is_no_result_but_an_empty_message_is(tmp_path: Path) -> None:
    rows = [
        root(),
        observation("look", 1, type="TOOL", metadata={"tool_call_id": "c1"}),
        observation(
            "say",
            2,
            input=json.dumps([ASK, {"role": "tool", "tool_call_id": "c1", "content": ""}]),
            output="so",
        ),
    ]
    assert steps_of(tmp_path, rows[:2]) == [("tool_call", "look")]
    assert steps_of(tmp_path, rows) == [
        ("tool_call", "look"),
        ("observation", ""),
        ("thought", "so"),
    ]


def test_the_latest_row_of_an_id_counts(tmp_path: Path) -> None:
    old = root(end_time=None, updated_at="2026-08-03 09:59:00.000000")
    assert steps_of(tmp_path, [*CONVERSATION, old]) == STEPS
    ((_, pending),) = made_of(tmp_path, [old, *CONVERSATION[1:]]).refused
    assert (pending.reasons, pending.id) == (["incomplete"], "kp:trace:t")


def test_of_rows_that_were_updated_at_once_an_ended_one_counts_or_the_last(tmp_path: Path) -> None:
    one, other = (observation("ask", 1, output=text) for text in ("much longer", "short"))
    begun = observation("ask", 1, output="begun", end_time=None)
    newer = observation("ask", 1, output="newer", updated_at="2026-08-03 10:00:00.000001")
    for rows, text in (
        ([one, other, begun], "short"),
        ([begun, other, one], "much longer"),
        ([newer, one, other], "newer"),
    ):
        assert steps_of(tmp_path, [root(), *rows]) == [("thought", text)]
    changed = [score("right", value, id="s") for value in (1, 0)]
    assert drafted(tmp_path, [root(), *changed]).scores == {"right": 0}
    assert drafted(tmp_path, [root(), *changed[::-1]]).scores == {"right": 1}


def test_the_root_observation_leads_back_to_the_trace(tmp_path: Path) -> None:
    assert drafted(tmp_path, CONVERSATION).native == Native(root="root")
    trace = {"id": "t", "timestamp": at(0), "input": "find it"}
    rows = [trace, observation("ask", 1, parent_observation_id="t")]
    assert drafted(tmp_path, rows).native == Native()


def test_without_a_root_a_trace_is_incomplete(tmp_path: Path) -> None:
    assert made_of(tmp_path, CONVERSATION[1:]).reasons == [["incomplete"]]
    elsewhere = root(parent_observation_id="a-web-server", is_root_observation=True)
    assert steps_of(tmp_path, [elsewhere, *CONVERSATION[1:]]) == STEPS


def test_what_is_no_agent_is_passed_over(tmp_path: Path) -> None:
    for row in (score("right", 1), root(type="SPAN")):
        made = made_of(tmp_path, [row])
        assert (made.drafts, len(made.skipped)) == ({}, 1)


def test_scores_are_of_the_trace_or_its_root_and_the_latest(tmp_path: Path) -> None:
    scores = [
        score("right", 1, 2),
        score("right", 0, 1),
        score("right", 0, 3, observation_id="ask"),
        score("judge", 4, observation_id="root"),
        score("corrected", 0, id="s", updated_at=at(1)),
        score("corrected", 1, id="s", updated_at=at(2)),
        score("label", 0, data_type="CATEGORICAL", string_value="fine"),
        score("note", 0, data_type="TEXT", string_value="fine"),
        score("yes", None, data_type="BOOLEAN", string_value="True"),
    ]
    assert drafted(tmp_path, [root(), *scores]).scores == {
        "right": 1.0,
        "judge": 4.0,
        "corrected": 1.0,
        "yes": 1.0,
    }


def test_a_model_within_a_model_is_the_same_call(tmp_path: Path) -> None:
    rows = [
        root(),
        observation("outer", 1, output="so"),
        observation("between", 1, type="SPAN", parent_observation_id="outer"),
        observation("inner", 1, parent_observation_id="between", output="so"),
    ]
    assert steps_of(tmp_path, rows) == [("thought", "so")]


def test_the_order_is_that_of_time_and_then_of_what_ended_first(tmp_path: Path) -> None:
    rows = [
        root(),
        observation("a", 1, output="after", end_time=at(3)),
        observation("b", 1, type="TOOL", output="before", end_time=at(1)),
    ]
    steps = [("tool_call", "b"), ("observation", "before"), ("thought", "after")]
    assert steps_of(tmp_path, rows) == steps_of(tmp_path, rows[::-1]) == steps


def test_instrumentations_tell_of_tools_in_the_metadata(tmp_path: Path) -> None:
    attributes = {"gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1"}
    result = {"type": "tool", "tool_call_id": "c1", "content": "seen", "status": "success"}
    rows = [
        CONVERSATION[0],
        CONVERSATION[1],
        observation(
            "running tool",
            2,
            type="TOOL",
            input="{'at': 1}",  # not as the message has it
            output=json.dumps(result),
            metadata={"attributes": json.dumps(attributes)},
        ),
    ]
    assert steps_of(tmp_path, rows) == [*STEPS[:2], ("observation", "seen")]
    rows[2] = observation("look", 2, type="TOOL", input="{'at': 1}", output="seen")
    assert steps_of(tmp_path, rows) == [*STEPS[:2], ("observation", "seen")]


@pytest.mark.parametrize("unset", [None, ""])
def test_messages_that_a_span_has_only_in_attributes_are_taken_from_these(
    tmp_path: Path, unset: str | None
) -> None:
    said = [{"role": "user", "parts": [{"type": "text", "content": "where?"}]}]
    asks = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}}
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "so"}, asks]}]
    told = {
        "GENERATION": {"gen_ai.input.messages": said, "gen_ai.output.messages": answer},
        "TOOL": {"gen_ai.tool.call.arguments": {"at": 1}, "gen_ai.tool.call.result": "seen"},
    }
    rows = [root(input=unset, output=unset)]
    for second, (kind, attributes) in enumerate(told.items(), 1):
        texts = {name: x if isinstance(x, str) else json.dumps(x) for name, x in attributes.items()}
        name = "execute_tool look" if kind == "TOOL" else "chat"
        metadata = {"attributes": json.dumps(texts)}
        fields = {"type": kind, "input": unset, "output": unset, "metadata": metadata}
        rows.append(observation(name, second, **fields))
    draft = drafted(tmp_path, rows)
    steps = [SO, ("tool_call", "look", '{"at":1}'), ("observation", "seen")]
    assert (draft.objective, transcript(draft)) == ("where?", steps)


@pytest.mark.parametrize(
    ("output", "steps"),
    [
        ("plain", [("thought", "plain")]),
        ('{"an": "object"}', [("thought", '{"an": "object"}')]),
        ({"candidates": [{"content": {"role": "model", "parts": [{"text": "so"}]}}]}, [SO]),
        ({"content": "so"}, [SO]),
        ([{"type": "text", "text": "so"}, {"type": "tool_use", "name": "look"}], [SO, LOOK[:2]]),
        ([{"toolCallId": "c1", "toolName": "look", "input": {}}], [(*LOOK[:2], "{}")]),
        ({"role": "assistant", "content": [{"type": "tool-call", "toolName": "look"}]}, [LOOK[:2]]),
        ({"role": "assistant", "content": "", "tool_calls": json.dumps([CALL])}, [LOOK]),
        (
            {
                "gen_ai.event.content": json.dumps(
                    {"index": 0, "message": {"role": "Assistant", "content": "so"}}
                )
            },
            [SO],
        ),
    ],
)
def test_what_a_model_says_has_many_shapes(tmp_path: Path, output: object, steps: object) -> None:
    text = output if isinstance(output, str) else json.dumps(output)
    draft = drafted(tmp_path, [root(), observation("ask", 1, output=text)])
    assert transcript(draft) == steps


def test_what_tools_give_back_has_many_shapes(tmp_path: Path) -> None:
    part = {"type": "tool-result", "toolCallId": "c1", "toolName": "look"}
    messages = [
        {"role": "tool", "content": [{**part, "output": {"type": "text", "value": "seen"}}]},
        # LangGraph tells of the tools that there are as if one had answered.
        {"role": "tool", "content": {"type": "function", "function": {"name": "look"}}},
    ]
    rows = [root(), observation("ask", 1, input=json.dumps(messages), output="so")]
    assert steps_of(tmp_path, rows) == [("observation", "seen"), ("thought", "so")]


def test_an_error_recovery_must_be_asked_for(tmp_path: Path) -> None:
    rows = [*CONVERSATION]
    rows[2] = {**rows[2], "level": "ERROR"}
    assert steps_of(tmp_path, rows) == STEPS
    recovering = always(recovery="after_tool_error")
    assert transcript(drafted(tmp_path, rows, recovering))[-1] == ("error_recovery", "there")


@pytest.mark.parametrize(
    ("root_input", "objective"),
    [
        ("plain", "plain"),
        (json.dumps({"messages": [ASK]}), "find it"),
        (json.dumps({"question": "what?", "deep": {"er": "why?"}}), "what?"),
    ],
)
def test_the_objective_is_the_users_or_the_roots(
    tmp_path: Path, root_input: str, objective: str
) -> None:
    rows = [root(input=root_input), observation("ask", 1, output="so")]
    assert drafted(tmp_path, rows).objective == objective


def test_each_turn_of_a_chat_has_its_own_question(tmp_path: Path) -> None:
    asked = ["How do I reset it?", "Now cancel it.", "What is in the bill?"]
    said: list[Row] = [{"role": "system", "content": "You help."}]
    for number, question in enumerate(asked):
        said.append({"role": "user", "content": question})
        trace = {"id": "t", "timestamp": at(0), "input": question}
        answer = {"role": "assistant", "content": f"so {number}"}
        row = observation(
            "ask", 0, input=json.dumps(said), output=json.dumps(answer), parent_observation_id=None
        )
        draft = drafted(tmp_path, [trace, row])
        assert (draft.objective, transcript(draft)) == (question, [("thought", f"so {number}")])
        said.append(answer)


def test_a_rule_finds_the_objective(tmp_path: Path) -> None:
    root_input = json.dumps({"question": "what?", "deep": {"er": "why?"}})
    rules = always(objective="deep.er")
    assert drafted(tmp_path, [root(input=root_input)], rules).objective == "why?"


def test_without_an_input_of_the_root_the_earliest_counts(tmp_path: Path) -> None:
    rows = [root(input=""), observation("ask", 1, input="system: x", output="so")]
    assert drafted(tmp_path, rows).objective == "system: x"


def test_without_texts_there_is_nothing_to_import(tmp_path: Path) -> None:
    rows = [root(), *CONVERSATION[1:2]]
    bare = [{k: v for k, v in row.items() if k not in {"input", "output"}} for row in rows]
    draft = drafted(tmp_path, bare)
    assert not draft.objective
    assert not draft.steps


def test_the_older_export_has_a_table_of_traces(tmp_path: Path) -> None:
    trace = {
        "id": "t",
        "timestamp": "2026-05-04 09:00:00.123456",
        "created_at": "2026-05-05 00:00:00.000000",
        "updated_at": "2026-05-05 00:00:00.000000",
        "name": "helper",
        "tags": ["bill"],
        "input": "find it",
    }
    rows = [{k: v for k, v in row.items() if k != "tags"} for row in CONVERSATION[1:]]
    rows = [{**row, "parent_observation_id": None} for row in rows]
    draft = drafted(tmp_path, [trace, *rows])
    assert draft.created_at
    assert draft.created_at.isoformat() == "2026-05-04T09:00:00.123456+00:00"
    assert transcript(draft) == STEPS
    assert draft.fields["tags"] == ["bill"]
    assert draft.fields["trace_name"] == ["helper"]
    assert made_of(tmp_path, [trace]).reasons == [["incomplete"]]


@pytest.mark.parametrize(
    ("begun", "top", "second"),
    [(0.004, 1, 0), (0.0, 1, 0), (0.004, 2, 0), (-1, 2, -1), (None, 1, 0), (None, 2, 0)],
)
def test_a_trace_began_when_its_root_did(
    tmp_path: Path, begun: float | None, top: int, second: float
) -> None:
    """Its own timestamp may be later; of several roots it is the root."""
    rows = [root(id=str(n), start_time=at(30 + n)) for n in range(top)]
    timestamp = None if begun is None else at(30 + begun)
    rows.append({"id": "t", "timestamp": timestamp, "updated_at": at(1)})
    draft = drafted(tmp_path, [*rows, *CONVERSATION[1:]])
    assert draft.created_at == time_of(at(30 + second))


def page() -> Row:
    return {
        "trace": {
            "id": "t",
            "timestamp": "2026-08-03T09:00:00.123Z",
            "tags": [],
            "input": json.dumps(json.dumps({"messages": [ASK]})),
            "scores": [{**camel(score("right", 1)), "traceId": "t"}],
        },
        "observations": [
            camel(root(input=None)),
            camel(observation("ask", 1, output={"content": {"role": "model", "parts": [
                {"text": "so"}, {"function_call": {"name": "look", "args": {"at": 1}}}]}})),
            camel(observation("execute_tool look", 2, type="TOOL", input={"at": 1}, output={})),
        ],
    }  # fmt: skip


def camel(row: Row) -> Row:
    parts = {name: name.split("_") for name in row}
    return {x[0] + "".join(map(str.title, x[1:])): row[name] for name, x in parts.items()}


def test_a_download_from_the_page(tmp_path: Path) -> None:
    draft = drafting.drafted("langfuse", write_json(tmp_path / "t.json", page())).draft
    assert draft.created_at
    assert draft.created_at.isoformat() == "2026-08-03T09:00:00+00:00"  # as its root
    assert draft.objective == "find it"
    assert transcript(draft) == [SO, ("tool_call", "look", '{"at":1}'), ("observation", "{}")]
    assert draft.scores == {"right": 1.0}


def chosen(paths: Sequence[str], manifests: dict[str, object]) -> dict[str, str]:
    """Each path that is read, with the reason why not."""

    def read(path: str) -> bytes:
        content = manifests[path]
        return content if isinstance(content, bytes) else json.dumps(content).encode()

    def look(path: str) -> object:
        return langfuse.FORMAT.probe(path, read(path))

    inputs: list[Input] = list(langfuse.FORMAT.inputs(sorted([*paths, *manifests]), look))
    return {source.path: source.refused.reasons[0] if source.refused else "" for source in inputs}


def test_a_run_counts_once_its_manifest_is_there() -> None:
    done, going = "2026-08-03T10-00-00", "2026-08-03T11-00-00"
    paths = [
        f"/e/p/observations_v2/{done}.jsonl",
        f"/e/p/observations_v2/{going}.jsonl",
        f"/e/p/scores/{going}.csv",
        "/e/p/observations/2026-05-03T10-00-00.parquet",  # from before there were manifests
        "/e/p/DEPRECATION_NOTICE.txt",
        f"/e/old/traces/{done}.json.gz",
        f"/e/old/scores/{done}.csv",
        "/e/page.json",
    ]
    keys = [f"a/prefix/p/{table}/{done}.jsonl" for table in ("observations_v2", "scores")]
    assert chosen(paths, {f"/e/p/manifests/{done}.json": manifest(*keys)}) == {
        paths[0]: "",
        paths[1]: "unfinished_run",
        paths[2]: "unfinished_run",
        paths[3]: "",
        paths[5]: "",
        paths[6]: "unreadable_file",
        paths[7]: "",
        f"/e/p/scores/{done}.jsonl": "unreadable_file",  # named, and not there
    }


@pytest.mark.parametrize("content", [b"{", b"[]", manifest(*[None])])  # type: ignore[list-item]
def test_a_damaged_manifest_is_reported_by_its_name(content: object) -> None:
    path = "/e/scores/2026-08-03T10-00-00.jsonl"
    name = "/e/manifests/2026-08-03T10-00-00.json"
    assert chosen([path], {name: content}) == {name: "unreadable_file", path: "unfinished_run"}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_window_without_rows_is_normal(tmp_path: Path, name: str) -> None:
    assert list(langfuse.records(lines(tmp_path / name, []), ())) == []
    assert list(langfuse.records(write_json(tmp_path / "rows.json", []), ())) == []


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', '[{"a": 1}]', "{"])
def test_other_files_are_unreadable(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(UnreadableError):
        list(langfuse.records(path, ()))


def test_rows_without_ids_are_reported(tmp_path: Path) -> None:
    rows = [score("right", 1, trace_id=None), root(id=None)]
    passed, refused = langfuse.records(lines(tmp_path / "rows.jsonl", rows), ())
    assert isinstance(passed, Skipped)
    assert refused == Refused(
        ["missing_id"], "a row without its id, or without its trace's id", line=2
    )


def test_an_import_of_parquet(tmp_path: Path) -> None:
    export, run = tmp_path / "export", "2026-08-03T10-00-00"
    tables = {"observations_v2": [{**x, "metadata": None} for x in CONVERSATION]}
    tables["scores"] = [score("right", 1)]
    for table, rows in tables.items():
        times = [name for name in rows[0] if name.endswith(("_time", "_at", "timestamp"))]
        frame = pl.DataFrame(rows).with_columns(pl.col(times).str.to_datetime(time_zone="UTC"))
        (export / table).mkdir(parents=True)
        frame.write_parquet(export / table / f"{run}.parquet")
        (export / table / "2026-08-03T11-00-00.parquet").write_bytes(b"cut")
    keys = [f"p/{table}/{run}.parquet" for table in tables]
    keys.append(f"p/scores/{run}.jsonl")  # is not there
    write_json(export / "manifests" / f"{run}.json", manifest(*keys))
    write_json(export / "cut.json", {})

    summary = import_traces(langfuse.FORMAT, [str(export)], tmp_path / "archive", RULES)
    assert summary.traces == 1
    assert (summary.refused, summary.waiting) == ({"unreadable_file": 2}, {"unfinished_run": 2})
    (row,) = imported(tmp_path / "archive").values()
    assert row["id"] == "kp:trace:t"
    assert row["metadata"]["created_at"] == "2026-08-03T09:00:00.000000Z"
    assert row["metadata"]["success"] is True
    assert row["metadata"]["task_domain"] == "finance"
    assert transcript(row) == STEPS
    assert (
        len(refusals(tmp_path / "archive")) == len(refusals(tmp_path / "archive", "waiting")) == 2
    )
