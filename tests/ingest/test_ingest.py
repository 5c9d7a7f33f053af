import json
import math
import random
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kp_batch.ingest.scan
from kp_batch.archive import reading
from kp_batch.ingest.scan import scan_archive
from kp_batch.ingest.stage import NewContent, StagedPart, stage_contents
from kp_batch.planning.changes import RELATIONS, detect_changes
from kp_batch.planning.timeline import TIMELINE
from kp_batch.schemas import FACTS, REJECTS
from kp_batch.steps.step import Step, ThreadExecutor
from kp_batch.warehouse.open_snapshot import open_snapshot
from tests.support.make.archives import (
    SCHEMA,
    read,
    retyped,
    step,
    trace,
    write_damaged,
    write_jsonl,
    write_parquet,
)
from tests.support.read.intake import take_in


def text_hash(objective: str) -> str:
    """Of a trace with that objective and the steps that `trace` gives it."""
    return sha256(f"{objective} look at it run it".encode()).hexdigest()


def test_the_tables_have_their_schemas(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(), trace(id="")])
    taken = take_in(tmp_path)
    assert taken.rows.schema == FACTS
    assert taken.timeline.schema == TIMELINE
    assert taken.rejects.schema == REJECTS
    assert taken.rejects["run_id"].to_list() == [taken.run.run_id]
    assert taken.rejects["file_id"].to_list() == taken.rows["file_id"].unique().to_list()
    assert taken.totals == (2, 1, 1)
    assert taken.plan.counts.unreadable_files == []
    assert taken.counts == {"missing_id": 1}


def test_an_archive_without_faults_has_no_rejects(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    taken = take_in(tmp_path)
    assert taken.rejects.is_empty()
    assert taken.rejects.schema == REJECTS
    assert taken.counts == {}


def test_an_archive_without_any_good_row(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id=""), b"{"])
    write_jsonl(tmp_path / "b.jsonl", [b""])
    taken = take_in(tmp_path)
    assert taken.timeline.is_empty()
    assert taken.totals == (2, 0, 2)
    assert taken.plan.counts.unreadable_files == []
    assert taken.counts == {"missing_id": 1, "malformed_json": 1}


def test_the_timeline_is_in_order_of_time_then_of_the_ids_bytes(tmp_path: Path) -> None:
    ids = ["a", "B", "a\0", "a ", "aa", "é", "z", "\uffff", "😀", "10", "9", "-", "a" * 20, "ä"]
    times = ["2026-01-05T08:00:00Z", "2026-01-05T08:00:00.000001Z", "1969-12-31T23:59:59.5Z"]
    traces = [trace(id=f"{i}{t[-3:]}", created_at=t) for i in ids for t in times]
    random.Random(5).shuffle(traces)
    write_parquet(tmp_path / "b.parquet", traces[:15])
    write_jsonl(tmp_path / "a.jsonl", traces[15:])
    taken = take_in(tmp_path)
    by_time = sorted(times, key=lambda text: (text[:19], text[19:].replace("Z", "")))
    expected = [(t, f"{i}{t[-3:]}") for t in by_time for i in ids]
    expected.sort(key=lambda pair: (by_time.index(pair[0]), pair[1].encode()))
    assert taken.ids == [identity for _, identity in expected]
    assert taken.timeline["created_at"].is_sorted()


def test_the_same_content_again_counts_once(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(), trace(), trace(id="b")])
    write_jsonl(tmp_path / "b.jsonl", [trace(agent_id="later", framework=None), trace(id="b")])
    taken = take_in(tmp_path)
    assert taken.ids == ["b", "kp:trace:1"]
    assert taken.timeline["source_file"].to_list() == [f"{tmp_path}/b.jsonl"] * 2
    assert taken.timeline["agent_id"].to_list() == ["agent-1", "later"]
    assert taken.rejects.is_empty()
    assert taken.totals == (5, 2, 0)
    assert taken.plan.counts.duplicates == 3


def test_of_other_content_the_last_by_file_and_row_wins(tmp_path: Path) -> None:
    first, second, third = (trace(objective=text) for text in ("first", "second", "third"))
    # By its path's bytes "a/1.jsonl" is the last, by its parts it would be the first.
    last_row = trace(objective="third", agent_id="in the last row")
    write_jsonl(tmp_path / "a/1.jsonl", [first, third, second, last_row])
    write_parquet(tmp_path / "a-1.parquet", [third, first])
    taken = take_in(tmp_path)
    assert taken.timeline.select("source_file", "text_hash", "agent_id").rows() == [
        (f"{tmp_path}/a/1.jsonl", text_hash("third"), "in the last row")
    ]
    assert taken.refused == [
        ("a-1.parquet", 1, "kp:trace:1", ["superseded"]),
        ("1.jsonl", 0, "kp:trace:1", ["superseded"]),
        ("1.jsonl", 2, "kp:trace:1", ["superseded"]),
    ]
    assert taken.counts == {"superseded": 3}
    last = f"{tmp_path}/a/1.jsonl, row 3"
    assert taken.rejects["message"].unique().to_list() == [
        f"the same id has other content in {last}, later in the archive"
    ]
    assert taken.rejects["raw"].null_count() == 3  # their file and row show where they are


