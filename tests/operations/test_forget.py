"""What forgetting does not do by accident, and what it reports before and after."""

import errno
import json
import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

import kp_batch.archive.reading
import kp_batch.ingest.stage
import kp_batch.operations.forget
import kp_batch.pipeline.rescore
import kp_batch.pipeline.vacuum
import kp_batch.warehouse.vacuum_result
from kp_batch.cli import kp_batch as group
from kp_batch.errors import AuditError, KpBatchError, StorageError, WarehouseError
from kp_batch.operations.forget import ForgetResult, forget, forgotten_text
from kp_batch.operations.sweep import sweep
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import PublishedSnapshot
from kp_batch.warehouse.vacuum_result import VacuumResult, removed_text
from tests.support.kill.removal import (
    can_be_read,
    killed_in_removal,
    left_by_three_runs,
    published,
    refused,
    said,
    settings_of,
    write,
)
from tests.support.make.publications import files_of, publish_tables
from tests.support.oracle.tables import tables
from tests.support.processes.commands import invoke
from tests.support.read.folders import keep, listing, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

OLD = {"a.jsonl": [said("replaced", "older words", 8), said(1, "fix it", 8)]}
NEW = {
    "a.jsonl": [said("f87f7d2c-0001", "other words", 8), said(1, "fix it", 8)],
    "b.jsonl": [said(2, "sum it", 9), said("f87f7d2c-0002", "plan it", 10), refused("bad")],
    "c.jsonl": [said(3, "see it", 9, created_at="2026-01-07T09:00:00Z")],
}


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return left_by_three_runs(tmp_path_factory.mktemp("forgetting"), OLD, NEW, threshold=0.2)


@pytest.fixture
def folder(as_it_was: Path) -> Path:
    restore(as_it_was)
    return as_it_was


@pytest.fixture
def warehouse(folder: Path) -> Path:
    return folder / "warehouse"


def readable(folder: Path) -> list[str]:
    """The runs that --as-of can read."""
    runs = ask_rows(settings_of(folder).warehouse, "SELECT run_id FROM runs ORDER BY started_at")
    return [run for (run,) in runs if can_be_read(folder / "warehouse", run)]


@pytest.mark.telling
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["typo"], "1 of 1 id is unknown: typo; nothing was changed; with --unseen-too"),
        (["kp:trace:1", "typo", "typo"], "1 of 2 ids is unknown: typo; "),
        (["bad"], "unknown: bad (did you mean kp:trace:bad?); "),
        (
            ["f87f7d2c", "7d2c-0002"],
            (
                "2 of 2 ids are unknown: f87f7d2c (part of 2 ids, such as kp:trace:f87f7d2c-0001), "
                "7d2c-0002 (did you mean kp:trace:f87f7d2c-0002?); "
            ),
        ),
        (["%", ".*", "a\x1bb", "'"], r"4 of 4 ids are unknown: %, .*, a\x1bb, 1 more; "),
        (["x" * 100], f"unknown: {'x' * 79}…; "),
    ],
)
def test_an_unknown_id_changes_nothing(warehouse: Path, ids: list[str], message: str) -> None:
    before = listing(warehouse)
    with pytest.raises(KpBatchError) as failure:
        forget(warehouse, ids)
    assert message in str(failure.value)
    assert listing(warehouse) == before


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (
            ["kp:trace:1", "kp:trace:1", "kp:trace:3", "kp:trace:bad", "kp:trace:replaced", "typo"],
            {
                "traces": 2,
                "rows": 1,
                "replaced": 1,
                "unseen": 1,
                "unseen_named": "typo",
                "vectors": 3,
            },
        ),
        (["typo"], {"unseen": 1, "unseen_named": "typo"}),
    ],
    ids=["of each kind", "unseen"],
)
def test_a_dry_run_shows_what_forgetting_does_and_changes_nothing(
    folder: Path, ids: list[str], expected: dict[str, Any]
) -> None:
    warehouse = folder / "warehouse"
    before, could_be_read = listing(warehouse), readable(folder)
    dry = forget(warehouse, ids, unseen_too=True, dry_run=True)
    assert listing(warehouse) == before
    names = ("traces", "rows", "replaced", "unseen", "unseen_named", "vectors")
    assert {name: getattr(dry, name) for name in names if getattr(dry, name)} == expected
    done = forget(warehouse, ids, unseen_too=True)
    assert facts(done) == facts(dry)
    assert readable(folder) == [*could_be_read, done.run_id]


