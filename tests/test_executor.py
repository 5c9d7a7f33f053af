"""Calling steps: tried again where the disk or the network failed, and timed."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kp_batch import executor
from kp_batch.errors import ArchiveError
from kp_batch.executor import Local, Step, Timed


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "RETRY_DELAY_S", 0.0)


def failing(*errors: Exception) -> tuple[Callable[[int], int], list[int]]:
    """A function that fails with these errors before it works, and the inputs it was given."""
    left, calls = list(errors), []

    def work(number: int) -> int:
        calls.append(number)
        if left:
            raise left.pop(0)
        return number + 1

    return work, calls


def test_a_step_is_tried_again_as_often_as_it_says() -> None:
    work, calls = failing(ConnectionResetError(), TimeoutError())
    assert Local().call(Step("read", work, retries=2), 1) == 2
    assert calls == [1, 1, 1]
    work, calls = failing(ConnectionResetError(), TimeoutError())
    with pytest.raises(TimeoutError):
        Local().call(Step("read", work, retries=1), 1)
    assert calls == [1, 1]


@pytest.mark.parametrize(
    "error",
    [ArchiveError("none"), OSError(errno.ENOSPC, "full"), PermissionError(errno.EACCES, "no")],
)
def test_what_another_try_cannot_mend_is_not_tried_again(error: Exception) -> None:
    work, calls = failing(error)
    with pytest.raises(type(error)):
        Local().call(Step("read", work, retries=2), 1)
    assert calls == [1]


def test_the_seconds_of_each_step_are_noted_even_if_it_fails() -> None:
    seconds: dict[str, float] = {}
    call = Timed(Local(), seconds).call
    assert call(Step("add", failing()[0]), 1) == 2
    with pytest.raises(ArchiveError):
        call(Step("fail", failing(ArchiveError("none"))[0]), 1)
    assert list(seconds) == ["add", "fail"]


CALLS = """
from pathlib import Path
from kp_batch.executor import Executor, Step

def count(source: Path, least: int) -> str:
    return f"{source}{least}"

COUNT = Step("count", count)

def calls(executor: Executor) -> None:
    one: str = executor.call(COUNT, Path(), 1)
    several: list[str] = list(executor.map(COUNT, [Path()], 1))
    executor.call(COUNT, 1, Path())  # wrong
    executor.call(COUNT, Path())  # wrong
    executor.map(COUNT, ["a path"], 1)  # wrong
    executor.map(COUNT, [Path()], "1")  # wrong
    number: int = executor.call(COUNT, Path(), 1)  # wrong
    print(one, several, number)
"""


def test_the_arguments_and_the_results_of_steps_are_checked_by_their_types(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(CALLS)
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*pyright, str(snippet)], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)["generalDiagnostics"]
    lines = {each["range"]["start"]["line"] for each in told if each["severity"] == "error"}
    assert lines == {row for row, text in enumerate(CALLS.split("\n")) if "# wrong" in text}
