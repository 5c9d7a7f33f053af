"""The command as a process of its own, and all that it begins."""

import fcntl
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from kp_batch import cli

linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")


def kp_batch(
    *arguments: object, home: Path | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200"} | ({"HOME": str(home)} if home else {})
    return subprocess.run(
        command(arguments),
        capture_output=True,
        text=True,
        input=stdin,
        env=environment,
        timeout=120,
        check=False,
    )


def invoke(*arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command in this process, not supervised: what it prints, and its exit status."""
    words = list(map(str, arguments))
    with restored_log(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["kp-batch", *words])
        with CliRunner().isolation(stdin, {"COLUMNS": "200"}) as (out, err, _):
            status = (cli.run_supervised if words[0] in cli.SUPERVISED else cli.run_command)()
        return subprocess.CompletedProcess(
            words, status, out.getvalue().decode(), err.getvalue().decode()
        )


@contextmanager
def restored_log() -> Generator[None]:
    """Afterwards the log has the level and the handlers that it had before."""
    log = logging.getLogger("kp_batch")
    level, handlers, propagate = log.level, [*log.handlers], log.propagate
    try:
        yield
    finally:
        log.setLevel(level)
        log.handlers, log.propagate = handlers, propagate


@contextmanager
def working(*arguments: object) -> Generator[subprocess.Popen[str]]:
    """The command while it works; whatever happens meanwhile, it and all that it began end."""
    with subprocess.Popen(
        command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def command(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "kp_batch", *map(str, arguments)]


def check_signal(process: subprocess.Popen[str], number: signal.Signals, status: int) -> None:
    """That it ends the command and all that it began, in two seconds and with one line."""
    assert process.stdout
    assert process.stderr
    group = children(process.pid)
    assert group
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(timeout=20) == status
    until(lambda: not any(map(is_running, group)), 20)
    assert time.monotonic() - began < 2
    assert process.stdout.read() == ""
    whole = "; what is published is intact; kp-batch runs shows which run published it"
    publishing = {"forget", "rollback", "run", "vacuum"}
    publishes = publishing & {*map(str, process.args)}  # type: ignore[arg-type]
    ended = rf"kp-batch: ended by {number.name}( in the step \w+)?{whole if publishes else ''}\n"
    assert re.fullmatch(ended, process.stderr.read())


@contextmanager
def blocked_file(file: Path) -> Generator[Callable[[], None]]:
    """A file that others wait for when they open it; gives what waits until somebody does."""
    waiting: list[int] = []
    before = signal.signal(signal.SIGIO, lambda number, _: waiting.append(number))
    descriptor = os.open(file, os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    try:
        yield lambda: until(lambda: waiting, 60)
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


def until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """All processes below one, from /proc."""
    pids: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            pids += map(int, path.read_text().split())
    return pids + [below for each in pids for below in children(each)]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
