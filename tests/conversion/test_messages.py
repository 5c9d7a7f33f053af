"""Rows of messages, as datasets have them; `golden/imports/messages` has one of each shape."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import TraceDraft
from kp_batch.errors import KpBatchError
from kp_batch.imports.importing import import_traces
from tests.support import GOLDEN
from tests.support.imports.drafting import ALWAYS, always, converted, drafted, transcript
from tests.support.imports.importing import imported, write_lines
from tests.support.processes.commands import invoke

DATED = always(created_at="field:created_at")
ROWS = GOLDEN / "imports" / "messages"
TALK = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "so"}]


def golden() -> dict[str, TraceDraft]:
    drafts = [*drafted("messages", ROWS, DATED).drafts.values()]
    return dict(
        zip(("tool calls", "another attempt", "ShareGPT", "in a text"), drafts, strict=True)
    )


def drafted_of(folder: Path, *rows: Any) -> list[TraceDraft]:
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [*drafted("messages", folder, DATED).drafts.values()]


def test_a_row_is_a_trace() -> None:
    draft = golden()["tool calls"]
    assert draft.objective == "When is high water at Husum?"
    assert transcript(draft) == [
        ("thought", "The tool knows."),
        ("tool_call", "tide", '{"place": "Husum"}'),
        ("tool_call", "tide", '{"place": "Büsum"}'),
        ("observation", "04:10"),
        ("observation", "at 04:02"),
        ("thought", "At ten past four."),
        ("observation", "And the day after?"),
        ("thought", "They drift.\nAn hour later."),
    ]


def test_columns_of_numbers_are_scores_and_columns_of_texts_are_fields() -> None:
    draft = golden()["tool calls"]
    assert draft.scores == {"reward": 1.0, "solved": 1.0, "metadata.turns": 2.0}
    assert draft.fields == {
        "id": ["tides-1"],
        "created_at": ["2026-05-02T08:00:00Z"],
        "reward": ["1.0"],
        "solved": ["true"],
        "model": ["m-1"],
        "source": ["harbour"],
        "metadata.split": ["train"],
        "metadata.turns": ["2"],
    }
    assert (draft.origin.model, draft.native.root) == ("m-1", "tides-1")


def test_messages_may_be_in_other_shapes() -> None:
    assert transcript(golden()["ShareGPT"]) == [
        ("tool_call", "knots", '{"for":"boat"}'),
        ("observation", "bowline"),
        ("thought", "A bowline."),
    ]
    assert transcript(golden()["in a text"]) == [
        ("tool_call", "count", "{}"),
        ("observation", "7"),
        ("thought", "Seven."),
    ]


def test_rows_of_one_id_are_traces_of_their_own_and_keep_theirs_where_scores_change(
    tmp_path: Path,
) -> None:
    row = {"id": "a", "messages": TALK, "reward": 1}
    (first,) = drafted_of(tmp_path, row)
    another = {**row, "messages": [*TALK, *TALK]}
    corrected, _ = drafted_of(tmp_path, {**row, "reward": 0}, another)
    assert corrected.id == first.id
    assert len(drafted_of(tmp_path, row, another, {"messages": TALK})) == 3
    assert first.id.startswith("kp:trace:a/")


def test_a_file_that_is_written_anew_has_no_other_rows(tmp_path: Path) -> None:
    path, archive = tmp_path / "rows.jsonl", tmp_path / "out"
    for talk in (TALK, [*TALK, *TALK]):
        path.write_text(
            json.dumps({"id": "a", "created_at": "2026-05-01", "messages": talk}) + "\n"
        )
        import_traces(FORMATS["messages"], [str(path)], archive, DATED)
    (row,) = imported(archive).values()
    assert len(row["steps"]) == 3


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2026-05-01T09:00:00+02:00", "2026-05-01T07:00:00.000000Z"),
        (1_777_626_000, "2026-05-01T09:00:00.000000Z"),
        (1_777_626_000_250, "2026-05-01T09:00:00.250000Z"),
        ("1777626000.5", "2026-05-01T09:00:00.500000Z"),
    ],
)
def test_a_rule_names_the_column_of_times(tmp_path: Path, value: object, at: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": TALK, "info": {"at": value}}) + "\n")
    row = converted("messages", path, always(created_at="field:info.at")).row
    assert row["metadata"]["created_at"] == at


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("start", "rows have no times by themselves: give --created-at field:NAME, or a time"),
        ("end", "rows have no times by themselves: give --created-at field:NAME, or a time"),
        ("field:at", "it has no time in field:at"),
        ("field:id", "it has no time in field:id"),
    ],
)
def test_without_a_time_a_row_is_refused(tmp_path: Path, rule: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "x", "messages": TALK}) + "\n")
    ((_, refusal),) = converted("messages", path, always(created_at=rule)).refused
    assert [*refusal.reasons] == ["bad_created_at"]
    assert refusal.message.startswith(message)


def test_all_rows_may_have_the_same_time(tmp_path: Path) -> None:
    archive = tmp_path / "out"
    rules = ("--success", "score:reward:1", "--confidence", "0.5", "--domain", "=code")
    command = ("import", "messages", ROWS, "-o", archive, *rules, "--created-at", "2026-05-01")
    assert invoke(*command).returncode == 0
    rows = imported(archive).values()
    assert {row["metadata"]["created_at"] for row in rows} == {"2026-05-01T00:00:00.000000Z"}
    assert sorted(row["metadata"]["success"] for row in rows) == [False, False, True, True]


def test_a_time_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    failed = invoke("import", "messages", ROWS, "-o", tmp_path, "--created-at", "yesterday")
    assert failed.returncode == 1
    wanted = "start, end, field:NAME or a time such as 2026-05-01T12:00:00Z, got 'yesterday'"
    assert failed.stderr == f"kp-batch: the rules have faults: created_at: must be {wanted}\n"


def test_parquet_has_the_same_rows_whose_structs_have_the_keys_of_all(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (ROWS / "train.jsonl").read_text().splitlines()[:2]]
    arguments = [{"x": 1}, {"y": [2]}]
    calls = [
        {"id": f"{n}", "function": {"name": "f", "arguments": x}} for n, x in enumerate(arguments)
    ]
    rows[1]["messages"].append({"role": "assistant", "content": None, "tool_calls": calls})
    for row in rows:
        for message in row["messages"]:
            if isinstance(message["content"], list):
                message["content"] = message["content"][0]["text"]
            for call in message.get("tool_calls", ()) if row is rows[0] else ():
                call["function"]["arguments"] = {"x": 3}
        row["picture"] = {"bytes": b"SECRET", "path": "a.png"}
        row["trace"] = "SECRET"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    first, second = drafted("messages", tmp_path, DATED).drafts.values()
    assert transcript(second)[1:] == [
        ("tool_call", "f", '{"x":1}'),
        ("tool_call", "f", '{"y":[2]}'),
    ]
    assert len(first.steps) == 8
    assert "SECRET" not in str([first, second])


def test_the_hub_s_own_parquet_of_sessions_is_read(tmp_path: Path) -> None:
    """Its messages, and what else has any shape, are texts of JSON."""
    row = {
        "harness": "pi",
        "session_id": "s",
        "prompt": "go",
        "messages": [json.dumps(message) for message in TALK],
        "metadata": json.dumps({"turn_count": 1}),
        "sent_at": "2026-05-01T09:00:00.000Z",
        "num_user_messages": 1,
        "trace": "{}\n{}",
        "file_path": "sessions/s.jsonl",
    }
    table = pa.Table.from_pylist([row])
    in_json = {"messages": pa.list_(pa.json_()), "metadata": pa.json_()}
    types = [field.with_type(in_json.get(field.name, field.type)) for field in table.schema]
    pq.write_table(table.cast(pa.schema(types)), tmp_path / "rows.parquet")
    made = converted("messages", tmp_path, always(created_at="field:sent_at")).row
    assert (made["task"]["objective"], len(made["steps"])) == ("go", 1)
    metadata = made["metadata"]
    assert (metadata["framework"], metadata["agent_id"], metadata["session"]) == ("pi", "pi", "s")
    assert made["native"]["root"] == "s"


def test_messages_in_a_text_that_breaks_off_are_refused_as_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "a", "messages": json.dumps(TALK)[:-9]}) + "\n")
    ((_, refusal),) = converted("messages", path, always(created_at="2026-05-01")).refused
    assert [*refusal.reasons] == ["cut_content"]
    assert refusal.message.startswith("messages begins as JSON and breaks off")


@pytest.mark.parametrize("name", ["conversations", "conversation", "trajectory"])
def test_the_column_may_be_called_otherwise(tmp_path: Path, name: str) -> None:
    (draft,) = drafted_of(tmp_path, {name: TALK, "trajectory_id": "a"})
    assert (draft.objective, draft.native.root) == ("go", "a")


@pytest.mark.parametrize("content", [None, [], "", "none", [None, "x", {"role": "user"}]])
def test_a_row_without_a_conversation_is_refused_alone(tmp_path: Path, content: object) -> None:
    rows = [{"created_at": "2026-05-01", "messages": each} for each in (content, TALK)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    made = converted("messages", tmp_path, DATED)
    assert (len(made.rows), made.reasons) == (1, [["empty_objective", "no_steps"]])


def test_a_file_of_other_columns_is_refused_by_name(tmp_path: Path) -> None:
    pl.DataFrame([{"text": "x"}]).write_parquet(tmp_path / "rows.parquet")
    ((_, refusal),) = drafted("messages", tmp_path, ALWAYS).refused
    assert refusal.message == "it has no column messages"


def test_rows_without_a_time_fail_the_import_and_name_the_option(tmp_path: Path) -> None:
    write_lines(tmp_path / "rows.jsonl", [{"messages": TALK}])
    with pytest.raises(KpBatchError, match="add --created-at field:NAME, or --created-at TIME"):
        import_traces(FORMATS["messages"], [str(tmp_path)], tmp_path / "out", ALWAYS)
