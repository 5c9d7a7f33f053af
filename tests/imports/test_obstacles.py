"""What gets in an import's way: disks that fail, folders that may not be read, odd names."""

import errno
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.archive.folders import IS_TABLE
from kp_batch.conversion.formats import json_files
from kp_batch.conversion.formats.json_files import read_json_lines, read_json_values
from kp_batch.conversion.model import Refused
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import ArchiveError, ResourceError, UnreadableError, is_passing
from kp_batch.imports import traces
from kp_batch.imports.importing import import_traces
from kp_batch.imports.spool import Spool
from kp_batch.storage.store import store_at
from tests.support.damage.answers import between
from tests.support.damage.table import damages
from tests.support.imports.importing import (
    RULES,
    import_all,
    import_spans,
    imported,
    kp_trace,
    refusals,
    span,
    write_json,
    write_lines,
)
from tests.support.processes.buckets import fill
from tests.support.processes.unprivileged import Invoke, asks, kp_batch, mode

# Of a disk that fails for a moment, of one that is full, and of one that nobody may write to.
DISKS = [errno.EIO, errno.ENOSPC, errno.EROFS]


def files(folder: Path) -> dict[str, bytes]:
    """The files of a folder, but for the lock."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "kp.lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for day, name in enumerate("abc", 1):
        write_json(tmp_path / "source" / f"{name}.json", kp_trace(name, day))
    return tmp_path / "source"


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    write_lines(tmp_path / "nights" / "1.jsonl", [span("a", 1), span("b", 2)])
    write_lines(tmp_path / "nights" / "2.jsonl", [span("b", 3), span("c", 4)])
    return tmp_path / "nights"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.mark.timeout(30)
def test_a_pipe_among_the_files_of_a_source_is_not_waited_for(source: Path, archive: Path) -> None:
    os.mkfifo(source / "a.jsonl")
    assert import_traces(None, [str(source)], archive, load_rules(None, {})).traces == 3


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.slow
def test_a_scratch_disk_that_fails_is_no_fault_of_a_trace(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(source, archive)
    before = files(archive)
    for name in "abc":
        write_json(source / f"{name}.json", kp_trace(name, 4))
    for number in DISKS:
        with monkeypatch.context() as patch:
            patch.setattr(Spool, "add", failing(number))
            with pytest.raises(OSError, match=os.strerror(number)):
                import_all(source, archive)
        assert {x: content for x, content in files(archive).items() if "_import" not in x} == {
            x: content for x, content in before.items() if "_import" not in x
        }
    import_all(source, archive)
    assert len(imported(archive)) == 3
    assert refusals(archive) == []


def test_a_lack_of_memory_is_no_fault_of_a_file(
    nights: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def out_of_memory(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr("tests.support.imports.importing.read_json_lines", out_of_memory)
    with pytest.raises(ResourceError, match=r"out of memory while .*1\.jsonl was read"):
        import_spans(nights, archive)


def test_a_lack_of_memory_is_no_fault_of_a_trace(
    source: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def out_of_memory(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(traces, "apply_rules", out_of_memory)
    with pytest.raises(ResourceError, match=r"out of memory while kp:trace:. was made"):
        import_all(source, archive)


@pytest.mark.parametrize("below", ["", "/part=1", "FILE"])
def test_a_delta_table_is_no_source(tmp_path: Path, archive: Path, below: str) -> None:
    table = tmp_path / "table"
    pl.DataFrame({"id": ["1"], "part": [1]}).write_delta(
        table, delta_write_options={"partition_by": "part"}
    )
    [file] = map(str, table.rglob("*.parquet"))
    with pytest.raises(ArchiveError) as caught:
        import_spans(file if below == "FILE" else f"{table}{below}", archive)
    assert str(caught.value) == f"cannot list '{table}': {IS_TABLE}"


@pytest.mark.telling
@pytest.mark.process
def test_a_delta_table_below_a_source_is_refused_by_name(
    nights: Path, archive: Path, bucket: str
) -> None:
    log = nights / "table" / "_delta_log"
    write_json(log / "0.json", {})
    write_lines(nights / "table" / "part" / "3.jsonl", [span("d", 5)])
    fill(bucket, nights)
    for source, to in ((str(nights), archive), (bucket, archive.with_name("other"))):
        done = import_spans(source, to)
        assert (done.traces, done.files, done.refused) == (3, 3, {"unreadable_file": 1})
        [refused] = refusals(to)
        assert (refused["file"], refused["message"]) == (f"{source}/table/", IS_TABLE)
    (log / "0.json").unlink()
    log.rmdir()
    assert import_spans(nights, archive).traces == 1
    assert refusals(archive) == []


def test_a_warehouse_below_a_source_is_none_of_it(nights: Path, archive: Path) -> None:
    write_lines(nights / "warehouse" / "3.jsonl", [span("d", 5)])
    (nights / "warehouse" / "kp.lock").touch()
    done = import_spans(nights, archive)
    assert (done.traces, done.refused) == (3, {})


@pytest.mark.telling
@pytest.mark.process
@asks
def test_a_folder_that_may_not_be_read_is_refused_by_name(
    source: Path, archive: Path, anybody: Invoke
) -> None:
    write_json(source / "sub" / "d.json", kp_trace("d"))
    command = ["import", "knowledgepulse", source, "-o", archive]
    for count in (3, 4):
        for _ in range(2):
            with mode(source / "sub", 0):
                done = anybody(*command)
            assert done.returncode == 0, done.stderr
            assert "refused    1 unreadable_file" in done.stdout
            [refused] = refusals(archive)
            assert refused["file"] == f"{source}/sub/"
            assert refused["message"] == "the folder cannot be read: Permission denied"
            assert len(imported(archive)) == count
        for _ in range(2):
            assert anybody(*command).returncode == 0
            assert refusals(archive) == []
            assert len(imported(archive)) == 4


@pytest.mark.process
@asks
def test_a_source_that_may_not_be_read_is_named(source: Path, archive: Path) -> None:
    with mode(source, 0):
        done = kp_batch("import", "knowledgepulse", source, "-o", archive)
    assert done.returncode == 1
    message = f"cannot list '{source}': the folder cannot be read: Permission denied"
    assert done.stderr == f"kp-batch: {message}\n"
    assert not archive.exists()


@pytest.mark.parametrize("through", ["archive", "source"])
def test_an_archive_that_is_named_through_a_link_is_none_of_its_source(
    nights: Path, tmp_path: Path, through: str
) -> None:
    (tmp_path / "link").symlink_to(nights)
    names = {"archive": (nights, tmp_path / "link"), "source": (tmp_path / "link", nights)}
    source, folder = names[through]
    for _ in range(2):
        assert import_spans(source, folder / "archive").files == 2
    with pytest.raises(ArchiveError, match="there is no file at"):
        import_spans(source / "archive" / "_import", folder / "archive")


def test_an_empty_source_is_not_the_folder_here(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot read '': the name is empty"):
        import_traces(None, [""], tmp_path / "archive", load_rules(None, RULES))


def test_a_source_that_is_no_pattern_is_named(tmp_path: Path) -> None:
    name = f"{tmp_path}/a**"
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(ArchiveError, match=re.escape(f"cannot read {name!r}: ")):
        import_spans(name, tmp_path / "archive")


def test_a_temporary_folder_may_have_any_name(
    nights: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t[1]*?"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert import_spans(nights, archive).traces == 3
    write_lines(nights / "3.jsonl", [span("b", 5), {"trace": "odd", "at": 5}])
    done = import_spans(nights, archive)
    assert (done.traces, done.refused) == (1, {"malformed_json": 1})
    assert list(folder.iterdir()) == []


LINE = json.dumps({"resourceSpans": []})
REST = f"{LINE}\n" * 3


TORN = [
    '{"resourceSpans": [{"scope',  # within a text
    '{"resourceSpans":',  # where an object may follow
    '{"resourceSpans": [',
    '"spans": []}]}\n',  # the end of a line that was begun elsewhere
    "[]",
    "\0",
]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_lines_of_another_encoding_are_refused_by_its_name_and_one_value_is_read(
    tmp_path: Path, encoding: str
) -> None:
    values = [{"a": "é"}, {"a": "日"}]
    path = tmp_path / "a.json"
    for indent in (None, 1):
        path.write_bytes(json.dumps(values, ensure_ascii=False, indent=indent).encode(encoding))
        assert [*read_json_values(path)] == [(None, value) for value in values]
    path.write_bytes("".join(f"{json.dumps(value)}\n" for value in values).encode(encoding))
    for read in (read_json_lines, read_json_values):
        with pytest.raises(UnreadableError, match=r"its lines are UTF-\d\d(LE|BE)?, not UTF-8"):
            list(read(path))


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_first_line_is_refused_alone_and_its_file_is_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: str
) -> None:
    (tmp_path / "spans.jsonl").write_text(f"{torn}\n{REST}")
    monkeypatch.setattr(json_files, "read_json", None)  # which has all of a file in memory
    first, *others = read_json_values(tmp_path / "spans.jsonl")
    assert isinstance(first, Refused)
    assert first.line == 1
    assert [other[1] for other in others if not isinstance(other, Refused)] == [
        {"resourceSpans": []}
    ] * 3


VALUE = {"resourceSpans": [{"scopeSpans": []}, {"scopeSpans": [{"spans": [1, "a"]}]}]}


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("value", [VALUE, [VALUE], [VALUE, VALUE], {}, [{}, {}]])
def test_one_value_over_any_number_of_lines_is_read_whole(
    tmp_path: Path, value: Any, indent: int | None
) -> None:
    path = write_json(tmp_path / "spans.json", None)
    for text in (json.dumps(value, indent=indent), f"[\n{json.dumps(VALUE)}\n]\n"):
        path.write_text(f"\n{text}")
        expected = json.loads(text)
        assert [entry[1] for entry in read_json_values(path) if not isinstance(entry, Refused)] == (
            expected if isinstance(expected, list) else [expected]
        )


@pytest.mark.telling
@pytest.mark.process
def test_a_source_that_cannot_be_reached_is_not_taken_for_one_of_no_format(
    nights: Path, archive: Path, bucket: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(f"{bucket}/nights", nights)
    with between(s3) as (address, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        store_at.cache_clear()
        for bad in filter(lambda damage: damage.reasons, damages("answer")):
            server.answer = lambda method, path, bad=bad: (
                bad if method == "GET" and ".jsonl" in path else None
            )
            why = f"the source cannot be reached: .*{bad.message}"
            with pytest.raises(OSError, match=why) as caught:
                import_traces(None, [f"{bucket}/nights"], archive, load_rules(None, RULES))
            assert is_passing(caught.value) == (bad.reasons == ["EIO"])
    store_at.cache_clear()


@pytest.mark.process
@asks
def test_a_source_of_files_that_may_not_be_read_is_not_taken_for_one_of_no_format(
    nights: Path, archive: Path, anybody: Invoke
) -> None:
    with mode(nights / "1.jsonl", 0), mode(nights / "2.jsonl", 0):
        done = anybody("import", "auto", nights, "-o", archive)
    assert done.returncode == 1
    assert "the source cannot be reached: Permission denied: " in done.stderr


def test_what_is_imported_is_on_the_disk_before_it_takes_its_place(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []  # inodes
    fsync, replace = os.fsync, Path.replace

    def syncing(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_ino)

    def replacing(path: Path, target: Path) -> Path:
        if archive in target.parents:
            assert path.stat().st_ino in synced, target
        synced.append(0)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "replace", replacing)
    import_all(source, archive)
    assert len(list(archive.glob("*.parquet"))) == 3
    last = synced[len(synced) - synced[::-1].index(0) :]
    assert (archive / "_import").stat().st_ino in last  # and so are the names
    for folder in (archive, archive.parent):
        assert folder.stat().st_ino in synced
