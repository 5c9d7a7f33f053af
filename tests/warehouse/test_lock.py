"""One writer at a time."""

import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from math import inf
from pathlib import Path

import pytest

from kp_batch.errors import BusyError, WarehouseError
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.warehouse.lock import locked
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.processes.holder import HOLD, holding

pytestmark = pytest.mark.process


@pytest.fixture
def holder(tmp_path: Path) -> Generator[subprocess.Popen[str]]:
    with holding(HOLD, tmp_path) as process:
        yield process


def test_a_second_writer_learns_who_writes_since_when(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    expected = rf"is writing to .* \(process {holder.pid} on .* since 20.*; try again when it"
    with pytest.raises(WarehouseError, match=expected), locked(tmp_path, wait=False):
        pass


@pytest.mark.telling
def test_a_waiting_writer_gets_its_turn(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert holder.stdin
    holder.stdin.close()
    with locked(tmp_path, wait=inf):
        assert (tmp_path / "kp.lock").exists()


def test_who_waits_at_most_so_long_says_how_long_it_waited_and_for_whom(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    words = (
        rf"another run is writing to .*process {holder.pid} .*; this command has waited for 1 s$"
    )
    with pytest.raises(BusyError, match=words), writing(tmp_path, wait=1):
        pass
    assert holder.stdin
    holder.stdin.close()
    with writing(tmp_path, wait=60):
        assert (tmp_path / "kp.lock").exists()


def test_the_lock_of_a_killed_process_is_free(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    with locked(tmp_path, wait=False), locked(tmp_path, wait=False):
        pass  # and whoever writes already may write


def takes_lock(warehouse: Path) -> bool:
    """Take the lock; whether nobody had it before."""
    with locked(warehouse, wait=False) as is_first:
        return is_first


def test_another_thread_is_another_writer_unless_the_holder_started_it_for_itself(
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path, wait=False):
            link = tmp_path / "link"
            link.symlink_to(tmp_path)
            assert not takes_lock(link)
            assert not pool.submit(copy_context().run, takes_lock, tmp_path).result()
            with pytest.raises(BusyError, match="another run is writing"):
                pool.submit(takes_lock, tmp_path).result()
        assert pool.submit(takes_lock, tmp_path).result()


@pytest.mark.telling
def test_runs_of_one_process_take_turns(tmp_path: Path) -> None:
    archive = write_jsonl(tmp_path / "a.jsonl", [trace()])
    settings = [
        config(tmp_path, archive, threshold=threshold, wait=True) for threshold in (0.4, 0.5, 0.6)
    ]
    with ThreadPoolExecutor(len(settings)) as pool:
        assert all(summary.run_id for summary in pool.map(rescore_and_report, settings))
    with connect(tmp_path / "warehouse") as connection:
        rows = connection.execute("SELECT status FROM runs").fetchall()
    assert rows == [("done",)] * 3


@pytest.mark.usefixtures("holder")
def test_a_second_run_fails_before_it_begins_and_leaves_the_log_of_the_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "last-run.log").write_text("of the first")
    run = ["run", str(Path(__file__).parent), "--warehouse", str(tmp_path), "--embedder", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "kp_batch", *run], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "another run is writing" in line
    assert (tmp_path / "last-run.log").read_text() == "of the first"
    assert {path.name for path in tmp_path.iterdir()} == {"kp.lock", "last-run.log"}
