"""LangSmith's runs, from the bulk export's Parquet and from JSON lines."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

from kp_batch import bounds
from kp_batch.conversion.formats.langsmith import FORMAT
from kp_batch.conversion.model import Native, SourceRecord, TraceDraft
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from tests.support.imports import drafting
from tests.support.imports.drafting import Conversion, always, converted, transcript
from tests.support.imports.importing import imported

RULES = always(
    success={"score": "right", "at_least": 0.5},
    confidence={"score": "useful", "max": 10},
    task_domain={"from": "tags", "map": {"b": "finance"}, "otherwise": "default"},
)
STATS = {"right": {"n": 1, "avg": True}, "useful": {"n": 2, "avg": 4}, "word": {"avg": None}}
Run = dict[str, Any]


def at(second: int) -> str:
    return f"2026-05-01T09:00:{second:02d}.000000"


def run(name: str, second: int = 0, parent: str | None = "root", **more: Any) -> Run:
    """A run; its dotted order is that of a child of the root."""
    own = f"20260501T0900{second:02d}000000Z{name}"
    return {
        "id": name,
        "trace_id": "root",
        "parent_run_id": parent,
        "name": name,
        "run_type": "chain",
        "status": "success",
        "start_time": at(second),
        "end_time": at(59),
        "dotted_order": f"20260501T090000000000Zroot.{own}" if parent else own,
        "inputs": None,
        "outputs": None,
        **more,
    }


def root(**more: Any) -> Run:
    defaults = {"inputs": {"input": "q"}, "feedback_stats": STATS, "tags": ["a", "b"]}
    return run("root", 0, None, **{**defaults, **more})


def llm(name: str, second: int, inputs: Any, answer: Any, **more: Any) -> Run:
    return run(name, second, run_type="llm", inputs=inputs, outputs=answer, **more)


def tool(name: str, second: int, inputs: Any, answer: Any, **more: Any) -> Run:
    return run(name, second, run_type="tool", inputs=inputs, outputs=answer, **more)


def message_of(role: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def calls(*names: str, text: str | None = None, **arguments: Any) -> dict[str, Any]:
    functions = [{"name": name, "arguments": json.dumps(arguments)} for name in names]
    listed = [{"id": f"call {function['name']}", "function": function} for function in functions]
    return message_of("assistant", text, tool_calls=listed)


def lc(kind: str, text: str, **more: Any) -> dict[str, Any]:
    """A message as LangChain serialises it."""
    kwargs = {"content": text, **more}
    return {"lc": 1, "type": "constructor", "id": ["langchain", kind], "kwargs": kwargs}


def conversation() -> list[Run]:
    """A question, a call, its result, and an answer, with what repeats them."""
    prompt = [message_of("system", "be good"), message_of("user", "q")]
    messages = [
        *prompt,
        calls("look", text="so", at=1),
        message_of("tool", "[]", tool_call_id="call look"),
    ]
    return [
        root(),
        llm("a", 1, {"messages": prompt}, {"choices": [{"message": messages[2]}]}),
        tool("look", 2, {"at": 1}, {"output": "[]"}),
        llm("b", 3, {"messages": messages}, {"messages": [message_of("assistant", "so it is")]}),
        llm("c", 4, {"messages": [*messages, message_of("user", "q")]}, {"messages": []}),
    ]


def write_lines(path: Path, runs: list[Run]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in runs), "utf-8")
    return path


def write_parquet(path: Path, runs: list[Run], unit: Literal["us", "ns"] = "us") -> Path:
    """A file as the bulk export writes it: times, and objects as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            name: json.dumps(value)
            if isinstance(value, dict)
            else datetime.fromisoformat(value)
            if name.endswith("_time")
            else value
            for name, value in entry.items()
        }
        for entry in runs
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    times = pl.col("start_time", "end_time").cast(pl.Datetime(unit, "UTC"))
    frame.with_columns(times).write_parquet(path)
    return path


def made_of(runs: list[Run], path: Path, **rules: Any) -> Conversion:
    made, again = (
        drafting.drafted("langsmith", write_lines(path, lines), always(**rules))
        for lines in (runs, runs[::-1])
    )
    assert (made.drafts, made.reasons) == (again.drafts, again.reasons)  # whatever the order
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def drafted(runs: list[Run], path: Path, **rules: Any) -> TraceDraft:
    return made_of(runs, path, **rules).draft


def steps_of(runs: list[Run], path: Path, **rules: Any) -> list[tuple[object, ...]]:
    return transcript(drafted(runs, path, **rules))


def test_what_repeats_is_counted_once(path: Path) -> None:
    result = drafted(conversation(), path)
    assert (result.id, result.objective) == ("kp:trace:root", "q")
    assert transcript(result) == [
        ("thought", "so"),
        ("tool_call", "look", '{"at": 1}'),
        ("observation", "[]"),
        ("thought", "so it is"),
        ("observation", "q"),
    ]
    assert result.scores == {"right": 1.0, "useful": 4.0}