def test_rows_are_ordered_as_numbers(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(objective=str(row)) for row in range(11)])
    taken = take_in(tmp_path)
    assert taken.timeline["text_hash"].to_list() == [text_hash("10")]
    assert taken.rejects["row"].to_list() == list(range(10))


def test_a_later_time_alone_supersedes(tmp_path: Path) -> None:
    late, early = "2026-01-06T00:00:00Z", "2026-01-04T00:00:00Z"
    write_jsonl(tmp_path / "a.jsonl", [trace(created_at=late), trace(created_at=early)])
    taken = take_in(tmp_path)
    assert [str(at.date()) for at in taken.timeline["created_at"]] == ["2026-01-04"]
    assert taken.refused == [("a.jsonl", 0, "kp:trace:1", ["superseded"])]


def test_a_refused_later_version_supersedes_nothing(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(objective="good"), trace(confidence=2.0)])
    write_jsonl(tmp_path / "b.jsonl", [trace(objective="")])
    taken = take_in(tmp_path)
    assert taken.timeline.select("source_file", "text_hash").rows() == [
        (f"{tmp_path}/a.parquet", text_hash("good"))
    ]
    assert taken.refused == [
        ("a.parquet", 1, "kp:trace:1", ["bad_confidence"]),
        ("b.jsonl", 0, "kp:trace:1", ["empty_objective"]),
    ]
    assert taken.totals == (3, 1, 2)


def test_ids_of_null_are_not_one_trace(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id=None), trace(id=None, objective="x"), b"{", b"["])
    taken = take_in(tmp_path)
    assert taken.counts == {"missing_id": 2, "malformed_json": 2}


@pytest.mark.parametrize("batch", [1, 2, 4_096])
def test_refused_rows_are_kept_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", batch)
    schema = retyped(SCHEMA, "extra", pa.list_(pa.float64()))
    bad = trace(confidence=math.nan, steps=[None, step("x", "é")], extra=[1.0, -math.inf])
    write_parquet(tmp_path / "a.parquet", [trace(), bad, trace(id=""), bad], schema)
    line = b'  {"id": "",\t"x": [1, "\xc3\xa9"]}\r'
    write_jsonl(
        tmp_path / "b.jsonl", [trace(id="b"), b"", line, b'{"id": \xff', trace(id="c"), b"1"]
    )
    taken = take_in(tmp_path)
    assert [(file, row) for file, row, *_ in taken.refused] == [
        *(("a.parquet", 1), ("a.parquet", 2), ("a.parquet", 3)),
        *(("b.jsonl", 2), ("b.jsonl", 3), ("b.jsonl", 5)),
    ]
    assert taken.refused[0][3] == ["no_steps", "unknown_step_type", "bad_confidence"]
    raws = taken.rejects["raw"].to_list()
    first, second, third, *lines = (json.loads(raw, parse_constant=pytest.fail) for raw in raws)
    (empty,) = pa.Table.from_pylist([bad], schema=schema).to_pylist()
    expected: dict[str, Any] = {**empty, "extra": [1.0, "-inf"]}
    expected["outcome"]["confidence"] = "nan"
    assert first == third == expected
    assert second["id"] == ""
    assert raws[3] == line.decode().strip()
    assert lines == [{"id": "", "x": [1, "é"]}, '{"id": \ufffd', "1"]


def test_rejects_say_why_in_a_sentence(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [b"[", trace(id="", task_domain=None)])
    assert take_in(tmp_path).rejects["message"].to_list() == [
        "line 1 is not a JSON object: Expecting value at character 2",
        "id is empty; metadata.task_domain is null",
    ]


def test_an_unreadable_file_leaves_none_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 2)
    write_parquet(tmp_path / "a.parquet", [trace(id="a"), trace(id="x", objective="before")])
    rows = [trace(id="x"), trace(id=""), trace(id="a", objective="other"), *[trace(id="y")] * 5]
    bad = write_damaged(tmp_path / "b.parquet", rows, good=6)
    write_jsonl(tmp_path / "c.jsonl", [trace(id="c"), b"{"])
    taken = take_in(tmp_path)
    of_bad = pl.col("file_id").str.contains(sha256(bad.read_bytes()).hexdigest())
    assert taken.rows.filter(of_bad).is_empty()
    assert taken.ids == ["a", "c", "x"]
    assert taken.timeline["source_file"].to_list() == [
        f"{tmp_path}/{name}" for name in ("a.parquet", "c.jsonl", "a.parquet")
    ]
    assert taken.refused == [
        ("b.parquet", None, None, ["unreadable_file"]),
        ("c.jsonl", 1, None, ["malformed_json"]),
    ]
    assert taken.totals == (4, 3, 1)
    assert taken.plan.counts.unreadable_files == [str(bad)]
    assert taken.counts == {"unreadable_file": 1, "malformed_json": 1}


