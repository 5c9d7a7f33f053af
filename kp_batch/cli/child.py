"""Long work in a process group of its own, so that ending it ends all that it started.

Prefect starts a temporary server beside a run. The child leads a new process group which both
belong to; the parent waits for the child and, when a signal comes, kills the whole group at once.
That is safe at any moment, since only the catalog's swap makes anything visible. Should the parent
die, the child sees the end of its stdin and kills the group itself.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.text import one_line


def run_in_process(work: str, arguments: dict[str, Any], log: Path | None) -> dict[str, Any]:
    """Do some work in a process of its own and wait for it.

    Whatever ends the waiting, a signal's exception too, ends all that was started.

    Args:
        work: a function as module:name; takes JSON values and returns a JSON object.
        arguments: its arguments by name.
        log: a file that takes what libraries and Prefect's server print; None: nothing does.

    Returns:
        What it returned.

    Raises:
        KpBatchError: it failed.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "kp_batch.cli.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    # Polars, once imported, makes Python's handler wait while a call blocks: take SIGINT back.
    signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    where = os.devnull if log is None else str(log)
    try:
        with suppress(BrokenPipeError):  # it died at once: its status says so
            _send(child, {"work": work, "arguments": arguments, "log": where})
        answer = child.stdout.read() if child.stdout else b""
        status = child.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return _result(status, answer, where)


def _send(child: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    if child.stdin:
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()  # and stays open: its end means that this process has died


def _result(status: int, answer: bytes, log: str) -> dict[str, Any]:
    if not answer:
        end = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        raise KpBatchError(
            f"the run's process ended {end} before it could answer, as where memory runs out; "
            f"what is published is whole; details are in {log}"
        )
    result = json.loads(answer)
    if "error" in result:
        raise KpBatchError(result["error"])
    return result


def main() -> None:
    """The child: the request on stdin, the result or the error on stdout as JSON."""
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    answer, user = os.dup(1), os.dup(2)
    # What libraries and Prefect's server print is for the log; our own words are for the user.
    with Path(request["log"]).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stderr = os.fdopen(user, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    result = _attempt(**request)
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(result).encode())


def _die_with_parent() -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock would abort the interpreter at its end
    os.killpg(0, signal.SIGKILL)


def _attempt(work: str, arguments: dict[str, Any], log: str) -> dict[str, Any]:
    try:
        module, _, name = work.partition(":")
        return getattr(import_module(module), name)(**arguments)
    except KpBatchError as error:
        return {"error": str(error)}
    except BaseException as error:  # noqa: BLE001 (Rust's panics are no Exception)
        with Path(log).open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
        return {"error": str(explained(error, log))}


def explained(error: BaseException, log: str) -> KpBatchError:
    """An error that the machine made, or a fault of ours, as one line."""
    text = one_line(str(error)) or type(error).__name__
    if "Failed to reach API" in text:
        return KpBatchError(f"{text}; start that Prefect server, or unset PREFECT_API_URL")
    if any(sign in text for sign in ("No space left on device", "os error 28", "disk is full")):
        return WarehouseError(f"the disk is full: {text}; nothing was published; free some space")
    if isinstance(error, OSError):
        return WarehouseError(f"cannot go on: {text}; nothing was published")
    return KpBatchError(f"unexpected {type(error).__name__}: {text}; details are in {log}")


if __name__ == "__main__":
    main()