def test_langchains_messages_and_tools(path: Path) -> None:
    call = {"name": "look", "args": {"at": "x"}, "id": "1", "type": "tool_call"}
    question, answer = lc("HumanMessage", "q"), lc("AIMessage", "", tool_calls=[call])
    message = {"content": "found", "type": "tool", "tool_call_id": "1"}
    observed = lc("ToolMessage", "found", tool_call_id="1")
    runs = [
        root(inputs={"messages": [question]}),
        llm(
            "a", 1, {"messages": [[question]]}, {"generations": [[{"text": "", "message": answer}]]}
        ),
        tool("look", 2, {"input": "{'at': 'x'}"}, {"output": message}),
        llm(
            "b",
            3,
            {"messages": [[question, answer, observed]]},
            {"generations": [[{"text": "yes"}]]},
        ),
    ]
    expected = [("tool_call", "look", '{"at":"x"}'), ("observation", "found"), ("thought", "yes")]
    result = drafted(runs, path)
    assert (result.objective, transcript(result)) == ("q", expected)
    runs[2]["outputs"] = {"output": observed}  # serialised once more
    assert steps_of(runs, path) == expected
    runs[2]["outputs"] = {"output": "found"}  # by older agents: the arguments tell the call
    assert steps_of(runs, path) == expected
    del runs[1]
    assert steps_of(runs[:2], path) == expected[:2]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"output": '{"a": 1}'}, ['{"a": 1}']),
        ({"output": {"b": "é", "a": 1}}, ['{"b":"é","a":1}']),
        ({"rows": [], "n": 0}, ['{"rows":[],"n":0}']),
        ({"output": ""}, [""]),
        ({"output": None}, []),
        ({}, []),
        (None, []),
    ],
)
def test_results_of_tools(path: Path, outputs: object, expected: list[str]) -> None:
    call = ("tool_call", "look", '{"at":1}')
    steps = steps_of([root(), tool("look", 1, {"at": 1}, outputs)], path)
    assert steps == [call, *(("observation", text) for text in expected)]


def test_a_model_within_a_model_is_the_same_call(path: Path) -> None:
    inputs, answer = (
        {"messages": [message_of("user", "q")]},
        {"messages": [message_of("assistant", "a")]},
    )
    inner = llm("inner", 2, inputs, answer, parent="outer")
    runs = [root(), llm("outer", 1, inputs, answer), inner]
    assert steps_of(runs, path) == [("thought", "a")]


def test_a_retriever_is_a_tool_unless_a_tool_asks_it(path: Path) -> None:
    asks: Run = {"run_type": "retriever", "inputs": {"query": "x"}, "outputs": {"documents": []}}
    runs = [root(), run("find", 1, **asks), tool("search", 2, {}, {"output": "y"})]
    runs.append(run("within", 3, "search", **asks))
    calls = [step[1] for step in steps_of(runs, path) if step[0] == "tool_call"]
    assert calls == ["find", "search"]


def test_runs_are_taken_in_their_dotted_order(path: Path) -> None:
    answer = {"messages": [message_of("assistant", "later")]}
    # Of one time; the order tells what came first, and else the parents and the times do.
    first = llm("z", 1, None, {"messages": [message_of("assistant", "first")]}, start_time=at(5))
    second = llm("a", 2, None, answer, start_time=at(5))
    assert steps_of([root(), second, first], path) == [("thought", "first"), ("thought", "later")]
    runs = [{**entry, "dotted_order": None} for entry in conversation()]
    assert drafted(runs, path).steps == drafted(conversation(), path).steps


def test_the_objective(path: Path) -> None:
    asks = llm("a", 1, {"messages": [message_of("user", "asked")]}, None)
    history = {"question": "now?", "chat_history": []}
    hidden = llm("a", 1, None, None)
    assert drafted([root(inputs=history), hidden], path).objective == "now?"
    assert drafted([root(inputs=history), asks], path).objective == "now?"
    assert drafted([root(inputs={"chat_history": []}), asks], path).objective == "asked"
    inner = run("b", 1, inputs={"query": "inner"})
    assert drafted([root(inputs=None), hidden, inner], path).objective == "inner"
    assert drafted([root(inputs=None), hidden], path).objective == ""
    deep = root(inputs={"job": {"texts": ["no", "yes"]}})
    assert drafted([deep, asks], path, objective="job.texts.1").objective == "yes"


def test_recovery_after_a_failed_tool(path: Path) -> None:
    answer = {"messages": [message_of("assistant", "again")]}
    broken = {"status": "error", "error": "Traceback ..."}
    runs = [root(), tool("look", 1, {}, None, **broken), llm("b", 2, None, answer)]
    for rule, kind in ((None, "thought"), ("after_tool_error", "error_recovery")):
        assert steps_of(runs, path, recovery=rule) == [("tool_call", "look", "{}"), (kind, "again")]


def test_a_tool_that_waits_for_its_user_has_not_failed(path: Path) -> None:
    answer = {"messages": [message_of("assistant", "again")]}
    waits = {"status": "error", "error": "GraphInterrupt((Interrupt(value='ok?'),))\n\nTraceback"}
    runs = [root(), tool("look", 1, {}, None, **waits), llm("b", 2, None, answer)]
    assert steps_of(runs, path, recovery="after_tool_error")[-1] == ("thought", "again")


