"""The child process, which does the long work: it takes a request and tells the result once.

The result is told as soon as it is known: a run writes its report after that.
"""

import json
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from kp_batch.cli.command import json_line
from kp_batch.cli.commands import COMMANDS
from kp_batch.cli.log import Log
from kp_batch.errors import KpBatchError
from kp_batch.failures import explained
from kp_batch.progress import say, show_on_stderr
from kp_batch.storage.store import TRAFFIC


def main() -> None:
    """The child: a request on stdin, the result or the error into the pipe that argv names."""
    user, pipe = (int(number) for number in sys.argv[1:])
    answer = os.fdopen(pipe, "wb")
    answer.write(b"\n")
    answer.flush()
    try:
        import_module("kp_batch.pipeline.rescore")  # most commands need most of it
    except Exception:  # noqa: BLE001 (the command meets it again, and tells it)
        traceback.print_exc()
    if not (line := sys.stdin.buffer.readline()):
        return  # the parent has nothing to ask
    request = json.loads(line)
    log = Log(*map(Path, request["log"])) if request["log"] else None
    threading.Thread(target=_die_with_parent, args=[log], daemon=True).start()
    # stdout and stderr are the log, for what libraries print; our own words are for the user.
    if log:
        _print_into(log.begun)
    sys.stderr = os.fdopen(user, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    show_on_stderr()

    def tell(result: object) -> None:
        line = json_line(result).encode() + b"\n"
        if answer.closed:  # the result was told before this failed
            with suppress(OSError):
                os.write(2, line)
            sys.exit(1)
        with answer:
            answer.write(line)

    try:
        if log:
            import_module("kp_batch.warehouse.publication").when_writing(log.take_place)
        command = COMMANDS[request["command"]]
        command.function(tell, *request["args"], **request["kwargs"])
        if TRAFFIC.requests:
            say(f"object storage: {TRAFFIC}")
    except BaseException as error:  # noqa: BLE001 (Rust's panics are no Exception)
        tell(_explained(error, log))
    if "prefect" not in sys.modules:  # which sends its last logs at the interpreter's end
        _end_at_once()


def _explained(error: BaseException, log: Log | None) -> str:
    """Explain an error to the user; one that is not meant for users goes into the log as well."""
    is_meant = isinstance(error, KpBatchError)
    if not is_meant:
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exception(error, file=sys.__stderr__)
    return str(explained(error, str(log.path) if log and (is_meant or log.settle()) else None))


def _end_at_once() -> None:
    """Spare the user the tenth of a second that taking the interpreter down needs."""
    with suppress(OSError):  # the log's disk may be full
        sys.stdout.flush()
    os._exit(0)


def _print_into(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    with suppress(OSError):  # its disk may be full
        os.write(file, os.pread(1, os.fstat(1).st_size, 0))  # what was printed before
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _die_with_parent(log: Log | None) -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock would abort the interpreter at its end
    if log:
        log.end()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
