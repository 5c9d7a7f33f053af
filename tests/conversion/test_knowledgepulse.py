"""A registry's file, rows of its table, its export, and single traces."""

import gzip
import json
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
from kp_batch.conversion.formats import detect_format
from kp_batch.conversion.formats.knowledgepulse import FORMAT
from kp_batch.conversion.model import SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.imports.source_files import content_of, local_path
from tests.support.formats.knowledgepulse import registry, unit
from tests.support.imports.drafting import Conversion, converted, transcript
from tests.support.imports.importing import import_all, imported, kp_trace, write_json

CUT = "{cut"


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
        ("kp:trace:d", CUT, "2026-09-09", None),
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


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def exported(row: tuple[str, str, str, str | None], column: str = "jsonb") -> dict[str, Any]:
    """A row as psql exports it, from a column of this type."""
    name, content, updated, status = row
    is_nested = column == "jsonb" and content != CUT  # which only a text can be
    value = json.loads(content) if is_nested else content
    return {"id": name, "unit_json": value, "updated_at": updated, "quarantine_status": status}


@pytest.mark.parametrize("column", ["jsonb", "text"])
def test_rows_of_the_table_are_read_as_the_registry_s_file_is(tmp_path: Path, column: str) -> None:
    units = [
        *(unit("a"), unit("b", "quarantined"), unit("c", "flagged"), unit("d", "cleared")),
        ("kp:trace:e", CUT, "2026-09-09", None),
        unit("f", id=""),
        unit("g", **{"@type": "ExpertSOP"}),
        ("kp:trace:h", "[]", "2026-09-09", None),
    ]
    registry(tmp_path / "r.sqlite", units).close()
    lines = write_lines(tmp_path / "r.jsonl", *(exported(row, column) for row in units))
    of_file, of_rows = read(tmp_path / "r.sqlite"), read(lines)
    assert of_rows.rows == of_file.rows
    assert of_rows.rows.keys() == {"kp:trace:a", "kp:trace:c", "kp:trace:d"}
    assert [refusal for _, refusal in of_rows.refused] == [each for _, each in of_file.refused]
    assert of_rows.skipped == of_file.skipped == ["ExpertSOP"]


def test_an_older_registry_s_rows_have_no_status_and_may_be_packed(tmp_path: Path) -> None:
    row = exported(unit("a"))
    del row["quarantine_status"]
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(row).encode() + b"\n"))
    assert read(path).rows.keys() == {"kp:trace:a"}


def test_of_rows_of_one_id_the_one_that_was_updated_last_counts(tmp_path: Path) -> None:
    new, old = exported(unit("a", task={"objective": "new"})), exported(unit("a"))
    new["updated_at"] = "2026-11-29T20:08:29.913851+00:00"  # as psql writes it
    old["updated_at"] = "2026-11-29T21:08:29.913851+02:00"
    path = write_lines(tmp_path / "r.jsonl", new, old)
    assert read(path).row["task"]["objective"] == "new"


def test_a_faulty_line_is_refused_alone(tmp_path: Path) -> None:
    """Of the row's id, where it has one; else by its number."""
    path = write_lines(
        tmp_path / "r.jsonl",
        kp_trace("a"),
        ["kp:trace:b"],
        {"id": "kp:trace:c", "metadata": {}},
        {"unit_json": CUT},
        {"id": "kp:trace:e", "unit_json": None},
    )
    path.write_text(f"{CUT}\n" + path.read_text("utf-8"), "utf-8")
    made = read(path)
    assert made.rows.keys() == {"kp:trace:a"}
    assert [(each.id, each.line, [*each.reasons]) for _, each in made.refused] == [
        (None, 1, ["malformed_json"]),
        (None, 3, ["malformed_json"]),
        (None, 4, ["missing_column"]),
        (None, 5, ["malformed_json"]),
        ("kp:trace:e", None, ["malformed_json"]),
    ]


def test_an_export_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path, archive = tmp_path / "r.jsonl", tmp_path / "archive"
    for status, deleted, names in (
        (None, 0, "ab"),
        ("quarantined", 0, "b"),
        ("cleared", 0, "ab"),
        (None, 1, "ab"),
    ):
        kept = [] if deleted else [exported(unit("b"))]
        write_lines(path, exported(unit("a", status)), *kept)
        assert import_all(path, archive).deleted == deleted
        assert imported(archive).keys() == {f"kp:trace:{name}" for name in names}


@pytest.mark.parametrize("ending", [".json", ".jsonl"])
def test_another_system_s_trace_with_metadata_is_none_of_a_registry(
    tmp_path: Path, ending: str
) -> None:
    trace = {"id": "a", "timestamp": "2026-03-01T10:00:00Z", "metadata": {}, "name": "t"}
    path = write_json(tmp_path / f"a{ending}", trace)
    assert detect_format([str(path)], content_of, local_path).name == "langfuse"


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
