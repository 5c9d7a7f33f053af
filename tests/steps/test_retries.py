"""A step that the disk interrupts anywhere is done again, and leaves what it would have left."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kp_batch.ingest.scan
import kp_batch.ingest.stage
import kp_batch.pipeline.embed
import kp_batch.pipeline.publish
import kp_batch.pipeline.replay
import kp_batch.pipeline.write
import kp_batch.planning.plan
from kp_batch.archive import folders, reading, sources
from kp_batch.archive.folders import folders_above
from kp_batch.config import RescoreConfig
from kp_batch.errors import StorageError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.steps import step as steps
from kp_batch.warehouse.delta import DeltaTables
from tests.support.archives import trace, write_jsonl
from tests.support.retries import once_torn
from tests.support.runs import ask, config

pytestmark = pytest.mark.slow

# What a step does last, or in its midst: it is done, and the disk fails right after it.
MIDST = {
    "read": (kp_batch.ingest.scan, "read_new"),
    "plan": (kp_batch.planning.plan, "stage_rejects"),
    "embed texts": (kp_batch.pipeline.embed, "write_chunk"),
    "replay": (kp_batch.pipeline.replay, "find_vectors"),
    "replay span": (kp_batch.pipeline.replay, "Replayed"),
    "write days": (kp_batch.pipeline.write, "write_data_file"),
    "write": (DeltaTables, "replace_files"),
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


def evenings(settings: RescoreConfig, *, published: bool) -> Iterator[None]:
    """The archive as it is each evening, the first of which is published before or is not."""
    for number, rows in enumerate(EVENINGS):
        if published or number:
            os.utime(write_jsonl(Path(settings.archive[0]), rows), (0, number))
            yield


@pytest.fixture(scope="module", params=[False, True], ids=["first", "later"])
def usual(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RescoreConfig, bool]:
    """A warehouse whose last run nothing interrupted, and whether there was one before it."""
    folder = tmp_path_factory.mktemp("retries")
    settings = config(folder, folder / "a.jsonl", max_reject_share=1)
    for _ in evenings(settings, published=request.param):
        rescore_archive(settings)
    return settings, request.param


@pytest.mark.parametrize("step", MIDST)
def test_a_step_that_failed_in_its_midst_is_done_again_and_leaves_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waited: list[float],
    usual: tuple[RescoreConfig, bool],
    step: str,
) -> None:
    settings, published = usual
    torn = settings.model_copy(update={"warehouse": tmp_path / "torn"})
    archive = evenings(settings, published=published)
    if published:
        next(archive)
        rescore_archive(torn)
    next(archive)
    where, name = MIDST[step]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, once_torn(getattr(where, name)))
        rescore_archive(torn)
    assert waited == [steps.RETRY_DELAYS_S[0]]
    for table, columns in TABLES.items():
        query = f"SELECT {columns} FROM {table} ORDER BY ALL"
        assert ask(torn, query) == ask(settings, query), table


class Flaky:
    """An archive of two files; the disk fails, so many times, where the second one is looked at."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = config(folder, folder / "archive", max_unreadable=None)
        for name in "ab":
            path = write_jsonl(folder / "archive" / "sub" / f"{name}.jsonl", [trace(id=name)])
            os.utime(path, (0, 1))
        self.patch = monkeypatch

    def fail(self, where: Any, name: str, times: int, error: OSError) -> None:
        function, errors = getattr(where, name), [error] * times

        def failing(what: Any, *args: Any) -> Any:
            path = getattr(what, "path", what)
            if errors and path.endswith(("sub", "b.jsonl")):
                raise errors.pop()
            return function(what, *args)

        self.patch.setattr(where, name, failing)

    def states(self) -> list[tuple[Any, ...]]:
        rows = ask(self.settings, "SELECT source_file, status, message FROM files ORDER BY ALL")
        return [(Path(path).name, *rest) for path, *rest in rows]


READING = {
    "list": (folders, "_entries"),
    "digest": (sources, "open_file"),
    "rows": (reading, "open_file"),
}
ERRORS = [OSError(errno.EIO, "torn"), OSError(errno.ENETUNREACH, "away"), TimeoutError("slow")]


@pytest.fixture
def flaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flaky:
    return Flaky(tmp_path, monkeypatch)


@pytest.mark.parametrize("error", ERRORS, ids=str)
@pytest.mark.parametrize("step", READING)
def test_a_file_is_read_again_where_the_disk_failed_for_a_while(
    flaky: Flaky, waited: list[float], step: str, error: OSError
) -> None:
    flaky.fail(*READING[step], 3, error)
    rescore_archive(flaky.settings)
    assert waited == list(steps.RETRY_DELAYS_S)
    assert flaky.states() == [("a.jsonl", "read", ""), ("b.jsonl", "read", "")]
    assert ask(flaky.settings, "SELECT count(*) FROM scores") == [(2,)]


@pytest.mark.parametrize("step", ["digest", "rows"])
def test_a_file_that_fails_to_the_end_is_unreadable_and_the_others_are_scored(
    flaky: Flaky, waited: list[float], caplog: pytest.LogCaptureFixture, step: str
) -> None:
    flaky.fail(*READING[step], 99, ERRORS[0])
    rescore_archive(flaky.settings)
    assert waited == list(steps.RETRY_DELAYS_S)
    message = "torn" if step == "digest" else "[Errno 5] torn"
    assert flaky.states() == [("a.jsonl", "read", ""), ("b.jsonl", "unreadable", message)]
    assert ask(flaky.settings, "SELECT trace_id FROM scores") == [("a",)]
    name = "identify" if step == "digest" else "stage"
    archive = flaky.settings.archive[0]
    assert caplog.messages[0] == (
        f"{name} failed, and is tried again in 5 s: {archive}/sub/b.jsonl: {message}"
    )


@pytest.mark.parametrize("step", READING)
def test_a_disk_that_stays_away_fails_the_run_and_prunes_nothing(
    flaky: Flaky, waited: list[float], step: str
) -> None:
    rescore_archive(flaky.settings)
    before = flaky.states()
    os.utime(write_jsonl(Path(flaky.settings.archive[0]) / "sub" / "b.jsonl", [trace(id="c")]))
    flaky.fail(*READING[step], 99, ERRORS[0])
    flaky.fail(kp_batch.ingest.stage, "stat_file", 99, ERRORS[0])
    with pytest.raises(StorageError, match=r"failed 4 times in 6 minutes, .*torn"):
        rescore_archive(flaky.settings.model_copy(update={"prune": True}))
    assert waited == list(steps.RETRY_DELAYS_S)
    assert flaky.states() == before
    assert ask(flaky.settings, "SELECT trace_id FROM scores ORDER BY ALL") == [("a",), ("b",)]


@pytest.mark.parametrize("step", READING)
def test_a_machine_that_is_short_of_something_fails_the_run_and_no_file_is_unreadable(
    flaky: Flaky, step: str
) -> None:
    rescore_archive(flaky.settings)
    before = flaky.states()
    os.utime(write_jsonl(Path(flaky.settings.archive[0]) / "sub" / "b.jsonl", [trace(id="c")]))
    flaky.fail(*READING[step], 99, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left on device"):
        rescore_archive(flaky.settings)
    assert flaky.states() == before


def test_the_folders_above_a_path() -> None:
    assert list(folders_above("/a/b/c")) == ["/a/b", "/a", ""]
    assert "s3://box/a" in folders_above("s3://box/a/b/c.parquet")
