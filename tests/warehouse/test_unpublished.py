"""Who reads a Delta table by itself sees what is published, also after a command that failed."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from kp_batch.errors import AuditError, StorageError
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.schemas import TABLES
from kp_batch.steps import step as steps
from kp_batch.warehouse import candidate as candidates
from kp_batch.warehouse import delta, publication
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import files_of, publish_profile
from tests.support.make.runs import run_night, two_nights
from tests.support.read.folders import keep, restore

REFUSED = {"audits": {"none": {"sql": "FROM scores"}}}


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights") / "made"
    two_nights(folder)
    keep(folder)
    return folder


@pytest.fixture
def folder(as_it_was: Path) -> Path:
    restore(as_it_was)
    return as_it_was


def assert_only_published(warehouse: Path) -> None:
    """Check the newest version of each table against the published one."""
    for name in TABLES:
        wanted = files_of(warehouse, name)
        if (warehouse / name / "_delta_log").exists():
            uris = DeltaTable(warehouse / name).file_uris()
            assert {Path(uri) for uri in uris} == {*wanted}, name
            rows = pl.read_delta(str(warehouse / name)).height
            assert rows == sum(pl.read_parquet(path).height for path in wanted), name


def is_broken(*_: object, **__: object) -> None:
    raise OSError("no more room")


def is_interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def roll_back(folder: Path) -> None:
    rollback(folder / "warehouse", "previous")


def clean(folder: Path) -> None:
    vacuum(folder / "warehouse", timedelta(0), datetime.now(UTC))


def forget_one(folder: Path) -> None:
    forget(folder / "warehouse", ["kp:trace:1"])


FAILURES: dict[str, tuple[Callable[[Path], None], Callable[..., None]]] = {
    "a run that is interrupted": (run_night, is_interrupted),
    "a rollback": (roll_back, is_broken),
    "vacuum": (clean, is_broken),
    "forget": (forget_one, is_broken),
}


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
def test_what_a_failing_command_has_written_is_seen_by_nobody(
    folder: Path, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = folder / "warehouse"
    work, fails = FAILURES[failure]
    before = require_manifest(warehouse)
    with monkeypatch.context() as patch:
        patch.setattr(publication, "publish_in_bucket", fails)  # once all is written
        with pytest.raises((OSError, KeyboardInterrupt)):
            work(folder)
    assert require_manifest(warehouse) == before
    assert_only_published(warehouse)
    work(folder)
    assert_only_published(warehouse)


# The calls of a publication.
PUBLISHING = [
    (candidates.Candidate, "move_files"),
    (publication, "build_published"),
    (publication, "publish_in_bucket"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "what"), PUBLISHING)
def test_wherever_a_publication_fails_only_what_is_published_stays(
    folder: Path, where: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = folder / "warehouse"
    before = require_manifest(warehouse)
    with monkeypatch.context() as patch:
        patch.setattr(where, what, is_broken)
        with pytest.raises(OSError, match="no more room"):
            run_night(folder)
    assert require_manifest(warehouse) == before
    assert_only_published(warehouse)
    run_night(folder)
    assert_only_published(warehouse)
    assert published(warehouse).scored == 3


# Where a try fails, when all is written; how: what passes is tried again; and the runs before.
TRIES = [
    ("build_published", TimeoutError("away"), 2),
    ("publish_in_bucket", TimeoutError("away"), 0),
    ("publish_in_bucket", TimeoutError("away"), 2),
    ("sync_names", TimeoutError("away"), 2),  # it is published already
    ("publish_in_bucket", OSError("no more room"), 0),  # and that is published, with the rejects
    ("publish_in_bucket", OSError("no more room"), 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "failure", "runs"), TRIES)
def test_the_row_of_a_run_names_what_was_published_whatever_was_tried_before(
    folder: Path, where: str, failure: OSError, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, call = count(), getattr(publication, where)

    def failing_once(*inputs: object) -> object:
        if next(calls) == 0:
            raise failure
        return call(*inputs)

    warehouse = folder / "warehouse"
    if not runs:
        shutil.rmtree(warehouse)
    monkeypatch.setattr(steps, "RETRY_DELAYS_S", (0,))
    monkeypatch.setattr(publication, where, failing_once)
    with suppress(type(failure)):
        run_night(folder)
    now = published(warehouse)
    last = max(now.runs(), key=lambda run: run.number)
    assert len({run.run_id for run in now.runs()}) == len(now.runs()) == runs + 1
    assert (last.status == "failed") == (now.manifest.failed) == ("room" in str(failure))
    assert last.published["publication"] == now.manifest.name
    for name in TABLES:
        assert now.as_of(last).files(name) == now.files(name), name
    assert_only_published(warehouse)


@pytest.mark.slow
def test_scores_that_an_audit_refuses_are_not_seen(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AuditError):
        run_night(folder, **REFUSED)
    assert pl.read_delta(str(folder / "warehouse" / "scores")).height == 2
    assert_only_published(folder / "warehouse")
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace()])
    with pytest.raises(AuditError):
        run_night(tmp_path, **REFUSED)
    assert not (tmp_path / "warehouse" / "scores").exists()
    assert_only_published(tmp_path / "warehouse")
    run_night(tmp_path)
    assert pl.read_delta(str(tmp_path / "warehouse" / "scores")).height == 1


def versions(warehouse: Path) -> int:
    return len([*warehouse.glob("*/_delta_log/*.json")])


def test_what_a_killed_writer_has_not_exported_the_next_one_exports_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_profile(tmp_path, "one")
    with monkeypatch.context() as patch:
        patch.setattr(publication, "export", lambda _: None)
        publish_profile(tmp_path, "two")
    assert pl.read_delta(str(tmp_path / "profiles"))["name"].to_list() == ["one"]
    with writing(tmp_path, wait=False):
        assert pl.read_delta(str(tmp_path / "profiles"))["name"].to_list() == ["two"]
    assert_only_published(tmp_path)
    before = versions(tmp_path)
    with writing(tmp_path, wait=False):
        pass
    assert versions(tmp_path) == before


@pytest.mark.parametrize(
    "left",
    [b"", b"\0" * 64, b'{"commitInfo":{}}\n\0\0\n{}', b'{"add":{"path":"a.par'],
    ids=["empty", "zeros", "zeros within", "cut"],
)
def test_an_entry_of_a_log_that_a_power_cut_tore_is_exported_again(
    tmp_path: Path, left: bytes
) -> None:
    for name in ("one", "two"):
        publish_profile(tmp_path, name)
    newest = max(tmp_path.glob("profiles/_delta_log/*.json"))
    newest.write_bytes(left)
    with writing(tmp_path, wait=False):
        pass
    assert pl.read_delta(str(tmp_path / "profiles"))["name"].to_list() == ["two"]
    assert newest == max(tmp_path.glob("profiles/_delta_log/*.json"))
    assert_only_published(tmp_path)


def test_an_export_opens_no_table_that_shows_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_profile(tmp_path, "one")
    monkeypatch.setattr("deltalake.DeltaTable", is_broken)
    delta.export(tmp_path)
    monkeypatch.setattr(publication, "export", lambda _: None)
    publish_profile(tmp_path, "two")
    with pytest.raises(OSError, match="no more room"):
        delta.export(tmp_path)


def test_nothing_is_exported_where_the_manifest_was_lost(tmp_path: Path) -> None:
    publish_profile(tmp_path, "one")
    for name in ("manifest.json", "kp.duckdb"):
        (tmp_path / name).unlink()
    before = versions(tmp_path)
    with writing(tmp_path, wait=False):
        pass
    assert versions(tmp_path) == before
    assert pl.read_delta(str(tmp_path / "profiles"))["name"].to_list() == ["one"]


@pytest.mark.slow
def test_a_run_that_cannot_export_is_published_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warehouse = folder / "warehouse"
    with monkeypatch.context() as patch:
        patch.setattr(publication, "export", is_broken)
        run_night(folder)
    assert published(warehouse).scored == 3
    [told, *_] = caplog.messages
    assert "still show an earlier publication" in told
    assert "(no more room)" in told
    run_night(folder)
    assert_only_published(warehouse)


@pytest.mark.slow
@pytest.mark.parametrize("work", [clean, forget_one])
def test_nothing_is_removed_that_delta_tables_still_name(
    folder: Path, work: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = folder / "warehouse"
    run_night(folder)
    before = {path for name in TABLES for path in (warehouse / name).glob("**/*.parquet")}
    with monkeypatch.context() as patch:
        patch.setattr(publication, "export", is_broken)
        with pytest.raises(StorageError, match=r"no more room.*run the same command again"):
            work(folder)
    assert before <= {path for name in TABLES for path in (warehouse / name).glob("**/*.parquet")}
    work(folder)
    assert_only_published(warehouse)
