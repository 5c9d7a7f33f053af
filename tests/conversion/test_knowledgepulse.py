"""A registry's database, its export, and single traces."""

import os
import shutil
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest

from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import stat_file
from kp_batch.conversion.formats.knowledgepulse import FORMAT
from kp_batch.conversion.model import SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules
from tests.support.drafting import Conversion, converted, transcript
from tests.support.formats.knowledgepulse import registry, unit
from tests.support.importing import import_all, kp_trace, write_json


def read(source: Path) -> Conversion:
    return converted("knowledgepulse", source, Rules())


def test_all_of_a_trace_is_carried_over(tmp_path: Path) -> None:
    row = read(write_json(tmp_path / "a.json", kp_trace("a", source_skill="review"))).row
    assert row["metadata"]["quality_score"] == 0.5
    assert row["metadata"]["visibility"] == "network"
    assert row["source_skill"] == "review"
    assert row["outcome"] == {"result_summary": "done", "confidence": 0.9}
    assert [step["input"] for step in row["steps"]] == [None, '{"at": 1}']


@pytest.mark.parametrize("beside", [("-wal",), ("-wal", "-shm")])
def test_a_registry_is_read_while_it_is_written(tmp_path: Path, beside: tuple[str, ...]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    live = tmp_path / "live.sqlite"
    traces = [
        unit("a"),
        unit("b", "quarantined"),
        unit("c", "flagged"),
        ("kp:trace:d", "{cut", "2026-09-09", None),
    ]
    with closing(registry(live, traces)):
        for ending in ("", *beside):
            shutil.copy(f"{live}{ending}", source / f"r.sqlite{ending}")
    before = sorted(source.iterdir())
    made = read(source)
    assert made.rows.keys() == {"kp:trace:a", "kp:trace:c"}
    assert sorted(made.reasons) == [["malformed_json"], ["quarantined"]]
    assert sorted(source.iterdir()) == before


def test_a_registry_is_read_while_another_writes_to_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with closing(registry(source / "r.sqlite", [unit("a")])) as live:
        live.execute("BEGIN IMMEDIATE")
        live.execute("INSERT INTO knowledge_units VALUES (?, ?, ?, ?)", unit("b"))
        assert read(source).rows.keys() == {"kp:trace:a"}  # what is committed
        live.commit()
        assert read(source).rows.keys() == {"kp:trace:a", "kp:trace:b"}


@pytest.mark.parametrize("beside", [(), ("-wal",), ("-wal", "-shm")])
def test_a_registry_is_read_where_nothing_may_be_written(beside: tuple[str, ...]) -> None:
    with TemporaryDirectory(prefix="kp-read-only-") as name:
        source, live = Path(name) / "source", Path(name) / "live.sqlite"
        source.mkdir()
        with closing(registry(live, [unit("a")])) as database:
            if not beside:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for ending in ("", *beside):
                shutil.copy(f"{live}{ending}", source / f"r.sqlite{ending}")
        before = sorted(source.iterdir())
        with unprivileged(Path(name), source):
            with pytest.raises(PermissionError):
                (source / "other").touch()
            [record] = FORMAT.records(source / "r.sqlite", ())
        assert isinstance(record, SourceRecord)
        assert sorted(source.iterdir()) == before


@contextmanager
def unprivileged(parent: Path, folder: Path) -> Generator[None]:
    """Let nobody write into a folder: root neither, who is another user meanwhile."""
    user = os.geteuid()
    parent.chmod(0o755)
    folder.chmod(0o555)
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_of_several_units_of_one_id_the_one_that_was_updated_last_counts(tmp_path: Path) -> None:
    with closing(
        registry(tmp_path / "r.db", [unit("a", task={"objective": "new"}), unit("a")])
    ) as r:
        r.execute(
            "UPDATE knowledge_units SET updated_at = '2026-01-01' WHERE unit_json LIKE '%do a%'"
        )
        r.commit()
    assert read(tmp_path / "r.db").row["task"]["objective"] == "new"


def test_of_units_that_were_updated_at_once_the_last_counts() -> None:
    one, other = (
        SourceRecord("a", {"trace": kp_trace("a", task=task), "updated": at, "quarantined": False})
        for task, at in (
            ({"objective": "1"}, "2026-01-01"),
            ({"objective": "2"}, "2026-01-01T00:00:00Z"),
        )
    )
    for records, objective in (([one, other], "2"), ([other, one], "1")):
        trace = FORMAT.draft("a", records, Rules())
        assert isinstance(trace, TraceDraft)
        assert trace.objective == objective


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": None}, "no_steps"),
        ({"steps": [None, {"type": "thought"}]}, "no_steps"),
        ({"steps": [{"type": "dance"}]}, "unknown_step_type"),
        ({"outcome": {"confidence": True}}, "bad_confidence"),
        ({"outcome": {"confidence": 1.1}}, "bad_confidence"),
        ({"id": ""}, "missing_id"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, changes: Any, reason: str) -> None:
    export = {"data": {"knowledge_units": [{**kp_trace("a"), **changes}, kp_trace("b")]}}
    made = read(write_json(tmp_path / "export.json", export))
    assert (made.row["id"], made.reasons) == ("kp:trace:b", [[reason]])


def test_other_units_are_passed_over(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"@type": "ExpertSOP", "id": "x"})
    write_json(tmp_path / "b.json", kp_trace("b", steps=[{"type": "thought", "content": {"ü": 1}}]))
    made = read(tmp_path)
    assert (made.skipped, transcript(made.row)) == (["ExpertSOP"], [("thought", '{"ü": 1}')])


def test_a_trace_is_read_as_an_archive_of_it_is(tmp_path: Path) -> None:
    steps = [
        {"type": "thought", "content": {"ü": [1, None]}},
        {"type": "tool_call", "content": 5, "tool": {"name": 7}},
        {"type": "observation", "content": "\ud800 é"},
    ]
    metadata = {"agent_id": 9, "quality_score": 1, "model": ["m"]}
    trace = kp_trace("a", steps=steps, source_skill=3)
    trace["metadata"] |= metadata
    trace["task"] = {"objective": 12}
    write_json(tmp_path / "direct.jsonl", trace)
    source = write_json(tmp_path / "source" / "a.json", trace)
    import_all(source, tmp_path / "archive")
    [file] = (tmp_path / "archive").glob("*.parquet")
    theirs, ours = (
        pl.concat(read_rows(stat_file(str(path)))).drop("source_file")
        for path in (tmp_path / "direct.jsonl", file)
    )
    assert ours.equals(theirs)
    assert ours["step_contents"].to_list() == [
        ['{"ü": [1, null]}', "5", "\N{REPLACEMENT CHARACTER} é"]
    ]
