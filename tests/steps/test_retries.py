"""A step that the disk interrupts anywhere is done again, and leaves what it would have left."""

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kp_batch.ingest.scan
import kp_batch.ingest.stage
import kp_batch.pipeline.embed
import kp_batch.pipeline.publish
import kp_batch.pipeline.replay_spans
import kp_batch.pipeline.rescore
import kp_batch.pipeline.write
import kp_batch.planning.plan
from kp_batch.archive import folders, reading, sources
from kp_batch.archive.folders import folders_above
from kp_batch.config import RescoreConfig
from kp_batch.errors import StorageError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.steps import step as steps
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.reader import connect
from tests.support.kill.retries import once_torn
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

# What a step does last, or in its midst: it is done, and the disk fails right after it.
MIDST = {
    "read": (kp_batch.ingest.scan, "read_new"),
    "plan": (kp_batch.planning.plan, "stage_rejects"),
    "embed texts": (kp_batch.pipeline.embed, "write_chunk"),
    "replay": (kp_batch.pipeline.replay_spans, "find_vectors"),
    "replay span": (kp_batch.pipeline.replay_spans, "Replayed"),
    "write days": (kp_batch.pipeline.write, "write_data_file"),
    "write": (Candidate, "replace_all"),
    "publish": (kp_batch.pipeline.publish, "publish"),
}
TABLES = {
    "scores": "* EXCLUDE run_id",
    "rejects": "* EXCLUDE run_id",
    "files": "*",
    "profiles": "*",
    "distributions": "* EXCLUDE run_id",
    "runs": "status, reason, counts, inputs, fingerprints",
}


TRACES = [trace(id=str(n), objective=str(n), confidence=n / 9) for n in range(9)]
EVENINGS = [TRACES[:5], [*TRACES, trace(id="refused", steps=[])]]


def tables(settings: RescoreConfig) -> dict[str, list[tuple[Any, ...]]]:
    with connect(settings.warehouse) as connection:
        return {
            table: connection.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()
            for table, columns in TABLES.items()
        }


@pytest.fixture(scope="module", params=[1, 0], ids=["first", "later"])
def evening(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RescoreConfig, dict[str, list[tuple[Any, ...]]]]:
    """A run, the first one or a later one, and what it leaves where nothing interrupts it."""
    folder = tmp_path_factory.mktemp("retries") / "made"
    settings = config(folder, folder / "a.jsonl", max_reject_share=1)
    for number in range(request.param, 2):
        if number > request.param:
            rescore_archive(settings)
        os.utime(write_jsonl(folder / "a.jsonl", EVENINGS[number]), (0, number))
    keep(folder)
    rescore_archive(settings)
    return settings, tables(settings)


@pytest.mark.parametrize("step", MIDST)
def test_a_step_that_failed_in_its_midst_is_done_again_and_leaves_the_same(
    monkeypatch: pytest.MonkeyPatch,
    waited: list[float],
    evening: tuple[RescoreConfig, dict[str, list[tuple[Any, ...]]]],
    step: str,
) -> None:
    settings, usual = evening
    restore(settings.warehouse.parent)
    where, name = MIDST[step]
    monkeypatch.setattr(where, name, once_torn(getattr(where, name)))
    rescore_archive(settings)
    assert waited == [steps.RETRY_DELAYS_S[0]]
    for table, rows in tables(settings).items():
        assert rows == usual[table], table


@pytest.mark.parametrize("where", ["terminal", "session"])
def test_what_a_person_waits_for_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, waited: list[float], where: str
) -> None:
    def away() -> None:
        raise OSError(errno.EIO, "no answer")

    with pytest.raises(StorageError, match="failed 4 times in 6 minutes, the last time with: "):
        steps.retried("opening", away)
    assert waited == list(steps.RETRY_DELAYS_S)
    if where == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    else:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(StorageError, match=r"^opening failed: .*no answer; run again"):
        steps.retried("opening", away)
    assert waited == list(steps.RETRY_DELAYS_S)


