"""The processes of an import do what it does alone, and none is left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import Rules
from kp_batch.errors import ResourceError
from kp_batch.imports import importing
from kp_batch.imports.importing import import_traces
from kp_batch.imports.source_files import content_of
from kp_batch.imports.store import STORE, RecordStore
from kp_batch.imports.workers import Workers
from tests.support.formats.shuffled_spans import write_spans
from tests.support.processes.buckets import fill

pytestmark = pytest.mark.process

RULES = Rules.model_validate(
    {
        "success": {"always": True},
        "confidence": {"always": 0.8},
        "task_domain": {"otherwise": "code"},
    }
)


def contents(archive: Path) -> dict[str, object]:
    """The files of an archive; of the store, whose blocks depend on the parts, what is in them."""
    files: dict[str, object] = {x.name: x.read_bytes() for x in archive.iterdir() if x.is_file()}
    with RecordStore(archive / STORE) as store:
        units = store.units(store.values("SELECT name FROM units"))
        files["records"] = sorted(store.records(units.values()))
        files["units"] = {x.name: x._replace(blocks=()) for x in units.values()}
    return files


@pytest.mark.telling
def test_several_processes_come_to_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    write_spans(source, traces=60, files=5)
    (source / "5.jsonl").write_text('{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}\n{')
    (source / "6.jsonl").write_text("no JSON\n")
    (source / "7.jsonl").write_text('{"resourceLogs": []}\n')
    archive = tmp_path / "archive"
    summaries, files = list[object](), list[dict[str, object]]()
    for large, processes in ((1 << 30, 0), (0, 2)):
        monkeypatch.setattr(importing, "MAX_SERIAL_BYTES", large)
        size = 1_000 if processes else 1 << 30
        monkeypatch.setattr(importing, "GROUP_BYTES", size)
        monkeypatch.setattr(importing, "PART_BYTES", size)
        with patch.object(importing, "Workers", wraps=Workers) as began:
            summaries.append(import_traces(FORMATS["otlp"], [str(source)], archive, RULES))
        files.append(contents(archive))
        began.assert_called_once_with(processes)
        shutil.rmtree(archive)
    assert summaries[0] == summaries[1]
    assert files[0] == files[1]
    assert len(files[0]) > 3


def test_other_rules_make_all_anew_in_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spans(tmp_path / "source", traces=20, files=2)
    other = RULES.model_copy(update={"recovery": "after_tool_error"})
    archives = [tmp_path / "alone", tmp_path / "shared"]
    for archive, large in zip(archives, (1 << 30, 0), strict=True):
        monkeypatch.setattr(importing, "MAX_SERIAL_BYTES", large)
        for rules in (RULES, other):
            done = import_traces(FORMATS["otlp"], [str(tmp_path / "source")], archive, rules)
            assert done.traces == 20
    assert contents(archives[0]) == contents(archives[1])


@pytest.mark.telling
def test_what_fails_in_a_process_fails_here() -> None:
    with Workers(1) as workers, pytest.raises(ZeroDivisionError, match="by zero"):
        workers.submit(divmod, 1, 0)()


@pytest.mark.telling
def test_what_is_printed_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with Workers(1) as workers:
        workers.submit(print, "a line")()
        assert workers.submit(divmod, 7, 2)() == (3, 1)
    assert capfd.readouterr().out == ""


@pytest.mark.telling
def test_processes_read_from_a_bucket(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 1_000)
    fill(bucket, tmp_path)
    with Workers(1) as workers:
        assert workers.submit(content_of, f"{bucket}/a.jsonl")() == b"x" * 1_000


@pytest.mark.telling
def test_a_killed_process_is_reported_in_one_line() -> None:
    with Workers(1) as workers:
        pid = workers.submit(os.getpid)()
        sleep = workers.submit(time.sleep, 60)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            ResourceError, match=r"was killed \(exit status -9\), perhaps for lack of memory"
        ):
            sleep()


@pytest.mark.telling
def test_what_is_asked_for_ends_with_its_process() -> None:
    with Workers(2) as workers:
        pids = [call() for call in [workers.submit(os.getpid) for _ in range(8)]]
        workers.submit(time.sleep, 60)
        workers.submit(time.sleep, 60)
    assert not any(map(is_alive, pids))


@pytest.mark.telling
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_no_process_outlives_whom_it_works_for() -> None:
    code = (
        "import os, time; from kp_batch.imports.workers import Workers\n"
        "workers = Workers(1); print(workers.submit(os.getpid)(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        assert is_alive(pid)
        process.kill()
    for _ in range(200):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    pytest.fail("it is still there")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
