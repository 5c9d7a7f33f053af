"""One writer at a time."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from kp_batch.errors import WarehouseError
from kp_batch.warehouse.lock import locked
from tests.holding import holding

HOLD = """
import sys
from collections.abc import Generator
from pathlib import Path
from kp_batch.warehouse.lock import locked
with locked(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Generator[subprocess.Popen[str]]:
    with holding(HOLD, tmp_path) as process:
        yield process


def test_a_second_writer_is_told_who_writes_since_when(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    expected = rf"another run is writing to .* \(process {holder.pid} on .* since 20.*--wait"
    with pytest.raises(WarehouseError, match=expected), locked(tmp_path, wait=False):
        pass


def test_a_waiting_writer_gets_its_turn(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert holder.stdin
    holder.stdin.close()
    with locked(tmp_path, wait=True):
        assert (tmp_path / "kp.lock").exists()


def test_the_lock_of_a_killed_process_is_free(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    with locked(tmp_path, wait=False), locked(tmp_path, wait=False):
        pass  # and whoever writes already may write


@pytest.mark.usefixtures("holder")
def test_a_second_run_fails_before_it_begins(tmp_path: Path) -> None:
    run = ["run", str(Path(__file__).parent), "--warehouse", str(tmp_path), "--embedder", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "kp_batch", *run], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "another run is writing" in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 2  # and how it runs
