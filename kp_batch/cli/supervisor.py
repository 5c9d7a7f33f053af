"""Starts a child process for long work, waits for it, and ends everything that it started.

A run under Prefect may start a temporary server. The child leads a new process group which both
belong to; the parent waits for the child and, when a signal comes, kills the whole group at once.
That is safe at any moment, since only the catalog's swap makes anything visible. Should the parent
die, the child sees the end of its stdin and kills the group itself.

The child takes a request on stdin. It writes an empty line to stdout once it can work, and then one
line of JSON: its result, or its error.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from kp_batch.errors import KpBatchError


@contextmanager
def child_result(
    command: str, arguments: dict[str, Any], log: Path | None = None
) -> Generator[dict[str, Any]]:
    """The result of a command that another process carries out, as soon as it is told.

    When the context ends, the process may finish what it does after that. If the context or the
    wait ends in any other way (a signal included), the process group is killed.

    Args:
        command: a name in `child.COMMANDS`.
        arguments: its arguments by name, JSON values.
        log: the file that takes what libraries and Prefect's server print; None: a temporary one.

    Raises:
        KpBatchError: the command failed, could not start, or was killed.
        OSError: the log cannot be written.
    """
    with (
        log.open("w+b") if log else tempfile.TemporaryFile() as output,
        _started(output) as child,
    ):
        # Polars, once imported, makes Python's handler wait while a call blocks: take SIGINT back.
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
        where = str(log) if log else None
        try:
            with suppress(BrokenPipeError):  # it died at once: its status says so
                _send(child, {"command": command, "arguments": arguments, "log": where})
            yield _result(child, output, where)
            child.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def _started(output: IO[bytes]) -> subprocess.Popen[bytes]:
    user = os.dup(2)
    try:
        return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", "kp_batch.cli.child", str(user)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            pass_fds=[user],
            start_new_session=True,
            # The folder that the user stands in may hold a flows/ or a prefect.py of their own.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    finally:
        os.close(user)


def _send(child: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    """Write to the child's stdin, which stays open: its end means that this process has died."""
    stdin = cast("IO[bytes]", child.stdin)
    # Nothing may stay in a buffer: to close that would fail where the child has died.
    os.write(stdin.fileno(), json.dumps(request).encode() + b"\n")


def _result(child: subprocess.Popen[bytes], output: IO[bytes], log: str | None) -> dict[str, Any]:
    stdout = cast("IO[bytes]", child.stdout)
    could_start, answer = stdout.readline(), stdout.readline()
    if not answer:
        raise KpBatchError(_end(child.wait(), output, log, could_start=bool(could_start)))
    result = json.loads(answer)
    if "error" in result:
        raise KpBatchError(result["error"])
    return result


def _end(status: int, output: IO[bytes], log: str | None, *, could_start: bool) -> str:
    """Explain what became of a child that gave no answer."""
    details = f"; details are in {log}" if log else ""
    if status < 0:
        return (
            f"the working process was killed by {signal.Signals(-status).name}, as the system does "
            f"where memory runs out; what is published is whole{details}"
        )
    output.seek(0)
    last = output.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    event = "ended before it could answer" if could_start else "could not start"
    return f"the working process {event} (status {status}): {last or 'it said nothing'}{details}"
