"""What is taken back from an archive: traces, and what was read of a source alone."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from kp_batch.imports.state import holds

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format, Skipped
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import ArchiveError
from kp_batch.imports import change
from kp_batch.imports.change import Forgotten
from kp_batch.imports.days import DailyPartitions
from kp_batch.imports.importing import forget, import_traces
from kp_batch.imports.summary import Imported
from kp_batch.operations.forget import forget as forget_traces
from kp_batch.operations.forget import forgotten_text
from kp_batch.operations.rollback import plan_rollback
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.commands import invoke
from tests.support.importing import (
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
from tests.support.runs import config


@pytest.fixture(autouse=True)
def _spans_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kp_batch.imports.importing.FORMATS", {**FORMATS, "spans": spans_format()})


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
    """Whether a text is in any file of an archive but the list of what is forgotten."""
    files = (x for x in archive.rglob("*") if x.is_file() and "forgotten" not in x.name)
    tables = [pl.read_parquet(x, glob=False) for x in files if x.suffix == ".parquet"]
    texts = [str(table.drop(cs.binary()).write_json()) for table in tables]
    return any(
        text in content for content in [*texts, *(x.read_text() for x in archive.glob("*.jsonl"))]
    )


def test_a_trace_is_gone_for_good(source: Path, archive: Path) -> None:
    done = forget(archive, ids=["kp:trace:b", "kp:trace:odd"])
    assert done == Forgotten(traces=2, records=0, files_changed=1)
    assert said(archive) == {"a": ["1"], "c": ["4"]}
    assert refusals(archive) == []
    assert not contains(archive, '"say": "2"')
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
            "the path of what is to be forgotten is empty; nothing was changed",
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
    forget(archive, files=[str(source / "2.jsonl")])
    assert said(archive) == {"a": ["1"], "b": ["2"]}
    assert not contains(archive, '"say": "4"')


def test_a_kill_leaves_what_the_next_import_ends(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DailyPartitions, "upsert", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(archive, ids=["kp:trace:b"])
    import_spans(source, archive)
    assert said(archive) == {"a": ["1"], "c": ["4"]}


def test_nothing_is_taken_back_where_nothing_was_imported(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="nothing that is known here was imported into"):
        forget(tmp_path, ids=["kp:trace:a"])


def test_the_command_needs_no_format(tmp_path: Path) -> None:
    write_json(tmp_path / "source" / "a.json", kp_trace("a"))
    archive = str(tmp_path / "archive")

    def forget(*arguments: str) -> str:
        return invoke("import-forget", archive, *arguments).stdout

    invoke("import", "knowledgepulse", tmp_path / "source", "-o", archive)
    assert forget("kp:trace:a") == f"1 trace taken back; changed 1 file of {archive}\n"
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

    assert night(0, span("web", 1), span("page", 1)).passed_over == {"no agent": 2}
    assert night(29, span("web", 2)).expired == 0
    assert night(31).expired == 1  # the page
    assert night(31).expired == 0
    assert night(40, {**span("web", 3), "kind": "agent"}, span("page", 2)).traces == 1
    assert said(archive) == {"web": ["1", "2", "3"]}
    assert night(71).expired == 1
    assert not contains(archive, "page")


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
def test_who_forgets_in_a_warehouse_is_told_of_the_archive(archive: Path, tmp_path: Path) -> None:
    rescore_archive(config(tmp_path, archive))
    done = forget_traces(tmp_path / "warehouse", ["kp:trace:a"], dry_run=True)
    assert done.archives == (str(archive),)
    assert f"{archive} keeps them, too: kp-batch import-forget {archive} ID..." in (
        forgotten_text(done, dry_run=True)
    )
    forget(archive, ids=["kp:trace:a"])
    assert forget_traces(tmp_path / "warehouse", ["kp:trace:a"]).archives == ()
    assert holds(str(tmp_path), ["kp:trace:a"]) is False


@pytest.mark.telling
@pytest.mark.slow
def test_in_any_folder_who_forgets_is_told_of_the_archive_or_that_it_may_keep_the_traces(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rescore_archive(config(tmp_path, f"{archive.name}/*.parquet"))
    monkeypatch.chdir("/")
    before = forget_traces(tmp_path / "warehouse", ["kp:trace:a"], dry_run=True)
    assert before.archives == (f"{archive}/*.parquet",)
    assert plan_rollback(tmp_path / "warehouse", "latest").not_looked == ""
    archive.rename(tmp_path / "elsewhere")
    done = forget_traces(tmp_path / "warehouse", ["kp:trace:a"])
    assert (done.archives, done.unknown_archives) == ((), before.archives)
    assert f"{archive}/*.parquet was not looked into and may keep them" in forgotten_text(done)


@pytest.mark.slow
def test_an_archive_that_cannot_be_looked_into_stops_no_forgetting(
    archive: Path, tmp_path: Path
) -> None:
    rescore_archive(config(tmp_path, archive))
    (archive / "_import" / "000001-records.parquet").write_bytes(b"no Parquet")
    done = forget_traces(tmp_path / "warehouse", ["kp:trace:a"])
    assert (done.traces, done.archives, done.unknown_archives) == (1, (), (str(archive),))
