"""Starts a child process for long work, waits for it, and ends everything that it started.

A run under Prefect may start a temporary server. The child leads a new process group which both
belong to; the parent waits for the child and, when a signal comes, kills the whole group at once.
That is safe at any moment, since only the swap of manifest.json publishes anything. Should the
parent die, the child sees the end of its stdin and kills the group itself.

The child takes a request on stdin. Into a pipe of its own it writes an empty line once it has
started, and then one line of JSON: its result, an object, or its error, a text. All that it prints
is for the log that the request names.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import click

from kp_batch.cli.command import Command, P, R
from kp_batch.cli.log import Log
from kp_batch.errors import KpBatchError

_AHEAD = "kp_batch.child"  # where a context holds the child that was started ahead
_PATIENCE_S = 10.0  # for a child that has told its error: Prefect still tells its server


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    answer: IO[bytes]  # the end of the pipe that its answer comes from
    output: IO[bytes]  # what it prints until it knows the log, into which it copies this
    temporary: str  # its folder for temporary files, which would outlive it where it is killed

    def close(self) -> None:
        """Kill all that is left of its process group; may be called again."""
        if self.answer.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            cast("IO[bytes]", self.process.stdin).close()
        self.answer.close()
        self.output.close()
        self.process.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)


def start_ahead(context: click.Context) -> None:
    """Start the child that the context's command will ask: it imports while settings are checked.

    It ends with the context.
    """
    child = context.meta[_AHEAD] = _started()
    context.call_on_close(child.close)


@contextmanager
def child_result(
    command: Command[P, R], log: Path | None, /, *args: P.args, **kwargs: P.kwargs
) -> Generator[R]:
    """The result of a command that another process carries out, as soon as it is told.

    When the context ends, the process may finish what it does after that. A signal kills the
    process group at any time.

    Args:
        command: one of `COMMANDS`.
        log: the file that takes what libraries and Prefect's server print, once the command alone
            writes to the warehouse that it is in; None: a temporary one.
        args: the command's arguments, JSON values; as are those by name.
        kwargs: those by name.

    Raises:
        KpBatchError: the command failed, could not start, was killed, or told no such result.
        OSError: the log cannot be written.
    """
    context = click.get_current_context(silent=True)
    child = (context.meta.pop(_AHEAD, None) if context else None) or _started()
    # Polars, once imported, makes Python's handler wait while a call blocks: take SIGINT back.
    signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    with ExitStack() as ending:
        begun = Log.begin(log) if log else None
        if begun:
            ending.callback(begun.end)
        ending.callback(child.close)
        where = [str(begun.path), str(begun.begun)] if begun else None
        with suppress(BrokenPipeError):  # it died at once: its status says so
            request = {"command": command.name, "args": args, "kwargs": kwargs, "log": where}
            _send(child.process, json.dumps(request))
        result = _result(command, child, begun)
        try:
            yield result
        except Exception:  # who reads our output has left, say: the work goes on
            child.process.wait()
            raise
        if child.process.wait():
            end = _end(child, begun, event="failed after its answer")
            click.echo(f"kp-batch: warning: {end}; the report may be an older one", err=True)


def _started() -> _Child:
    user, (ours, theirs), output = os.dup(2), os.pipe(), tempfile.TemporaryFile()  # noqa: SIM115
    temporary = tempfile.mkdtemp(prefix="kp-")
    try:
        process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", "kp_batch.cli.child", str(user), str(theirs)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[user, theirs],
            start_new_session=True,
            # The folder that the user stands in may hold a flows/ or a prefect.py of their own.
            env={**os.environ, "PYTHONSAFEPATH": "1", "TMPDIR": temporary},
        )
    except BaseException:
        os.close(ours)
        shutil.rmtree(temporary)
        raise
    finally:
        os.close(user)
        os.close(theirs)
    return _Child(process, os.fdopen(ours, "rb"), output, temporary)


def _send(child: subprocess.Popen[bytes], line: str) -> None:
    """Write to the child's stdin, which stays open: its end means that this process has died."""
    stdin = cast("IO[bytes]", child.stdin)
    # Nothing may stay in a buffer: to close that would fail where the child has died.
    left = memoryview(line.encode() + b"\n")
    while left:  # a pipe may take less than all of it
        left = left[os.write(stdin.fileno(), left) :]


def _result(command: Command[..., R], child: _Child, log: Log | None) -> R:
    from pydantic import TypeAdapter, ValidationError  # while the child starts

    could_start, line = child.answer.readline(), child.answer.readline()
    if not line.endswith(b"\n"):  # none, or one that was cut
        event = "ended before it could answer" if could_start else "could not start"
        child.process.wait()
        raise KpBatchError(_end(child, log, event=event))
    if line.startswith(b'"'):  # a text
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(_PATIENCE_S)
        raise KpBatchError(json.loads(line))
    try:
        return TypeAdapter(command.result).validate_json(line, strict=True, extra="forbid")
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "all of it"
        raise KpBatchError(
            f"the working process answered {command.name} in another form than expected "
            f"({where}: {fault['msg']}); was kp-batch replaced meanwhile? Try again"
        ) from error


def _end(child: _Child, log: Log | None, *, event: str) -> str:
    """Explain how a child ended that should not have."""
    status = child.process.returncode
    child.output.seek(0)
    said, details = child.output.read(), ""
    with suppress(OSError):  # its disk may be full
        if log and log.begun.exists() and not log.begun.stat().st_size:
            log.begun.write_bytes(said)  # it died before it knew the log
        if log and log.settle():
            said, details = log.path.read_bytes(), f"; details are in {log.path}"
    if status == -signal.SIGKILL:
        return (
            "the working process was killed by SIGKILL, as the system does where memory runs out; "
            f"what is published is whole{details}"
        )
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"the working process {event} ({_named(status)}): {last or 'it said nothing'}{details}"


def _named(status: int) -> str:
    try:
        return f"status {status}" if status >= 0 else signal.Signals(-status).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"