def test_a_trace_without_its_root_is_incomplete(path: Path) -> None:
    pending = root(status="pending", end_time=None)
    for runs in (conversation()[1:], [pending, *conversation()[1:]]):
        ((_, refusal),) = made_of(runs, path).refused
        assert (refusal.reasons, refusal.id) == (["incomplete"], "kp:trace:root")
    assert drafted([pending, *conversation()], path).steps  # exported once more when it was done


def test_of_two_exports_of_a_run_the_later_counts(path: Path) -> None:
    fewer = root(feedback_stats={"right": {"n": 1, "avg": 0}})
    more = root(feedback_stats={"right": {"n": 2, "avg": 0.5}})
    bare = root(feedback_stats=None, inputs=None)
    asks = llm("a", 1, None, None)
    assert drafted([more, bare, fewer, asks], path).scores == {"right": 0.5}


def test_of_exports_that_know_as_much_the_last_counts(path: Path) -> None:
    one, other = (
        llm("a", 1, {}, message_of("assistant", text)) for text in ("much longer", "short")
    )
    for runs, text in (([one, other], "short"), ([other, one], "much longer")):
        result = drafting.drafted("langsmith", write_lines(path, [root(), *runs])).draft
        assert transcript(result) == [("thought", text)]
        assert result.native == Native(root="root")


def test_a_run_that_is_nested_too_deep_is_a_record_of_its_trace(path: Path) -> None:
    deep = '{"metadata": ' + "[" * bounds.NESTING + "]" * bounds.NESTING + "}"
    [record] = FORMAT.records(write_lines(path, [root(extra=deep)]), [])
    assert record == SourceRecord("root", None, 1)


def test_a_trace_without_an_agent_is_passed_over(path: Path) -> None:
    made = made_of([root(), run("a", 1)], path)
    assert (made.drafts, made.skipped) == ({}, ["no span of an agent"])


def test_fields(path: Path) -> None:
    extra = {"metadata": {"team": "x", "size": 3}}
    result = drafted([root(extra=extra, session_name="shop"), llm("a", 1, None, None)], path)
    assert result.fields == {
        "tags": ["a", "b"],
        "name": ["root"],
        "session_name": ["shop"],
        "metadata.team": ["x"],
        "metadata.size": ["3"],
    }


def test_an_export_gives_the_same_as_its_lines(tmp_path: Path) -> None:
    runs = [{**entry, "trace_id": name} for name in ("root", "y") for entry in conversation()]
    runs[0]["extra"] = {"metadata": {}}
    runs[5] |= {"id": "y", "feedback_stats": {"useful": {"avg": 11}}}  # too useful, never judged
    day = tmp_path / "export/export_id=1/runs/year=2026/month=5/day=1"
    write_parquet(day / "part-1.parquet", runs[::2], "ns")
    write_parquet(day / "part-0.parquet", runs[1::2])
    write_parquet(day / "part-again.parquet", runs[:3])
    done = import_traces(FORMAT, [str(tmp_path / "export")], tmp_path / "a", RULES)
    assert (done.traces, done.files_read) == (1, 3)
    assert done.refused == {"missing_success": 1, "bad_confidence": 1}
    rows = imported(tmp_path / "a")
    row = rows["kp:trace:root"]
    assert row["metadata"]["created_at"] == "2026-05-01T09:00:00.000000Z"
    assert (row["metadata"]["success"], row["metadata"]["task_domain"]) == (True, "finance")
    assert (row["task"]["objective"], row["outcome"]["confidence"]) == ("q", 0.4)
    assert converted("langsmith", write_lines(tmp_path / "runs.jsonl", runs), RULES).rows == rows


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    source = tmp_path / "source"
    whole = write_parquet(source / "whole.parquet", conversation()).read_bytes()
    (source / "cut.parquet").write_bytes(whole[:500])
    (source / "empty.parquet").write_bytes(b"")
    (source / "empty.jsonl").write_bytes(b"")
    (source / "page.jsonl").write_text('<html>\n{"id": "x"}\n[]\n')
    pl.DataFrame({"id": ["x"], "a": [1]}).write_parquet(source / "other.parquet")
    made = drafting.drafted("langsmith", source)
    assert len(made.drafts) == 1
    assert {(Path(file).name, it.line, *it.reasons) for file, it in made.refused} == {
        ("cut.parquet", None, "unreadable_file"),
        ("empty.parquet", None, "unreadable_file"),
        ("empty.jsonl", None, "unreadable_file"),
        ("other.parquet", None, "missing_column"),
        ("page.jsonl", 1, "malformed_json"),
        ("page.jsonl", 2, "missing_id"),
        ("page.jsonl", 3, "malformed_json"),
    }


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    pl.DataFrame({"id": ["x"]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(UnreadableError, match="no column trace_id, run_type"):
        list(FORMAT.records(tmp_path / "x.parquet", []))