def test_vectors_that_a_refused_run_left_are_not_those_of_the_trace(folder: Path) -> None:
    write(folder, {"d.jsonl": [said(n, f"new words {n}", 10) for n in (7, 8, 9)]})
    always = {"always": {"sql": "SELECT 1"}}
    with pytest.raises(AuditError):
        rescore_archive(settings_of(folder, threshold=0.2, audits=always))
    dry = forget(folder / "warehouse", ["kp:trace:1"], dry_run=True)
    done = forget(folder / "warehouse", ["kp:trace:1"])
    assert facts(done) == facts(dry)
    assert (done.traces, done.vectors, done.leftovers) == (1, 1, 3)
    assert forgotten_text(done).endswith(
        "\n  remove     1 vector\n  leftover   3 unused vectors, too"
    )


@pytest.mark.telling
def test_a_dry_run_names_unknown_ids(warehouse: Path) -> None:
    result = forget(warehouse, ["kp:trace:1", "bad"], dry_run=True)
    assert (result.traces, result.unseen) == (1, 1)
    assert result.unseen_named == "bad (did you mean kp:trace:bad?)"
    result = forget(warehouse, ["typo"], dry_run=True)
    assert result.unseen == 1


@pytest.mark.telling
def test_a_dry_run_ends_as_forgetting_would(warehouse: Path) -> None:
    def run_forget(*words: str) -> tuple[int, str, str]:
        done = invoke("forget", "kp:trace:1", "typo", *words, "--warehouse", warehouse)
        return done.returncode, done.stdout.partition("\n")[0], done.stderr

    status, first_line, error = run_forget()
    assert (status, first_line) == (1, "")
    assert "1 of 2 ids is unknown: typo; nothing was changed; with --unseen-too" in error
    head = "to be forgotten: 1 scored trace, 0 rejected rows"
    assert run_forget("--dry-run") == (1, head, error)
    assert run_forget("--dry-run", "--unseen-too") == (0, head, "")


@pytest.mark.telling
def test_what_a_killed_one_left_is_reported_and_removed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warehouse = folder / "warehouse"
    killed_in_removal(warehouse)
    could_be_read = readable(folder)
    assert len(could_be_read) == 4
    rescore_archive(settings_of(folder, threshold=0.2))
    assert caplog.text.count("a kp-batch forget did not finish: ") == 1
    for dry_run in (True, False):
        with pytest.raises(
            WarehouseError, match=r"nothing is removed, because a kp-batch forget did"
        ):
            vacuum(warehouse, timedelta(days=1), datetime.now(UTC), dry_run=dry_run)
    before = listing(warehouse)
    dry = forget(warehouse, ["kp:trace:1"], dry_run=True)
    assert listing(warehouse) == before
    done = forget(warehouse, ["kp:trace:1"])
    assert facts(done) == facts(dry)
    assert (done.finishes, done.run_id, done.vectors, done.leftovers) == (True, None, 1, 0)
    assert readable(folder) == could_be_read
    assert not forget(warehouse, ["kp:trace:1"]).finishes


def failing_to_write(*_: object) -> None:
    raise OSError("full")


