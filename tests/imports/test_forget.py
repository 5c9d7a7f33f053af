"""What is removed from an archive: traces, and what was read of a source alone."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch import bounds, zstd
from kp_batch.bounds import dump
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format, Skipped
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import ArchiveError
from kp_batch.imports import change, forgetting
from kp_batch.imports.change import Forgotten
from kp_batch.imports.forgetting import forget
from kp_batch.imports.importing import import_traces
from kp_batch.imports.store import STORE, has_records_of
from kp_batch.imports.summary import Imported
from kp_batch.operations.forget import forget as forget_traces
from kp_batch.operations.forget import forgotten_text
from kp_batch.operations.rollback import plan_rollback
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.imports.importing import (
    RULES,
    import_spans,
    imported,
    kp_trace,
    refusals,
    said,
    span,
    spans_format,
    write_json,
    write_lines,
)
from tests.support.make.runs import config
from tests.support.processes.commands import invoke


@pytest.fixture(autouse=True)
def _spans_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "FORMATS", {**FORMATS, "spans": spans_format()})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    write_lines(folder / "1.jsonl", [span("a", 1), span("b", 2)])
    write_lines(folder / "2.jsonl", [span("b", 3), span("c", 4), {"trace": "odd", "at": 5}])
    return folder


@pytest.fixture
def archive(tmp_path: Path, source: Path) -> Path:
    import_spans(source, tmp_path / "archive")
    return tmp_path / "archive"


def contains(archive: Path, text: str) -> bool:
    """Whether a text is anywhere in the files of an archive, packed or not, in use or not."""
    files = [x.read_bytes() for x in archive.rglob("*") if x.is_file()]
    days = [str(pl.read_parquet(x, glob=False).write_json()) for x in archive.glob("*.parquet")]
    packed = [content for file in files for content in unpacked(file)]
    return any(text.encode() in each for each in (*files, *packed, *map(str.encode, days)))


def unpacked(file: bytes) -> Iterator[bytes]:
    """All that zstd has packed in a file: large values of SQLite continue on other pages."""
    with closing(sqlite3.connect(":memory:")) as connection:
        if file.startswith(b"SQLite"):
            connection.deserialize(file)
            for (block,) in connection.execute("SELECT records FROM blocks"):
                yield zstd.decompress(block)
    for found in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), file):
        with (
            suppress(EOFError, zstd.ZstdError),
            zstd.ZstdFile(BytesIO(file[found.start() :])) as part,
        ):
            while piece := part.read1():
                yield piece


def tables_with(archive: Path, text: str) -> set[str]:
    """The tables of the store that have a text in a column of texts."""
    with closing(sqlite3.connect(archive / STORE)) as connection:
        names = [x for (x,) in connection.execute("SELECT name FROM pragma_table_list")]
        tables = {name: str([*connection.execute(f"SELECT * FROM {name}")]) for name in names}
    return {name for name, rows in tables.items() if text in rows and name != "sqlite_schema"}


def test_a_trace_is_gone_for_good(source: Path, archive: Path) -> None:
    done = forget(archive, ids=["kp:trace:b", "kp:trace:odd"])
    assert done == Forgotten(traces=2, records=0, files_changed=1)
    assert said(archive) == {"a": ["1"], "c": ["4"]}
    assert refusals(archive) == []
    write_lines(source / "3.jsonl", [span("b", 9), span("a", 9)])
    import_spans(source, archive)
    assert said(archive) == {"a": ["1", "9"], "c": ["4"]}
    import_spans(source, archive, confidence={"always": 0.9})  # all anew
    assert said(archive) == {"a": ["1", "9"], "c": ["4"]}
    assert forget(archive, ids=["kp:trace:b"]).traces == 1  # as before


@pytest.mark.parametrize(
    ("what", "named", "message"),
    [
        ("ids", ["typo"], "1 of 1 id is unknown: kp:trace:typo; nothing was changed"),
        ("ids", ["kp:trace:a", "no", "no"], "1 of 2 ids is unknown: kp:trace:no; nothing"),
        ("ids", ["kp:trace:od"], "kp:trace:od (did you mean kp:trace:odd?); nothing"),
        ("ids", ["kp:trace:ood"], "kp:trace:ood (did you mean kp:trace:odd?); nothing"),
        ("ids", list("wxyz"), "4 of 4 ids are unknown: kp:trace:w, "),
        ("--source", ["{}/source/9.jsonl"], "1 of 1 path is unknown: {}/source/9.jsonl ("),
        ("--source", ["{}/sorce"], "1 of 1 path is unknown: {}/sorce (did you mean "),
        (
            "--source",
            [""],
            "the path to forget is empty; nothing was changed",
        ),
        ("--source", ["{}/source", "{}/no"], "1 of 2 paths is unknown: {}/no; nothing"),
    ],
)
def test_what_is_nowhere_is_refused_and_nothing_changes(
    archive: Path, tmp_path: Path, what: str, named: list[str], message: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in archive.rglob("*.[pj]*")}
    named = [name.format(tmp_path) for name in named]
    words = named if what == "ids" else [word for name in named for word in (what, name)]
    done = invoke("import-forget", archive, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert message.format(tmp_path) in done.stderr
    assert {path: path.stat().st_mtime_ns for path in archive.rglob("*.[pj]*")} == before


def test_a_file_of_which_nothing_could_be_read_is_forgotten(source: Path, archive: Path) -> None:
    (source / "3.jsonl").write_text("")
    import_spans(source, archive)
    assert len(refusals(archive)) == 2
    assert forget(archive, files=[str(source / "3.jsonl")]).traces == 0
    assert len(refusals(archive)) == 1


def test_what_was_read_of_a_source_alone_is_gone_and_not_its_path(
    source: Path, archive: Path
) -> None:
    write_lines(source / "3.jsonl", [span("c", 4), {"cut": 1}])
    with (source / "3.jsonl").open("a") as file:
        file.write("{cut")
    import_spans(source, archive)
    done = forget(archive, files=[str(source / "2.jsonl"), str(source / "3.jsonl")])
    assert (done.traces, done.records) == (3, 3)  # of b, c, and of the odd one
    assert said(archive) == {"a": ["1"], "b": ["2"]}
    assert refusals(archive) == []
    (source / "2.jsonl").rename(source / "4.jsonl")
    write_lines(source / "2.jsonl", [span("b", 7)])
    import_spans(source, archive)
    assert said(archive) == {"a": ["1"], "b": ["2", "7"]}


def test_what_two_files_have_is_gone_once_both_are_forgotten(source: Path, archive: Path) -> None:
    write_lines(source / "3.jsonl", [span("c", 4)])
    import_spans(source, archive)
    assert forget(archive, files=[str(source / "3.jsonl")]).records == 0
    assert said(archive)["c"] == ["4"]
    assert contains(archive, '"say":"4"')
    forget(archive, files=[str(source / "2.jsonl")])
    assert said(archive) == {"a": ["1"], "b": ["2"]}
    assert not contains(archive, '"say":"4"')


SECRET = "a-text-that-nobody-may-find"


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """An archive of several nights and of many names, so that pages and blocks are shared."""
    source, archive = tmp_path / "crowd", tmp_path / "crowded"
    for night in range(3):
        names = [f"trace-{place:03}-{'x' * 60}" for place in range(night * 50, night * 50 + 150)]
        spans = [{**span(name, night), "say": f"{SECRET} {name}"} for name in names]
        odd = [{"trace": f"odd-{night}-{place}", "at": 5} for place in range(20)]
        write_lines(source / f"{night}.jsonl", [*spans, *odd])
        import_spans(source, archive)
    return archive


def test_no_byte_of_what_is_forgotten_stays(crowd: Path) -> None:
    gone = [f"trace-{place:03}-{'x' * 60}" for place in (0, 99, 100, 101, 249)]
    assert all(contains(crowd, f"{SECRET} {name}") for name in gone)
    forget(crowd, ids=[f"kp:trace:{name}" for name in [*gone, "odd-0-3", "odd-2-7"]])
    for name in gone:
        assert not contains(crowd, f"{SECRET} {name}")
    for name in (*gone, "odd-0-3", "odd-2-7"):
        assert tables_with(crowd, name) <= {"forgotten", "leaving"}  # by their names alone
    assert len(imported(crowd)) == 250 - len(gone)
    assert len(refusals(crowd)) == 60 - 2


def test_no_byte_of_a_forgotten_file_stays(crowd: Path) -> None:
    forget(crowd, files=[str(crowd.with_name("crowd") / "2.jsonl")])
    assert len(imported(crowd)) == 200
    assert not contains(crowd, f"{SECRET} trace-249")
    assert contains(crowd, f"{SECRET} trace-199")  # as another file has it, too
    forget(crowd, files=[str(crowd.with_name("crowd"))])
    assert not imported(crowd)
    assert not contains(crowd, SECRET)


@pytest.mark.parametrize("ends", ["an import", "a forget"])
@pytest.mark.parametrize("dies", ["write_days", "save_done"])
def test_a_kill_leaves_what_the_next_change_ends(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, dies: str, ends: str
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(change, dies, killed)
        with pytest.raises(KeyboardInterrupt):
            forget(archive, ids=["kp:trace:b"])
    if ends == "an import":
        import_spans(source, archive)
        assert said(archive) == {"a": ["1"], "c": ["4"]}
    else:
        forget(archive, ids=["kp:trace:a"])
        assert said(archive) == {"c": ["4"]}


def test_nothing_is_taken_back_where_nothing_was_imported(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is not an imported archive that this version knows"):
        forget(tmp_path, ids=["kp:trace:a"])


def test_the_command_needs_no_format(tmp_path: Path) -> None:
    write_json(tmp_path / "source" / "a.json", kp_trace("a"))
    archive = str(tmp_path / "archive")

    def forget(*arguments: str) -> str:
        return invoke("import-forget", archive, *arguments).stdout

    invoke("import", "knowledgepulse", tmp_path / "source", "-o", archive)
    assert forget("kp:trace:a") == f"1 trace removed; changed 1 file of {archive}\n"
    answer = json.loads(forget("--source", str(tmp_path / "source"), "--json"))
    assert answer == {"traces": 0, "records": 0, "files_changed": 0}


def test_to_forget_needs_something_to_forget(tmp_path: Path) -> None:
    done = invoke("import-forget", tmp_path)
    assert done.returncode == 2
    assert "Missing argument '[ID]...', or option '--source'." in done.stderr


def without_agents(form: Format) -> Format:
    """The format of spans, in which a trace is an agent's once one of its records says so."""

    def draft(trace: str, records: Any, rules: Any) -> Any:
        is_agents = any("agent" in str(record.payload) for record in records)
        return form.draft(trace, records, rules) if is_agents else Skipped("no agent")

    from dataclasses import replace

    return replace(form, draft=draft)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of imports so many days ahead."""
    begun = change.now()

    def set_clock(days: int) -> None:
        monkeypatch.setattr(change, "now", lambda: begun + timedelta(days=days))

    return set_clock


def test_what_is_passed_over_is_kept_for_thirty_days(
    tmp_path: Path, at: Callable[[int], None]
) -> None:
    source, archive = tmp_path / "source", tmp_path / "archive"

    def night(day: int, *spans: dict[str, Any]) -> Imported:
        at(day)
        if spans:
            write_lines(source / f"{day}.jsonl", list(spans))
        rules = load_rules(None, RULES)
        return import_traces(without_agents(spans_format()), [str(source)], archive, rules)

    assert night(0, span("web", 1), span("page", 1)).skipped == {"no agent": 2}
    assert night(29, span("web", 2)).expired == 0
    assert night(31).expired == 1  # the page
    assert night(31).expired == 0
    assert night(40, {**span("web", 3), "kind": "agent"}, span("page", 2)).traces == 1
    assert said(archive) == {"web": ["1", "2", "3"]}
    assert night(71).expired == 1
    assert not contains(archive, "page")
    night(72, span("copied", 1))
    shutil.copy(source / "72.jsonl", source / "73.jsonl")
    assert night(103).expired == 1  # a copy is nothing new
    assert not contains(archive, "copied")


def test_what_a_registry_has_deleted_stays_and_is_reported(tmp_path: Path) -> None:
    source, archive = tmp_path / "export.json", tmp_path / "archive"

    def night(*names: str) -> Imported:
        units = [kp_trace(name) for name in names]
        write_json(source, {"data": {"knowledge_units": units}})
        form = FORMATS["knowledgepulse"]
        return import_traces(form, [str(source)], archive, load_rules(None, {}))

    assert night("a", "b", "c").deleted == 0
    done = night("a", "d")
    assert (done.deleted, done.traces) == (2, 1)
    assert len(imported(archive)) == 4


@pytest.mark.telling
@pytest.mark.slow
def test_forgetting_in_a_warehouse_names_the_archive(archive: Path, tmp_path: Path) -> None:
    rescore_archive(config(tmp_path, archive))
    done = forget_traces(tmp_path / "warehouse", ["kp:trace:a"], dry_run=True)
    assert done.archives == (str(archive),)
    assert f"{archive} still contains them: kp-batch import-forget {archive} ID..." in (
        forgotten_text(done, dry_run=True)
    )
    forget(archive, ids=["kp:trace:a"])
    assert forget_traces(tmp_path / "warehouse", ["kp:trace:a"]).archives == ()
    assert has_records_of(str(tmp_path), ["kp:trace:a"]) is False


@pytest.mark.telling
@pytest.mark.slow
def test_forgetting_names_the_archive_or_says_that_it_may_keep_the_traces(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rescore_archive(config(tmp_path, f"{archive.name}/*.parquet"))
    monkeypatch.chdir("/")
    before = forget_traces(tmp_path / "warehouse", ["kp:trace:a"], dry_run=True)
    assert before.archives == (f"{archive}/*.parquet",)
    assert plan_rollback(tmp_path / "warehouse", "latest").not_read == ""
    archive.rename(tmp_path / "elsewhere")
    done = forget_traces(tmp_path / "warehouse", ["kp:trace:a"])
    assert (done.archives, done.unknown_archives) == ((), before.archives)
    assert f"{archive}/*.parquet was not searched and may still contain them" in forgotten_text(
        done
    )


@pytest.mark.slow
def test_an_archive_that_cannot_be_looked_into_stops_no_forgetting(
    archive: Path, tmp_path: Path
) -> None:
    rescore_archive(config(tmp_path, archive))
    (archive / STORE).write_bytes(b"no database")
    done = forget_traces(tmp_path / "warehouse", ["kp:trace:a"])
    assert (done.traces, done.archives, done.unknown_archives) == (1, (), (str(archive),))


def test_a_trace_that_was_too_large_is_not_built_of_what_a_forget_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, archive = tmp_path / "in", tmp_path / "out"
    spans = [{**span("a", second), "say": "so " * 1_000} for second in range(3)]
    for name, each in zip("xyz", spans, strict=True):
        write_lines(source / f"{name}.jsonl", [each])
    size = len(dump(spans[0]))
    monkeypatch.setattr(bounds, "TRACE_BYTES", size + size // 2)
    assert import_spans(source, archive).refused == {"too_large": 1}
    forget(archive, files=[str(source / "x.jsonl")])
    import_spans(source, archive, confidence={"always": 0.9})
    assert [refusal["reasons"] for refusal in refusals(archive)] == [["too_large"]]
    assert imported(archive) == {}


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "\u2028'\"%_", "long" * 10_000])
def test_a_trace_of_any_name_is_added_to_and_forgotten(tmp_path: Path, name: str) -> None:
    source, archive = tmp_path / "in", tmp_path / "out"
    write_lines(source / "x.jsonl", [span(name, 1)])
    import_spans(source, archive)
    write_lines(source / "y.jsonl", [span(name, 2)])
    import_spans(source, archive)
    [(id_, row)] = imported(archive).items()
    assert len(row["steps"]) == 2
    forget(archive, ids=[id_])
    write_lines(source / "z.jsonl", [span(name, 3)])
    import_spans(source, archive)
    assert imported(archive) == {}
