"""The child process, which does the long work: a command takes JSON and tells its result once.

The result is told as soon as it is known: without Prefect, a run writes its report after that.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.executor import Local
from kp_batch.executors.prefect_settings import prepare_prefect
from kp_batch.operations.compare import compare
from kp_batch.operations.forget import forget
from kp_batch.operations.vacuum import vacuum
from kp_batch.operations.verify import verify
from kp_batch.pipeline.report import leave_report
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.planning.describe import describe
from kp_batch.planning.plan import make_plan
from kp_batch.progress import say
from kp_batch.run import Run
from kp_batch.staging import Staging
from kp_batch.text import one_line
from kp_batch.warehouse.layout import Layout, check_folder

Tell = Callable[[dict[str, Any]], None]


def _run(tell: Tell, config: dict[str, Any], *, prefect: bool) -> None:
    """Rescore, with Prefect or without it."""
    settings = RescoreConfig(**config)
    if not prefect:
        say("running without Prefect")
        rescore_and_report(settings, tell=tell)
        return
    prepare_prefect(Layout(settings.warehouse.absolute()).prefect)
    from kp_batch.executors.prefect import run_flow

    tell(run_flow(settings))


def _plan(tell: Tell, config: dict[str, Any], folder: str) -> None:
    """Plan, and leave nothing behind: `folder` is empty, and the caller removes it."""
    settings = RescoreConfig(**config)
    check_folder(settings.warehouse)
    run = Run.begin(settings, datetime.now(UTC), Staging(Path(folder)))
    tell(describe(run, make_plan(run)))


def _compare(tell: Tell, warehouse: str, first: str, second: str, *, force: bool) -> None:
    tell(compare(Path(warehouse), first, second, force=force))


def _verify(tell: Tell, warehouse: str, folder: str, **how: Any) -> None:
    """Verify; `folder` as for `_plan`."""
    tell(verify(Path(warehouse), Staging(Path(folder)), **how))


def _vacuum(tell: Tell, warehouse: str, keep_seconds: float) -> None:
    now = datetime.now(UTC)
    tell(vacuum(Path(warehouse), timedelta(seconds=keep_seconds), now))


def _forget(tell: Tell, warehouse: str, ids: Sequence[str]) -> None:
    try:
        summary = forget(Path(warehouse), ids)
    finally:  # the page may name what is forgotten: it is part of the work
        leave_report(Path(warehouse), Local())
    tell(summary)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "run": _run,
    "plan": _plan,
    "compare": _compare,
    "verify": _verify,
    "vacuum": _vacuum,
    "forget": _forget,
}


def main() -> None:
    """The child: a request on stdin, the result or the error into the pipe that argv names."""
    user, pipe = (int(number) for number in sys.argv[1:])
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    answer = os.fdopen(pipe, "wb")
    answer.write(b"\n")
    answer.flush()
    # stdout and stderr are the log, for what libraries print; our own words are for the user.
    sys.stderr = os.fdopen(user, "w", buffering=1, encoding="utf-8", errors="backslashreplace")

    def tell(result: dict[str, Any]) -> None:
        line = json.dumps(result).encode() + b"\n"
        if answer.closed:  # the result was told before this failed
            os.write(2, line)
            sys.exit(1)
        with answer:
            answer.write(line)

    try:
        COMMANDS[request["command"]](tell, **request["arguments"])
    except KpBatchError as error:
        tell({"error": str(error)})
    except BaseException as error:  # noqa: BLE001 (Rust's panics are no Exception)
        traceback.print_exception(error, file=sys.__stderr__)
        tell({"error": str(explained(error, request["log"]))})


def _die_with_parent() -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock would abort the interpreter at its end
    os.killpg(0, signal.SIGKILL)


def explained(error: BaseException, log: str | None) -> KpBatchError:
    """Explain an error of the machine, or a fault of ours, in one line."""
    text = one_line(str(error)) or type(error).__name__
    if "Failed to reach API" in text:
        return KpBatchError(f"{text}; start that Prefect server, or run with --no-prefect")
    if any(sign in text for sign in ("No space left on device", "os error 28", "disk is full")):
        return WarehouseError(f"the disk is full: {text}; nothing was published; free some space")
    if isinstance(error, OSError):
        return WarehouseError(f"cannot go on: {text}; nothing was published")
    details = f"; details are in {log}" if log else ""
    return KpBatchError(f"unexpected {type(error).__name__}: {text}{details}")


if __name__ == "__main__":
    main()