def test_one_that_failed_leaves_nothing_to_finish(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(kp_batch.pipeline.rescore, "write_tables", failing_to_write)
        with pytest.raises(OSError, match="full"):
            forget(warehouse, ["kp:trace:1"])
    assert not Layout(warehouse).forgetting.exists()
    killed_in_removal(warehouse)
    monkeypatch.setattr(kp_batch.pipeline.rescore, "write_tables", failing_to_write)
    with pytest.raises(OSError, match="full"):
        forget(warehouse, ["kp:trace:2"])
    assert Layout(warehouse).forgetting.exists()


@pytest.mark.usefixtures("no_page")
def test_it_is_not_finished_while_an_older_page_exists(warehouse: Path) -> None:
    page = Layout(warehouse).report
    (page / "in-the-way").mkdir(parents=True)
    with pytest.raises(WarehouseError, match=r"are forgotten, but .*report\.html, which may name"):
        forget(warehouse, ["kp:trace:1"])
    shutil.rmtree(page)
    page.write_text("names kp:trace:1")
    assert forget(warehouse, ["kp:trace:1"]).finishes
    assert "kp:trace:1" not in page.read_text()


def test_two_that_forget_the_same_at_once_forget_it_once_and_another_one_changes_nothing(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one ends after this one has looked the ids up, and before it may write."""
    writing = kp_batch.operations.forget.writing

    def later(warehouse: Path, *, wait: bool) -> AbstractContextManager[None]:
        monkeypatch.setattr(kp_batch.operations.forget, "writing", writing)
        forget(warehouse, ["kp:trace:1"])
        return writing(warehouse, wait=wait)

    monkeypatch.setattr(kp_batch.operations.forget, "writing", later)
    result = forget(warehouse, ["kp:trace:1", "kp:trace:2"])
    assert (result.traces, result.before) == (1, 1)
    before = listing(warehouse)
    result = forget(warehouse, ["kp:trace:1"])
    assert (result.run_id, result.before, result.traces) == (None, 1, 0)
    assert listing(warehouse) == before
    hashes = PublishedSnapshot(warehouse, published(warehouse)).scan("forgotten").collect()
    assert len(hashes) == 2


def test_what_fails_while_files_are_removed_leaves_the_trace_forgotten(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def failing(path: Path, *, missing_ok: bool = False) -> None:
        if path.parents[1].name == "scores" and path.parents[2].name == "warehouse":
            raise PermissionError("not ours")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", failing)
        with pytest.raises(StorageError, match=r"are forgotten, but .*\(not ours\); fix that"):
            forget(warehouse, ["kp:trace:1"])
    assert not published(warehouse).failed
    scores = tables(warehouse)["scores"]
    assert "kp:trace:1" not in scores.get_column("trace_id")
    assert ask_rows(warehouse, "SELECT DISTINCT status FROM runs") == [("done",)]
    files_before = len(list((warehouse / "scores").rglob("*.parquet")))
    forget(warehouse, ["kp:trace:1"])
    assert len(list((warehouse / "scores").rglob("*.parquet"))) < files_before
    assert tables(warehouse)["scores"].equals(scores)
    before = listing(warehouse)
    forget(warehouse, ["kp:trace:1"])
    assert listing(warehouse) == before


def test_a_vacuum_joins_what_grows_and_earlier_runs_are_read_from_that(warehouse: Path) -> None:
    last = forget(warehouse, ["kp:trace:3"]).run_id
    with connect(warehouse, last) as connection:
        before = connection.execute("FROM distributions ORDER BY ALL").fetchall()
    for left in (4 + 1, 1):  # those of who reads what was published until then stay once
        vacuum(warehouse, timedelta(days=1), datetime.now(UTC))
        assert len([*(warehouse / "distributions").rglob("*.parquet")]) == left
        assert len(files_of(warehouse, "distributions")) == 1
    with connect(warehouse, last) as connection:
        assert connection.execute("FROM distributions ORDER BY ALL").fetchall() == before


# --- the command line ---


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What the commands call, and with which arguments; the stand-in does nothing."""
    request: dict[str, Any] = {}

    def noting(warehouse: Path, *args: Any, **kwargs: Any) -> Any:
        request.update(warehouse=warehouse, args=args, **kwargs)
        return NOTHING

    monkeypatch.setattr(kp_batch.operations.forget, "forget", noting)
    monkeypatch.setattr(kp_batch.pipeline.vacuum, "vacuum", noting)
    monkeypatch.setattr(kp_batch.operations.forget, "forgotten_text", lambda *_, **__: "")
    monkeypatch.setattr(kp_batch.warehouse.vacuum_result, "removed_text", lambda *_, **__: "")
    (tmp_path / "manifest.json").write_text(Manifest({}, {}).as_publication("0" * 32).as_json())
    monkeypatch.setenv("KP_BATCH_WAREHOUSE", str(tmp_path))
    return request


def call(*words: str) -> None:
    import_module("kp_batch.cli.maintain")  # which has the commands
    group.main(list(words), standalone_mode=False)


def test_ids_come_from_a_file_as_well(requested: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_bytes("\ufeffone\r\n\n two \n\u2028é日本\n\nlast".encode())
    call("forget", "a\nb", "--from", str(path))
    assert requested == {
        "warehouse": tmp_path,
        "args": (["a\nb", "one", " two ", "\u2028é日本", "last"],),
        "unseen_too": False,
        "note": None,
        "dry_run": False,
    }


@pytest.mark.telling
@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"a\n\xff\n"])
def test_without_any_id_or_with_other_bytes_the_usage_is_wrong(
    requested: dict[str, Any], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "ids").write_bytes(content)
    message = "ids are UTF-8" if b"\xff" in content else "no id is given"
    with pytest.raises(click.UsageError, match=message):
        call("forget", "--from", str(tmp_path / "ids"))
    for words in ((), ("",), ("a\udcff",)):
        with pytest.raises(click.UsageError, match=r"no id is given|ids are UTF-8"):
            call("forget", *words)
    assert not requested


@pytest.mark.telling
@pytest.mark.parametrize("words", [["forget", "one", "--unseen-too"], ["vacuum", "--keep", "1d"]])
def test_a_dry_run_is_asked_for(requested: dict[str, Any], words: list[str]) -> None:
    call(*words, "--dry-run")
    assert requested["dry_run"]
    assert requested.get("unseen_too", True)


@pytest.mark.parametrize(("keep", "seconds"), [("12h", 43_200), (" 30D", 2_592_000), ("1s", 1)])
def test_how_long_to_keep(requested: dict[str, Any], keep: str, seconds: int) -> None:
    call("vacuum", "--keep", keep)
    assert requested["args"][0] == timedelta(seconds=seconds)


@pytest.mark.telling
@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("1m", "'1m' may be minutes or months; write hours or days, such as 12h or 30d"),
        ("12 M", "may be minutes or months"),
        ("none", "'none' is not a time; write one such as 12h or 30d"),
        ("0d", "'0d' is not a time; write one such as 12h or 30d"),
        ("30", "'30' is not a time; write one such as 12h or 30d"),
    ],
)
def test_a_time_that_can_be_mistaken_is_refused(
    requested: dict[str, Any], keep: str, message: str
) -> None:
    with pytest.raises(click.UsageError) as refusal:
        call("vacuum", "--keep", keep)
    assert message in refusal.value.message
    assert not requested