class Flaky:
    """An archive of two files; the disk fails, so many times, where the second one is looked at."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = config(folder, folder / "archive", max_unreadable=None)
        self.patch = monkeypatch

    def fail(self, where: Any, name: str, *errors: OSError) -> None:
        function, left = getattr(where, name), [*errors]

        def failing(what: Any, *args: Any) -> Any:
            path = getattr(what, "path", what)
            if left and str(path).endswith(("sub", "b.jsonl")):
                raise left.pop()
            return function(what, *args)

        self.patch.setattr(where, name, failing)

    def states(self) -> list[tuple[Any, ...]]:
        rows = ask_rows(
            self.settings.warehouse, "SELECT source_file, status, message FROM files ORDER BY ALL"
        )
        return [(Path(path).name, *rest) for path, *rest in rows]


READING = {
    "list": (folders, "list_entries"),
    "digest": (sources, "open_file"),
    "rows": (reading, "open_file"),
}
ERRORS = [OSError(errno.EIO, "torn"), OSError(errno.ENETUNREACH, "away"), TimeoutError("slow")]


def write_files(folder: Path) -> None:
    for name in "ab":
        path = write_jsonl(folder / "archive" / "sub" / f"{name}.jsonl", [trace(id=name)])
        os.utime(path, (0, 1))


@pytest.fixture
def flaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flaky:
    write_files(tmp_path)
    return Flaky(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive as it was scored; then one of its files was written anew."""
    folder = tmp_path_factory.mktemp("flaky") / "made"
    write_files(folder)
    rescore_archive(config(folder, folder / "archive", max_unreadable=None))
    os.utime(write_jsonl(folder / "archive" / "sub" / "b.jsonl", [trace(id="c")]))
    keep(folder)
    return folder


@pytest.fixture
def scored(made: Path, monkeypatch: pytest.MonkeyPatch) -> Flaky:
    restore(made)
    return Flaky(made, monkeypatch)


@pytest.mark.parametrize("step", READING)
def test_a_file_is_read_again_where_the_disk_failed_for_a_while_in_one_way_or_another(
    flaky: Flaky, waited: list[float], step: str
) -> None:
    flaky.fail(*READING[step], *ERRORS)
    rescore_archive(flaky.settings)
    assert waited == list(steps.RETRY_DELAYS_S)
    assert flaky.states() == [("a.jsonl", "read", ""), ("b.jsonl", "read", "")]
    assert ask_rows(flaky.settings.warehouse, "SELECT count(*) FROM scores") == [(2,)]


@pytest.mark.telling
@pytest.mark.parametrize("step", ["digest", "rows"])
def test_a_file_that_fails_to_the_end_is_unreadable_and_the_others_are_scored(
    flaky: Flaky, waited: list[float], caplog: pytest.LogCaptureFixture, step: str
) -> None:
    flaky.fail(*READING[step], *[ERRORS[0]] * 99)
    rescore_archive(flaky.settings)
    assert waited == list(steps.RETRY_DELAYS_S)
    message = "torn" if step == "digest" else "[Errno 5] torn"
    assert flaky.states() == [("a.jsonl", "read", ""), ("b.jsonl", "unreadable", message)]
    assert ask_rows(flaky.settings.warehouse, "SELECT trace_id FROM scores") == [("a",)]
    name = "identify" if step == "digest" else "stage"
    archive = flaky.settings.archive[0]
    assert caplog.messages[0] == (
        f"{name} failed; the next attempt is in 5 s: {archive}/sub/b.jsonl: {message}"
    )


@pytest.mark.telling
@pytest.mark.parametrize("step", READING)
def test_a_disk_that_stays_away_fails_the_run_and_prunes_nothing(
    scored: Flaky, waited: list[float], step: str
) -> None:
    before = scored.states()
    scored.fail(*READING[step], *[ERRORS[0]] * 99)
    scored.fail(kp_batch.ingest.stage, "stat_file", *[ERRORS[0]] * 99)
    with pytest.raises(StorageError, match=r"failed 4 times in 6 minutes, .*torn"):
        rescore_archive(scored.settings.model_copy(update={"prune": True}))
    assert waited == list(steps.RETRY_DELAYS_S)
    assert scored.states() == before
    assert ask_rows(scored.settings.warehouse, "SELECT trace_id FROM scores ORDER BY ALL") == [
        ("a",),
        ("b",),
    ]


@pytest.mark.parametrize("step", READING)
def test_a_machine_that_is_short_of_something_fails_the_run_and_no_file_is_unreadable(
    scored: Flaky, step: str
) -> None:
    before = scored.states()
    scored.fail(*READING[step], OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left on device"):
        rescore_archive(scored.settings)
    assert scored.states() == before


def test_the_folders_above_a_path() -> None:
    assert list(folders_above("/a/b/c")) == ["/a/b", "/a", ""]
    assert "s3://box/a" in folders_above("s3://box/a/b/c.parquet")


def test_opening_a_warehouse_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: list[float]
) -> None:
    writing = kp_batch.pipeline.rescore.writing
    left = [OSError(errno.EIO, "the server of its bucket is away")] * 2

    @contextmanager
    def torn(*arguments: Any, **options: Any) -> Generator[None]:
        if left:
            raise left.pop()
        with writing(*arguments, **options):
            yield

    monkeypatch.setattr(kp_batch.pipeline.rescore, "writing", torn)
    archive = write_jsonl(tmp_path / "a.jsonl", [trace()])
    assert rescore_archive(config(tmp_path, archive, embedder="none")).run_id
    assert waited == [5, 60]
