"""An import: a file a day, the same whatever the order, and nothing taken away."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.conversion.apply_rules import IMPORTED
from kp_batch.conversion.formats.knowledgepulse import FORMAT
from kp_batch.conversion.model import Input
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import ArchiveError, BusyError, KpBatchError
from kp_batch.files import HALF_WRITTEN
from kp_batch.imports import change, importing
from kp_batch.imports.change import Forgotten
from kp_batch.imports.destination import Archive
from kp_batch.imports.forgetting import forget
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported, as_text
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.reader import connect
from tests.support.imports.importing import (
    RULES,
    import_all,
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
from tests.support.processes.holder import HOLD, holding


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, day in {"b": 2, "a": 1, "c": 1}.items():
        write_json(folder / f"{name}.json", kp_trace(name, day))
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def test_traces_are_in_the_files_of_their_days(source: Path, archive: Path) -> None:
    done = import_all(source, archive)
    assert (done.traces, done.files_read, done.files_changed) == (3, 3, 2)
    assert sorted(path.name for path in archive.iterdir()) == [
        "2026-03-01.parquet",
        "2026-03-02.parquet",
        "_import",
        "_refused.jsonl",
        "_waiting.jsonl",
    ]
    first = pl.read_parquet(archive / "2026-03-01.parquet")
    assert first.schema == IMPORTED
    assert first.get_column("id").to_list() == ["kp:trace:a", "kp:trace:c"]
    metadata = pq.read_schema(archive / "2026-03-01.parquet").metadata
    assert metadata[b"kp_batch.format"] == b"knowledgepulse"
    assert metadata[b"kp_batch.rules"] == b"{}"


@pytest.mark.telling
@pytest.mark.slow
def test_what_is_imported_can_be_scored(source: Path, archive: Path, tmp_path: Path) -> None:
    import_all(source, archive)
    rescore_archive(config(tmp_path, archive))
    with connect(tmp_path / "warehouse") as connection:
        counted = connection.execute("SELECT count(*), any_value(task_domain) FROM scores")
        assert counted.fetchall() == [(3, "code")]


def test_the_same_again_changes_no_file(source: Path, archive: Path) -> None:
    import_all(source, archive)
    before = {path: path.stat().st_mtime_ns for path in archive.glob("*.parquet")}
    assert import_all(source, archive).files_changed == 0
    assert before == {path: path.stat().st_mtime_ns for path in archive.glob("*.parquet")}


def test_files_that_are_gone_take_nothing_away(source: Path, archive: Path) -> None:
    import_all(source, archive)
    (source / "a.json").unlink()
    write_json(source / "d.json", kp_trace("d", 1))
    assert import_all(source, archive).files_changed == 1
    assert imported(archive).keys() == {f"kp:trace:{name}" for name in "abcd"}


def test_a_trace_that_moves_is_in_its_new_day_alone(source: Path, archive: Path) -> None:
    import_all(source, archive)
    write_json(source / "b.json", kp_trace("b", 5))
    assert import_all(source, archive).files_changed == 2
    assert imported(archive)["kp:trace:b"]["metadata"]["created_at"].startswith("2026-03-05")
    assert not (archive / "2026-03-02.parquet").exists()


def test_days_without_the_state_that_made_them_are_left_alone(source: Path, archive: Path) -> None:
    import_all(source, archive)
    before = imported(archive)
    (archive / "_import" / "records.sqlite").unlink()
    with pytest.raises(KpBatchError, match=r"has lost _import/records.sqlite, .* new fold"):
        import_all(source, archive)
    assert imported(archive) == before


def test_what_is_refused_now_leaves_its_file_and_comes_back(source: Path, archive: Path) -> None:
    import_all(source, archive)
    write_json(source / "a.json", kp_trace("a", steps=[]))
    assert import_all(source, archive).refused == {"no_steps": 1}
    assert imported(archive).keys() == {"kp:trace:b", "kp:trace:c"}
    [refused] = refusals(archive)
    assert refused["id"] == "kp:trace:a"
    assert refused["file"] == str(source / "a.json")
    write_json(source / "a.json", kp_trace("a"))
    assert import_all(source, archive).refused == {}
    assert len(imported(archive)) == 3
    assert refusals(archive) == []


def test_a_damaged_file_is_named_and_the_others_are_imported(source: Path, archive: Path) -> None:
    (source / "cut.json").write_text('{"id": "kp:tr')
    (source / "odd.sqlite").write_bytes(b"no database" * 99)
    assert import_all(source, archive).traces == 3
    reasons = {Path(refusal["file"]).name: refusal["reasons"] for refusal in refusals(archive)}
    assert reasons == {name: ["unreadable_file"] for name in ("cut.json", "odd.sqlite")}
    (source / "cut.json").unlink()
    shutil.copy(source / "a.json", source / "odd.sqlite")
    import_all(source, archive)
    assert len(refusals(archive)) == 2  # of the one that is gone, too


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(1, 5))
def test_neither_order_nor_division_into_files_makes_a_difference(seed: int, files: int) -> None:
    spans = [
        {"trace": f"t{row % 7}", "at": f"2026-03-{row % 5 + 1:02d}T00:00:{row:02d}Z", "say": "é"}
        for row in range(40)
    ]
    archives: list[dict[str, bytes]] = []
    chance = Random(seed)
    for _ in range(2):
        chance.shuffle(spans)
        with TemporaryDirectory() as name:
            folder = Path(name)
            for number in range(files):
                lines = [*spans[number::files], *spans[:3]]  # some twice
                write_lines(folder / f"{number}.jsonl", lines)
            import_traces(spans_format(), [name], folder / "archive", load_rules(None, RULES))
            archive = (folder / "archive").glob("*.parquet")
            archives.append({path.name: path.read_bytes() for path in archive})
    assert archives[0] == archives[1]
    assert archives[0]


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    folder = tmp_path / "nights"
    folder.mkdir()
    write_lines(folder / "1.jsonl", [span("a", 1), span("b", 2)])
    write_lines(folder / "2.jsonl", [span("b", 3), span("c", 4)])
    return folder


def test_an_import_adds_records_of_a_new_file_to_known_traces(nights: Path, archive: Path) -> None:
    import_spans(nights, archive)
    write_lines(nights / "3.jsonl", [span("b", 1), span("d", 9)])
    done = import_spans(nights, archive)
    assert (done.files_read, done.traces) == (1, 2)
    assert said(archive) == {"a": ["1"], "b": ["1", "2", "3"], "c": ["4"], "d": ["9"]}
    again = import_spans(nights, archive)
    assert (again.files_read, again.traces, again.files_changed) == (0, 0, 0)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [Path.unlink, emptied])
def test_what_was_read_of_a_file_counts_though_it_is_gone_or_damaged(
    nights: Path, archive: Path, harm: Any
) -> None:
    import_spans(nights, archive)
    harm(nights / "1.jsonl")
    write_lines(nights / "3.jsonl", [span("b", 1), span("c", 5)])
    import_spans(nights, archive)
    assert said(archive) == {"a": ["1"], "b": ["1", "2", "3"], "c": ["4", "5"]}
    done = import_spans(nights, archive, confidence={"always": 0.9})  # all anew
    assert done.traces == 3
    assert said(archive) == {"a": ["1"], "b": ["1", "2", "3"], "c": ["4", "5"]}
    assert {row["outcome"]["confidence"] for row in imported(archive).values()} == {0.9}


def test_a_trace_that_no_rule_can_decide_yet_is_taken_later(nights: Path, archive: Path) -> None:
    import_spans(nights, archive)
    write_lines(nights / "3.jsonl", [span("unscored", 5)])
    assert import_spans(nights, archive).refused == {"missing_success": 1}


def test_other_rules_make_all_anew_without_a_file(nights: Path, archive: Path) -> None:
    import_spans(nights, archive)
    for path in nights.iterdir():
        path.unlink()
    write_lines(nights / "3.jsonl", [span("b", 9)])
    done = import_spans(nights, archive, confidence={"always": 0.9})
    assert (done.files_read, done.traces) == (1, 3)
    assert said(archive) == {"a": ["1"], "b": ["2", "3", "9"], "c": ["4"]}
    assert {row["outcome"]["confidence"] for row in imported(archive).values()} == {0.9}


def test_a_moved_folder_changes_no_trace(nights: Path, archive: Path, tmp_path: Path) -> None:
    import_spans(nights, archive)
    before = imported(archive)
    done = import_spans(nights.rename(tmp_path / "moved"), archive)
    assert (done.files_read, done.traces, done.files_changed) == (2, 0, 0)
    assert imported(archive) == before


def test_a_damaged_file_that_is_mended_is_read_and_no_longer_refused(
    nights: Path, archive: Path
) -> None:
    import_spans(nights, archive)
    whole, times = (nights / "1.jsonl").read_bytes(), (nights / "1.jsonl").stat()
    (nights / "1.jsonl").write_bytes(b"")
    import_spans(nights, archive)
    assert [refusal["reasons"] for refusal in refusals(archive)] == [["unreadable_file"]]
    (nights / "1.jsonl").write_bytes(whole)
    os.utime(nights / "1.jsonl", ns=(times.st_atime_ns, times.st_mtime_ns))
    import_spans(nights, archive)
    assert refusals(archive) == []


def test_a_file_that_was_replaced_by_another_of_its_length_and_time_is_read(
    nights: Path, archive: Path
) -> None:
    import_spans(nights, archive)
    path, times = nights / "1.jsonl", (nights / "1.jsonl").stat()
    size = path.stat().st_size
    path.write_bytes(path.read_bytes().replace(b"1", b"7"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == size
    assert import_spans(nights, archive).files_read == 1


def test_what_was_read_of_a_file_before_is_not_forgotten(nights: Path, archive: Path) -> None:
    import_spans(nights, archive)
    write_lines(nights / "1.jsonl", [span("z", 8)])  # as a log that was begun anew
    import_spans(nights, archive)
    write_lines(nights / "3.jsonl", [span("b", 9)])
    import_spans(nights, archive)
    assert said(archive) == {"a": ["1"], "b": ["2", "3", "9"], "c": ["4"], "z": ["8"]}


@pytest.mark.telling
@pytest.mark.process
def test_one_import_at_a_time_changes_an_archive(nights: Path, archive: Path) -> None:
    busy = rf"writing to {archive} \(.*\); try again when it has ended$"
    with holding(HOLD, archive / "_import"), pytest.raises(BusyError, match=busy):
        import_spans(nights, archive)
    import_spans(nights, archive)


def test_a_store_that_another_program_holds_is_reported_and_nothing_changes(
    nights: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_spans(nights, archive)
    before = imported(archive)
    write_lines(nights / "3.jsonl", [span("d", 9)])
    monkeypatch.setattr("kp_batch.imports.store.LOCK_TIMEOUT_S", 0)
    with closing(sqlite3.connect(archive / "_import" / "records.sqlite")) as other:
        for lock in ("EXCLUSIVE", "IMMEDIATE"):
            other.execute(f"BEGIN {lock}")
            with pytest.raises(BusyError, match=f"another process is writing to {archive}; try"):
                import_spans(nights, archive)
            other.rollback()
    assert imported(archive) == before
    assert import_spans(nights, archive).traces == 1


def test_a_trace_that_moves_between_days_that_gain_is_always_in_one(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(source, archive)
    write_json(source / "a.json", kp_trace("a", 2))  # from the first to the second
    write_json(source / "b.json", kp_trace("b", 1))  # and the other way
    write_json(source / "d.json", kp_trace("d", 1))
    seen: list[set[str]] = []
    replace = Path.replace

    def looking(path: Path, target: Path) -> Path:
        done = replace(path, target)
        days = [pl.read_parquet(file, columns=["id"]) for file in archive.glob("*.parquet")]
        seen.append(set(pl.concat(days).to_series()) if days else set())
        return done

    monkeypatch.setattr(Path, "replace", looking)
    import_all(source, archive)
    assert all({f"kp:trace:{name}" for name in "abc"} <= ids for ids in seen)
    assert {x: row["metadata"]["created_at"][:10] for x, row in imported(archive).items()} == {
        "kp:trace:a": "2026-03-02",
        "kp:trace:b": "2026-03-01",
        "kp:trace:c": "2026-03-01",
        "kp:trace:d": "2026-03-01",
    }


@pytest.mark.telling
@pytest.mark.slow
def test_row_groups_depend_on_nothing_but_the_day(tmp_path: Path) -> None:
    folder = tmp_path / "spans"
    folder.mkdir()
    days = [
        [{**span(f"{day}-{number}", 1), "at": f"2026-03-0{day}"} for number in range(1_500)]
        for day in (1, 2)
    ]
    for day, spans in enumerate(days):
        write_lines(folder / f"{day}.jsonl", spans)
        import_spans(folder, tmp_path / "nights")
    import_spans(folder, tmp_path / "at-once")
    for path in (tmp_path / "nights").glob("*.parquet"):
        assert path.read_bytes() == (tmp_path / "at-once" / path.name).read_bytes()
        assert pq.read_metadata(path).num_row_groups == 2


def test_odd_letters_stop_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a[1]"
    folder.mkdir()
    spans = [span("a", 1), {**span("b\ud800", 2), "say": "\ud83d"}, span("c", 3)]
    write_lines(folder / "[x].jsonl", spans)
    (folder / "\udcff.jsonl").write_bytes((folder / "[x].jsonl").read_bytes())
    for _ in range(2):
        import_spans(folder, folder / "archive")
    assert said(folder / "archive") == {"a": ["1"], "b\ufffd": ["\ufffd"], "c": ["3"]}
    assert "name" in refusals(folder / "archive")[0]["message"]


def test_a_trace_with_an_odd_id_is_one_trace(nights: Path, archive: Path) -> None:
    odd = "\ud800"
    for second in (1, 2):
        write_lines(nights / f"{second}.jsonl", [span(odd, second)])
    import_spans(nights, archive)
    write_lines(nights / "1.jsonl", [span(odd, 1), span(odd, 3)])
    import_spans(nights, archive)
    assert import_spans(nights, archive).files_read == 0
    assert said(archive) == {"\ufffd": ["1", "2", "3"]}


def no_database(store: Path) -> None:
    store.write_bytes(b"no database" * 999)


def cut(store: Path) -> None:
    os.truncate(store, store.stat().st_size // 2)


def empty(store: Path) -> None:
    os.truncate(store, 0)


def change_block(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE blocks SET records = substr(records, 1, length(records) - 9)")


def lose_block(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM blocks")


def be_newer(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")


def forget_a(_: Path, archive: Path) -> Forgotten:
    return forget(archive, ids=["kp:trace:a"])


Again = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            Path.unlink,
            ("has lost _import/records.sqlite, which has the records of its traces"),
        ),
        (empty, "has lost _import/records.sqlite, which has the records of its traces"),
        (cut, "_import/records.sqlite is damaged: "),
        (no_database, "_import/records.sqlite is damaged: file is not a database"),
        (change_block, "_import/records.sqlite is damaged: block 1 cannot be read: "),
        (lose_block, "_import/records.sqlite is damaged: block 1 cannot be read: "),
        (be_newer, r"_import/records.sqlite is of another version \(99\); install the version"),
    ],
)
@pytest.mark.parametrize("again", [import_all, forget_a])
def test_a_store_that_cannot_be_read_is_named(
    source: Path, archive: Path, harm: Callable[[Path], None], message: str, again: Again
) -> None:
    import_all(source, archive)
    before = imported(archive)
    harm(archive / "_import" / "records.sqlite")
    write_json(source / "d.json", kp_trace("a", 2))
    with pytest.raises(KpBatchError, match=f"{archive}.*{message}") as failed:
        again(source, archive)
    assert "import the sources into a new folder, and remove this one" in str(failed.value)
    assert imported(archive) == before


@pytest.mark.parametrize("again", [import_all, forget_a])
def test_an_archive_of_before_the_store_is_refused_with_what_to_do(
    source: Path, archive: Path, again: Again
) -> None:
    import_all(source, archive)
    (archive / "_import" / "records.sqlite").rename(archive / "_import" / "state.json")
    message = f"^an earlier version of kp-batch made {archive}, and only runs .* into a new"
    with pytest.raises(KpBatchError, match=f"{message} folder with kp-batch import FORMAT SOURCES"):
        again(source, archive)
    assert len(imported(archive)) == 3


def test_sources_that_are_imported_in_turn_share_a_trace(nights: Path, archive: Path) -> None:
    for night in range(2):
        for name in ("1.jsonl", "2.jsonl"):
            assert import_spans(nights / name, archive).files_read == 1 - night
    assert said(archive) == {"a": ["1"], "b": ["2", "3"], "c": ["4"]}
    write_lines(nights / "2.jsonl", [span("b", 6)])
    import_spans(nights / "2.jsonl", archive)
    assert said(archive) == {"a": ["1"], "b": ["2", "3", "6"], "c": ["4"]}


def test_an_archive_is_of_the_format_that_it_has(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("e", "f"):
        import_traces(None, [str(source)], archive, load_rules(None, {}))
        write_json(source / f"{name}.json", kp_trace(name))
    monkeypatch.setattr(importing, "detect_format", None)  # no file is looked into for it
    import_traces(None, [str(source)], archive, load_rules(None, {}))
    assert len(imported(archive)) == 5


def test_an_archive_is_no_url_but_of_a_bucket(source: Path) -> None:
    with pytest.raises(KpBatchError, match="URLs of ftp:// are not supported") as failed:
        import_traces(FORMAT, [str(source)], "ftp://me:s3cret@host/archive", load_rules(None, {}))
    assert "s3cret" not in str(failed.value)


def test_an_archive_has_one_format(nights: Path, source: Path, archive: Path) -> None:
    import_spans(nights, archive)
    with pytest.raises(KpBatchError, match="has traces of spans"):
        import_all(source, archive)


@pytest.mark.parametrize("dies", ["write_days", "save_done"])
def test_a_killed_import_is_made_good_by_the_next(
    nights: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    import_spans(nights, archive)
    write_lines(nights / "3.jsonl", [span("b", 1), span("d", 9)])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(change, dies, killed)
        with pytest.raises(KeyboardInterrupt):
            import_spans(nights, archive)
    (nights / "3.jsonl").unlink()
    import_spans(nights, archive)
    assert said(archive) == {"a": ["1"], "b": ["1", "2", "3"], "c": ["4"], "d": ["9"]}
    write_lines(nights / "3.jsonl", [span("b", 1), span("d", 9)])
    import_spans(nights, tmp_path / "never")
    content = [
        {path.name: path.read_bytes() for path in x.glob("*.[pj]*")}
        for x in (archive, tmp_path / "never")
    ]
    assert content[0] == content[1]


@pytest.mark.parametrize("later", ["another", "none"])
@pytest.mark.parametrize("killed_at", ["2026-03-05", "2026-03-02"])  # before, and between
def test_a_trace_is_in_one_day_though_its_file_is_gone_after_a_kill(
    source: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_at: str,
    later: str,
) -> None:
    import_all(source, archive)
    write_json(source / "b.json", kp_trace("b", 5))
    fetch = Archive.fetch

    def killed(archive: Archive, names: Iterable[str]) -> None:
        if f"{killed_at}.parquet" in set(names):
            raise KeyboardInterrupt
        fetch(archive, names)

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "fetch", killed)
        with pytest.raises(KeyboardInterrupt):
            import_all(source, archive)
    (source / "b.json").unlink()
    if later == "another":
        write_json(source / "d.json", kp_trace("d", 3))
    import_all(source, archive)
    days = {name[9:]: row["metadata"]["created_at"][9] for name, row in imported(archive).items()}
    others = {"d": "3"} if later == "another" else {}
    assert days == {"a": "1", "b": "5", "c": "1", **others}


def test_rules_that_name_what_is_not_there_are_reported_before_anything_is_written(
    tmp_path: Path, archive: Path
) -> None:
    write_lines(tmp_path / "a.jsonl", [{"trace": "t", "at": "2026-03-01", "say": "so"}])
    wrong = {
        "success": {"score": "rihgt", "at_least": 1},
        "confidence": {"score": "judge"},
        "task_domain": {"from": "tags"},
        "agent_id": "who",
    }
    with pytest.raises(KpBatchError) as failed:
        import_traces(spans_format(), [str(tmp_path)], archive, load_rules(None, wrong))
    assert str(failed.value) == (
        "no score 'rihgt'; the source has: right; no score 'judge'; the source has: right; "
        "no field 'tags'; the source has: kind; no field 'who'; the source has: kind"
    )
    assert [path.name for path in archive.iterdir()] == ["_import"]


def test_a_message_lists_ten_of_many(tmp_path: Path) -> None:
    many = [f"n{number:04}" for number in range(5_003)]
    unmapped = dict.fromkeys(many, 2)
    done = Imported(
        files=1, unresolved={}, unmapped_domains=unmapped, rules={"m": {"map": unmapped}}
    )
    lines = as_text(done, "archive").splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("  unmapped")] == [
        *(f"2 {name}" for name in many[:10]),
        "9,986 of 4,993 more kinds",
    ]
    assert lines[-1].endswith("n0009 2; 4,993 more")
    form = spans_format()

    def draft(*arguments: Any) -> Any:
        return replace(form.draft(*arguments), fields={name: ["x"] for name in many})

    write_lines(tmp_path / "a.jsonl", [span("a", 1)])
    rules = load_rules(None, {**RULES, "agent_id": "who"})
    with pytest.raises(KpBatchError, match=r"'who'; the source has: n0000, .* n0009, 4,993 more$"):
        import_traces(replace(form, draft=draft), [str(tmp_path)], tmp_path / "archive", rules)


def test_without_a_map_no_value_is_unmapped(tmp_path: Path, archive: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"trace": "t", "at": "2026-03-01", "say": "so"}])
    rules = load_rules(None, {**RULES, "task_domain": {"from": "kind"}})
    assert import_traces(spans_format(), [str(tmp_path)], archive, rules).unmapped_domains == {}
    (row,) = imported(archive).values()
    assert row["metadata"]["task_domain"] == "made"


def test_rules_that_leave_something_open_are_refused_before_any_work(
    tmp_path: Path, archive: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("no JSON")
    with pytest.raises(
        KpBatchError, match=r"spans lacks success and confidence; .*\[success\].*\[confidence\]"
    ):
        import_traces(spans_format(), [str(tmp_path)], archive, load_rules(None, {}))


def test_a_line_that_is_no_object_is_refused_alone(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_lines(path, [{"trace": "t", "at": "2026-03-01", "say": "\ud800"}])
    path.write_text(f"{path.read_text()}[]\n\n{{cut\n")
    done = import_traces(spans_format(), [str(path)], archive, load_rules(None, RULES))
    assert (done.traces, done.refused) == (1, {"malformed_json": 2})
    assert [refusal["line"] for refusal in refusals(archive)] == [2, 4]


def test_a_trace_that_is_not_understood_is_refused_alone(tmp_path: Path, archive: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [span("a", 1), {"trace": "odd", "at": 5}])
    assert import_spans(tmp_path, archive).refused == {"malformed_json": 1}
    [refused] = refusals(archive)
    assert refused["message"].startswith("it is not understood: ")
    assert list(said(archive)) == ["a"]


def test_a_file_is_looked_into_once_until_it_changes(nights: Path, archive: Path) -> None:
    looked: list[str] = []

    def inputs(paths: Sequence[str], look: Any) -> Any:
        return (Input(path) for path in paths if look(path) or True)

    def probe(path: str, _: bytes) -> None:
        looked.append(Path(path).name)

    form = replace(spans_format(), inputs=inputs, probe=probe)
    for night in (["1.jsonl", "2.jsonl"], [], ["2.jsonl"]):
        looked.clear()
        import_traces(form, [str(nights)], archive, load_rules(None, RULES))
        assert sorted(looked) == night
        if not night:
            write_lines(nights / "2.jsonl", [span("b", 7)])


def test_a_source_without_a_file_of_the_format_is_reported(tmp_path: Path, archive: Path) -> None:
    for name in (tmp_path, tmp_path / "none"):
        with pytest.raises(ArchiveError, match=r"^(no file of|there is no)"):
            import_all(name, archive)


def test_a_write_that_fails_leaves_the_old_file(
    source: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(source, archive)
    before = imported(archive)
    write_json(source / "d.json", kp_trace("d"))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", _full)
    with pytest.raises(OSError, match="full"):
        import_all(source, archive)
    assert imported(archive) == before
    assert not [path for path in archive.iterdir() if path.suffix == HALF_WRITTEN]


def _full(*_: object) -> None:
    raise OSError("full")


def test_the_command_prints_the_result(source: Path, archive: Path) -> None:
    write_json(source / "x.json", kp_trace("x", steps=[]))
    write_json(source / "y.json", {**kp_trace("y"), "@type": "ExpertSOP"})
    done = invoke("import", "knowledgepulse", source, "-o", archive)
    assert done.stdout.splitlines() == [
        "3 traces from 5 new or changed files (5 in all)",
        f"  changed    2 files of {archive}",
        "  refused    1 no_steps",
        "  skipped    1 ExpertSOP",
        f"  unresolved 1 refused: see {archive}/_refused.jsonl",
    ]


def test_what_a_night_reads_counts_in_the_order_of_paths(nights: Path, archive: Path) -> None:
    """Whether a file is new or was read before."""
    said_by = {**span("x", 1), "say": "first"}
    write_lines(nights / "d.jsonl", [said_by])
    import_spans(nights, archive)
    write_lines(nights / "b.jsonl", [{**said_by, "say": "of b"}])
    write_lines(nights / "d.jsonl", [said_by, {**said_by, "say": "of d"}])
    import_spans(nights, archive)
    assert said(archive)["x"] == ["first", "of b", "of d"]