NAMES = [*ForgetResult.__annotations__]  # of what it has besides other results of runs
NOTHING = ForgetResult.here(
    "nothing_to_do", **dict.fromkeys(NAMES[:5], 0), unseen_named="", archives=()
)
ALL = replace(
    NOTHING,
    run_id="now",
    is_done=True,
    **dict(zip(NAMES, (1, 2, 1, 1, 2, "a, b", 1, 1_000, 1, 1), strict=False)),
)


def facts(result: ForgetResult) -> dict[str, Any]:
    """What a dry run predicts."""
    return {name: getattr(result, name) for name in NAMES if name != "is_done"}


@pytest.mark.telling
def test_what_was_forgotten_is_reported() -> None:
    assert forgotten_text(NOTHING) == "nothing to forget"
    assert forgotten_text(ALL).splitlines() == [
        "forgotten by run now: 1 scored trace, 2 rejected rows",
        "  replaced   1 id of replaced or not yet scored content",
        "  before     1 id forgotten before",
        "  unseen     2 ids never seen: a, b",
        "  replay     1 trace",
        "  rescore    1,000 traces",
        "  rewrite    1 partition",
        "  remove     1 vector",
    ]
    finished = forgotten_text(replace(NOTHING, finishes=True)).splitlines()
    assert finished == [
        "nothing to forget",
        "  finish     what an earlier forget left is removed, too",
    ]
    would_be = replace(ALL, run_id=None, is_done=False)
    head, *_, unseen, _, _, _, _, end = forgotten_text(would_be, dry_run=True).splitlines()
    assert head == "to be forgotten: 1 scored trace, 2 rejected rows"
    assert unseen.endswith("2 ids never seen: a, b")
    assert end == "nothing was changed"


