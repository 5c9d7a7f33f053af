"""Messages to train models on: each call has its result, and nothing is invented."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError
from kp_batch.exports.export import ExportResult, export
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats import messages
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.python.warehouse import Warehouse
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.runs import config
from tests.support.oracle.messages import messages_of

pytestmark = pytest.mark.slow

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
DRAWN = 3_000
IDS = (None, None, "a", "b", "call_1", "")
CONTENTS = ("so", "so", "é\n", "\ud83d", "", None, {"k": [1]}, 7)
INPUTS = (
    *('{"path": "a.py"}', '{"path": "a.py"}', {"n": [1, None]}, "", "{}", ' {"é": 1.5}'),
    *(None, "ls", "[1]", "null", '{"n": NaN}', '{"n": 1e999}', '{"n": 18446744073709551616}'),
    *(
        '{"n": [-9223372036854775808, 18446744073709551615]}',
        f'{{"n": {"[" * 99}{"]" * 99}}}',
        [["a", "b"]],
        "{'a': 1}",
    ),
    f'{{"n": {"[" * 100}{"]" * 100}}}',
)


def thought(content: Any = "so", **more: Any) -> Any:
    return step("thought", content, **more)


def call(given: Any = "{}", call_id: Any = None, tool: Any = "look") -> Any:
    return step("tool_call", None, tool, input=given, call_id=call_id)


def result(content: Any = "seen", call_id: Any = None, **more: Any) -> Any:
    return step("observation", content, call_id=call_id, **more)


def asked(content: Any = "and?") -> Any:
    return result(content, role="user")


def ugly_steps(chance: random.Random) -> list[Any]:
    """Any steps in any order, ids and contents at random."""
    kinds = (
        lambda: thought(
            chance.choice(CONTENTS), reasoning_chars=chance.choice((None, -1, 0, 1, 9))
        ),
        lambda: call(chance.choice(INPUTS[:6]), chance.choice(IDS)),
        lambda: result(chance.choice(CONTENTS), chance.choice(IDS), role="tool"),
        lambda: result(chance.choice(CONTENTS), chance.choice(IDS)),
        lambda: asked(chance.choice(CONTENTS[:3])),
        lambda: step("error_recovery", "again", chance.choice((None, "look")), input="{}"),
    )
    return [chance.choice(kinds)() for _ in range(chance.randrange(1, 7))]


def talk_steps(chance: random.Random) -> list[Any]:
    """A conversation that usually can be written: parallel calls, results in any order."""
    steps: list[Any] = []
    for number in range(chance.randrange(4)):
        if chance.random() < 0.5:
            steps.append(thought(chance.choice(CONTENTS), reasoning_chars=chance.choice((None, 1))))
        if chance.random() < 0.3:
            steps += [call(chance.choice(INPUTS)), result()]
        ids = chance.sample(["a", "b", f"c{number}"], chance.randrange(1, 4))
        steps += [call(chance.choice(INPUTS[:6]), each) for each in ids]
        chance.shuffle(ids)
        steps += [result(chance.choice(CONTENTS[:5]), each, role="tool") for each in ids]
        if chance.random() < 0.3:
            steps.insert(len(steps) - chance.randrange(2), asked())
    return [*steps, thought(), *[asked()] * chance.randrange(2)]


def drawn_traces() -> list[dict[str, Any]]:
    chance = random.Random(7)
    traces = [
        trace(id=f"t{number}", steps=chance.choice((ugly_steps, talk_steps))(chance))
        for number in range(DRAWN)
    ]
    # The result without an id belongs to the second call, so the other one to the first.
    traces[0]["steps"] = [
        call("{}", "a"),
        call("{}", "a"),
        result("2"),
        result("1", "a"),
        thought(),
    ]
    for row in traces:
        system, tools = chance.choice((None, "", "be good")), chance.choice((None, TOOLS))
        row["task"] |= {"system": system, "tools": tools and json.dumps(tools)}
    return traces


def scored(folder: Path, rows: Sequence[dict[str, Any]]) -> RescoreConfig:
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    run_config = config(folder, folder / "archive", max_reject_share=1)
    rescore_archive(run_config)
    return run_config


def exported(warehouse: Path, output: Path, **more: Any) -> ExportResult:
    options = ExportOptions(format="messages", min_score=0, **more)
    return export(warehouse, options, output, ending=output.suffix)


def rows_in(path: Path) -> dict[str, dict[str, Any]]:
    """The rows by id, with their messages and tools as values, whatever the file."""
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    else:
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            for name in ("messages", "tools"):
                row[name] = None if row[name] is None else [json.loads(one) for one in row[name]]
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    traces = drawn_traces()
    return scored(tmp_path_factory.mktemp("drawn"), traces).warehouse, traces


@pytest.mark.telling
@pytest.mark.parametrize("no_thoughts", [False, True])
def test_law_messages_are_those_of_plain_loops(
    drawn: tuple[Path, list[dict[str, Any]]], tmp_path: Path, *, no_thoughts: bool
) -> None:
    warehouse, traces = drawn
    result = exported(warehouse, tmp_path / "a.jsonl", no_thoughts=no_thoughts)
    expected = {
        row["id"]: found
        for row in traces
        if (found := messages_of(row, thoughts=not no_thoughts)) is not None
    }
    rows = rows_in(tmp_path / "a.jsonl")
    assert "t0" in rows
    assert {name: row["messages"] for name, row in rows.items()} == sendable(expected)
    assert DRAWN / 4 < len(rows) < DRAWN * 3 / 4
    assert result.chosen == DRAWN
    assert sum(result.not_written.values()) == DRAWN - len(rows)
    assert len(result.not_written) >= 6
    own = {row["id"]: row["task"]["tools"] for row in traces}
    assert all(row["tools"] == json.loads(own[name] or "null") for name, row in rows.items())


def sendable(value: Any) -> Any:
    """A value as UTF-8 holds it: half a surrogate is replaced."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


