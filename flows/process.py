"""One run in a process group of its own, so that ending it ends all that it started.

Prefect starts a temporary server beside a run. The child leads a new process group which both
belong to; the parent waits for the child and, when a signal comes, kills the whole group at once.
That is safe at any moment, since only the catalog's swap makes anything visible. Should the parent
die, the child sees the end of its stdin and kills the group itself.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.progress import say
from kp_batch.warehouse.folder import check_folder
from kp_batch.warehouse.lock import writing

# Prefect's new database takes 5 MB, its log as much; below this nothing of use would fit.
_NEEDED_BYTES = 32 << 20


def run_in_process(config: dict[str, Any], warehouse: Path) -> dict[str, Any]:
    """Run the flow in a process of its own and wait for it.

    Whatever ends the waiting, a signal's exception too, ends all that was started.

    Args:
        config: the run's RescoreConfig as JSON values.
        warehouse: where Prefect keeps its own files, unless PREFECT_API_URL names a server.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed.
    """
    _check_disk(warehouse)
    child = subprocess.Popen(
        [sys.executable, "-m", "flows.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | _prefect_settings(warehouse),
        start_new_session=True,
    )
    # Polars, once imported, makes Python's handler wait while a call blocks: take SIGINT back.
    signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    try:
        with suppress(BrokenPipeError):  # it died at once: its status says so
            _send(child, config)
        answer = child.stdout.read() if child.stdout else b""
        status = child.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return _result(status, answer, _log(warehouse))


def _result(status: int, answer: bytes, log: Path) -> dict[str, Any]:
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


def _check_disk(warehouse: Path) -> None:
    """Look before Prefect starts, which would try for minutes to make its database."""
    check_folder(warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(warehouse).free
    if free < _NEEDED_BYTES:
        raise WarehouseError(
            f"the disk is full: {warehouse} has {free >> 20} MiB left, "
            f"and a run needs {_NEEDED_BYTES >> 20} at the least; free some space"
        )


def _send(child: subprocess.Popen[bytes], config: dict[str, Any]) -> None:
    if child.stdin:
        child.stdin.write(json.dumps(config).encode() + b"\n")
        child.stdin.flush()  # and stays open: its end means that this process has died


def _prefect_settings(warehouse: Path) -> dict[str, str]:
    """Quiet, without outside connections, its files inside the warehouse; the user's own win."""
    settings = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    if "PREFECT_API_URL" not in os.environ:
        home = warehouse.absolute() / "prefect"
        home.mkdir(parents=True, exist_ok=True)  # its server does not start without
        settings |= {
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }
    return {name: value for name, value in settings.items() if name not in os.environ}


def main() -> None:
    """The child: config on stdin, the summary or the error on stdout as JSON."""
    config = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    answer, user = os.dup(1), os.dup(2)
    # What libraries and Prefect's server print is for the log; our own words are for the user.
    with _log(Path(config["warehouse"])).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stderr = os.fdopen(user, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    result = _attempt(config)
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(result).encode())


def _log(warehouse: Path) -> Path:
    return warehouse / "last-run.log"


def _die_with_parent() -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock would abort the interpreter at its end
    os.killpg(0, signal.SIGKILL)


def _attempt(config: dict[str, Any]) -> dict[str, Any]:
    try:
        # Before Prefect starts, whose files in the warehouse bear one server at a time as well.
        with writing(Path(config["warehouse"]), wait=config["wait"]):
            say("starting Prefect")
            from flows.rescore import rescore
            from kp_batch.config import RescoreConfig

            return rescore(RescoreConfig(**config))
    except KpBatchError as error:
        return {"error": str(error)}
    except BaseException as error:  # noqa: BLE001 (Rust's panics are no Exception)
        with _log(Path(config["warehouse"])).open("a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)
        return {"error": str(explained(error, _log(Path(config["warehouse"]))))}


def explained(error: BaseException, log: Path) -> KpBatchError:
    """An error that the machine made, or a fault of ours, as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "Failed to reach API" in text:
        return KpBatchError(f"{text}; start that Prefect server, or unset PREFECT_API_URL")
    if any(sign in text for sign in ("No space left on device", "os error 28", "disk is full")):
        return WarehouseError(f"the disk is full: {text}; nothing was published; free some space")
    if isinstance(error, OSError):
        return WarehouseError(f"cannot go on: {text}; nothing was published")
    return KpBatchError(f"unexpected {type(error).__name__}: {text}; details are in {log}")


if __name__ == "__main__":
    main()