@pytest.mark.telling
def test_what_was_removed_is_reported() -> None:
    assert removed_text(VacuumResult(0, 0, 0, 0)) == "nothing to remove"
    result = VacuumResult(1, 0, 1, 1_000, lost=("a",), readable=("b", "c"))
    assert removed_text(result).splitlines() == [
        "removed: 1 file, 0 facts, 1 raw row, 1,000 vectors",
        "  lost       1 run can no longer be read with --as-of: a",
        "  readable   2 runs since b, with --as-of",
    ]
    assert removed_text(result, dry_run=True).splitlines()[::3] == [
        "to be removed: 1 file, 0 facts, 1 raw row, 1,000 vectors",
        "nothing was changed",
    ]


def denied(*_: Any) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


ROWS = [refused(1), said(2, "a secret plan", 9)]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose last run failed, and whose archive has lost a rejected row since."""
    folder = tmp_path_factory.mktemp("failed")
    write(folder, {"a.jsonl": ROWS})
    os.utime(folder / "archive" / "a.jsonl", (0, 1))
    rescore_archive(settings_of(folder))
    write(folder, {"a.jsonl": ROWS[1:], "b.jsonl": []})
    with pytest.raises(KpBatchError, match="more than --max-unreadable 0 allows"):
        rescore_archive(settings_of(folder, max_unreadable="0"))
    keep(folder)
    return folder


@pytest.mark.parametrize("then", ["fixed", "gone", "closed", "as it was"])
def test_forget_after_a_failed_run_keeps_the_json_of_each_row(
    failed: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    restore(failed)
    settings, path = settings_of(failed), failed / "archive" / "a.jsonl"
    if then == "gone":
        path.unlink()
    if then in {"closed", "as it was"}:
        write(failed, {"a.jsonl": ROWS})
    if then == "closed":
        os.utime(path, (0, 1))
        monkeypatch.setattr(kp_batch.archive.reading, "open_file", denied)
    # As another kp_batch would find it, which reads files anew in its next run.
    monkeypatch.setattr(kp_batch.ingest.stage, "VERSION", "-v99")
    assert forget(settings.warehouse, ["kp:trace:2"]).traces == 1
    [(trace_id, raw)] = ask_rows(
        settings.warehouse, "SELECT trace_id, raw FROM rejects WHERE trace_id IS NOT NULL"
    )
    assert trace_id == "kp:trace:1"
    assert json.loads(raw) == refused(1)
    assert ask_rows(settings.warehouse, "SELECT count(*) FROM scores") == [(0,)]


def test_forgetting_and_sweeping_need_no_model(warehouse: Path) -> None:
    manifest = published(warehouse)
    gone = {**manifest.settings, "embedder": str(warehouse.with_name("model"))}
    publish_tables(warehouse, replace(manifest, settings=gone))
    encoder = ask_rows(warehouse, "SELECT DISTINCT encoder_id FROM scores")
    assert sweep(warehouse).traces == 5
    assert forget(warehouse, ["kp:trace:1"]).replayed == 4
    assert ask_rows(warehouse, "SELECT DISTINCT encoder_id FROM scores") == encoder


def test_a_temporary_folder_of_a_dry_run_may_have_any_name(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a[1]").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a[1]"))
    assert forget(warehouse, ["kp:trace:1"], dry_run=True).traces == 1