@pytest.mark.telling
def test_law_each_call_has_its_result_and_the_assistant_has_the_last_word(
    drawn: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    exported(drawn[0], tmp_path / "a.jsonl")
    for row in rows_in(tmp_path / "a.jsonl").values():
        roles = [message["role"] for message in row["messages"]]
        assert roles[-1] == "assistant"
        assert row["messages"][-1]["content"]
        assert roles.count("system") <= 1
        assert roles.index("user") == roles.count("system")
        calls = [one["id"] for each in row["messages"] for one in each.get("tool_calls", ())]
        assert len(set(calls)) == len(calls)
        for place, message in enumerate(row["messages"]):
            own = [one["id"] for one in message.get("tool_calls", ())]
            following = row["messages"][place + 1 : place + 1 + len(own)]
            assert [each.get("tool_call_id") for each in following] == own
        assert roles.count("tool") == len(calls)


@pytest.mark.telling
def test_law_a_parquet_file_has_the_same_rows_and_a_repeated_export_the_same_bytes(
    drawn: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    for name in ("a.jsonl", "a.parquet", "b.jsonl", "b.parquet"):
        exported(drawn[0], tmp_path / name)
    assert rows_in(tmp_path / "a.parquet") == rows_in(tmp_path / "a.jsonl")
    for ending in ("jsonl", "parquet"):
        first, second = (tmp_path / f"{name}.{ending}" for name in "ab")
        assert first.read_bytes() == second.read_bytes()


REASONS = {
    messages.NO_NAME: [step("tool_call", "x", input="{}"), result()],
    messages.NO_INPUT: [call(None), result()],
    messages.NO_OBJECT: [call("{'n': 1}"), result()],
    messages.UNREADABLE: [call('{"n": 1e999}'), result()],
    messages.NO_RESULT: [call()],
    messages.NO_CALL: [call(), result(), result()],
    messages.SEVERAL_CALLS: [call("{}", "a"), call("{}", "a"), result("x", "a")],
    messages.NO_TEXT: [asked("")],
    messages.NO_ANSWER: [thought(), call(), result()],
}
LEFT_OUT = {
    messages.NO_INPUT: [[step("tool_call", "ls", "bash"), result()]],
    messages.NO_OBJECT: [[call([["a", 1]]), result()], [call("[1]"), result()]],
    messages.NO_RESULT: [
        [call(), result(None)],
        [call("{}", "a"), call("{}", "b"), result("x", "a"), thought(), result("y", "b")],
    ],
    messages.NO_CALL: [
        [result()],
        [call("{}", "a"), result("x", "b")],
        [call(), call(), result(), result()],  # without ids, only neighbours pair
        [call("{}", "a"), result("x", "a"), result("x", "a")],
        [call(), result(None), result()],
        [call(), thought(), result()],
    ],
    messages.NO_ANSWER: [[asked()], [thought("")], [thought(reasoning_chars=2), asked()]],
}


def test_each_reason_is_counted(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for reason, steps in [
        *REASONS.items(),
        *((x, y) for x, several in LEFT_OUT.items() for y in several),
    ]:
        ends = [] if reason == messages.NO_ANSWER else [thought()]
        rows.append(trace(id=f"{len(rows)}", steps=[*steps, *ends]))
        found[reason] += 1
    rows.append(trace(id="good", steps=[thought()]))
    run_config = scored(tmp_path, rows)
    outcome = exported(run_config.warehouse, tmp_path / "a.jsonl")
    assert outcome.not_written == found
    assert [*rows_in(tmp_path / "a.jsonl")] == ["good"]


@pytest.mark.telling
def test_a_conversation_in_full(tmp_path: Path) -> None:
    steps = [
        thought("hm\nI look", role="assistant", reasoning_chars=2),
        call('{"path": "a.py"}', "x1"),
        call({"path": "b.py"}, None, "open"),
        result("b", role="tool"),
        result("a", "x1", role="tool"),
        asked("faster"),
        step("error_recovery", "ignored", "look", input="", call_id="x1"),
        result({"ok": True}, "x1"),
        thought("it is"),
        thought("done"),
        asked("thanks"),
    ]
    row = trace(id="t", steps=steps)
    row["task"] |= {"objective": "fix it", "system": "be good", "tools": json.dumps(TOOLS)}
    run_config = scored(tmp_path, [row])
    path = tmp_path / "a.parquet"
    warehouse = Warehouse(run_config.warehouse)
    assert warehouse.export(path, format="messages", min_score=0).exported == 1
    [written] = rows_in(path).values()
    assert [*written] == ["id", "score", "messages", "tools"]
    assert 0 < written["score"] < 1
    assert written["tools"] == TOOLS
    assert written["messages"] == [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "fix it"},
        {
            "role": "assistant",
            "content": "I look",
            "reasoning_content": "hm",
            "tool_calls": [
                called("x1", "look", {"path": "a.py"}),
                called("call_1", "open", {"path": "b.py"}),
            ],
        },
        {"role": "tool", "tool_call_id": "x1", "name": "look", "content": "a"},
        {"role": "tool", "tool_call_id": "call_1", "name": "open", "content": "b"},
        {"role": "user", "content": "faster"},
        {"role": "assistant", "content": "", "tool_calls": [called("call_2", "look", {})]},
        {"role": "tool", "tool_call_id": "call_2", "name": "look", "content": '{"ok": true}'},
        {"role": "assistant", "content": "it is\ndone"},
    ]


def called(name: str, tool: str, arguments: Any) -> Any:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


@pytest.mark.telling
def test_tools_that_are_not_recorded_as_openai_has_them_are_null(tmp_path: Path) -> None:
    given = ("", "x", "[]", "{}", '["look"]', '[{"name": "look"}]', '[{"function": {}}]', None)
    rows = [trace(id=f"{number}", steps=[thought()]) for number in range(len(given))]
    for row, tools in zip(rows, given, strict=True):
        row["task"]["tools"] = tools
    run_config = scored(tmp_path, rows)
    for name in ("a.jsonl", "a.parquet"):
        exported(run_config.warehouse, tmp_path / name)
        assert [row["tools"] for row in rows_in(tmp_path / name).values()] == [None] * len(given)
    schema = pl.read_parquet_schema(tmp_path / "a.parquet")
    assert [*schema] == ["id", "score", "messages", "tools"]


def test_no_thoughts_is_for_messages() -> None:
    with pytest.raises(SettingError, match="no_thoughts needs the format messages"):
        ExportOptions.checked({"no_thoughts": True})