def test_whole_files_are_refused_with_all_their_faults(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    schema = retyped(retyped(SCHEMA, "id", None), "metadata/success", pa.string())
    write_parquet(tmp_path / "b.parquet", [], retyped(schema, "steps", None))
    write_parquet(tmp_path / "c.parquet", [trace()])
    taken = take_in(tmp_path)
    assert taken.refused == [
        ("a.parquet", None, None, ["unreadable_file"]),
        ("b.parquet", None, None, ["missing_column", "wrong_column_type"]),
    ]
    assert taken.rejects["raw"].to_list() == [None, None]
    assert [message.split("; ") for message in taken.rejects["message"]] == [
        ["the file is empty (0 bytes)"],
        [
            "no column id, steps",
            "metadata.success is String, expected true or false",
        ],
    ]
    assert taken.ids == ["kp:trace:1"]
    assert taken.counts == {"unreadable_file": 1, "missing_column": 1, "wrong_column_type": 1}


def test_an_archive_of_unreadable_files_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    taken = take_in(tmp_path)
    assert taken.totals == (0, 0, 0)
    assert taken.counts == {"unreadable_file": 1}


@pytest.mark.parametrize("name", ['it\'s "odd"', "per%20cent", "über 😀", "[a]", "semi;--", "st*r"])
def test_archives_of_odd_names(tmp_path: Path, name: str) -> None:
    path = write_parquet(tmp_path / name / f"{name}.parquet", [trace(), trace(id="")])
    taken = take_in(tmp_path, path, write_jsonl(tmp_path / "z" / f"{name}.jsonl", [b"{"]))
    assert taken.timeline["source_file"].to_list() == [str(path)]
    assert sorted(taken.counts) == ["malformed_json", "missing_id"]


@pytest.mark.parametrize("name", ['it\'s "odd"', "per%20cent", "über 😀", "semi;--", "two words"])
def test_warehouses_of_odd_names(tmp_path: Path, name: str) -> None:
    write_jsonl(tmp_path / name / "a.jsonl", [trace(), trace(objective="x"), b"{"])
    assert take_in(tmp_path / name).counts == {"superseded": 1, "malformed_json": 1}


def test_urls_are_read_and_read_again(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a b.parquet", [trace(), trace(id="")])
    write_jsonl(tmp_path / "c.jsonl", [b"{", trace(objective="later")])
    taken = take_in(tmp_path, f"file://{tmp_path}/*.*")
    assert taken.totals == (4, 1, 2)
    assert taken.counts == {"superseded": 1, "missing_id": 1, "malformed_json": 1}
    assert taken.rejects["source_file"].to_list() == [
        f"{tmp_path}/{name}" for name in ("a b.parquet", "a b.parquet", "c.jsonl")
    ]
    assert taken.rejects["raw"].is_null().to_list() == [True, False, False]


def test_the_formats_of_an_archive_may_be_mixed(tmp_path: Path) -> None:
    traces = [trace(id=str(i), objective=f"about {i}") for i in range(20)]
    parquet = write_parquet(tmp_path / "a.parquet", traces)
    jsonl = write_jsonl(tmp_path / "b.jsonl", traces)
    taken = take_in(tmp_path)
    assert (taken.totals, taken.rejects.height) == ((40, 20, 0), 0)
    assert set(taken.timeline["content_hash"]) == set(read(parquet)["content_hash"])
    assert taken.timeline["source_file"].unique().to_list() == [str(jsonl)]
    assert taken.rows.head(20).drop("file_id").equals(taken.rows.tail(20).drop("file_id"))


@pytest.mark.parametrize("rows", [1, 9])
def test_content_is_read_from_another_file_where_the_first_is_gone_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 4)
    for name in ("a.jsonl", "b.jsonl"):
        write_jsonl(tmp_path / name, [trace(id=str(number)) for number in range(rows)])

    def vanishing(part: Sequence[NewContent], *rest: Any) -> StagedPart:
        (tmp_path / "a.jsonl").unlink()
        return stage_contents(part, *rest)

    monkeypatch.setattr(kp_batch.ingest.scan, "stage_contents", Step("stage", vanishing))
    taken = take_in(tmp_path)
    assert taken.totals == (2 * rows, rows, 0)
    assert taken.plan.counts.unreadable_files == []


def test_the_relations_of_planning_have_the_columns_that_are_declared(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [trace(), trace(id="")])
    taken = take_in(tmp_path)
    scan = scan_archive(taken.run, ThreadExecutor())
    with open_snapshot(taken.run.snapshot, taken.run.staging) as state:
        detect_changes(state, scan, (), touches_all=False)
        for name, columns in RELATIONS.items():
            assert tuple(state.connection.table(name).columns) == columns, name
